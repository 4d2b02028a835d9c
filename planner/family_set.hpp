#pragma once
// Collects the fastest layout of every family during a search.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Equal for layouts of one family: hashes fields that same_family() (plan_families.hpp) compares.
[[nodiscard]] std::size_t family_hash(const Layout& layout);

/// One FamilyPoint for each family (plan_families.hpp) that was offered. The result does not depend on the order of offers: of equal
/// layouts the one that ranks_before() (search.hpp) puts first by throughput is kept. An offer costs a hash of a few integers; a layout is
/// copied only if it becomes its family's fastest.
class FamilySet {
public:
    FamilySet() = default;
    /// Contains these families, as returned by take().
    explicit FamilySet(std::vector<FamilyPoint> points);

    void offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes);
    /// Adds another thread's families.
    void absorb(FamilySet&& other);
    /// Returns all families, fastest first, and empties the set.
    [[nodiscard]] std::vector<FamilyPoint> take();

private:
    void add(FamilyPoint point);
    /// Index of the layout's family in points_; their number if it is not among them.
    [[nodiscard]] std::size_t place_of(const Layout& layout);

    std::vector<FamilyPoint> points_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> places_;  ///< by hash
    std::size_t last_ = 0;                                              ///< consecutive layouts of an enumeration often share a family
};

}  // namespace mgplan::planner
