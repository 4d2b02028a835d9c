#include "simulator/memory/model_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/offloaded_state.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::simulator::model_state_test {
namespace {

constexpr std::int64_t kElements = 1'024'000;

std::int64_t bytes(const BufferElements& elements, const TrainingSpec& training) {
    const ModelStateBytes state = model_state_bytes(elements, Engine::mgplan, training);
    return state.parameters + state.gradients + state.optimizer + state.update;
}

struct Form {
    const char* name;
    Precision precision;
    Dtype gradients;
    std::int64_t kept, divided;  ///< bytes per parameter: kept + divided / shards
};

class BytesPerParameter : public testing::TestWithParam<Form> {};

TEST_P(BytesPerParameter, FollowThePublishedForm) {
    const Form& form = GetParam();
    TrainingSpec training;
    training.precision = form.precision;
    training.grad_dtype = form.gradients;
    for (const std::int64_t shards : {1, 2, 8, 40}) {
        const BufferElements elements{kElements, kElements, false, shards, 1};
        EXPECT_EQ(bytes(elements, training), form.kept * kElements + form.divided * kElements / shards);
    }
}

// Megatron-LM, docs on the distributed optimizer: table of bytes per parameter; fp64 by the same rules.
INSTANTIATE_TEST_SUITE_P(Forms, BytesPerParameter,
                         testing::Values(Form{"bf16_with_fp32_gradients", Precision::bf16, Dtype::fp32, 6, 12},
                                         Form{"bf16_with_bf16_gradients", Precision::bf16, Dtype::bf16, 4, 16},
                                         Form{"fp16_with_fp16_gradients", Precision::fp16, Dtype::fp16, 4, 16},
                                         Form{"fp8_computing_over_bf16", Precision::fp8, Dtype::fp32, 6, 12},
                                         Form{"fp32", Precision::fp32, Dtype::fp32, 8, 8},
                                         Form{"fp64", Precision::fp64, Dtype::fp32, 16, 16}),
                         [](const auto& instance) { return instance.param.name; });

TEST(ModelState, CountsPaddingLikeParameters) {
    const ModelStateBytes state =
        model_state_bytes({.parameters = 1, .buffer = 384, .fp8 = false, .shards = 3, .tensors = 1}, Engine::mgplan, {});
    EXPECT_EQ(state.parameters, 2 * 384);
    EXPECT_EQ(state.gradients, 4 * 384);
    EXPECT_EQ(state.optimizer, 12 * 128);
}

TEST(ModelState, OfNothingIsNothing) {
    EXPECT_EQ(bytes({}, {}), 0);
}

/// What the buffers of one stage come to, laid out one by one from the list of its parameters, and the biases of experts beside
/// them: of mgplan's own layers an fp32 for each expert of a mixture.
ModelStateBytes laid_out(const Workload& work, const Layout& layout, int stage) {
    ModelStateBytes sum;
    const auto chunks = stage_parameters(work.model, layout, stage, layout.engine);
    for (int c = 0; c < layout.vpp; ++c) {
        const auto& parameters = chunks[static_cast<std::size_t>(c)];
        const auto list = model::buffer_parameters(parameters, work.training.compute_dtype());
        const model::BufferOptions options = model::buffer_options(layout, work.training, stage, c);
        for (const model::BufferLayout& buffer : model::lay_out_buffers(list, options).buffers) {
            const std::int64_t shards = buffer.sharded ? buffer.dp : 1;
            const std::int64_t tensors = std::ssize(buffer.spans);
            sum += model_state_bytes({buffer.numel_unpadded, buffer.numel, false, shards, tensors}, layout.engine, work.training);
        }
    }
    for (int c = 0; work.model.moe && work.model.moe->expert_bias && c < layout.vpp; ++c) {
        const StageChunk& chunk = layout.split->chunk(stage, c);
        std::int64_t mixtures = work.model.moe_layers.back() ? work.model.mtp_weights(chunk.mtp) : 0;
        for (std::int64_t i = chunk.first_decoder; i < chunk.first_decoder + chunk.decoders; ++i)
            mixtures += work.model.moe_layers[static_cast<std::size_t>(i)] ? 1 : 0;
        sum.parameters += mixtures * work.model.moe->experts * (4 + 4);  // a bias and a count
    }
    return sum;
}

struct Case {
    std::string name;
    const char* model;
    std::int64_t world;
    LayoutRequest layout;
    bool distributed = true;
    bool overlap = true;
    int instances = 1;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class StateOf : public testing::TestWithParam<Case> {};

TEST_P(StateOf, IsThatOfEveryBufferLaidOut) {
    const Case& c = GetParam();
    Workload work;
    work.model = formats::load_model(c.model).model;
    work.world = c.world;
    work.confine_tp = false;
    work.batch.global_batch = c.world * 16;
    work.batch.sequence = 4096;
    work.training.distributed_optimizer = c.distributed;
    work.training.overlap_grad_reduce = c.overlap;
    work.training.distributed_optimizer_instances = c.instances;
    const Layout layout = planner::make_layout(c.layout, work);
    ModelStates states(work);
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage)
        EXPECT_EQ(states.of(layout, stage), laid_out(work, layout, stage)) << "stage " << stage;
}

LayoutRequest sizes(int tp, int pp, int vpp = 1, int ep = 1, int etp = 0, int cp = 1) {
    LayoutRequest request;
    request.tp = tp;
    request.pp = pp;
    request.vpp = vpp;
    request.ep = ep;
    request.etp = etp == 0 ? tp : etp;
    request.cp = cp;
    request.sequence_parallel = tp > 1;
    return request;
}

LayoutRequest with_layers(LayoutRequest request, const char* pipeline) {
    StageSplitRequest split;
    split.pipeline_layout = pipeline;
    request.split = split;
    return request;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, StateOf,
    testing::Values(
        Case{"llama8b_alone", "llama3-8b", 1, sizes(1, 1)}, Case{"llama8b_dp24", "llama3-8b", 24, sizes(1, 1)},
        Case{"llama8b_dp24_no_overlap", "llama3-8b", 24, sizes(1, 1), true, false},
        Case{"llama8b_not_distributed", "llama3-8b", 8, sizes(2, 2), false},
        Case{"llama8b_instances", "llama3-8b", 64, sizes(2, 2), true, true, 4}, Case{"llama405b", "llama3.1-405b", 1008, sizes(8, 9, 7)},
        Case{"llama405b_cp", "llama3.1-405b", 16128, sizes(8, 9, 2, 1, 0, 2)}, Case{"tied_gpt_pp1", "gpt3-175b", 96, sizes(8, 1)},
        Case{"tied_gpt_pp8", "gpt3-175b", 192, sizes(8, 8, 3)}, Case{"tied_gpt_pp2_not_distributed", "gpt3-175b", 48, sizes(8, 2), false},
        Case{"mixtral", "mixtral-8x7b", 64, sizes(2, 4, 2, 4, 1)},
        Case{"mixtral_experts_on_the_ranks_of_all_others", "mixtral-8x7b", 32, sizes(2, 2)},
        Case{"mixtral_etp_instances", "mixtral-8x7b", 128, sizes(4, 2, 1, 4, 4), true, true, 2},
        Case{"qwen_moe_pp1", "qwen3-30b-a3b", 48, sizes(1, 1, 1, 16, 1)}, Case{"deepseek_pp1", "deepseek-v3", 64, sizes(1, 1, 1, 64, 1)},
        Case{"deepseek_not_distributed", "deepseek-v3", 64, sizes(1, 1, 1, 64, 1), false},
        Case{"deepseek_mtp_in_front_of_the_loss", "deepseek-v3", 1024, with_layers(sizes(1, 16, 2, 64, 1), "Et*3|(tt|)*29m|L")}),
    [](const auto& instance) { return instance.param.name; });

// core/transformer/multi_token_prediction.py, MultiTokenPredictionBlock: one layer is built, and applied mtp_num_layers times.
TEST(ModelStates, OfARepeatedPredictionAreThoseOfOneLayer) {
    Workload work;
    work.model = formats::load_model("deepseek-v3").model;
    work.world = 64;
    work.batch = {64, 4096};
    const auto state_of = [&](std::int64_t depths, bool repeated) {
        work.model.mtp_layers = depths;
        work.model.mtp_repeated = repeated;
        const Layout layout = planner::make_layout(sizes(1, 1, 1, 64, 1), work);
        ModelStates states(work);
        const ModelStateBytes bytes = states.of(layout, 0);
        EXPECT_EQ(bytes, laid_out(work, layout, 0));
        const ParameterCount count = stage_parameter_count(work.model, layout, 0);
        return std::pair(bytes.parameters + bytes.gradients + bytes.optimizer, count.dense + count.expert);
    };
    EXPECT_EQ(state_of(3, true), state_of(1, false));
    EXPECT_GT(state_of(3, false), state_of(3, true));
}

TEST(ModelStates, OfARepeatedPredictionLeaveWhatItKeepsAndComputes) {
    Workload work;
    work.model = formats::load_model("deepseek-v3").model;
    work.cluster = load_cluster("dgx-h100");
    work.memory_limit = work.cluster.memory_bytes;
    work.world = 64;
    work.batch = {64, 4096};
    work.model.mtp_layers = 2;
    LayoutRequest request = sizes(1, 1, 1, 64, 1);
    request.engine = Engine::megatron;
    const auto predicted = [&](bool repeated) {
        work.model.mtp_repeated = repeated;
        CostModel model(work);
        return model.estimate(planner::make_layout(request, work));
    };
    const Prediction once = predicted(true), twice = predicted(false);
    EXPECT_EQ(once.memory.worst.breakdown.activations, twice.memory.worst.breakdown.activations);
    EXPECT_LT(once.memory.worst.breakdown.parameters, twice.memory.worst.breakdown.parameters);
    EXPECT_LT(once.time.iteration_seconds, twice.time.iteration_seconds) << "fewer parameters to update";
    EXPECT_GT(once.time.iteration_seconds, 0.95 * twice.time.iteration_seconds) << "as many products";
}

// Gradient bytes that the DDP of Megatron-LM (megatron-core 0.19.2) allocated for the exports of these layouts (tests/megatron).
TEST(ModelStates, OfEngineMegatronAreThoseOfItsOwnBuffers) {
    Workload work;
    const auto gradients = [&](LayoutRequest request, const char* stages) {
        request.engine = Engine::megatron;
        const Layout layout = planner::make_layout(with_layers(request, stages), work);
        ModelStates states(work);
        std::vector<std::int64_t> of_stages;
        for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
            EXPECT_EQ(states.of(layout, stage), laid_out(work, layout, stage)) << "stage " << stage;
            of_stages.push_back(states.of(layout, stage).gradients);
        }
        return of_stages;
    };
    // Queries without a latent, whose input has a norm there.
    work.model = formats::load_model("deepseek-v2-lite").model;
    work.world = 16;
    work.batch = {1024, 4096};
    const auto lite = gradients(sizes(2, 4, 2, 1, 1, 2), "Et*3|(t*3|)*3(t*4|)*3t*3L");
    EXPECT_EQ(lite[0], 14'261'606'400);
    EXPECT_EQ(lite[2], 15'957'415'936);
    EXPECT_EQ(lite[3], 14'097'223'680);
    // The final norm with the last layer: 22,611,968 + 9,342,464 parameters on the first rank.
    work.model = tests::llama_of("predicts", {.layers = 8, .hidden = 512, .ffn = 1344, .heads = 8, .head_dim = 64, .vocab = 32000});
    work.model.mtp_layers = 1;
    work.world = 2;
    work.batch = {32, 2048};
    EXPECT_EQ(gradients(sizes(1, 2, 2), "Ett|ttt|ttt|mL")[0], 127'817'728);
}

// Gradient bytes that the DDP of Megatron-LM (main at d98e8a64) allocated for these two stages with Muon (tests/megatron).
TEST(ModelStates, OfMuonHoldEachMatrixInOneShard) {
    Workload work;
    work.model = formats::load_model("llama3-8b").model;
    work.training.megatron.optimizer = OptimizerKind::muon;
    work.world = 16;
    work.batch = {512, 8192};
    LayoutRequest request = sizes(1, 2);
    request.engine = Engine::megatron;
    const Layout layout = planner::make_layout(with_layers(request, "Et*18|t*14L"), work);
    const auto states_of = [&](bool laid_out) {
        work.training.megatron.layer_wise_layout = laid_out;
        ModelStates states(work);
        return states.stages(layout).of;
    };
    const std::vector<ModelStateBytes> whole = states_of(true), usual = states_of(false);
    EXPECT_EQ(whole[0].gradients, 20'892'418'048);
    EXPECT_EQ(whole[1].gradients, 14'449'852'416);
    // Without the layout nothing is padded, and the optimizer's shard is no larger.
    for (int stage = 0; stage < 2; ++stage) {
        EXPECT_EQ(usual[static_cast<std::size_t>(stage)].gradients, 4 * stage_parameter_count(work.model, layout, stage).total());
        EXPECT_GE(whole[static_cast<std::size_t>(stage)].optimizer, usual[static_cast<std::size_t>(stage)].optimizer);
    }
}

TEST(ModelStates, OfSmallShardsKeepEveryHoleInMind) {
    Workload work;
    work.model = formats::load_model("llama3-8b").model;
    work.model.hidden = 96;  // norms of 96 elements leave holes of 32
    work.model.ffn = 256;
    work.model.heads = work.model.kv_heads = 6;
    work.model.head_dim = 16;
    work.world = 3;
    work.batch = {3, 64};
    const Layout layout = planner::make_layout(sizes(1, 1), work);
    const auto parameters = stage_parameter_count(work.model, layout, 0).total();
    ModelStates states(work);
    // Two norms a layer leave holes of 32 elements each; the end is padded to lcm(3, 128).
    EXPECT_GT(states.of(layout, 0).parameters, 2 * (parameters + 32 * 64));
    EXPECT_EQ(states.of(layout, 0), laid_out(work, layout, 0));
}

TEST(ModelStates, OfEngineMegatronCutAndPadBucketsAsItsFlagsSay) {
    Workload work;
    work.model = formats::load_model("llama3-8b").model;
    work.world = 8;
    work.batch = {8, 4096};
    const auto parameters = [&](Engine engine, const MegatronSwitches& switches) {
        work.training.megatron = switches;
        LayoutRequest request = sizes(1, 1);
        request.engine = engine;
        ModelStates states(work);
        return states.of(planner::make_layout(request, work), 0).parameters;
    };
    const std::int64_t usual = parameters(Engine::megatron, {});
    EXPECT_EQ(parameters(Engine::mgplan, {.bucket_size = 1, .pad_buckets = true}), usual);  // not a switch of this engine
    EXPECT_GT(parameters(Engine::megatron, {.pad_buckets = true}), usual);
    // A bucket for each parameter, each padded to 65536 elements.
    EXPECT_GT(parameters(Engine::megatron, {.bucket_size = 1, .pad_buckets = true}), parameters(Engine::megatron, {.pad_buckets = true}));
}

/// Bytes an element that the optimizer keeps, and further ones during the step, with one big parameter on one rank.
std::pair<std::int64_t, std::int64_t> aware(Dtype main, Dtype exp_avg, Dtype exp_avg_sq, Precision precision = Precision::bf16,
                                            Fp8Recipe recipe = Fp8Recipe::delayed) {
    TrainingSpec training;
    training.precision = precision;
    training.main_param_dtype = main;
    training.exp_avg_dtype = exp_avg;
    training.exp_avg_sq_dtype = exp_avg_sq;
    training.megatron.precision_aware_optimizer = true;
    training.megatron.fp8_recipe = recipe;
    const ModelStateBytes bytes = model_state_bytes({kElements, kElements, false, 1, 1}, Engine::megatron, training);
    return {bytes.optimizer / kElements, (bytes.update + bytes.stepping[0]) / kElements};
}

TEST(PrecisionAwareOptimizer, KeepsTheLowHalvesOfMainParametersAlone) {
    EXPECT_EQ(aware(Dtype::fp32, Dtype::fp32, Dtype::fp32), std::pair(std::int64_t{2 + 4 + 4}, std::int64_t{0}));
}

TEST(PrecisionAwareOptimizer, WidensNarrowStateForTheStep) {
    EXPECT_EQ(aware(Dtype::fp32, Dtype::bf16, Dtype::bf16), std::pair(std::int64_t{2 + 2 + 2}, std::int64_t{8}));
    EXPECT_EQ(aware(Dtype::fp32, Dtype::fp8, Dtype::fp8), std::pair(std::int64_t{2 + 1 + 1}, std::int64_t{8}));
    EXPECT_EQ(aware(Dtype::fp16, Dtype::fp16, Dtype::fp8), std::pair(std::int64_t{2 + 2 + 1}, std::int64_t{12}));
}

/// Dense parameters and experts have an optimizer each, and these step one after the other.
TEST(PrecisionAwareOptimizer, WidensTheStateOfOneOptimizerAtATime) {
    Workload work;
    work.model = formats::load_model("mixtral-8x7b").model;
    work.world = 8;
    work.batch = {8, 4096};
    work.training.distributed_optimizer = true;
    work.training.megatron.precision_aware_optimizer = true;
    work.training.exp_avg_dtype = work.training.exp_avg_sq_dtype = Dtype::bf16;
    const auto update = [&](int ep) {
        ModelStates states(work);
        LayoutRequest request;
        request.engine = Engine::megatron;
        request.ep = ep;
        return states.of(planner::make_layout(request, work), 0).update;
    };
    const double experts = 32.0 * 8 * 3 * 4096 * 14336, dense = static_cast<double>(total_parameters(work.model)) - experts;
    EXPECT_NEAR(static_cast<double>(update(8)) / (8 * experts / 8), 1, 0.001) << "experts over 8 ranks, and no dense parameter";
    EXPECT_LT(dense, experts);
}

TEST(PrecisionAwareOptimizer, LeavesMainParametersToMegatronUnderRecipesWithoutFusedCasts) {
    EXPECT_EQ(aware(Dtype::fp32, Dtype::bf16, Dtype::bf16, Precision::fp8, Fp8Recipe::mxfp8),
              std::pair(std::int64_t{4 + 2 + 2}, std::int64_t{8}));
    EXPECT_EQ(aware(Dtype::fp32, Dtype::bf16, Dtype::bf16, Precision::fp8), std::pair(std::int64_t{2 + 2 + 2}, std::int64_t{8}));
}

TEST(PrecisionAwareOptimizer, CopiesNoNarrowGradients) {
    TrainingSpec training;
    training.grad_dtype = Dtype::bf16;
    const BufferElements elements{kElements, kElements, false, 4, 1};
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).update, kElements);
    training.megatron.precision_aware_optimizer = true;
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).update, 0);
    EXPECT_EQ(model_state_bytes(elements, Engine::mgplan, training).update, kElements);  // no such optimizer there
}

TEST(PrecisionAwareOptimizer, HoldsScalesOfNarrowStateForEachParameter) {
    TrainingSpec training;
    training.megatron.precision_aware_optimizer = true;
    training.exp_avg_dtype = Dtype::fp8;
    training.exp_avg_sq_dtype = Dtype::fp16;
    const std::int64_t few = model_state_bytes({kElements, kElements, false, 1, 10}, Engine::megatron, training).optimizer;
    const std::int64_t many = model_state_bytes({kElements, kElements, false, 1, 110}, Engine::megatron, training).optimizer;
    EXPECT_EQ(many - few, 100 * 512 * (4 + 1));  // fp8: scale, maximum and inverse of the quantizer, and the optimizer's own
}

/// Megatron-LM's HybridDeviceOptimizer (core/optimizer/cpu_offloading/hybrid_optimizer.py, d98e8a64): on the host an fp32 parameter, its
/// gradient and two moments; on the device the same but for gradients that are fp32 already.
TEST(HostOptimizer, DividesWhatARankOwnsBetweenHostAndDevice) {
    TrainingSpec training;
    training.offload.optimizer = 0.5;
    const BufferElements elements{.parameters = kElements, .buffer = kElements, .shards = 4, .tensors = 10, .largest = 100'000};
    const ModelStateBytes bytes = model_state_bytes(elements, Engine::megatron, training);
    constexpr std::int64_t kOwned = kElements / 4, kHalf = kOwned / 2;
    EXPECT_EQ(bytes.parameters, kElements * 2);
    EXPECT_EQ(bytes.gradients, kElements * 4);
    EXPECT_EQ(bytes.optimizer, kHalf * (4 + 4 + 4));
    EXPECT_EQ(bytes.host, kHalf * (4 + 4 + 4 + 4));
    EXPECT_EQ(bytes.staged, 100'000 * 4);  // an fp32 parameter on its way into 16 bits
    EXPECT_EQ(bytes.update, 0);

    training.exp_avg_dtype = training.exp_avg_sq_dtype = Dtype::bf16;  // which the hybrid optimizer does not have
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training), bytes);

    training.offload.optimizer = 1;
    const ModelStateBytes all = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(all.optimizer, 0);
    EXPECT_EQ(all.host, kOwned * 16);
}

TEST(HostOptimizer, WidensNarrowGradientsOnTheDevice) {
    TrainingSpec training;
    training.grad_dtype = Dtype::bf16;
    training.offload.optimizer = 0.5;
    const BufferElements elements{.parameters = kElements, .buffer = kElements, .tensors = 10, .largest = 100'000};
    const ModelStateBytes bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.optimizer, kElements / 2 * (4 + 4 + 4 + 4));
    EXPECT_EQ(bytes.staged, 100'000 * 4);
    training.megatron.overlap_host_update = true;  // one copy of each stream
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).staged, 2 * 100'000 * 4);
}

/// Branch dev of Megatron-LM at d48bd6be, core/optimizer/cpu_offloading/chunked_optimizer_state_offload.py: what is selected has its main
/// parameter and its moments on the host, and all of it back during the update, or of moments two chunks of whole parameters.
TEST(WaitingState, IsOnTheHostBetweenUpdates) {
    TrainingSpec training;
    const BufferElements elements{.parameters = kElements, .buffer = kElements, .shards = 4, .tensors = 10, .largest = 100'000};
    constexpr std::int64_t kOwned = kElements / 4, kHalf = kOwned / 2;
    const ModelStateBytes plain = model_state_bytes(elements, Engine::megatron, training);
    training.offload.states = 0.5;
    ModelStateBytes bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.parameters, plain.parameters);
    EXPECT_EQ(bytes.gradients, plain.gradients);
    EXPECT_EQ(bytes.optimizer, kHalf * 12);
    EXPECT_EQ(bytes.host, kHalf * 12);
    EXPECT_EQ(bytes.update, kHalf * 12);
    EXPECT_EQ(bytes.moving[0], 0);

    training.megatron.offload_chunk_mib = 1;
    bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.host, kHalf * 12);
    EXPECT_EQ(bytes.update, kHalf * 4);
    EXPECT_EQ(bytes.moving[0], kHalf * 8);
    EXPECT_EQ(bytes.largest_moving[0], 100'000 * 8);

    // bf16 moments: the update works on fp32 copies of what stays, then of a chunk, here all that waits.
    training.megatron.precision_aware_optimizer = true;
    training.exp_avg_dtype = training.exp_avg_sq_dtype = Dtype::bf16;
    bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.host, kHalf * (2 + 2 + 2));  // of main parameters what bf16 ones lack
    EXPECT_EQ(bytes.update, kHalf * 2 + kHalf * (4 + 4));
}

