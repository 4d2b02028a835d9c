#pragma once
// A forward of one microbatch beside the backward of another, layer by layer, so that each computes while the other exchanges tokens of
// experts (Megatron-LM, --overlap-moe-expert-parallel-comm).

#include <cstdint>

#include "simulator/piece/piece_step.hpp"
#include "simulator/price/pass_replay.hpp"

namespace mgplan::simulator {

/// A pass over one layer with experts, cut where its exchanges begin and end. Seconds, exposed communication of other groups included.
struct ExchangeNodes {
    double outside = 0;            ///< attention, norm and router: in front of the first exchange and behind the second
    double first = 0, second = 0;  ///< dispatch and combine, of a backward combine's and dispatch's
    double experts = 0;            ///< between the exchanges, without `expert_weights`
    /// A backward's gradients of weights, between the exchanges and outside of them. They may be put off.
    double expert_weights = 0, outside_weights = 0;
};

/// Cuts a mixture's pass. What a backward runs again counts with what it is beside, exchanges that it runs again too.
[[nodiscard]] ExchangeNodes cut_at_exchanges(const PieceSteps& mixture, const StepPrice& price, const StepPrice& overlap_cost);

/// Seconds by which exchanges make a forward and a backward of one layer that run beside each other longer than what both compute, between
/// other such layers. Two streams (Megatron-core, models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run): one
/// exchanges, backward's combine, forward's dispatch, backward's dispatch, forward's combine; the other computes, attention forward,
/// experts backward, their weights' gradients where these are put off (`puts_off`), experts forward, attention backward. Each node waits
/// for the one before it in its own pass and on its own stream. Ops beside an exchange lose the share `taken` of their speed.
[[nodiscard]] double shown_exchanges(const ExchangeNodes& forward, const ExchangeNodes& backward, bool puts_off, double taken);

/// Share of the passes of a chunk that run alone, the first ones forward and as many of the last ones backward: Megatron-LM pairs those
/// between warm-up and cool-down (pipeline_parallel/schedules.py, combined_1f1b.py), without a pipeline all but one. Of a pipeline rank in
/// the middle. All sizes are at least 1.
[[nodiscard]] double unpaired_share(std::int64_t pp, std::int64_t vpp, std::int64_t microbatches, std::int64_t group_size);

}  // namespace mgplan::simulator
