// The cost model as its users see it: agreement of its three questions, per-stage memory, and what must hold for any layout.

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/layout/layout_switches.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/candidates.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::cost_model_test {
namespace {

/// Workloads of every kind of model on every kind of GPU, with all their legal layouts.
struct Space {
    Workload workload;
    std::vector<Layout> layouts;
};

Workload random_workload() {
    const bool experts = *rc::gen::arbitrary<bool>();
    const auto layers = *rc::gen::element<std::int64_t>(2, 4, 8);
    Workload workload = workload_of(experts ? mixture(layers) : gpt(layers), *rc::gen::element<std::int64_t>(1, 2, 4, 8, 12, 16, 32),
                                    *rc::gen::element<std::int64_t>(32, 48, 96), *rc::gen::element<std::int64_t>(256, 1024));
    ModelSpec& model = workload.model;
    model.tied_embeddings = *rc::gen::arbitrary<bool>();
    model.kv_heads = *rc::gen::element<std::int64_t>(2, 8, 16);
    model.mtp_layers = *rc::gen::element<std::int64_t>(0, 1);
    if (*rc::gen::arbitrary<bool>()) {
        model.mla = MlaSpec{.q_lora_rank = *rc::gen::element<std::int64_t>(0, 256),
                            .kv_lora_rank = 128,
                            .qk_nope_head_dim = 64,
                            .qk_rope_head_dim = 32,
                            .v_head_dim = 64};
        model.kv_heads = model.heads;
    }
    if (experts) {
        model.moe->shared_ffn = *rc::gen::element<std::int64_t>(0, 1024);
        model.moe->dispatcher = *rc::gen::element(TokenDispatcher::all_to_all, TokenDispatcher::all_gather, TokenDispatcher::deep_ep);
        model.moe->grouped_gemm = *rc::gen::arbitrary<bool>();
    }
    TrainingSpec& training = workload.training;
    training.precision = *rc::gen::element(Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp8);
    training.attention = *rc::gen::element(AttentionBackend::flash, AttentionBackend::unfused);
    training.distributed_optimizer = *rc::gen::arbitrary<bool>();
    training.overlap_grad_reduce = *rc::gen::arbitrary<bool>();
    training.overlap_param_gather = *rc::gen::arbitrary<bool>();
    training.overlap_tp = *rc::gen::arbitrary<bool>();
    training.overlap_moe = *rc::gen::arbitrary<bool>();
    training.fused_cross_entropy = *rc::gen::arbitrary<bool>();
    workload.cluster.compute_capability = *rc::gen::element(80, 90, 100);
    workload.cluster.nvlink_domain = *rc::gen::element(1, 8);
    return workload;
}

std::vector<Layout> legal_layouts(const Workload& workload, const planner::SearchSpace& wanted = {}) {
    planner::CandidateCounts counts;
    std::vector<Layout> layouts;
    for (const auto& prefix : planner::prefixes(workload, wanted, counts))
        planner::visit_layouts(workload, wanted, prefix, counts, [&](const Layout& layout) { layouts.push_back(layout); });
    return layouts;
}

/// One of the legal layouts; every workload above has at least pure data parallelism or a single rank.
Layout random_layout(const Workload& workload, const planner::SearchSpace& wanted = {}) {
    const auto layouts = legal_layouts(workload, wanted);
    RC_PRE(!layouts.empty());
    return layouts[*rc::gen::inRange<std::size_t>(0, layouts.size())];
}

bool sound(double value) {
    return std::isfinite(value) && value >= 0;
}

RC_GTEST_PROP(CostModelProperties, AllThreeQuestionsHaveOneAnswer, ()) {
    const Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    CostModel model(workload), fresh(workload), other(workload);
    const Prediction prediction = model.estimate(layout);
    RC_ASSERT(fresh.peaks(layout).even == other.memory(layout).worst.peak_bytes());
    RC_ASSERT(other.estimate_seconds(layout) == prediction.time.iteration_seconds);
    RC_ASSERT(other.exact_seconds(layout) == model.exact_time(layout).iteration_seconds);
    const MemoryPrediction& memory = prediction.memory;
    RC_ASSERT(model.stage_memory(layout, memory.worst_stage).peak_bytes() == memory.worst.peak_bytes());
    RC_ASSERT(memory.worst.breakdown.total() - memory.worst.breakdown.fragmentation <= fresh.peaks(layout).even);
    // What an allocator makes of a stage is not looked up for all of them; else memory of the whole is that of its fullest stage.
    if (layout.engine == Engine::megatron) return;
    std::int64_t fullest = 0;
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage)
        fullest = std::max(fullest, model.stage_memory(layout, stage).peak_bytes());
    RC_ASSERT(fullest == memory.worst.peak_bytes());
    RC_ASSERT(fullest == fresh.peaks(layout).even);
}

RC_GTEST_PROP(CostModelProperties, WhatOneLayoutLeavesBehindDoesNotChangeTheNext, ()) {
    const Workload workload = random_workload();
    const auto layouts = legal_layouts(workload);
    RC_PRE(!layouts.empty());
    CostModel used(workload);
    for (int i = 0; i < 20; ++i) {
        const Layout& layout = layouts[*rc::gen::inRange<std::size_t>(0, layouts.size())];
        CostModel fresh(workload);
        RC_ASSERT(used.peaks(layout).even == fresh.peaks(layout).even);
        RC_ASSERT(used.estimate_seconds(layout) == fresh.estimate_seconds(layout));
    }
}

RC_GTEST_PROP(CostModelProperties, IdleTimeIsTheMeanOfTheStagesWaits, ()) {
    const Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    const StepTimeline step = CostModel(workload).timeline(layout, false).step;
    double waits = 0;
    for (const StageUse& stage : step.stages) waits += stage.bubble_seconds / static_cast<double>(step.stages.size());
    RC_ASSERT(std::abs(waits - step.time.idle_fraction() * step.time.iteration_seconds) <= 1e-9 * step.time.iteration_seconds);
    RC_ASSERT(step.time.imbalance_seconds >= -1e-12);
}

RC_GTEST_PROP(CostModelProperties, EveryNumberIsFiniteAndTheSharesAddUp, ()) {
    const Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    CostModel model(workload);
    const Prediction prediction = model.estimate(layout);
    const TimePrediction& t = prediction.time;
    for (const double value : {t.compute_seconds, t.recompute_seconds, t.bubble_seconds, t.optimizer_seconds, t.exposed.tp, t.exposed.cp,
                               t.exposed.ep, t.exposed.dp, t.exposed.pp, t.hfu, t.interval_low})
        RC_ASSERT(sound(value));
    RC_ASSERT(sound(t.iteration_seconds) && t.iteration_seconds > 0);
    RC_ASSERT(t.interval_low < t.iteration_seconds && t.iteration_seconds < t.interval_high);
    const double parts = t.compute_seconds + t.exposed.total() + t.bubble_seconds + t.optimizer_seconds +
                         host_seconds(model.calibration(), layout.engine).iteration;
    RC_ASSERT(std::abs(parts - t.iteration_seconds) <= 1e-9 * t.iteration_seconds);
    RC_ASSERT(t.recompute_seconds <= t.compute_seconds);
    RC_ASSERT(t.mfu > 0 && t.mfu <= t.hfu && t.hfu < 1);
    RC_ASSERT((t.recompute_seconds > 0) == (t.hfu > t.mfu) || layout.recompute == Recompute::selective);
    RC_ASSERT(t.slowest_stage >= 0 && t.slowest_stage < layout.sizes.pp);

    const MemoryBreakdown& b = prediction.memory.worst.breakdown;
    for (const std::int64_t bytes :
         {b.parameters, b.gradients, b.optimizer, b.activations, b.communication, b.workspace, b.context, b.fragmentation})
        RC_ASSERT(bytes >= 0);
    RC_ASSERT(b.parameters > 0 && b.gradients > 0 && b.optimizer > 0 && b.activations > 0);
    RC_ASSERT(prediction.memory.worst.framework_bytes <= prediction.memory.worst.peak_bytes());
    RC_ASSERT(prediction.memory.worst_rank < layout.sizes.world);
}

RC_GTEST_PROP(CostModelProperties, ModulesAddUpToTheComputeTime, ()) {
    Workload workload = random_workload();
    planner::SearchSpace wanted;
    wanted.engine = *rc::gen::element(Engine::mgplan, Engine::megatron);
    const Layout layout = random_layout(workload, wanted);
    CostModel model(workload);
    const TimePrediction time = model.exact_time(layout);
    double seconds = 0;
    RC_ASSERT(time.modules.works.size() == kComputeModules.size());
    for (const ModuleWork& work : time.modules.works) {
        RC_ASSERT(sound(work.seconds) && sound(work.flops) && sound(work.bytes));
        RC_ASSERT(work.seconds > 0 || work.flops + work.bytes == 0);
        seconds += work.seconds;
    }
    RC_ASSERT(std::abs(seconds - time.compute_seconds) <= 2e-12 * seconds);
    // All but the waits for the host is read off recorded ops.
    RC_ASSERT(std::abs(time.modules.at(ComputeModule::host).seconds - time.host_seconds) <= 1e-9 * seconds);
    RC_ASSERT((time.modules.at(ComputeModule::experts).seconds > 0) <= workload.model.moe.has_value());
    RC_ASSERT((time.modules.at(ComputeModule::quantisation).seconds > 0) <= (workload.training.precision == Precision::fp8));
    RC_ASSERT(!model.estimate_time(layout).modules.counted());
}

/// Scopes that every model of random_workload() can capture.
EnumSet<CudaGraphScope> random_scopes(const Workload& workload) {
    using enum CudaGraphScope;
    if (!workload.model.moe)
        return *rc::gen::element(EnumSet{attn}, EnumSet{mlp}, EnumSet{attn, mlp}, EnumSet{layer}, EnumSet{full_iteration});
    return *rc::gen::element(EnumSet{attn}, EnumSet{mlp}, EnumSet{moe_router}, EnumSet{attn, moe_router},
                             EnumSet{attn, mlp, moe_router, moe_preprocess}, EnumSet{mlp, moe_router, moe_preprocess});
}

RC_GTEST_PROP(CostModelProperties, GraphsMoveBytesAndAddThemButNeverInventAny, ()) {
    Workload workload = random_workload();
    workload.model.attention_dropout = workload.model.hidden_dropout = 0;
    planner::SearchSpace wanted;
    wanted.cuda_graphs = random_scopes(workload);
    wanted.engine = *rc::gen::element(Engine::mgplan, Engine::megatron);
    const Layout layout = random_layout(workload, wanted);
    Layout eager = layout;
    eager.cuda_graphs = {};
    CostModel model(workload);
    const bool iteration = layout.cuda_graphs.contains(CudaGraphScope::full_iteration);
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        const RankMemory with = model.stage_memory(layout, stage), without = model.stage_memory(eager, stage);
        const GraphTerms terms = model.graphs(layout, stage);
        const MemoryBreakdown& b = with.breakdown;
        for (const std::int64_t bytes :
             {b.activations, b.graph_static_inputs, b.graph_boundary, b.graph_objects, terms.resident, terms.nodes})
            RC_ASSERT(bytes >= 0);
        RC_ASSERT(b.activations + b.communication + b.workspace >= terms.resident);
        RC_ASSERT(b.graph_static_inputs == terms.static_inputs && b.graph_boundary == terms.boundary_bytes);
        // The allocator is replayed for eager work alone.
        RC_ASSERT(with.peak_bytes() - b.fragmentation >= without.peak_bytes() - without.breakdown.fragmentation);
        RC_ASSERT(with.framework_bytes <= with.peak_bytes());
        RC_ASSERT(b.parameters == without.breakdown.parameters && b.gradients == without.breakdown.gradients);
        // Nothing but inputs, outputs and what unequal chunks and the private pool leave unused comes on top.
        const std::int64_t moved = b.activations + b.graph_static_inputs + b.graph_boundary;
        if (!iteration && b.optimizer == without.breakdown.optimizer) RC_ASSERT(moved >= without.breakdown.activations);
        CostModel fresh(workload);
        RC_ASSERT(fresh.stage_memory(layout, stage).breakdown == b);
    }
    // But for the optimizer: graphs of layers add to gradients that must be zeroed.
    const auto of_passes = [&model](const Layout& of) {
        const TimePrediction time = model.estimate_time(of);
        return time.iteration_seconds - time.optimizer_seconds;
    };
    const double as_before = of_passes(eager);
    RC_ASSERT(of_passes(layout) <= as_before * (1 + 1e-12));
}