TEST(WaitingState, OfMuonIsAMomentOfAMatrixAndTwoOfAllElse) {
    TrainingSpec training;
    training.megatron.optimizer = OptimizerKind::muon;
    training.offload.states = 1;
    BufferElements elements{.parameters = kElements, .buffer = kElements, .shards = 4, .tensors = 10, .largest = 100'000};
    elements.matrices = kElements / 2;
    elements.largest_matrix = 50'000;
    constexpr std::int64_t kMatrices = kElements / 8, kOthers = kElements / 8;
    ModelStateBytes bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.optimizer, 0);
    EXPECT_EQ(bytes.host, kMatrices * (4 + 4) + kOthers * (4 + 8));
    EXPECT_EQ(bytes.update, bytes.host);
    training.megatron.offload_chunk_mib = 1;
    bytes = model_state_bytes(elements, Engine::megatron, training);
    EXPECT_EQ(bytes.update, (kMatrices + kOthers) * 4);
    EXPECT_EQ(bytes.moving, (std::array<std::int64_t, 2>{kMatrices * 4, kOthers * 8}));
    EXPECT_EQ(bytes.largest_moving, (std::array<std::int64_t, 2>{50'000 * 4, 100'000 * 8}));
}

TEST(WaitingState, ComesBackInTwoChunksOfOneOptimizerAndOneOfTheOther) {
    TrainingSpec training;
    training.offload.states = 1;
    training.megatron.offload_chunk_mib = 1;
    constexpr std::int64_t kMiB = 1 << 20;
    ModelStateBytes bytes;
    bytes.moving = {100 * kMiB, 50 * kMiB};
    EXPECT_EQ(most_moving(bytes, training), 3 * kMiB);
    bytes.largest_moving = {4 * kMiB, 0};  // a parameter is not cut
    EXPECT_EQ(most_moving(bytes, training), 9 * kMiB);
    bytes.largest_moving = {0, 30 * kMiB};
    EXPECT_EQ(most_moving(bytes, training), 50 * kMiB);  // experts alone, all they have
    bytes.moving = {kMiB / 2, 0};
    EXPECT_EQ(most_moving(bytes, training), kMiB / 2);
}

