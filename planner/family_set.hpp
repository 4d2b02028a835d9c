#pragma once
// Collects the fastest layout of every family while a search prices them one by one.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Equal for layouts of one family: it takes fields that same_family() (plan_families.hpp) compares.
[[nodiscard]] std::size_t family_hash(const Layout& layout);

/// One FamilyPoint for each family (plan_families.hpp) that was offered. The result does not depend on the order of offers: of equals
/// the layout that ranks_before() (search.hpp) puts first by throughput stays. An offer costs a hash of a few integers; a layout is
/// copied only where it becomes its family's fastest.
class FamilySet {
public:
    FamilySet() = default;
    /// Of the families that a set gave away.
    explicit FamilySet(std::vector<FamilyPoint> points);

    void offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes);
    /// Adds another thread's families.
    void absorb(FamilySet&& other);
    /// All families, fastest first; the set is empty then.
    [[nodiscard]] std::vector<FamilyPoint> take();

private:
    void add(FamilyPoint point);
    /// The place of the layout's family in points_; their number where it is not among them yet.
    [[nodiscard]] std::size_t place_of(const Layout& layout);

    std::vector<FamilyPoint> points_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> places_;  ///< by hash
    std::size_t last_ = 0;                                              ///< neighbours in an enumeration often are of one family
};

}  // namespace mgplan::planner
