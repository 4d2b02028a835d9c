#pragma once
// Groups a list of layouts into the rows of a table, one layout after another.

#include <cstddef>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// A row holds a family (plan_families.hpp), and families that differ only in dispatcher if their first layout takes exactly the time of
/// one in the row and its memory differs by less than 1 GiB: a second row would show the same.
class FamilyRows {
public:
    /// The row of a layout, from 0: a new one if no row matches.
    std::size_t row_of(const RankedLayout& next);
    /// Number of rows.
    [[nodiscard]] std::size_t size() const { return rows_.size(); }

private:
    std::vector<std::vector<RankedLayout>> rows_;  ///< for each row the first layouts of its families
};

}  // namespace mgplan::planner
