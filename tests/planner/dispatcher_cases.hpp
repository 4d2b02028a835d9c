#pragma once
// Cases of constraints_test.cpp: rules of what dispatches the tokens of experts.

#include <memory>
#include <vector>

#include "plan/layout/layout_switches.hpp"
#include "stream_cases.hpp"

namespace mgplan::planner::testing {

inline void switch_on(Layout& layout, LayoutSwitches switches, Engine engine = Engine::megatron) {
    layout.engine = engine;
    layout.switches = std::make_shared<const LayoutSwitches>(switches);
}

inline std::vector<Case> dispatcher_cases() {
    LayoutRequest plain, ep8;
    ep8.ep = 8;
    ep8.etp = 1;
    return {
        {"cuda_graphs_suit_the_dispatcher",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
             layout.cuda_graphs = {CudaGraphScope::full_iteration};
             switch_on(layout, {.dispatcher = TokenDispatcher::all_to_all});
         },
         {"full_iteration captures the experts", "the dispatcher reads on the host", "use the dispatcher hybridep, or attn,moe_router"}},
        {"flex_dispatcher_exchanges",
         "mixtral-8x7b",
         8,
         plain,
         // The job's own, which no switch of a search names.
         [](Workload& work, Layout& layout) {
             work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
             layout.engine = Engine::megatron;
         },
         {"hybridep", "ep·etp = 1·1", "use alltoall or a larger ep"}},
        {"flex_dispatcher_does_not_pad",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.model.moe->capacity_factor = 1;
             work.model.moe->pad_to_capacity = true;
             work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
             layout.engine = Engine::megatron;
         },
         {"hybridep", "capacity", "use alltoall"}},
        {"expert_buffers_need_hybridep",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.training.megatron.expert_buffers.capacity = 1.5;
             switch_on(layout, {.dispatcher = TokenDispatcher::all_to_all});
         },
         {"--moe-expert-rank-capacity-factor", "the dispatcher is alltoall", "use hybridep"}},
        {"shared_overlap_needs_exchanges",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.training.megatron.moe_shared_expert_overlap = true;
             work.model.moe->shared_ffn = 14336;
             work.model.moe->dispatcher = TokenDispatcher::all_gather;
             layout.engine = Engine::megatron;
         },
         {"allgather", "--moe-shared-expert-overlap", "use alltoall"}},
        {"flex_dispatcher_exchanges_bf16",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.training.precision = Precision::fp16;
             switch_on(layout, {.dispatcher = TokenDispatcher::deep_ep});
         },
         {"deepep", "bf16 alone", "these are fp16", "use alltoall, or a --precision that computes in bf16"}},
        {"flex_dispatcher_reaches_other_nodes",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.cluster.network_kind = NetworkKind::efa;
             work.cluster.gpus_per_node = work.cluster.nvlink_domain = 4;
             switch_on(layout, {.dispatcher = TokenDispatcher::deep_ep});
         },
         {"deepep", "is efa", "use alltoall, or ep x etp <= 4"}},
        {"deepep_reaches_its_ranks",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.cluster.nvlink_domain = 72;
             switch_on(layout, {.dispatcher = TokenDispatcher::deep_ep});
         },
         {"deepep", "2 to 8 GPUs", "is 72", "use hybridep or alltoall"}},
        {"hybridep_knows_the_gpu",
         "mixtral-8x7b",
         8,
         ep8,
         [](Workload& work, Layout& layout) {
             work.cluster.compute_capability = 70;
             switch_on(layout, {.dispatcher = TokenDispatcher::hybrid_ep});
         },
         {"hybridep", "7.0", "use alltoall"}},
    };
}

}  // namespace mgplan::planner::testing
