// What --search adds to a space, and the rules of it.

#include "planner/search_axes.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::search_axes_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Module = RecomputeModule;
using Modules = EnumSet<Module>;

SearchSpace widened(const Workload& work, const char* axes, Engine engine = Engine::megatron) {
    SearchSpace space;
    space.engine = engine;
    Problems problems;
    widen(space, read_search_axes(axes, problems), work);
    EXPECT_TRUE(problems.empty());
    return space;
}

std::vector<Layout> layouts_of(const Workload& work, const SearchSpace& space) {
    CandidateCounts counts;
    return candidates_of(work, space, counts);
}

TEST(SearchAxes, VppGoesAsFarAsChunksOfEqualLayersDo) {
    Workload work = workload_of("llama3.1-405b", 1024, "dgx-h100", 1024);
    SearchSpace space;
    space.tp = {8};
    space.pp = {2};
    space.cp = {1};
    space.micro_batch = {1};
    const auto vpps = [&] {
        std::set<int> found;
        for (const Layout& layout : layouts_of(work, space)) found.insert(layout.vpp);
        return found;
    };
    // 126 layers on two ranks: divisors of 63, and with embedding and loss as layers those of 64.
    EXPECT_THAT(vpps(), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 21, 32, 63, 64));
    space.unequal_chunks = true;
    EXPECT_EQ(vpps().size(), 64U);
    space.vpp = {20};
    EXPECT_THAT(vpps(), ::testing::ElementsAre(20));
}

TEST(SearchAxes, ModuleSetsAreThoseThatFreeMemory) {
    Workload work = workload_of("deepseek-v3", 64);
    const auto all = [&] { return useful_module_sets(work, false); };
    EXPECT_THAT(useful_module_sets(work, true), Contains(Modules{Module::mla_up_proj, Module::mlp}));
    EXPECT_THAT(useful_module_sets(work, true), Contains(Modules{Module::moe_act, Module::layernorm}));
    EXPECT_THAT(all(), Not(Contains(Modules{Module::core_attn})));
    EXPECT_GT(all().size(), useful_module_sets(work, true).size());
    work.training.precision = Precision::fp8;
    work.training.megatron.fp8_recipe = Fp8Recipe::delayed;
    for (const Modules modules : all()) {
        EXPECT_FALSE(modules.contains(Module::moe_act));
        EXPECT_FALSE(modules.contains(Module::layernorm));
    }
    work = workload_of("llama3-8b", 16);
    work.training.attention = AttentionBackend::unfused;
    EXPECT_EQ(all().front(), (Modules{Module::core_attn}));
    for (const Modules modules : all()) EXPECT_FALSE(modules.contains(Module::moe) || modules.contains(Module::mla_up_proj));
}

TEST(SearchAxes, TheSetsOfPublishedRecipesAreAmongTheFew) {
    const Workload deepseek = workload_of("deepseek-v3", 64), qwen = workload_of("qwen3-235b-a22b", 64);
    EXPECT_THAT(useful_module_sets(deepseek, true), Contains(Modules{Module::mlp}));
    EXPECT_THAT(useful_module_sets(qwen, true), Contains(Modules{Module::moe, Module::layernorm}));
    EXPECT_THAT(useful_module_sets(qwen, true), Not(Contains(Modules{Module::mlp}))) << "has no dense layers";
}

TEST(SearchAxes, WhatTheJobRecomputesIsTriedFirst) {
    const Workload work = workload_of("deepseek-v3", 64);
    SearchAxes axes{{SearchAxis::recompute}, true};
    axes.own_modules = Modules{Module::moe, Module::layernorm, Module::mla_up_proj};
    SearchSpace space;
    space.engine = Engine::megatron;
    widen(space, axes, work);
    EXPECT_EQ(space.recompute_modules, *axes.own_modules);
    EXPECT_EQ(space.more_recompute_modules, useful_module_sets(work, true));
}

TEST(SearchAxes, EveryAxisIsInTheSpaceAndNoLayoutComesTwice) {
    Workload work = workload_of("deepseek-v2-lite", 16);
    SearchSpace space = widened(work, "wide");
    space.tp = {2};
    space.pp = {2};
    space.cp = {1};
    space.ep = {4};
    space.etp = {1};
    space.vpp = {1, 3};
    space.micro_batch = {1};
    std::set<std::string> seen;
    std::set<std::string> words;
    bool block = false, graphs = false;
    for (const Layout& layout : layouts_of(work, space)) {
        EXPECT_TRUE(seen.insert(fingerprint(layout)).second) << fingerprint(layout);
        EXPECT_THAT(broken_messages(work, layout), ::testing::IsEmpty()) << fingerprint(layout);
        if (layout.switches) {
            for (const auto& word : switch_words(*layout.switches)) words.insert(word);
        }
        block |= layout.recompute_method == RecomputeMethod::block;
        graphs |= !layout.cuda_graphs.empty();
    }
    EXPECT_THAT(words, ::testing::ElementsAre("bf16-grads", "bf16-moments", "deepep", "hybridep", "moe-overlap", "tp-overlap"));
    EXPECT_TRUE(block);
    EXPECT_TRUE(graphs);
    // mgplan's own engine has none of the switches.
    EXPECT_EQ(widened(work, "wide", Engine::mgplan).switches.size(), 1U);
}