Workload fp8_workload(Fp8Recipe recipe, int compute_capability, bool parameters) {
    Workload work;
    work.model = formats::load_model("llama3-8b").model;
    work.world = 8;
    work.batch = {8, 4096};
    work.cluster.compute_capability = compute_capability;
    work.training.precision = Precision::fp8;
    work.training.fp8_parameters = parameters;
    work.training.megatron.fp8_recipe = recipe;
    return work;
}

std::int64_t parameter_bytes(const Workload& work, Engine engine = Engine::mgplan) {
    ModelStates states(work);
    Layout layout = planner::make_layout({}, work);
    layout.engine = engine;
    return states.of(layout, 0).parameters;
}

/// Elements of Llama 3 8B's linear layers: q, k, v and output projections, gate, value and down projections.
constexpr std::int64_t kLinear = std::int64_t{32} * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336);

TEST(Fp8Weights, AreKeptBeside16BitOnesAsCaches) {
    Workload bf16 = fp8_workload(Fp8Recipe::delayed, 90, false);
    bf16.training.precision = Precision::bf16;
    const std::int64_t without = parameter_bytes(bf16), without_by_megatron = parameter_bytes(bf16, Engine::megatron);
    const std::int64_t weights = 32 * 4;
    const auto by_megatron = [&](int capability) {
        return parameter_bytes(fp8_workload(Fp8Recipe::delayed, capability, false), Engine::megatron) - without_by_megatron;
    };
    // Hopper keeps a transpose, Blackwell needs none; an fp32 scale each. GPUs before Ada have no fp8.
    EXPECT_EQ(by_megatron(90), 2 * kLinear + 4 * weights);
    EXPECT_EQ(by_megatron(100), kLinear + 4 * weights);
    EXPECT_EQ(by_megatron(80), 0);
    // What mgplan's own engine runs has a transpose on both, and two fp32, or with delayed scaling histories of 1,024 steps.
    for (const int capability : {90, 100}) {
        EXPECT_EQ(parameter_bytes(fp8_workload(Fp8Recipe::tensorwise, capability, false)) - without, 2 * kLinear + 8 * weights);
        EXPECT_EQ(parameter_bytes(fp8_workload(Fp8Recipe::delayed, capability, false)) - without, 2 * kLinear + 12336 * weights);
    }
    EXPECT_EQ(parameter_bytes(fp8_workload(Fp8Recipe::mxfp8, 100, false)) - without, 2 * kLinear + 2 * kLinear / 32);
    EXPECT_EQ(parameter_bytes(fp8_workload(Fp8Recipe::blockwise, 90, false)) - without, 2 * kLinear + 2 * kLinear / (128 * 128) * 4);
}

