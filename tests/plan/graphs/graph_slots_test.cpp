#include "plan/graphs/graph_slots.hpp"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "plan/graphs/graph_scopes.hpp"

namespace mgplan::graph_slots_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ScheduleRequest pipeline(int pp, int vpp, std::int64_t microbatches) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = microbatches;
    return request;
}

/// A legal schedule of any kind; group sizes and microbatch counts that do not divide included.
ScheduleRequest any_schedule() {
    const int pp = *rc::gen::inRange(1, 7);
    const int vpp = pp == 1 ? 1 : *rc::gen::inRange(1, 5);
    ScheduleRequest request = pipeline(pp, vpp, *rc::gen::inRange<std::int64_t>(1, 40));
    if (vpp > 1) {
        request.group_size = pp + *rc::gen::inRange<std::int64_t>(0, 5);
        request.microbatches = std::max(request.microbatches, *request.group_size);
        while (interleaved_refusal(pp, request.microbatches, *request.group_size)) ++request.microbatches;
    }
    return request;
}

TEST(GraphSlots, OfOneForwardOneBackwardAlternate) {
    // Rank 0 of 2: F0 F1 B0 F2 B1 F3 B2 B3.
    const auto plan = plan_slots(Schedule(pipeline(2, 1, 4)).rank(0), std::vector<GraphedChunk>{{{0, 3}}});
    EXPECT_EQ(plan.slots, 2);
    EXPECT_THAT(plan.slot, ElementsAre(0, 1, 0, 0, 1, 1, 0, 1));
    EXPECT_THAT(plan.pairs, ElementsAre(ElementsAre(0, 1)));
}

TEST(GraphSlots, CountGraphsLayerByLayer) {
    const std::vector<GraphedChunk> chunks{{{0, 3}}};
    const Schedule schedule(pipeline(2, 1, 4));
    EXPECT_EQ(count_graphs(schedule, 0, chunks, GraphPolicy::slots), (GraphCounts{0, 6, 6, 6, 2, 2}));
    EXPECT_EQ(count_graphs(schedule, 0, chunks, GraphPolicy::megatron), (GraphCounts{0, 12, 12, 6, 2, 2}));
    // Without a pipeline both capture one microbatch.
    EXPECT_EQ(count_graphs(Schedule(pipeline(1, 1, 8)), 0, chunks, GraphPolicy::slots), (GraphCounts{0, 3, 3, 3, 1, 1}));
    EXPECT_EQ(count_graphs(Schedule(pipeline(1, 1, 8)), 0, chunks, GraphPolicy::megatron), (GraphCounts{0, 3, 3, 3, 1, 1}));
}

TEST(GraphSlots, KeepChunksOfOtherShapesApart) {
    const Schedule schedule(pipeline(2, 2, 8));
    const RankSchedule rank = schedule.rank(0);
    const auto apart = plan_slots(rank, std::vector<GraphedChunk>{{{0, 1}}, {{1, 1}}});
    EXPECT_EQ(apart.slots, rank.live_per_chunk[0] + rank.live_per_chunk[1]);
    EXPECT_THAT(apart.pairs[0], SizeIs(rank.live_per_chunk[0]));
    // Order and number of the runs do not matter, nor does a chunk without layers.
    EXPECT_EQ(plan_slots(rank, std::vector<GraphedChunk>{{{0, 1}, {1, 2}}, {{1, 4}, {0, 1}, {2, 0}}}).slots, rank.peak_live);
    EXPECT_EQ(plan_slots(rank, std::vector<GraphedChunk>{{}, {{1, 4}}}).slots, rank.peak_live);
}

TEST(GraphSlots, SizeASlotForItsLargestChunk) {
    const Schedule schedule(pipeline(2, 2, 64));
    const auto counts = count_graphs(schedule, 0, std::vector<GraphedChunk>{{{0, 3}}, {{0, 2}}}, GraphPolicy::slots);
    EXPECT_EQ(counts.slots, 5);
    EXPECT_GE(counts.static_buffers, 5 * 2);
    EXPECT_LE(counts.static_buffers, 5 * 3);
}