RC_GTEST_PROP(CostModelProperties, FullRecomputeNeverNeedsMoreOfTwoLayers, ()) {
    Workload workload = random_workload();
    workload.model.mtp_layers = 0;
    planner::SearchSpace wanted;
    wanted.recompute = {Recompute::none};
    wanted.recompute_modules = {RecomputeModule::core_attn};
    Layout layout = random_layout(workload, wanted);
    CostModel model(workload);
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        // A single layer is whole while its backward runs, however it is recomputed, and its input stands beside it.
        if (layout.split->decoders(stage) / layout.vpp < 2) continue;
        const auto kept = [&](Recompute how) {
            Layout variant = layout;
            variant.recompute = how;
            if (how == Recompute::full) {
                variant.recompute_method = RecomputeMethod::uniform;
                variant.recompute_num_layers = 1;
            }
            return model.stage_memory(variant, stage).framework_bytes;
        };
        RC_ASSERT(kept(Recompute::full) <= kept(Recompute::none));
    }
}

RC_GTEST_PROP(CostModelProperties, MoreMicrobatchesNeverTakeLess, ()) {
    const Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    Workload larger = workload;
    larger.batch.global_batch *= 2;
    Layout twice = layout;
    twice.num_microbatches *= 2;
    CostModel model(workload), more(larger);
    const double once = model.estimate_seconds(layout), twice_as_much = more.estimate_seconds(twice);
    RC_ASSERT(twice_as_much > once);
    RC_ASSERT(twice_as_much <= 2 * once);
    RC_ASSERT(more.peaks(twice).even >= model.peaks(layout).even);
}