TEST(SearchAxes, TheNamedAxisOfGraphsHasTheSetsOfRecipesWideTheFirst) {
    using enum CudaGraphScope;
    using Graphs = EnumSet<CudaGraphScope>;
    const Workload mixture = workload_of("qwen3-30b-a3b", 8), dense = workload_of("llama3-8b", 8);
    EXPECT_THAT(
        widened(mixture, "cuda-graphs").more_cuda_graphs,
        ::testing::ElementsAre(Graphs{attn, moe_router, moe_preprocess}, Graphs{moe_router, moe_preprocess}, Graphs{full_iteration}));
    EXPECT_THAT(widened(mixture, "wide").more_cuda_graphs, ::testing::ElementsAre(Graphs{attn, moe_router, moe_preprocess}));
    EXPECT_THAT(widened(dense, "cuda-graphs").more_cuda_graphs, ::testing::ElementsAre(Graphs{layer}, Graphs{full_iteration}));
    EXPECT_THAT(widened(dense, "cuda-graphs", Engine::mgplan).more_cuda_graphs, ::testing::ElementsAre(Graphs{layer}));
    // Graphs of an iteration stand beside HybridEP alone.
    SearchSpace space = widened(mixture, "cuda-graphs,dispatcher");
    space.tp = space.pp = space.cp = space.etp = space.micro_batch = {1};
    space.ep = {8};
    std::set<std::string> with_them;
    for (const Layout& layout : layouts_of(mixture, space)) {
        EXPECT_THAT(broken_messages(mixture, layout), ::testing::IsEmpty()) << fingerprint(layout);
        if (layout.cuda_graphs.contains(full_iteration)) with_them.insert(switch_words(*layout.switches).front());
    }
    EXPECT_THAT(with_them, ::testing::ElementsAre("hybridep"));
}

