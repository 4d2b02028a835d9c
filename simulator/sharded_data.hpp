#pragma once
// Data parallelism within a microbatch: with sharded parameters every layer is gathered before its forward and before its backward, with
// sharded gradients every layer's are reduced behind its backward (PyTorch's FSDP2, Megatron-FSDP).

#include "simulator/step_parts.hpp"

namespace mgplan::simulator {

/// Adds to the passes of `chunk` what no computation hides of its gathers and reductions, and what the hidden part slows down. The first
/// layer's parameters of a forward come before anything that could hide them; in the backward they come behind the loss. Gathers and
/// reductions run on communicators of their own over the same links, so that their times add up. Nothing where the training shards neither.
/// Engine mgplan: the same with embedding and head as further units, as model/optimizer/unit_traffic.hpp tells.
/// Weights that neighbours hold in parts (plan/training/weight_shards.hpp) come one by one.
void add_sharded_traffic(const StepInputs& in, const ChunkCensus& chunk, StageTime& time);

/// Once an iteration: gradients' reduction and parameters' gather of `count` parameters where a microbatch does not do them, and over
/// optimizer instances what lies between these. A last layer's reduction has nothing behind it. Gathers of embedding and output layer
/// under Megatron-FSDP are counted where one rank has both.
[[nodiscard]] DataParallelSeconds sharded_data_seconds(const StepInputs& in, const ParameterCount& count);

/// Parameters of `count` whose gradients a rank holds: a part where neighbours hold the others.
[[nodiscard]] ParameterCount held_count(const StepInputs& in, const ParameterCount& count);

/// Ranks that share the optimizer's work on dense ([0]) and on expert parameters ([1]).
[[nodiscard]] std::array<double, 2> optimizer_shards(const StepInputs& in);

}  // namespace mgplan::simulator
