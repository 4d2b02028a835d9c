#pragma once
// Cases of constraints_test.cpp: rules of residual streams that maps mix, and of DeepSeek-V4.

#include <vector>

#include "rule_cases.hpp"

namespace mgplan::planner::testing {

inline std::vector<Case> stream_cases() {
    LayoutRequest plain, stages;
    stages.ep = 8;
    stages.pp = 32;
    return {
        {"residual_streams_without_experts",
         "mixtral-8x7b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout = make_layout({}, work);
             layout.engine = Engine::megatron;
             work.model.hyper_connections.emplace();
         },
         {"--enable-mhc-connections", "leave one of them out", "--enable-hyper-connections"}},
        {"residual_streams_without_pipeline",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             LayoutRequest request;
             request.pp = 2;
             layout = make_layout(request, work);
             layout.engine = Engine::megatron;
             work.model.hyper_connections.emplace();
         },
         {"pp = 2", "--enable-mhc-connections", "use pp 1", "--enable-hyper-connections"}},
        {"residual_streams_without_full_recompute",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             layout.recompute = Recompute::full;
             layout.recompute_method = RecomputeMethod::uniform;
             layout.recompute_num_layers = 1;
             work.model.hyper_connections.emplace();
         },
         {"recompute = full", "--enable-mhc-connections", "use selective with module mhc"}},
        {"residual_streams_are_predicted",
         "llama3-8b",
         8,
         plain,
         [](Workload& work, Layout& layout) {
             layout.engine = Engine::megatron;
             work.model.hyper_connections.emplace();
             work.training.megatron.optimizer = OptimizerKind::muon;
         },
         {"not predicted are residual streams (mHC) with Muon", "leave that out"}},
        {"compressed_attention_is_kept",
         "deepseek-v4-flash",
         8,
         plain,
         [](Workload&, Layout& layout) {
             layout.recompute = Recompute::selective;
             layout.recompute_modules = {RecomputeModule::core_attn};
         },
         {"recompute module core_attn", "keeps its core", "use mla_up_proj"}},
        {"experts_by_words_on_the_first_stage",
         "deepseek-v4-flash",
         256,
         stages,
         [](Workload&, Layout& layout) { layout.engine = Engine::megatron; },
         {"the first stage holds 1 layer", "2 layers more whose experts a table of words chooses", "use a smaller pp"}},
    };
}

}  // namespace mgplan::planner::testing