TEST(GraphSlots, AreAsManyAsChunksLiveAtOnce) {
    EXPECT_TRUE(rc::check([] {
        const Schedule schedule(any_schedule());
        std::vector<GraphedChunk> chunks;
        for (int c = 0; c < schedule.vpp(); ++c) chunks.push_back({{0, *rc::gen::inRange<std::int64_t>(0, 4)}});
        for (int r = 0; r < schedule.pp(); ++r) {
            const RankSchedule rank = schedule.rank(r);
            RC_ASSERT(plan_slots(rank, chunks).slots == rank.peak_live);
        }
    }));
}

TEST(GraphSlots, AreFreeWhenTakenAndKeptUntilTheBackward) {
    EXPECT_TRUE(rc::check([] {
        const Schedule schedule(any_schedule());
        std::vector<GraphedChunk> chunks;
        for (int c = 0; c < schedule.vpp(); ++c) chunks.push_back({{*rc::gen::inRange(0, 2), 1}});
        const RankSchedule rank = schedule.rank(*rc::gen::inRange(0, schedule.pp()));
        const SlotPlan plan = plan_slots(rank, chunks);
        RC_ASSERT(plan.slot.size() == rank.ops.size());
        std::map<std::int32_t, std::pair<int, std::int32_t>> holder;  // slot -> (chunk, microbatch)
        for (std::size_t i = 0; i < rank.ops.size(); ++i) {
            RC_ASSERT(plan.slot[i] >= 0 && plan.slot[i] < plan.slots);
            const std::pair<int, std::int32_t> work{rank.ops[i].chunk, rank.ops[i].microbatch};
            if (rank.ops[i].pass == Pass::forward) {
                RC_ASSERT(holder.emplace(plan.slot[i], work).second);
                const auto& pairs = plan.pairs[static_cast<std::size_t>(work.first)];
                RC_ASSERT(std::binary_search(pairs.begin(), pairs.end(), plan.slot[i]));
            } else {
                RC_ASSERT(holder.at(plan.slot[i]) == work);
                holder.erase(plan.slot[i]);
            }
        }
        RC_ASSERT(holder.empty());
    }));
}

TEST(GraphSlots, NeedNoMoreGraphsForMoreMicrobatches) {
    for (const auto& [pp, vpp] : {std::pair{4, 1}, {4, 2}, {8, 4}, {3, 5}}) {
        const std::vector<GraphedChunk> chunks(static_cast<std::size_t>(vpp), GraphedChunk{{0, 2}});
        const Schedule many(pipeline(pp, vpp, 256 * pp));
        const Schedule more(pipeline(pp, vpp, 1024 * pp));
        for (int rank = 0; rank < pp; ++rank) {
            const GraphCounts counts = count_graphs(many, rank, chunks, GraphPolicy::slots);
            EXPECT_EQ(count_graphs(more, rank, chunks, GraphPolicy::slots), counts);
            EXPECT_LE(counts.forward_graphs, 2 * vpp * counts.slots);
            EXPECT_LT(counts.forward_graphs, count_graphs(many, rank, chunks, GraphPolicy::megatron).forward_graphs);
        }
    }
}

std::string refusal(std::initializer_list<CudaGraphScope> scopes) {
    Problems problems;
    check_graph_scopes(scopes, problems);
    return problems.empty() ? "" : problems.list().front();
}

TEST(GraphScopes, RefuseWhatContradictsItself) {
    using enum CudaGraphScope;
    EXPECT_EQ(refusal({attn, mlp, moe}), "");
    EXPECT_EQ(refusal({attn, moe_router, moe_preprocess}), "");
    EXPECT_THAT(refusal({attn, moe_preprocess}), HasSubstr("moe_preprocess needs moe_router"));
    EXPECT_THAT(refusal({moe, moe_router}), HasSubstr("use one of them"));
    EXPECT_THAT(refusal({layer, attn}), HasSubstr("layer captures all"));
    EXPECT_THAT(refusal({full_iteration, attn}), HasSubstr("full_iteration captures all"));
}

ModelSpec experts(TokenDispatcher dispatcher, double capacity_factor, bool padded) {
    ModelSpec model;
    model.name = "experts";
    model.moe.emplace();
    model.moe->dispatcher = dispatcher;
    model.moe->capacity_factor = capacity_factor;
    model.moe->pad_to_capacity = padded;
    model.moe_layers = {false, true};
    return model;
}

