// Residual streams that maps mix (mHC): what they keep, what making them again saves, what mixing takes.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/json/cluster_json.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::simulator::residual_streams_test {
namespace {

constexpr std::int64_t kRows = 2 * 1024, kHidden = 512, kStreams = 4, kMaps = kStreams * (kStreams + 2);
constexpr std::int64_t kStream = kRows * kHidden * 2;  // one of them, bf16

ModelSpec model_of(std::optional<HyperConnections> streams) {
    ModelSpec model = tests::llama_of(
        "streams", {.layers = 6, .hidden = kHidden, .ffn = 1024, .heads = 8, .head_dim = 64, .vocab = 4096, .max_positions = 1024});
    model.hyper_connections = streams;
    return model;
}

Workload workload_of(std::optional<HyperConnections> streams, bool fused = false) {
    Workload work;
    work.model = model_of(streams);
    work.cluster = load_cluster("dgx-h100");
    work.memory_limit = work.cluster.memory_bytes;
    work.batch = {.global_batch = 16, .sequence = 1024};
    work.world = 8;
    work.training.megatron.fused_streams = fused;
    return work;
}

Layout layout_of(const Workload& work, std::int64_t pp = 1, std::optional<std::int64_t> block = std::nullopt) {
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.pp = pp;
    request.micro_batch = 2;
    if (block) {
        request.recompute = Recompute::selective;
        request.recompute_modules = {RecomputeModule::mhc};
        request.mhc_recompute_layers = *block;
    }
    return planner::make_layout(request, work);
}

std::int64_t kept_by_a_layer(const Workload& work) {
    ShardLayers layers(work);
    return layers.profiles(layout_of(work), 0).bytes.layers.front();
}

constexpr HyperConnections kMain{.streams = kStreams}, kDev{.streams = kStreams, .learned_head = true};

TEST(ResidualStreams, KeepWhatTheirBackwardReads) {
    // Behind each half all streams in place of one; in front of it their sum; what it gives, which else goes into the sum; raw maps and
    // those behind their bounds, the matrix in front of its rounds, and the lengths in fp32.
    const std::int64_t maps = kRows * ((2 * kMaps + kStreams * kStreams) * 2 + 4);
    const std::int64_t more = 2 * ((kStreams - 1) * kStream + 2 * kStream + maps);
    EXPECT_EQ(kept_by_a_layer(workload_of(kDev, true)) - kept_by_a_layer(workload_of(std::nullopt)), more);
    EXPECT_EQ(kept_by_a_layer(workload_of(kMain)) - kept_by_a_layer(workload_of(std::nullopt)), more);
    // Branch dev's own kernels compute maps from fp32 copies, which stay (hyper_connection.py, _projection_and_get_norm).
    EXPECT_EQ(kept_by_a_layer(workload_of(kDev)) - kept_by_a_layer(workload_of(kDev, true)), 2 * kStreams * kStream * 2);
}

TEST(ResidualStreams, OfABlockAreMadeAgain) {
    const Workload work = workload_of(kMain);
    const auto kept = [&](std::optional<std::int64_t> block) {
        ActivationMemory memory(work);
        return memory.passes(layout_of(work, 1, block), 0).chunks.front().forward.net_total();
    };
    // Each layer gives back the streams behind its halves and what they read of them; a block's last streams stay.
    const std::int64_t of_layers = 6 * 2 * (kStreams + 1) * kStream, of_block = kStreams * kStream;
    EXPECT_EQ(kept(std::nullopt) - kept(0), of_layers - of_block) << "one block";
    EXPECT_EQ(kept(std::nullopt) - kept(2), of_layers - 3 * of_block);
    EXPECT_EQ(kept(std::nullopt) - kept(4), of_layers - 2 * of_block) << "four layers and two";
    // A block's tensors are all there while it runs.
    ActivationMemory memory(work);
    const auto backward = [&](std::int64_t block) { return memory.passes(layout_of(work, 1, block), 0).chunks.front().backward.peak; };
    EXPECT_GT(backward(0), backward(2));
}

/// Latent attention and experts, whose norms are modules of their own.
Workload workload_of_norms_alone(Precision precision = Precision::bf16) {
    Workload work = workload_of(kDev, true);
    work.training.precision = precision;
    work.model.mla = MlaSpec{.q_lora_rank = 128, .kv_lora_rank = 64, .qk_nope_head_dim = 64, .qk_rope_head_dim = 32, .v_head_dim = 64};
    work.model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 256, .shared_ffn = 256};
    work.model.moe_layers = std::vector<bool>(6, true);
    return work;
}