TEST(Fp8Weights, StoredInTheBufferAreItsFirstCopy) {
    Workload bf16 = fp8_workload(Fp8Recipe::delayed, 90, false);
    bf16.training.precision = Precision::bf16;
    const std::int64_t weights = 32 * 4;
    const auto saved = [&](Fp8Recipe recipe, int capability, Engine engine = Engine::megatron) {
        return static_cast<double>(parameter_bytes(bf16, engine) - parameter_bytes(fp8_workload(recipe, capability, true), engine));
    };
    // One of two bytes remains, and its transpose. Two buffers in the place of one may pad their buckets a little more.
    EXPECT_NEAR(saved(Fp8Recipe::delayed, 90), static_cast<double>(-4 * weights), 1e6);
    EXPECT_NEAR(saved(Fp8Recipe::delayed, 100), static_cast<double>(kLinear), 1e6);
    const std::int64_t scales = 2 * kLinear / 32;
    EXPECT_NEAR(saved(Fp8Recipe::mxfp8, 100), -static_cast<double>(scales), 1e6);
    // mgplan's own engine has the transpose on both, and two fp32, or with delayed scaling histories.
    for (const int capability : {90, 100}) {
        EXPECT_NEAR(saved(Fp8Recipe::tensorwise, capability, Engine::mgplan), static_cast<double>(-8 * weights), 1e5);
        EXPECT_NEAR(saved(Fp8Recipe::delayed, capability, Engine::mgplan), static_cast<double>(-12336 * weights), 1e5);
    }
}