RC_GTEST_PROP(CostModelProperties, AFasterClusterIsNeverSlower, ()) {
    const Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    const double seconds = CostModel(workload).estimate_seconds(layout);
    const auto faster = [&](auto change) {
        Workload better = workload;
        change(better.cluster);
        return CostModel(better).estimate_seconds(layout) <= seconds * (1 + 1e-12);
    };
    RC_ASSERT(faster([](ClusterSpec& c) { c.network.bandwidth *= 2; }));
    RC_ASSERT(faster([](ClusterSpec& c) { c.nvlink.bandwidth *= 2; }));
    RC_ASSERT(faster([](ClusterSpec& c) { c.pcie.bandwidth *= 2; }));
    RC_ASSERT(faster([](ClusterSpec& c) { c.memory_bandwidth *= 2; }));
    RC_ASSERT(faster([](ClusterSpec& c) {
        for (auto& [precision, rate] : c.peak_flops) rate *= 2;
    }));
}

RC_GTEST_PROP(CostModelProperties, HidingCommunicationNeverTakesLonger, ()) {
    Workload workload = random_workload();
    const Layout layout = random_layout(workload);
    workload.training.overlap_grad_reduce = workload.training.overlap_param_gather = workload.training.overlap_tp =
        workload.training.overlap_moe = false;
    const double seconds = CostModel(workload).estimate_seconds(layout);
    for (const auto overlap :
         {&TrainingSpec::overlap_grad_reduce, &TrainingSpec::overlap_param_gather, &TrainingSpec::overlap_tp, &TrainingSpec::overlap_moe}) {
        Workload hidden = workload;
        hidden.training.*overlap = true;
        RC_ASSERT(CostModel(hidden).estimate_seconds(layout) <= seconds * (1 + 1e-12));
    }
}

