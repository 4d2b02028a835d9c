#pragma once
// Topological order of the passes of all ranks of a pipeline. Building it detects deadlocks; simulating it with any durations takes one
// traversal (pipeline_run.hpp).

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan::simulator {

struct ProgramOp {
    std::int32_t input = -1;  ///< index of the op whose result it uses; -1: none
    std::int32_t microbatch = 0;
    std::uint16_t rank = 0;
    std::uint16_t chunk = 0;
    Pass pass = Pass::forward;
    bool remote = false;         ///< its input comes from another rank
    bool sends = false;          ///< its result goes to another rank
    bool to_next = false;        ///< true: to the next rank, cyclically; false: to the previous one
    bool first_forward = false;  ///< the first forward of its chunk on its rank
    bool last_gradient = false;  ///< the last op that adds weight gradients of its chunk
};

struct PipelineProgram {
    int pp = 1;
    int chunks = 1;
    std::vector<ProgramOp> ops;
    std::string deadlock;  ///< ranks that wait for each other, in one line; empty: no deadlock, and `ops` is complete

    [[nodiscard]] std::size_t slot(const ProgramOp& op) const { return slot(op.rank, op.chunk, op.pass); }
    /// Index of the duration of a pass, shared by all microbatches.
    [[nodiscard]] std::size_t slot(int rank, int chunk, Pass pass) const {
        return (static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks) + static_cast<std::size_t>(chunk)) *
                   static_cast<std::size_t>(kPasses) +
               static_cast<std::size_t>(pass);
    }
    /// True if backwards are split into input_gradient and weight_gradient; a schedule splits all of them or none.
    [[nodiscard]] bool divides_backwards() const {
        const auto first = std::find_if(ops.begin(), ops.end(), [](const ProgramOp& op) { return op.pass != Pass::forward; });
        return first != ops.end() && first->pass != Pass::backward;
    }
    [[nodiscard]] std::size_t slots() const { return slot(pp, 0, Pass::forward); }
};

/// Each (microbatch, chunk) must have one forward, then one backward, or one input_gradient and one weight_gradient. A deadlock is reported
/// in the result.
[[nodiscard]] PipelineProgram make_program(const PipelineOrder& order);

}  // namespace mgplan::simulator
