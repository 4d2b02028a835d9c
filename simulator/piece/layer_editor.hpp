#pragma once
// Edits the recorded tensors and steps of one piece; used by engine policies.

#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Times [begin, end) of a trace in which a piece ran. Times are spread: there is room between two recorded times (see
/// LayerEditor::spread).
struct TraceRange {
    std::int64_t begin = 0, end = 0;
    [[nodiscard]] bool contains(std::int64_t when) const { return when >= begin && when < end; }
};

/// One forward of a piece and its backward. References to tensors are valid until the next add().
class LayerEditor {
public:
    using Tensor = model::AllocationRecord;

    /// Both ranges must be part of the trace.
    LayerEditor(PieceTrace& trace, PieceRange& forward, PieceRange& backward)
        : trace_(trace),
          piece_(forward.piece),
          forward_{forward.begin, forward.end},
          backward_{backward.begin, backward.end},
          to_host_(forward.to_host),
          forward_steps_(forward.steps),
          backward_steps_(backward.steps) {}

    /// Gap that spread() makes between recorded times: t + 1 is directly after time t, t - 1 directly before it.
    static constexpr std::int64_t kRoom = 8;
    /// Multiplies all times of a trace, so that changes fit between them.
    static void spread(PieceTrace& trace);

    [[nodiscard]] Piece piece() const { return piece_; }
    /// PieceRange::to_host of the forward.
    [[nodiscard]] std::int64_t& to_host() { return to_host_; }
    [[nodiscard]] TraceRange forward() const { return forward_; }
    [[nodiscard]] TraceRange backward() const { return backward_; }
    /// The tensor number `which` (from 0) of that name taken in a range; nullptr if there are fewer.
    [[nodiscard]] Tensor* find(TraceRange where, std::string_view name, int which = 0);
    /// The latest tensor of `bytes` bytes that is alive at time `when`, of that name if one is given; nullptr if there is none.
    [[nodiscard]] Tensor* alive(std::int64_t when, std::int64_t bytes, std::string_view name = {});
    /// All tensors of the trace, including those of other pieces.
    [[nodiscard]] const std::vector<Tensor>& tensors() const { return trace_.tensors; }
    /// Adds a tensor, alive in [taken, returned).
    void add(std::string_view name, model::MemoryCategory category, std::int64_t bytes, std::int64_t taken, std::int64_t returned);
    /// Steps of the piece in order; independent of the times of tensors.
    [[nodiscard]] PieceSteps& forward_steps() { return forward_steps_; }
    [[nodiscard]] PieceSteps& backward_steps() { return backward_steps_; }
    /// Removes the tensor by setting its bytes to 0.
    static void drop(Tensor& tensor) { tensor.bytes = 0; }
    /// Drops all tensors of that name taken in a range.
    void drop_all(TraceRange where, std::string_view name);

private:
    PieceTrace& trace_;
    Piece piece_;
    TraceRange forward_, backward_;
    std::int64_t& to_host_;
    PieceSteps &forward_steps_, &backward_steps_;
};

}  // namespace mgplan::simulator
