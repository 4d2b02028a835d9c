#pragma once
// Helpers of policies that change a piece's steps.

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator::timed {

[[nodiscard]] inline bool op_named(const PieceStep& step, std::string_view name) {
    return step.kind == StepKind::op && step.op.name == name;
}

[[nodiscard]] inline bool starts_over(const PieceStep& step, LayerGroup group) {
    return step.kind == StepKind::start && step.group == group;
}

[[nodiscard]] inline bool is_product(const PieceStep& step) {
    return step.kind == StepKind::op && step.op.product.m > 0;
}

[[nodiscard]] inline bool is_grouped(const PieceStep& step) {
    return step.kind == StepKind::op && step.op.grouped.groups > 0;
}

/// True if the start's wait is the next step.
[[nodiscard]] inline bool waits_at_once(const PieceSteps& steps, std::size_t start) {
    return start + 1 < steps.size() && steps[start + 1].kind == StepKind::wait && steps[start + 1].number == steps[start].number;
}

inline void move_step(PieceSteps& steps, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t place) { return steps.begin() + static_cast<std::ptrdiff_t>(place); };
    if (from > to)
        std::rotate(at(to), at(from), at(from + 1));
    else
        std::rotate(at(from), at(from + 1), at(to));
}

/// Moves the start of each overlapped collective over tp to its wait.
inline void start_where_waited_for(PieceSteps& steps) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (!starts_over(steps[i], LayerGroup::tp) || waits_at_once(steps, i)) continue;
        const auto wait = std::find_if(steps.begin() + static_cast<std::ptrdiff_t>(i), steps.end(), [&](const PieceStep& step) {
            return step.kind == StepKind::wait && step.number == steps[i].number;
        });
        if (wait != steps.end()) move_step(steps, i, static_cast<std::size_t>(wait - steps.begin()));
    }
}

inline void insert_at(PieceSteps& steps, std::size_t place, const PieceStep& step) {
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(place), step);
}

/// An op that reads and writes `bytes` in total, in the same pass as `like`.
[[nodiscard]] inline PieceStep stream_op(const PieceStep& like, std::string_view name, double bytes) {
    PieceStep step;
    step.pass = like.pass;
    step.router = like.router;
    step.op.name = name;
    step.op.bytes_read = static_cast<std::int64_t>(bytes);
    return step;
}

}  // namespace mgplan::simulator::timed