/// In any order of layouts, records and costs that other switches left behind included.
TEST(CostModel, PredictsALayoutWithSwitchesAsAJobThatHasThem) {
    Workload workload = workload_of(mixture(4), 16, 32, 1024);
    planner::SearchSpace wanted;
    wanted.engine = Engine::megatron;
    Layout layout;
    for (const Layout& one : legal_layouts(workload, wanted)) {
        if (one.sizes.tp == 2 && one.sizes.ep == 4 && one.sizes.pp == 2) layout = one;
    }
    ASSERT_EQ(layout.sizes.ep, 4);
    CostModel model(workload);
    std::vector<LayoutSwitches> choices;
    for (const auto dispatcher : {std::optional<TokenDispatcher>{}, std::optional{TokenDispatcher::deep_ep}}) {
        for (unsigned bits = 0; bits < 32; ++bits) {
            const auto sharding = (bits & 16U) != 0 ? parse_sharding_word("fsdp") : std::nullopt;
            choices.push_back({sharding, dispatcher, (bits & 1U) != 0, (bits & 2U) != 0, (bits & 4U) != 0, (bits & 8U) != 0});
        }
    }
    for (std::size_t i = 0; i < 2 * choices.size(); ++i) {
        const LayoutSwitches& choice = choices[i * 7 % choices.size()];
        Workload with = workload;
        apply_switches(choice, with.model, with.training);
        Layout switched = layout;
        switched.switches = std::make_shared<const LayoutSwitches>(choice);
        CostModel fresh(with);
        EXPECT_EQ(model.estimate_seconds(switched), fresh.estimate_seconds(layout)) << i;
        EXPECT_EQ(model.exact_seconds(switched), fresh.exact_seconds(layout)) << i;
        EXPECT_EQ(model.peaks(switched).deciding, fresh.peaks(layout).deciding) << i;
        EXPECT_EQ(model.replayed_memory(switched).worst.peak_bytes(), fresh.replayed_memory(layout).worst.peak_bytes()) << i;
    }
}

