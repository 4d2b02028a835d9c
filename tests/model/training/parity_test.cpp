// Every layout trains the same model: losses and gradient norms of a few steps equal those of one rank, and every byte
// held and sent equals what the same code predicts on shapes alone.

#include <cmath>
#include <map>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/errors.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::model {
namespace {

constexpr int kSteps = 3;

ModelSpec small_gpt() {
    ModelSpec model;
    model.name = "small-gpt";
    model.layers = 4;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 8;
    model.vocab = 61;  // padded to a multiple of 8·tp
    model.vocab_divisor = 8;
    model.max_positions = 16;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

ModelSpec small_llama() {
    ModelSpec model = small_gpt();
    model.name = "small-llama";
    model.kv_heads = 2;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.tied_embeddings = false;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    model.qk_norm = true;
    return model;
}

/// A layout's sizes; what is left out is 1 or off.
struct Case {
    std::string name;
    int tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1;
    int micro_batch = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> modules{};
    RecomputeMethod method = RecomputeMethod::uniform;
    int recompute_layers = 1;
    bool distributed_optimizer = true;
};

TrainingTask task_for(const ModelSpec& model, const Case& c, Precision precision) {
    TrainingTask task;
    task.model = model;
    task.batch = {8, 16};
    task.training.precision = precision;
    task.training.distributed_optimizer = c.distributed_optimizer;
    Layout& layout = task.layout;
    layout.sizes = {c.tp * c.cp * c.pp * c.dp, c.tp, c.cp, 1, c.tp, c.pp, AxisOrder{}, 1};
    layout.vpp = c.vpp;
    layout.group_size = c.pp;
    layout.micro_batch = c.micro_batch;
    layout.num_microbatches = task.batch.global_batch / (c.dp * c.micro_batch);
    layout.sequence_parallel = c.sequence_parallel;
    layout.cp_comm_type = c.cp_comm_type;
    layout.recompute = c.recompute;
    layout.recompute_modules = c.modules;
    if (c.recompute == Recompute::full) {
        layout.recompute_method = c.method;
        layout.recompute_num_layers = c.recompute_layers;
    }
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, c.pp, c.vpp).value());
    return task;
}

void tokens_of(std::int64_t sequence, std::span<std::int32_t> tokens) {
    // Every step sees the same eight sequences, so that the loss must fall.
    std::uint64_t state = static_cast<std::uint64_t>(sequence % 8) * 7919 + 17;
    for (auto& token : tokens) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        token = static_cast<std::int32_t>((state >> 33U) % 61);
    }
}

struct Outcome {
    std::vector<StepReport> steps;
    std::vector<MemoryUse> memory;           ///< by rank
    std::vector<CollectiveCounter> traffic;  ///< by rank, as the transport counted it
};

Outcome train(const TrainingTask& task) {
    const int ranks = static_cast<int>(task.layout.sizes.world);
    Outcome outcome;
    outcome.memory.resize(static_cast<std::size_t>(ranks));
    runtime::InProcessWorld world(ranks);
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(rank));
        device.pool().restart_high_water();
        std::vector<StepReport> steps;
        for (int step = 0; step < kSteps; ++step) steps.push_back(trainer.step(tokens_of, 1e-2));
        const std::scoped_lock lock(mutex);
        outcome.memory[static_cast<std::size_t>(rank)] = device.memory();
        if (rank == 0) outcome.steps = steps;
    });
    for (int rank = 0; rank < ranks; ++rank) outcome.traffic.push_back(world.traffic(rank));
    return outcome;
}

/// The same rank on shapes alone.
void expect_prediction_equals(const TrainingTask& task, const Outcome& outcome, int rank) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    CollectiveCounter traffic;
    RankTrainer trainer(task, device, recording_world(rank, static_cast<int>(task.layout.sizes.world), &traffic));
    device.restart_high_water();
    for (int step = 0; step < kSteps; ++step) (void)trainer.step(tokens_of, 1e-2);
    const MemoryUse& measured = outcome.memory[static_cast<std::size_t>(rank)];
    for (int i = 0; i < kMemoryCategories; ++i) {
        const auto category = static_cast<MemoryCategory>(i);
        const auto index = static_cast<std::size_t>(i);
        EXPECT_EQ(device.memory().high_water[index], measured.high_water[index]) << "rank " << rank << " " << to_string(category);
    }
    EXPECT_EQ(traffic.totals(), outcome.traffic[static_cast<std::size_t>(rank)].totals()) << "rank " << rank;
}

const std::vector<StepReport>& one_rank(const ModelSpec& model) {
    static std::map<std::string, std::vector<StepReport>> known;
    auto& steps = known[model.name];
    if (steps.empty()) steps = train(task_for(model, {"one"}, Precision::fp64)).steps;
    return steps;
}

std::vector<Case> cases() {
    using enum RecomputeModule;
    return {
        {.name = "dp2", .dp = 2},
        {.name = "dp4_plain", .dp = 4, .distributed_optimizer = false},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2", .pp = 2},
        {.name = "pp4", .pp = 4},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp4_ring", .cp = 4},
        {.name = "cp2_gather", .cp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "core", .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "full", .recompute = Recompute::full},
        {.name = "full2_tp2_sp", .tp = 2, .sequence_parallel = true, .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "block", .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 2},
        {.name = "tp2_dp2", .tp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2", .tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_vpp2_dp2", .tp = 2, .pp = 2, .vpp = 2, .dp = 2, .micro_batch = 2},
        {.name = "pp4_dp2_mbs2", .pp = 4, .dp = 2},
    };
}

class Parity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(Parity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [llama, c] = GetParam();
    const ModelSpec model = llama ? small_llama() : small_gpt();
    const auto& expected = one_rank(model);
    const TrainingTask task = task_for(model, c, Precision::fp64);
    const Outcome outcome = train(task);
    ASSERT_EQ(outcome.steps.size(), expected.size());
    EXPECT_LT(expected.back().loss, expected.front().loss);
    EXPECT_GT(expected.front().result.grad_norm, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(outcome.steps[i].loss / expected[i].loss, 1, 1e-10) << "step " << i;
        EXPECT_NEAR(outcome.steps[i].result.grad_norm / expected[i].result.grad_norm, 1, 1e-10) << "step " << i;
    }
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, testing::Combine(testing::Bool(), testing::ValuesIn(cases())), [](const auto& test) {
    return std::string(std::get<0>(test.param) ? "Llama_" : "Gpt_") + std::get<1>(test.param).name;
});

TEST(RankTrainer, RefusesAPlanForAnotherWorld) {
    const TrainingTask task = task_for(small_gpt(), {"dp2", 1, 1, 1, 1, 2}, Precision::fp32);
    MetaDevice device;
    EXPECT_THROW(RankTrainer(task, device, recording_world(0, 4)), ConfigError);
}

TEST(RankTrainer, NamesTheFeatureItCannotTrain) {
    ModelSpec model = small_llama();
    model.sliding_window = 8;
    const TrainingTask task = task_for(model, {"one"}, Precision::fp32);
    MetaDevice device;
    try {
        RankTrainer trainer(task, device, recording_world(0, 1));
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("sliding window of 8 tokens"), std::string::npos);
    }
}

}  // namespace
}  // namespace mgplan::model