std::string refusal(EnumSet<CudaGraphScope> scopes, const ModelSpec& model) {
    Problems problems;
    check_graph_scopes(scopes, model, problems);
    return problems.empty() ? "" : problems.list().front();
}

TEST(GraphScopes, CaptureExpertsOnlyWhereTheirShapesAreFixed) {
    using enum CudaGraphScope;
    const ModelSpec dropless = experts(TokenDispatcher::all_to_all, 0, false);
    for (const EnumSet<CudaGraphScope> scopes : {EnumSet{moe}, EnumSet{layer}, EnumSet{full_iteration}}) {
        EXPECT_THAT(refusal(scopes, dropless), HasSubstr("reads on the host; pad the experts to capacity"));
        EXPECT_THAT(refusal(scopes, experts(TokenDispatcher::deep_ep, 0, false)), HasSubstr("or attn,moe_router,moe_preprocess"));
        EXPECT_THAT(refusal(scopes, experts(TokenDispatcher::all_gather, 0, false)), HasSubstr("differ from step to step"));
        EXPECT_THAT(refusal(scopes, experts(TokenDispatcher::all_to_all, 1.5, false)), HasSubstr("pad the experts"));
        EXPECT_THAT(refusal(scopes, experts(TokenDispatcher::all_gather, 1.5, true)), HasSubstr("all_to_all dispatcher alone"));
        EXPECT_EQ(refusal(scopes, experts(TokenDispatcher::all_to_all, 1.5, true)), "");
        EXPECT_EQ(refusal(scopes, experts(TokenDispatcher::hybrid_ep, 0, false)), "");
    }
    EXPECT_EQ(refusal({attn, mlp, moe_router, moe_preprocess}, dropless), "");
    EXPECT_THAT(refusal({moe_router, moe_preprocess}, experts(TokenDispatcher::all_to_all, 1.5, false)),
                HasSubstr("moe_preprocess with capacity factor = 1.5 and no padding reads on the host"));
    EXPECT_THAT(refusal({attn, moe_router}, ModelSpec{}), HasSubstr("needs experts"));
}

Layer layer_of(std::optional<Mixer> mixer, std::optional<FeedForward> feed_forward) {
    Layer made;
    made.mixer = std::move(mixer);
    made.feed_forward = feed_forward;
    return made;
}

TEST(GraphScopes, AreUsuallyAllThatStaticShapesAllow) {
    using enum CudaGraphScope;
    EXPECT_EQ(usual_graph_scopes(ModelSpec{}), EnumSet{layer});
    EXPECT_EQ(usual_graph_scopes(experts(TokenDispatcher::all_to_all, 1.5, true)), EnumSet{layer});
    for (const ModelSpec& model : {experts(TokenDispatcher::all_to_all, 0, false), experts(TokenDispatcher::all_to_all, 1.5, false),
                                   experts(TokenDispatcher::all_gather, 0, false), experts(TokenDispatcher::deep_ep, 0, false)}) {
        EXPECT_EQ(refusal(usual_graph_scopes(model), model), "");
        EXPECT_TRUE(captured_halves(usual_graph_scopes(model), layer_of({}, Mixture{})).any());
    }
}

TEST(GraphScopes, HoldRecomputeWhollyOrNotAtAll) {
    using enum CudaGraphScope;
    ModelSpec model = experts(TokenDispatcher::all_to_all, 1, true);
    const auto problem = [&](EnumSet<CudaGraphScope> scopes, Recompute recompute, EnumSet<RecomputeModule> modules = {}) {
        return graph_recompute_problem(scopes, recompute, modules, model).value_or("");
    };
    EXPECT_EQ(problem({}, Recompute::full), "");
    EXPECT_EQ(problem({layer}, Recompute::none), "");
    EXPECT_EQ(problem({full_iteration}, Recompute::full), "");
    EXPECT_THAT(problem({attn}, Recompute::full), HasSubstr("use --recompute none or selective"));
    EXPECT_THAT(problem({attn, moe_router}, Recompute::selective, {RecomputeModule::moe}), HasSubstr("cuts through the moe module"));
    EXPECT_EQ(problem({attn, moe}, Recompute::selective, {RecomputeModule::moe, RecomputeModule::core_attn}), "");
    model.attention_dropout = model.hidden_dropout = 0.1;
    EXPECT_THAT(problem({attn}, Recompute::selective, {RecomputeModule::core_attn}), HasSubstr("attention dropout = 0.1"));
    EXPECT_EQ(problem({mlp}, Recompute::selective, {RecomputeModule::core_attn}), "");
    EXPECT_THAT(problem({mlp}, Recompute::selective, {RecomputeModule::mlp}), HasSubstr("mlp is recomputed inside a graph"));
    EXPECT_THAT(problem({layer}, Recompute::selective, {RecomputeModule::moe}), HasSubstr("moe is recomputed inside a graph"));
}

