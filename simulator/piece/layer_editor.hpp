#pragma once
// Edits the recorded tensors and steps of one piece: what engine policies are written with.

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Instants [begin, end) of a trace, in which a piece ran. Times are spread: between two recorded instants there is room
/// (see LayerEditor::spread).
struct TraceRange {
    std::int64_t begin = 0, end = 0;
    [[nodiscard]] bool contains(std::int64_t when) const { return when >= begin && when < end; }
};

/// One forward of a piece and its backward. References to tensors hold until the next add().
class LayerEditor {
public:
    using Tensor = model::AllocationRecord;

    /// Both ranges are the trace's.
    LayerEditor(PieceTrace& trace, PieceRange& forward, PieceRange& backward)
        : trace_(trace),
          piece_(forward.piece),
          forward_{forward.begin, forward.end},
          backward_{backward.begin, backward.end},
          to_host_(forward.to_host),
          forward_steps_(forward.steps),
          backward_steps_(backward.steps) {}

    /// Room that spread() makes between recorded instants: a moment right behind instant t is t + 1, right before it t - 1.
    static constexpr std::int64_t kRoom = 8;
    /// Multiplies all times of a trace, so that changes fall between them.
    static void spread(PieceTrace& trace);

    [[nodiscard]] Piece piece() const { return piece_; }
    /// PieceRange::to_host of the forward.
    [[nodiscard]] std::int64_t& to_host() { return to_host_; }
    [[nodiscard]] TraceRange forward() const { return forward_; }
    [[nodiscard]] TraceRange backward() const { return backward_; }
    /// The `which`-th tensor of that name taken in a range, from 0; nullptr where there are fewer.
    [[nodiscard]] Tensor* find(TraceRange where, std::string_view name, int which = 0);
    /// The latest of the tensors of so many bytes that are alive at an instant; of that name if one is given.
    [[nodiscard]] Tensor* alive(std::int64_t when, std::int64_t bytes, std::string_view name = {});
    /// All of the trace, other pieces' too.
    [[nodiscard]] const std::vector<Tensor>& tensors() const { return trace_.tensors; }
    /// A further tensor, alive in [taken, returned).
    void add(std::string_view name, model::MemoryCategory category, std::int64_t bytes, std::int64_t taken, std::int64_t returned);
    /// What the piece does in order; instants of tensors and places in these lists are independent.
    [[nodiscard]] PieceSteps& forward_steps() { return forward_steps_; }
    [[nodiscard]] PieceSteps& backward_steps() { return backward_steps_; }
    /// The tensor was never there.
    static void drop(Tensor& tensor) { tensor.bytes = 0; }
    /// The same of all tensors of that name taken in a range.
    void drop_all(TraceRange where, std::string_view name);

private:
    PieceTrace& trace_;
    Piece piece_;
    TraceRange forward_, backward_;
    std::int64_t& to_host_;
    PieceSteps &forward_steps_, &backward_steps_;
};

}  // namespace mgplan::simulator