TEST(CostModel, TellsTheRanksOrderApart) {
    // Two orders of the same sizes: tensor-parallel neighbours sit side by side in one and a node apart in the other.
    Workload workload = workload_of(gpt(4), 64, 64);
    workload.confine_tp = false;
    LayoutRequest request;
    request.tp = 8;
    const Layout near = planner::make_layout(request, workload);
    request.order = AxisOrder::parse("dp-cp-ep-tp-pp");
    const Layout far = planner::make_layout(request, workload);
    CostModel model(workload);
    const double near_seconds = model.estimate_seconds(near);
    EXPECT_GT(model.estimate_seconds(far), near_seconds);
    EXPECT_EQ(model.estimate_seconds(near), near_seconds);
}

TEST(CostModel, CountsOnePieceOfTheModelPerStage) {
    ModelSpec tied = mixture(6);
    tied.tied_embeddings = true;
    tied.mtp_layers = 1;
    ModelSpec untied = gpt(5);
    for (const ModelSpec& model : {tied, untied}) {
        Workload workload = workload_of(model, 8, 16);
        workload.training.distributed_optimizer = false;
        LayoutRequest request;
        request.pp = 2;
        request.tp = 2;
        request.sequence_parallel = true;
        request.ep = model.moe ? 2 : 1;
        const Layout layout = planner::make_layout(request, workload);
        CostModel prices(workload);
        for (int stage = 0; stage < 2; ++stage) {
            const RankMemory memory = prices.stage_memory(layout, stage);
            EXPECT_EQ(memory.breakdown.parameters, 2 * stage_parameter_count(model, layout, stage).total()) << "stage " << stage;
        }
    }
}

TEST(CostModel, TiedEmbeddingsLiveTwiceInAPipelineAndAreReducedAtItsEnds) {
    Workload workload = workload_of(gpt(4), 2, 2);
    workload.training.distributed_optimizer = false;
    LayoutRequest request;
    request.pp = 2;
    const auto predicted = [&](bool tied) {
        workload.model.tied_embeddings = tied;
        CostModel model(workload, ideal_calibration());
        const Layout layout = planner::make_layout(request, workload);
        return std::pair(model.stage_memory(layout, static_cast<int>(request.pp) - 1).breakdown.parameters,
                         model.estimate(layout).time.exposed.pp);
    };
    const auto [tied_bytes, tied_seconds] = predicted(true);
    const auto [untied_bytes, untied_seconds] = predicted(false);
    EXPECT_EQ(tied_bytes, untied_bytes) << "the copy is as large as an output layer of its own";
    EXPECT_GT(tied_seconds, untied_seconds);
    request.pp = 1;
    workload.world = 1;
    const auto [once, none] = predicted(true);
    const auto [twice, nothing] = predicted(false);
    EXPECT_EQ(twice - once, 2 * 1024 * 1024) << "on one stage there is one table";
    EXPECT_EQ(none, nothing);
}

TEST(CostModel, TensorParallelismExposesItsCollectivesPerLayerUnderEitherEngine) {
    // In units of one all-gather of the hidden state, bytes · (t-1)/t. Without sequence parallelism two all-reduces (4 units)
    // stand in the way of the forward; those of the backward run beside the weight gradients. With it the forward has two
    // gathers and two scatters, and the backward's first gather of each half has nothing beside it.
    Workload workload = workload_of(gpt(1), 8, 1);
    const double unit = 512 * 1024 * 2 / 100e9 * 7 / 8;
    LayoutRequest request;
    request.tp = 8;
    const auto units_per_layer = [&](Engine engine, bool sequence_parallel) {
        request.engine = engine;
        request.sequence_parallel = sequence_parallel;
        const auto seconds = [&](std::int64_t layers) {
            workload.model = gpt(layers);
            CostModel model(workload, ideal_calibration());
            return model.estimate(planner::make_layout(request, workload)).time.exposed.tp;
        };
        return (seconds(3) - seconds(2)) / unit;
    };
    for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
        EXPECT_NEAR(units_per_layer(engine, false), 4, 1e-9);
        EXPECT_NEAR(units_per_layer(engine, true), 6, 1e-9);
    }
}

