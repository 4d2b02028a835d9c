#pragma once
// Which of the best layouts say nothing new to a reader: the same but for how context-parallel ranks exchange keys
// and values, or for the number of interleaved model chunks.

#include <cstddef>
#include <span>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Share of time and of memory below which two predictions are the same to a reader: far less than the interval of either.
inline constexpr double kAlike = 0.01;

/// A layout of the list (index from 0), and those behind it that are alike: equal but for cp_comm_type and, where both interleave, vpp;
/// time and bytes are within kAlike of its own.
struct AlikePlans {
    std::size_t shown = 0;
    std::vector<std::size_t> left_out;
    bool operator==(const AlikePlans&) const = default;
};

/// The first `most` layouts that are not alike to one before them, in the order of the list.
[[nodiscard]] std::vector<AlikePlans> alike_plans(std::span<const RankedLayout> best, std::size_t most);

}  // namespace mgplan::planner
