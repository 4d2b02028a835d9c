#pragma once
// Overlap of one microbatch's forward with another's backward, layer by layer, so that one computes while the other exchanges tokens of
// experts (Megatron-LM, --overlap-moe-expert-parallel-comm).

#include <cstdint>

#include "simulator/piece/piece_step.hpp"
#include "simulator/price/pass_replay.hpp"

namespace mgplan::simulator {

/// A pass over one MoE layer, divided at the begin and end of its exchanges. Seconds, including exposed communication of other groups.
struct ExchangeNodes {
    double outside = 0;            ///< attention, norm and router: before the first exchange and after the second
    double first = 0, second = 0;  ///< dispatch and combine; in a backward the gradients of combine and dispatch
    double experts = 0;            ///< between the exchanges, without `expert_weights`
    /// Gradients of weights in a backward, between the exchanges and outside of them. They may be delayed.
    double expert_weights = 0, outside_weights = 0;
};

/// Divides a pass of a MoE layer. Recomputed ops and exchanges count with the part in which they run.
[[nodiscard]] ExchangeNodes cut_at_exchanges(const PieceSteps& mixture, const StepPrice& price, const StepPrice& overlap_cost);

/// Exposed seconds of exchanges, in addition to all compute, when the forward and backward of one layer run concurrently, between other
/// such layers. Two streams (Megatron-core, models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run): one exchanges,
/// backward's combine, forward's dispatch, backward's dispatch, forward's combine; the other computes, attention forward, experts backward,
/// their weight gradients if delayed (`puts_off`), experts forward, attention backward. Each node waits for the one before it in its own
/// pass and on its own stream. During an exchange ops lose the share `taken` of their speed.
[[nodiscard]] double shown_exchanges(const ExchangeNodes& forward, const ExchangeNodes& backward, bool puts_off, double taken);

/// Share of a chunk's passes that run unpaired: the first forwards and the same number of last backwards. Megatron-LM pairs the passes
/// between warm-up and cool-down (pipeline_parallel/schedules.py, combined_1f1b.py), without a pipeline all but one. For a pipeline rank in
/// the middle. All sizes are at least 1.
[[nodiscard]] double unpaired_share(std::int64_t pp, std::int64_t vpp, std::int64_t microbatches, std::int64_t group_size);

}  // namespace mgplan::simulator