TEST(GraphScopes, AreReadAsWordsWithCommas) {
    using enum CudaGraphScope;
    Problems problems;
    EXPECT_EQ(read_graph_scopes("none", problems), EnumSet<CudaGraphScope>{});
    EXPECT_EQ(read_graph_scopes("moe_router,attn", problems), (EnumSet{attn, moe_router}));
    EXPECT_TRUE(problems.empty());
    (void)read_graph_scopes("attn,none", problems);
    (void)read_graph_scopes("", problems);
    EXPECT_THAT(problems.list(), ElementsAre(HasSubstr("'none' is not known"), HasSubstr("--cuda-graphs")));
}

TEST(GraphScopes, CaptureTheLayersThatHaveWhatTheyName) {
    using enum CudaGraphScope;
    const Layer dense = layer_of(Attention{}, Mlp{}), mixture = layer_of(Attention{}, Mixture{});
    EXPECT_TRUE(captured_halves({attn}, dense).mixer);
    EXPECT_FALSE(captured_halves({attn}, dense).feed_forward);
    EXPECT_TRUE(captured_halves({mlp}, dense).feed_forward);
    EXPECT_FALSE(captured_halves({mlp}, mixture).any());
    EXPECT_TRUE(captured_halves({moe_router}, mixture).router);
    EXPECT_FALSE(captured_halves({moe_router}, dense).any());
    EXPECT_FALSE(captured_halves({}, dense).any());
    EXPECT_FALSE(captured_halves({full_iteration}, dense).any());
    // Layers of hybrids have one half.
    const Layer scan = layer_of(Mamba2{}, {}), attention = layer_of(GatedDeltaNet{}, {}), experts = layer_of({}, Mixture{});
    EXPECT_TRUE(captured_halves({mamba}, scan).mixer);
    EXPECT_FALSE(captured_halves({attn, mlp}, scan).any());
    EXPECT_TRUE(captured_halves({attn}, attention).mixer);
    EXPECT_FALSE(captured_halves({attn, mamba}, experts).any());
    const CapturedHalves whole = captured_halves({layer}, experts);
    EXPECT_TRUE(whole.feed_forward && !whole.mixer && !whole.router);
}

TEST(GraphScopes, OfLayersThatNoFrameworkCapturesAreRefused) {
    using enum CudaGraphScope;
    ModelSpec model;
    model.name = "both";
    model.hidden = 32;
    model.kinds = {{"both", layer_of(AttentionBesideMamba2{}, {})}};
    model.kind_of_layer = {0};
    EXPECT_THAT(refusal({attn}, model), HasSubstr("in several branches, which no graph of layers captures"));
    EXPECT_EQ(refusal({full_iteration}, model), "");
    EXPECT_THAT(refusal({mamba}, ModelSpec{}), HasSubstr("mamba needs Mamba layers"));
}

TEST(GraphScopes, NameTheTensorsThatLeaveTheRouter) {
    using enum CudaGraphScope;
    EXPECT_THAT(graph_boundary_tensors({}, true), IsEmpty());
    EXPECT_THAT(graph_boundary_tensors({attn, moe}, true), ElementsAre("hidden_states"));
    EXPECT_THAT(graph_boundary_tensors({full_iteration}, true), ElementsAre("loss"));
    EXPECT_THAT(graph_boundary_tensors({attn, moe_router}, true), ElementsAre("hidden_states", "probabilities", "routing_map"));
    EXPECT_THAT(graph_boundary_tensors({moe_router, moe_preprocess}, false), SizeIs(11));
    EXPECT_THAT(graph_boundary_tensors({moe_router, moe_preprocess}, true), SizeIs(13));
}

}  // namespace
}  // namespace mgplan::graph_slots_test