TEST(CostModel, DividedBackwardsExposeWhatWeightGradientsWouldHide) {
    // In the same units: two all-reduces of each backward, or its second gathers and its scatters.
    Workload workload = workload_of(gpt(1), 16, 4);
    const double unit = 512 * 1024 * 2 / 100e9 * 7 / 8;
    LayoutRequest request;
    request.tp = 8;
    request.pp = 2;
    const auto units_per_layer = [&](bool divided, bool sequence_parallel) {
        request.sequence_parallel = sequence_parallel;
        request.schedule = divided ? std::optional(SplitSchedule::zb_h1) : std::nullopt;
        const auto seconds = [&](std::int64_t layers) {
            workload.model = gpt(layers);
            workload.model.attention_dropout = workload.model.hidden_dropout = 0;  // such schedules are traced
            CostModel model(workload, ideal_calibration());
            return model.estimate(planner::make_layout(request, workload)).time.exposed.tp;
        };
        return (seconds(6) - seconds(4)) / unit / 4;  // a layer more on each stage, four microbatches
    };
    EXPECT_NEAR(units_per_layer(false, false), 4, 1e-9);
    EXPECT_NEAR(units_per_layer(true, false), 4 + 4, 1e-9);
    EXPECT_NEAR(units_per_layer(false, true), 6, 1e-9);
    EXPECT_NEAR(units_per_layer(true, true), 6 + 4, 1e-9);
}

TEST(CostModel, AnExpertGroupWaitsForItsBusiestRank) {
    // Four ranks of two experts each, top 2: at worst one rank gets all copies, four times its share, over links that count alone.
    Workload workload = workload_of(mixture(4), 4, 8);
    LayoutRequest request;
    request.ep = 4;
    const auto time = [&](RoutingKind kind) {
        workload.routing.kind = kind;
        CostModel model(workload, ideal_calibration());
        return model.estimate(planner::make_layout(request, workload)).time;
    };
    const TimePrediction even = time(RoutingKind::balanced), worst = time(RoutingKind::worst), zipf = time(RoutingKind::zipf);
    EXPECT_NEAR(worst.exposed.ep / even.exposed.ep, 4, 1e-3) << "but for the counts of copies, which are gathered";
    EXPECT_GT(zipf.compute_seconds, even.compute_seconds);
    EXPECT_LT(zipf.compute_seconds, worst.compute_seconds);
    EXPECT_DOUBLE_EQ(time(RoutingKind::uniform).iteration_seconds, even.iteration_seconds);
    EXPECT_DOUBLE_EQ(worst.mfu * worst.iteration_seconds, even.mfu * even.iteration_seconds) << "the model's FLOPs are the same";
}

TEST(CostModel, TheLayersFlopsAreTheModelsFlops) {
    // Recomputing everything repeats the layers' forward: hfu / mfu is 1 + (layers' share of the FLOPs) / 3.
    for (const std::int64_t tp : {1, 2, 8}) {
        for (const std::int64_t cp : {1, 2}) {
            const Workload workload = workload_of(gpt(4), 16, 16);
            LayoutRequest request;
            request.tp = tp;
            request.cp = cp;
            request.recompute = Recompute::full;
            CostModel model(workload);
            const TimePrediction time = model.estimate(planner::make_layout(request, workload)).time;
            const double all = model_flops(workload.model, workload.batch);
            const double logits = 6.0 * 1024 * 1024 * 16 * 512;
            EXPECT_NEAR(time.hfu / time.mfu, 1 + (all - logits) / all / 3, 1e-12) << "tp " << tp << " cp " << cp;
        }
    }
}

TEST(CostModel, SelectiveRecomputeAddsTheCoresFlops) {
    const Workload workload = workload_of(gpt(4), 1, 2);
    LayoutRequest request;
    request.recompute = Recompute::selective;
    CostModel model(workload);
    const TimePrediction time = model.estimate(planner::make_layout(request, workload)).time;
    const double core = 4 * 2.0 * 2 * 512 * 512 * 1024;  // layers · causal half of two products · sequences · s² · h
    EXPECT_NEAR(time.hfu / time.mfu, 1 + core / model_flops(workload.model, workload.batch), 1e-12);
}