TEST(Fp8Weights, OfNvfp4ArePackedByTwosIntoTheBuffer) {
    Workload bf16 = fp8_workload(Fp8Recipe::delayed, 100, false), nvfp4 = fp8_workload(Fp8Recipe::delayed, 100, true);
    bf16.training.precision = Precision::bf16;
    nvfp4.training.precision = Precision::nvfp4;
    const std::int64_t weights = 32 * 4, scales = 2 * kLinear / 16 + 8 * weights;
    // Half a byte in the buffer and half for the transpose, in the place of two.
    EXPECT_NEAR(static_cast<double>(parameter_bytes(bf16, Engine::megatron) - parameter_bytes(nvfp4, Engine::megatron)),
                static_cast<double>(kLinear - scales), 1e6);
}

TEST(Fp8Weights, PadScalesAsTransformerEngineDoes) {
    // 200 x 300: 2 x 3 blocks, padded to 2 x 4 and 3 x 4; micro-scaled 256 x 12 and 8 x 384.
    EXPECT_EQ(fp8_weight_bytes(200, 300, Fp8Recipe::blockwise, 90).scales, 4 * (2 * 4 + 3 * 4));
    EXPECT_EQ(fp8_weight_bytes(200, 300, Fp8Recipe::mxfp8, 100).scales, 256 * 12 + 8 * 384);
    EXPECT_EQ(fp8_weight_bytes(200, 300, Fp8Recipe::delayed, 90), (Fp8WeightBytes{60'000, 60'000, 4}));
    EXPECT_EQ(fp8_weight_bytes(200, 300, QuantisedFormat::nvfp4, 100), (Fp8WeightBytes{30'000, 30'000, 256 * 20 + 384 * 16 + 8}));
}

