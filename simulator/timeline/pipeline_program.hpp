#pragma once
// The passes of all ranks of a pipeline in one sequence in which each stands behind everything it waits for. Finding the
// sequence is the deadlock detector; running it with any times is one walk (pipeline_run.hpp).

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan::simulator {

struct ProgramOp {
    std::int32_t input = -1;  ///< index of the op whose result it takes; -1: none
    std::int32_t microbatch = 0;
    std::uint16_t rank = 0;
    std::uint16_t chunk = 0;
    Pass pass = Pass::forward;
    bool remote = false;         ///< its input comes from another rank
    bool sends = false;          ///< its result goes to another rank
    bool to_next = false;        ///< … to the one behind this one, cyclically; else to the one in front
    bool first_forward = false;  ///< the first forward of its chunk on its rank
    bool last_gradient = false;  ///< behind it all weight gradients of its chunk are made
};

struct PipelineProgram {
    int pp = 1;
    int chunks = 1;
    std::vector<ProgramOp> ops;
    std::string deadlock;  ///< where ranks wait for each other, one line; empty: nowhere, and ops hold everything

    [[nodiscard]] std::size_t slot(const ProgramOp& op) const { return slot(op.rank, op.chunk, op.pass); }
    /// Index of a duration that all microbatches share.
    [[nodiscard]] std::size_t slot(int rank, int chunk, Pass pass) const {
        return (static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks) + static_cast<std::size_t>(chunk)) *
                   static_cast<std::size_t>(kPasses) +
               static_cast<std::size_t>(pass);
    }
    /// Whether each backward is an input_gradient and a weight_gradient; of no schedule are some.
    [[nodiscard]] bool divides_backwards() const {
        const auto first = std::find_if(ops.begin(), ops.end(), [](const ProgramOp& op) { return op.pass != Pass::forward; });
        return first != ops.end() && first->pass != Pass::backward;
    }
    [[nodiscard]] std::size_t slots() const { return slot(pp, 0, Pass::forward); }
};

/// Each (microbatch, chunk) must run forward once and then backward once, or input_gradient and weight_gradient once each.
[[nodiscard]] PipelineProgram make_program(const PipelineOrder& order);

}  // namespace mgplan::simulator