TEST(CostModel, PrecisionReachesRatesAndBytes) {
    Workload workload = workload_of(gpt(4), 1, 8);
    const auto predicted = [&](Precision precision) {
        workload.training.precision = precision;
        CostModel model(workload);
        return model.estimate(planner::make_layout({}, workload));
    };
    const Prediction bf16 = predicted(Precision::bf16), fp16 = predicted(Precision::fp16), fp32 = predicted(Precision::fp32),
                     fp8 = predicted(Precision::fp8);
    EXPECT_EQ(bf16.time.iteration_seconds, fp16.time.iteration_seconds);
    EXPECT_EQ(bf16.memory.worst.breakdown, fp16.memory.worst.breakdown);
    EXPECT_GT(fp32.time.iteration_seconds, bf16.time.iteration_seconds);
    EXPECT_EQ(fp32.memory.worst.breakdown.parameters, 2 * bf16.memory.worst.breakdown.parameters);
    EXPECT_LT(fp8.time.iteration_seconds, bf16.time.iteration_seconds);
    EXPECT_LT(fp8.time.mfu, bf16.time.mfu) << "of a peak twice as high";
}

TEST(CostModel, EveryCommunicatorTakesMemoryOutsideTheFramework) {
    const Workload workload = workload_of(gpt(4), 8, 8);
    LayoutRequest request;
    CostModel model(workload);
    const RankMemory data = model.stage_memory(planner::make_layout(request, workload), 0);
    request.tp = 2;
    request.pp = 2;
    const RankMemory three = model.stage_memory(planner::make_layout(request, workload), 0);
    const Calibration& c = model.calibration();
    EXPECT_GT(data.breakdown.context, c.driver_bytes + c.module_bytes);
    EXPECT_GT(three.breakdown.context, data.breakdown.context);
    EXPECT_EQ(data.framework_bytes + data.breakdown.context, data.peak_bytes());
}

TEST(CostModel, CopiesOfNarrowGradientsLiveDuringTheUpdateAlone) {
    Workload workload = workload_of(gpt(4), 1, 64);
    workload.training.grad_dtype = Dtype::bf16;
    LayoutRequest request;
    const auto stage = [&](std::int64_t micro_batch) {
        request.micro_batch = micro_batch;
        CostModel model(workload, ideal_calibration());
        return model.stage_memory(planner::make_layout(request, workload), 0).breakdown;
    };
    // With few activations the update is the peak: 4 bytes more per parameter, and nothing of forward and backward.
    const MemoryBreakdown small = stage(1), large = stage(64);
    EXPECT_EQ(small.activations, 0);
    EXPECT_EQ(small.optimizer, large.optimizer / 12 * 16);
    EXPECT_GT(large.activations, small.optimizer - large.optimizer);
    workload.training.grad_dtype = Dtype::fp32;
    EXPECT_EQ(stage(1).optimizer, large.optimizer) << "fp32 gradients need no copy";
}

TEST(CostModel, TheLossHoldsItsLogitsAsOftenAsItsKernelDoes) {
    // A vocabulary large enough to be the peak of the last stage.
    constexpr double kTokens = 4096;
    Workload workload = workload_of(gpt(2), 1, 1, static_cast<std::int64_t>(kTokens));
    workload.model.vocab = 1 << 20;
    const double logits = kTokens * (1 << 20);
    LayoutRequest request;
    const auto per_logit = [&](bool fused, Engine engine, bool te) {
        workload.training.fused_cross_entropy = fused;
        workload.training.megatron.te_cross_entropy = te;
        request.engine = engine;
        CostModel model(workload, ideal_calibration());
        return static_cast<double>(model.stage_memory(planner::make_layout(request, workload), 0).breakdown.activations) / logits;
    };
    const double in_place = per_logit(true, Engine::mgplan, false);
    EXPECT_NEAR(in_place, 2, 0.5);
    EXPECT_NEAR(per_logit(false, Engine::mgplan, false), in_place, 1e-9) << "mgplan has one loss";
    const double unfused = per_logit(false, Engine::megatron, false);
    EXPECT_NEAR(unfused, 6, 0.5);
    EXPECT_NEAR(per_logit(true, Engine::megatron, false) - unfused, 10 - 6, 0.01);
    // An output layer's backward holds a weight gradient and that of its input beside the gradient of the logits.
    const double others = 2 * 1024 * (1 / kTokens + 1.0 / (1 << 20));
    EXPECT_NEAR(per_logit(true, Engine::megatron, true) - unfused, 2 + others - 6, 0.01);
}

