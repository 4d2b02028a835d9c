#pragma once
// Sorts a list of layouts into the rows of a table, one layout after another.

#include <cstddef>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// A row holds a family (plan_families.hpp), and families that differ from it in their dispatcher alone where the first of theirs takes
/// exactly as long as one of the row and memory differs by less than kWorthMoreTime: a second row would say the same.
class FamilyRows {
public:
    /// The row of a layout, from 0: a new one where none has its like.
    std::size_t row_of(const RankedLayout& next);
    /// How many there are.
    [[nodiscard]] std::size_t size() const { return rows_.size(); }

private:
    std::vector<std::vector<RankedLayout>> rows_;  ///< of each the first layouts of its families
};

}  // namespace mgplan::planner
