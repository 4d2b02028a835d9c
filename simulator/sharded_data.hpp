#pragma once
// Traffic of sharded data parallelism within a microbatch: sharded parameters are gathered before each layer's forward and backward,
// sharded gradients are reduced after each layer's backward (PyTorch's FSDP2, Megatron-FSDP).

#include "simulator/step_parts.hpp"

namespace mgplan::simulator {

/// Adds to the passes of `chunk` the exposed part of its gathers and reductions and the slowdown caused by the hidden part. In a forward
/// the gather of the largest layer stays exposed; in a backward the first gather can overlap with the loss. Gathers and reductions use
/// separate communicators over the same links, so that their times add up. Adds nothing if neither parameters nor gradients are sharded.
/// Engine mgplan: embedding and head are units too (model/optimizer/unit_traffic.hpp). With generalized tensor parallelism
/// (plan/training/weight_shards.hpp) weights are gathered one by one.
void add_sharded_traffic(const StepInputs& in, const ChunkCensus& chunk, StageTime& time);

/// Once per iteration: reduction and gather of `count` parameters that the microbatches do not do themselves, and the traffic between
/// optimizer instances. The reduction of the last layer is exposed. Under Megatron-FSDP the gathers of embedding and output layer count
/// only if one rank has both.
[[nodiscard]] DataParallelSeconds sharded_data_seconds(const StepInputs& in, const ParameterCount& count);

/// The part of `count` whose gradients a rank holds: less than all if weights are split over neighbouring ranks.
[[nodiscard]] ParameterCount held_count(const StepInputs& in, const ParameterCount& count);

/// `count` with experts as dense parameters if the same ranks reduce both (ParallelSizes::separates_experts).
[[nodiscard]] ParameterCount by_reducing_ranks(const StepInputs& in, const ParameterCount& count);

/// Number of ranks that share the optimizer's work on dense ([0]) and on expert ([1]) parameters.
[[nodiscard]] std::array<double, 2> optimizer_shards(const StepInputs& in);

}  // namespace mgplan::simulator