TEST(ResidualStreams, OfABlockAreMadeAgainWithNormsThatStandAlone) {
    // Megatron-LM's manager of a block holds what norms in front of latent attention and of mixtures give, with or without the module
    // layernorm (transformer_layer.py, mhc_checkpoint_input_layernorm): a stream each, until the block ends.
    const std::int64_t of_layers = 6 * 2 * (kStreams + 2) * kStream, of_block = kStreams * kStream;
    for (const Precision precision : {Precision::bf16, Precision::fp8}) {
        const Workload work = workload_of_norms_alone(precision);
        ActivationMemory memory(work);
        const auto forward = [&](std::optional<std::int64_t> block, bool layernorm) {
            Layout layout = layout_of(work, 1, block);
            if (layernorm) layout.recompute_modules.add(RecomputeModule::layernorm);
            return memory.passes(layout, 0).chunks.front().forward;
        };
        const auto kept = [&](std::optional<std::int64_t> block) { return forward(block, false).net_total(); };
        if (precision == Precision::bf16) {
            EXPECT_EQ(kept(std::nullopt) - kept(0), of_layers - of_block) << "one block";
            EXPECT_EQ(kept(std::nullopt) - kept(2), of_layers - 3 * of_block);
        }
        EXPECT_EQ(kept(2) - kept(0), 2 * of_block);
        EXPECT_EQ(forward(2, true).net_total() < kept(2), precision == Precision::fp8) << "linear layers then keep no copies in fp8";
    }
    const auto backward = [&](std::int64_t block) {
        const Workload work = workload_of_norms_alone();
        ActivationMemory memory(work);
        return memory.passes(layout_of(work, 1, block), 0).chunks.front().backward.peak;
    };
    EXPECT_EQ(backward(0) - backward(3), 6 * (kStreams + 2) * kStream) << "all of three layers more wait in the block's backward";
}

TEST(ResidualStreams, HaveMapsInFp32OnBranchDev) {
    // hyper_connection.py and transformer_block.py at d48bd6be, mark_keep_in_fp32: neither a bf16 copy nor a main parameter beside it.
    const auto state = [](const HyperConnections& streams) {
        Workload work = workload_of(streams);
        work.training.distributed_optimizer = false;
        CostModel model(work);
        return model.estimate(layout_of(work)).memory.worst.breakdown;
    };
    const std::int64_t width = kStreams * kHidden, maps = 6 * 2 * (kMaps * (width + 1) + 3), head = kStreams * (width + 1) + 1;
    const auto main = state(kMain), dev = state(kDev);
    EXPECT_EQ(dev.parameters - main.parameters, maps * 2 + head * 4);
    EXPECT_EQ(dev.gradients - main.gradients, head * 4);
    EXPECT_EQ(dev.optimizer - main.optimizer, head * 8 - maps * 4);
}

TEST(ResidualStreams, TravelBetweenStages) {
    const Workload work = workload_of(kDev), plain = workload_of(std::nullopt);
    CostModel with(work), without(plain);
    const auto sent = [](CostModel& model, const Workload& workload) { return model.estimate(layout_of(workload, 2)).time.exposed.pp; };
    EXPECT_GT(sent(with, work), 2 * sent(without, plain)) << "four times the bytes";
    ShardLayers layers(work);
    EXPECT_EQ(layers.profiles(layout_of(work, 2), 0).steps.stream, kStreams * kStream);
}

TEST(ResidualStreams, TakeTimeByTheKernelsThatMixThem) {
    const auto seconds = [](const Workload& work) {
        CostModel model(work);
        return model.estimate(layout_of(work)).time.iteration_seconds;
    };
    HyperConnections few = kMain;
    few.sinkhorn_iterations = 5;
    EXPECT_LT(seconds(workload_of(std::nullopt)), seconds(workload_of(kDev, true)));
    EXPECT_LT(seconds(workload_of(kDev, true)), seconds(workload_of(kDev)));
    EXPECT_LT(seconds(workload_of(few)), seconds(workload_of(kMain))) << "rounds run kernel by kernel";
}

TEST(ResidualStreams, AreNoModelFlops) {
    // As Megatron-LM counts them (training.py, num_floating_point_operations).
    const BatchSpec batch{.global_batch = 1, .sequence = 1024};
    EXPECT_EQ(model_flops(model_of(kMain), batch), model_flops(model_of(std::nullopt), batch));
}

/// Megatron-LM's own run of mHC: branch dev at d48bd6be, tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp2_pp2_mhc, eight H100.
TEST(ResidualStreams, TakeTheMemoryThatMegatronLmMeasured) {
    const formats::Job job = formats::read_megatron_text(
        "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 4 --global-batch-size 32 --seq-length 1024 "
        "--max-position-embeddings 1024 --vocab-size 50257 --transformer-impl transformer_engine --tensor-model-parallel-size 2 "
        "--pipeline-model-parallel-size 2 --deterministic-mode --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --bf16 "
        "--attention-backend unfused --sequence-parallel --log-params-norm --log-num-zeros-in-grad --enable-hyper-connections "
        "--num-residual-streams 4 --mhc-sinkhorn-iterations 20 --recompute-granularity selective --recompute-modules [mhc] "
        "--mhc-recompute-layer-num 2",
        "flags");
    Workload work = workload_of(std::nullopt);
    work.model = job.model;
    work.training = *job.training;
    work.batch = *job.batch;
    CostModel model(work);
    const Layout layout = planner::make_layout(*job.layout, work);
    // mem-max-allocated-bytes of golden_values_dev_dgx_h100.json, which the last rank writes.
    const std::int64_t predicted = model.stage_memory(layout, 1).framework_bytes;
    EXPECT_NEAR(static_cast<double>(predicted), 2'139'342'848.0, 0.02 * 2'139'342'848.0);
    EXPECT_EQ(predicted, 2'159'755'408) << "docs/measurements/residual-streams.md prints it";
    EXPECT_EQ(fmt::format("{:.2f}", model.estimate(layout).time.iteration_seconds), "0.29") << "and this time";
}

}  // namespace
}  // namespace mgplan::simulator::residual_streams_test