TEST(CostModel, MegatronKeepsAnEmptyWeightGradientOfEachShapeWhereProductsAccumulate) {
    Workload workload = workload_of(gpt(3), 2, 2);
    LayoutRequest request;
    request.tp = 2;
    const auto activations = [&](Engine engine, bool fusion, bool transformer_engine) {
        workload.training.megatron.gradient_accumulation_fusion = fusion;
        workload.training.megatron.transformer_engine = transformer_engine;
        request.engine = engine;
        CostModel model(workload);
        return model.stage_memory(planner::make_layout(request, workload), 0).breakdown.activations;
    };
    // Packed q, k and v, the attention's projection, and both of the MLP, of three equal layers; two bytes an element.
    const std::int64_t shapes = 1024 * (3072 + 1024 + 4096 + 4096) / 2;
    EXPECT_EQ(activations(Engine::megatron, true, true) - activations(Engine::megatron, false, true), 2 * shapes);
    EXPECT_EQ(activations(Engine::megatron, true, false), activations(Engine::megatron, false, false));
    EXPECT_EQ(activations(Engine::mgplan, true, true), activations(Engine::mgplan, false, true));
}

TEST(CostModel, OnlyMegatronsOwnAttentionKeepsThePackedProjectionBesideRotatedQueriesAndKeys) {
    Workload workload = workload_of(gpt(3), 1, 1);
    workload.model.position = PositionEmbedding::rope;
    workload.training.megatron.gradient_accumulation_fusion = false;
    LayoutRequest request;
    const auto activations = [&](Engine engine, bool transformer_engine) {
        workload.training.megatron.transformer_engine = transformer_engine;
        request.engine = engine;
        CostModel model(workload);
        return model.stage_memory(planner::make_layout(request, workload), 0).breakdown.activations;
    };
    const std::int64_t queries_and_keys = 512 * 2 * 1024 * 2;
    EXPECT_EQ(activations(Engine::megatron, false) - activations(Engine::megatron, true), 3 * queries_and_keys);
    EXPECT_EQ(activations(Engine::mgplan, false), activations(Engine::mgplan, true));
}

TEST(CostModel, MegatronKeepsAWorkspaceForEachThreadAndTransformerEnginesOwn) {
    constexpr std::int64_t kMiB = 1 << 20;
    Workload workload = workload_of(mixture(2), 1, 1);
    workload.training.attention = AttentionBackend::unfused;  // no scratch of its own
    workload.cluster.compute_capability = 80;
    LayoutRequest request;
    const auto bytes = [&] {
        CostModel model(workload);
        return model.stage_memory(planner::make_layout(request, workload), 0).breakdown.workspace;
    };
    request.engine = Engine::megatron;
    EXPECT_EQ(bytes(), 2 * (8 * kMiB + kMiB / 8) + 5 * 4 * kMiB) << "grouped products use four streams more";
    workload.model.moe->grouped_gemm = false;
    EXPECT_EQ(bytes(), 2 * (8 * kMiB + kMiB / 8) + 4 * kMiB);
    workload.training.megatron.deterministic = true;
    EXPECT_EQ(bytes(), 2 * 32 * kMiB + 4 * kMiB);
    workload.training.megatron.transformer_engine = false;
    EXPECT_EQ(bytes(), 2 * 32 * kMiB);
    workload.cluster.compute_capability = 90;
    workload.training.megatron = {};
    EXPECT_EQ(bytes(), 3 * 32 * kMiB);
}

TEST(CostModel, TheEmbeddingsGradientIsMadeWholeOnTheFirstStage) {
    Workload workload = workload_of(gpt(4), 2, 2);
    LayoutRequest request;
    request.pp = 2;
    request.engine = Engine::megatron;
    const auto activations = [&](std::int64_t vocab) {
        workload.model.vocab = vocab;
        CostModel model(workload, ideal_calibration());
        return model.stage_memory(planner::make_layout(request, workload), 0).breakdown.activations;
    };
    const std::int64_t small = activations(1 << 20);
    EXPECT_EQ(activations(1 << 21) - small, std::int64_t{2} * 1024 * (1 << 20)) << "h elements of 2 bytes per row";
}

}  // namespace
}  // namespace mgplan::simulator::cost_model_test