TEST(SearchAxes, DispatchersAndOverlapsKeepMegatronsRules) {
    Workload work = workload_of("deepseek-v2-lite", 64);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 8;
    request.etp = 1;
    const auto said = [&](LayoutSwitches switches) {
        request.switches = std::make_shared<const LayoutSwitches>(switches);
        try {
            (void)make_layout(request, work);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const LayoutSwitches deepep{.dispatcher = TokenDispatcher::deep_ep}, hybridep{.dispatcher = TokenDispatcher::hybrid_ep};
    const LayoutSwitches overlap{.overlap_moe = true}, tp_overlap{.overlap_tp = true}, moments{.bf16_moments = true};
    for (const LayoutSwitches& legal : {deepep, hybridep, overlap, moments}) EXPECT_EQ(said(legal), "");
    EXPECT_THAT(said(tp_overlap), HasSubstr("tp overlap needs tp > 1 (here 1)"));
    request.pp = 2;
    EXPECT_THAT(said(overlap), HasSubstr("needs an interleaved schedule with pp = 2; use vpp > 1 or pp 1"));
    request.vpp = 2;
    EXPECT_EQ(said(overlap), "");
    request.recompute = Recompute::full;
    EXPECT_THAT(said(overlap), HasSubstr("does not go with full recompute"));
    request.recompute = Recompute::selective;
    request.recompute_modules = {Module::moe};
    EXPECT_THAT(said(overlap), HasSubstr("does not go with recompute of the module moe"));
    request.recompute = Recompute::none;
    request.ep = 1;
    EXPECT_THAT(said(hybridep), HasSubstr("exchanges over ep·etp = 1·1 ranks and needs more than one"));
    EXPECT_THAT(said(overlap), HasSubstr("needs ep > 1"));
    request.ep = 8;
    work.training.distributed_optimizer = false;
    EXPECT_THAT(said(moments), HasSubstr("bf16 moments need Adam with the distributed optimizer"));
    work.cluster = workload_of("llama3-8b", 8, "gb200-nvl72").cluster;
    EXPECT_EQ(said(hybridep), "");
    EXPECT_THAT(said(deepep), HasSubstr("needs NVLink among 2 to 8 GPUs"));
    request.engine = Engine::mgplan;
    EXPECT_THAT(said(hybridep), HasSubstr("is a choice of Megatron-LM, not of engine mgplan"));
}

TEST(SearchAxes, SwitchesPriceAsTheWorkloadThatHasThem) {
    Workload work = workload_of("deepseek-v2-lite", 16);
    SearchSpace space = widened(work, "dispatcher,tp-overlap,moe-overlap,optimizer");
    space.tp = {2};
    space.pp = {2};
    space.vpp = {3};
    space.micro_batch = {1};
    space.recompute = {Recompute::none};
    const LayoutCost together = simulator_cost_model()(work);
    int compared = 0;
    for (const Layout& layout : layouts_of(work, space)) {
        Workload alone = work;
        Layout plain = layout;
        if (layout.switches) apply_switches(*layout.switches, alone.model, alone.training);
        plain.switches = nullptr;
        const LayoutCost apart = simulator_cost_model()(alone);
        constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
        EXPECT_EQ(together.memory(layout, kAny).bytes, apart.memory(plain, kAny).bytes) << fingerprint(layout);
        EXPECT_EQ(together.iteration_seconds(layout).seconds, apart.iteration_seconds(plain).seconds) << fingerprint(layout);
        if (++compared == 60) break;
    }
    EXPECT_EQ(compared, 60);
}

TEST(SearchAxes, ShardingsAreThoseThatMegatronFsdpHas) {
    EXPECT_EQ(more_shardings(workload_of("llama3-8b", 8)), (std::vector<DataShardingChoice>{{DataSharding::full, 1}}));
    EXPECT_EQ(more_shardings(workload_of("llama3-8b", 32)),
              (std::vector<DataShardingChoice>{{DataSharding::full, 1}, {DataSharding::hybrid, 4}}))
        << "a replica for each NVLink domain";
    const auto none_with = [](auto change) {
        Workload work = workload_of("llama3-8b", 32);
        change(work.training);
        return more_shardings(work).empty();
    };
    EXPECT_TRUE(none_with([](TrainingSpec& training) { training.megatron.optimizer = OptimizerKind::muon; }));
    EXPECT_TRUE(none_with([](TrainingSpec& training) { training.offload.optimizer = 1; }));
    EXPECT_TRUE(none_with([](TrainingSpec& training) { training.overlap_grad_reduce = false; }));
    EXPECT_TRUE(none_with([](TrainingSpec& training) { set_data_sharding({DataSharding::none}, training); })) << "asked for";
    EXPECT_FALSE(widened(workload_of("llama3-8b", 32), "sharding").shardings.empty());
}

TEST(SearchAxes, UsualOnesLeaveTheTrainedNumbersAsTheyAre) {
    const Workload work = workload_of("deepseek-v2-lite", 16);
    SearchSpace usual;
    usual.engine = Engine::megatron;
    const SearchSpace none = widened(work, "plain");
    widen(usual, usual_axes(), work);
    bool overlaps = false;
    for (const auto& switches : usual.switches) {
        if (!switches) continue;
        EXPECT_FALSE(switches->bf16_gradients || switches->bf16_moments);
        overlaps = overlaps || (switches->overlap_moe && switches->dispatcher);
    }
    EXPECT_TRUE(overlaps);
    EXPECT_TRUE(usual.unequal_chunks && usual.recompute_blocks && usual.stage_loads);
    EXPECT_EQ(usual.more_cuda_graphs.size(), 1U);
    EXPECT_EQ(usual.switches.size(), widened(work, "dispatcher,tp-overlap,moe-overlap").switches.size());
    EXPECT_EQ(none.switches.size(), 1U);
    EXPECT_FALSE(none.stage_loads || none.unequal_chunks);
    const SearchSpace first = first_choices(usual);
    EXPECT_EQ(layouts_of(work, first).size(), layouts_of(work,
                                                         [&] {
                                                             SearchSpace plain = none;
                                                             plain.recompute_modules = usual.recompute_modules;
                                                             return plain;
                                                         }())
                                                  .size());
}

TEST(SearchAxes, StagesAddASplitThatTakesLayersFromTheRankWithTheLoss) {
    const Workload work = workload_of("llama3-8b", 16);
    SearchSpace space = widened(work, "stages");
    space.tp = space.cp = space.vpp = space.micro_batch = {1};
    space.pp = {2};
    space.recompute = {Recompute::none};
    const auto layouts = layouts_of(work, space);
    ASSERT_EQ(layouts.size(), 2U);
    EXPECT_EQ(layouts[0].split->kind(), SplitKind::even);
    EXPECT_EQ(layouts[1].split->decoders(0), 18);  // the loss takes as long as about four layers
    EXPECT_EQ(layouts[1].split->decoders(1), 14);
    const LayoutCost cost = simulator_cost_model()(work);
    EXPECT_LT(cost.iteration_seconds(layouts[1]).seconds, cost.iteration_seconds(layouts[0]).seconds);
    space.pipeline_layout = "Et*16|t*16L";
    space.stage_loads.reset();
    Problems problems;
    widen(space, read_search_axes("stages", problems), work);
    EXPECT_EQ(layouts_of(work, space).size(), 1U) << "a pinned split stays alone";
}

TEST(SearchAxes, ListsNameAxesOrAllOfThem) {
    const auto said = [](const char* text) {
        Problems problems;
        (void)read_search_axes(text, problems);
        return problems.empty() ? std::string() : problems.list().front();
    };
    EXPECT_EQ(said("wide"), "");
    EXPECT_EQ(said("plain"), "");
    EXPECT_EQ(said("recompute,dispatcher"), "");
    EXPECT_THAT(said("dispatchers"), HasSubstr("'dispatchers' is no axis of the search; use plain, recipe, wide, stages, sharding, vpp"));
    EXPECT_THAT(said("wide,vpp"), HasSubstr("is a whole set of axes and cannot be combined with others"));
    EXPECT_THAT(said(""), HasSubstr("--search is empty"));
}

}  // namespace
}  // namespace mgplan::planner::testing::search_axes_test