// Megatron-LM's functional test gpt3_weekly_mcore_tp4_cp2_current_scaling_native_fp8_tp_sp_cp_tp_overlap (commit d98e8a64):
// memory allocated behind the optimizer step is 300,733,952 bytes on H100 and 291,296,768 on GB200, with equal arguments.
TEST(Fp8Weights, DifferBetweenHopperAndBlackwellByWhatWasMeasured) {
    const auto weights = [](int capability) {
        // A layer of hidden size 512 on one of four tensor-parallel ranks: q, k and v, output projection, the MLP's two.
        Fp8WeightBytes layer = fp8_weight_bytes(384, 512, Fp8Recipe::tensorwise, capability);
        layer += fp8_weight_bytes(512, 128, Fp8Recipe::tensorwise, capability);
        layer += fp8_weight_bytes(512, 512, Fp8Recipe::tensorwise, capability).times(2);
        return layer.times(12).total();
    };
    EXPECT_EQ(weights(90) - weights(100), 300'733'952 - 291'296'768);
}

// layer_wise_optimizer.py divides matrices whole: of few large ones a rank has one or none. The rest has Adam's two moments.
TEST(ModelState, OfMuonHasOneMomentOfMatricesThatAreDividedWhole) {
    TrainingSpec training;
    training.megatron.optimizer = OptimizerKind::muon;
    BufferElements elements{kElements, kElements, false, 1, 10};
    elements.matrices = 1'000'000;
    elements.largest_matrix = 250'000;
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).optimizer, 8 * 1'000'000 + 12 * 24'000);
    elements.shards = 2;
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).optimizer, 8 * 500'000 + 12 * 12'000);
    elements.shards = 8;
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).optimizer, 8 * 250'000 + 12 * 3'000);
    elements.shard = 300'000;  // in a buffer of matrices alone
    EXPECT_EQ(model_state_bytes(elements, Engine::megatron, training).optimizer, 8 * 300'000);
    elements.shard = 0;
    // mgplan's own engine lays them out in a buffer of their own.
    elements.matrices = 0;
    EXPECT_EQ(model_state_bytes(elements, Engine::mgplan, training).optimizer, 12 * kElements / 8);
    elements.matrices = kElements;
    EXPECT_EQ(model_state_bytes(elements, Engine::mgplan, training).optimizer, 8 * kElements / 8);
}

TEST(ModelState, HasAsManyMomentsAsTheOptimizerKeeps) {
    TrainingSpec training;
    const BufferElements elements{kElements, kElements, false, 1, 10};
    const auto optimizer = [&](OptimizerKind kind) {
        training.megatron.optimizer = kind;
        return model_state_bytes(elements, Engine::megatron, training).optimizer / kElements;
    };
    EXPECT_EQ(optimizer(OptimizerKind::sgd), 8);
    EXPECT_EQ(optimizer(OptimizerKind::lion), 8);
    EXPECT_EQ(optimizer(OptimizerKind::adam), 12);
    EXPECT_EQ(optimizer(OptimizerKind::ademamix), 16);
    training.megatron.optimizer = OptimizerKind::lion;
    EXPECT_EQ(model_state_bytes(elements, Engine::mgplan, training).optimizer, 8 * kElements);
}

}  // namespace
}  // namespace mgplan::simulator::model_state_test
