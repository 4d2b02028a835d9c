// Options of gradients and initial weights: what must not change the result, what must be refused, and what happens when
// a number is not finite.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/optimizer/bucket_traffic.hpp"
#include "plan/text/errors.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::model::gradient_options_test {
namespace {

constexpr int kSteps = 3;

void expect_same_steps(const TrainingTask& task, const TrainingTask& reference) {
    const small::Outcome expected = small::train(reference, kSteps), got = small::train(task, kSteps);
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
        EXPECT_NEAR(got.steps[i].loss / expected.steps[i].loss, 1, 1e-12) << "step " << i;
        EXPECT_NEAR(got.steps[i].result.grad_norm / expected.steps[i].result.grad_norm, 1, 1e-12) << "step " << i;
    }
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
        const small::Prediction prediction = small::predict(task, rank, kSteps);
        EXPECT_EQ(prediction.high_water, got.memory[static_cast<std::size_t>(rank)].high_water) << "rank " << rank;
        EXPECT_EQ(prediction.traffic.totals(), got.traffic[static_cast<std::size_t>(rank)].totals()) << "rank " << rank;
    }
}

/// What a step's products make of weight gradients, and what it sets to zero beside the sum of losses.
struct GradientWork {
    std::int64_t written = 0, added = 0;        ///< products
    std::int64_t written_bytes = 0, zeros = 0;  ///< bytes
    bool operator==(const GradientWork&) const = default;
};

GradientWork work_of_a_step(MetaDevice& device, RankTrainer& trainer) {
    device.forget_ops();
    (void)trainer.step(tests::tokens_of, 1e-2);
    constexpr std::int64_t kLoss = 8;
    GradientWork work{.zeros = -kLoss};
    for (const OpRecord& op : device.ops()) {
        if (op.name == "fill") work.zeros += op.bytes_written;
        if (op.product.m == 0 || !op.product.transpose_a) continue;
        ++(op.product.accumulate ? work.added : work.written);
        if (!op.product.accumulate) work.written_bytes += op.bytes_written;
    }
    return work;
}

void expect_the_first_product_writes(const GradientWork& work, const TrainingTask& task, std::int64_t gradient_bytes) {
    const bool tied = task.model.tied_embeddings;
    const std::int64_t microbatches = task.layout.num_microbatches, products = 4 * task.model.layers + (tied ? 0 : 1);
    EXPECT_EQ(work.written, products);
    EXPECT_EQ(work.added, (microbatches - 1) * products + (tied ? microbatches : 0));
    EXPECT_EQ(work.zeros + work.written_bytes, gradient_bytes);
}

std::int64_t gradient_bytes_of(const MetaDevice& device) {
    return device.memory().current[static_cast<std::size_t>(MemoryCategory::gradients)];
}

// Zeros and the reading of them are left out where products alone make a gradient; a tied table takes rows as well.
TEST(GradientOptions, TheFirstMicrobatchWritesWhatProductsAloneMake) {
    for (const ModelSpec& model : {small::llama(), small::gpt()}) {
        for (const bool graph : {false, true}) {
            TrainingTask task = small::task(model, {});
            if (graph) task.layout.cuda_graphs = {CudaGraphScope::full_iteration};
            MetaDevice device;
            RankTrainer trainer(task, device, recording_world(0, 1));
            for (int step = 0; step < 3; ++step)
                expect_the_first_product_writes(work_of_a_step(device, trainer), task, gradient_bytes_of(device));
        }
    }
}

// The first step is eager, so that the products which write may be timed; a layer's graph adds, whichever microbatch it replays.
TEST(GradientOptions, GraphsOfLayersAddToZerosFromTheSecondStepOn) {
    for (const ModelSpec& model : {small::llama(), small::gpt()}) {
        TrainingTask task = small::task(model, {});
        task.layout.cuda_graphs = {CudaGraphScope::layer};
        MetaDevice device;
        RankTrainer trainer(task, device, recording_world(0, 1));
        expect_the_first_product_writes(work_of_a_step(device, trainer), task, gradient_bytes_of(device));
        const GradientWork all_added{.added = task.layout.num_microbatches * (4 * model.layers + 1), .zeros = gradient_bytes_of(device)};
        EXPECT_EQ(work_of_a_step(device, trainer), all_added);
        EXPECT_EQ(work_of_a_step(device, trainer), all_added);
    }
}

/// Kinds of ops of a step, each with the sizes of its product.
std::set<std::pair<std::string, ProductSizes>> kinds_of_a_step(MetaDevice& device, RankTrainer& trainer) {
    device.forget_ops();
    (void)trainer.step(tests::tokens_of, 1e-2);
    std::set<std::pair<std::string, ProductSizes>> kinds;
    for (const OpRecord& op : device.ops()) kinds.emplace(op.name, op.product);
    return kinds;
}

// A library chooses an algorithm and loads a kernel for one that adds to a gradient as for one that writes it, and a capture is no place
// for that.
TEST(GradientOptions, GraphsCaptureWhatTheFirstStepDidOfHoweverFewMicrobatches) {
    for (const ModelSpec& model : {small::llama(), small::gpt()}) {
        for (const CudaGraphScope scope : {CudaGraphScope::layer, CudaGraphScope::attn, CudaGraphScope::full_iteration}) {
            for (const std::int64_t microbatches : {1, 2}) {
                TrainingTask task = small::task(model, {});
                task.batch.global_batch = task.layout.num_microbatches = microbatches;
                task.layout.cuda_graphs = {scope};
                MetaDevice device;
                RankTrainer trainer(task, device, recording_world(0, 1));
                const auto first = kinds_of_a_step(device, trainer), second = kinds_of_a_step(device, trainer);
                EXPECT_TRUE(std::includes(first.begin(), first.end(), second.begin(), second.end())) << microbatches << " microbatches";
            }
        }
    }
}

TEST(GradientOptions, PerTokenLossTrainsTheSameModelAndCountsTokensOnce) {
    const TrainingTask reference = small::task(small::gpt(), {.cp = 2, .pp = 2, .dp = 2});
    TrainingTask task = reference;
    task.gradients.per_token_loss = true;
    expect_same_steps(task, reference);
    const auto extra = small::predict(task, 0, 1).traffic.of("dp-cp", CollectiveKind::all_reduce);
    const auto before = small::predict(reference, 0, 1).traffic.of("dp-cp", CollectiveKind::all_reduce);
    EXPECT_EQ(extra.operations, before.operations + 1);
}

TEST(GradientOptions, AveragingInTheCollectiveTrainsTheSameModel) {
    for (const bool distributed : {true, false}) {
        TrainingTask reference = small::task(small::llama(), {.tp = 2, .dp = 2});
        reference.training.distributed_optimizer = distributed;
        TrainingTask task = reference;
        task.gradients.average_in_collective = true;
        expect_same_steps(task, reference);
    }
}

TEST(GradientOptions, WeightsAreMegatronLmsForDenseParametersAndExperts) {
    const auto plain = gradient_weights(16, 4, false, false);
    EXPECT_EQ(plain.reduction, Reduction::sum);
    EXPECT_EQ(plain.dense_factor, 1.0 / 16);
    EXPECT_EQ(plain.expert_factor, 1.0 / 16);
    const auto average = gradient_weights(16, 4, true, false);
    EXPECT_EQ(average.reduction, Reduction::average);
    EXPECT_EQ(average.dense_factor, 1);
    EXPECT_EQ(average.expert_factor, 0.25);
    const auto per_token = gradient_weights(16, 4, false, true);
    EXPECT_EQ(per_token.reduction, Reduction::sum);
    EXPECT_EQ(per_token.dense_factor, 1);
    EXPECT_EQ(per_token.expert_factor, 1);
}

TEST(GradientOptions, AveragingAndPerTokenLossExcludeEachOther) {
    TrainingTask task = small::task(small::llama(), {});
    task.gradients.per_token_loss = task.gradients.average_in_collective = true;
    MetaDevice device;
    EXPECT_THROW(RankTrainer(task, device, recording_world(0, 1)), ConfigError);
}

std::string refusal(const TrainingTask& task) {
    MetaDevice device;
    try {
        RankTrainer trainer(task, device, recording_world(0, static_cast<int>(task.layout.sizes.world)));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(GradientOptions, TypesThatAreNotComputedWithAreRefusedByName) {
    TrainingTask task = small::task(small::llama(), {});
    task.training.precision = Precision::bf16;
    EXPECT_EQ(refusal(task), "");
    task.training.grad_dtype = Dtype::fp16;
    task.training.main_param_dtype = Dtype::fp16;
    task.training.exp_avg_dtype = Dtype::fp8;
    const std::string text = refusal(task);
    EXPECT_NE(text.find("grad_dtype = fp16 (use fp32, or bf16 as the parameters)"), std::string::npos) << text;
    EXPECT_NE(text.find("main_param_dtype = fp16 (use fp32)"), std::string::npos) << text;
    EXPECT_NE(text.find("exp_avg_dtype = fp8 (use fp32 or bf16)"), std::string::npos) << text;
    // Narrower gradients than parameters: nothing adds them up.
    task = small::task(small::llama(), {});
    task.training.precision = Precision::fp32;
    task.training.grad_dtype = Dtype::bf16;
    EXPECT_NE(refusal(task).find("grad_dtype = bf16"), std::string::npos);
}

TEST(GradientOptions, NarrowGradientsAndMomentsTrainAndHoldWhatIsPredicted) {
    TrainingTask task = small::task(small::llama(), {.tp = 2, .dp = 2, .sequence_parallel = true});
    task.training.precision = Precision::bf16;
    const double wide = small::train(task, 8).steps.back().loss;
    task.training.grad_dtype = Dtype::bf16;
    task.training.exp_avg_dtype = task.training.exp_avg_sq_dtype = Dtype::bf16;
    const small::Outcome got = small::train(task, 8);
    EXPECT_LT(got.steps.back().loss, got.steps.front().loss);
    EXPECT_NE(got.steps.back().loss, wide);
    EXPECT_NEAR(got.steps.back().loss / wide, 1, 0.02);
    for (int rank = 0; rank < 4; ++rank) {
        const small::Prediction prediction = small::predict(task, rank, 8);
        EXPECT_EQ(prediction.high_water, got.memory[static_cast<std::size_t>(rank)].high_water) << "rank " << rank;
    }
}

// A learning rate without bounds makes the weights useless, and the next loss NaN.
constexpr double kRuinous = std::numeric_limits<double>::infinity();

TEST(NonFinite, ALossStopsTheRunNamingRankAndStep) {
    const TrainingTask task = small::task(small::llama(), {.pp = 2, .dp = 2});
    runtime::InProcessWorld world(4);
    std::map<int, std::string> messages;
    std::mutex mutex;
    small::on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice&) {
        EXPECT_TRUE(trainer.step(small::tokens_of, kRuinous).result.updated);
        try {
            (void)trainer.step(small::tokens_of, 1e-3);
        } catch (const RunError& error) {
            const std::scoped_lock lock(mutex);
            messages[rank] = error.what();
        }
    });
    ASSERT_EQ(messages.size(), 4U);  // every rank by itself, none left waiting
    for (const auto& [rank, text] : messages) {
        EXPECT_EQ(text.find("rank " + std::to_string(rank) + ", step 2: the loss of "), 0U) << text;
        EXPECT_NE(text.find("is NaN"), std::string::npos) << text;
    }
    EXPECT_NE(messages.at(3).find("its own tokens"), std::string::npos) << messages.at(3);
    EXPECT_NE(messages.at(0).find("another rank's tokens"), std::string::npos) << messages.at(0);
}

/// To 8 bits, to the nearest and ties to even: the bit behind the last one kept carries up.
float rounded_by_hand(float value) {
    auto bits = std::bit_cast<std::uint32_t>(value);
    bits += 0x7fffU + ((bits >> 16U) & 1U);
    return std::bit_cast<float>(bits & 0xffff0000U);
}

TEST(MomentTypes, LossesWithBf16OnesAreThoseOfFp32OnesRoundedByHandBehindEachStep) {
    constexpr int kManySteps = 12;
    TrainingTask narrow = small::task(small::llama(), {.dp = 2}), wide = narrow;
    for (TrainingTask* task : {&narrow, &wide}) task->training.precision = Precision::bf16;
    narrow.training.exp_avg_dtype = narrow.training.exp_avg_sq_dtype = Dtype::bf16;
    const auto losses_of = [&](const TrainingTask& task, bool rounds) {
        runtime::InProcessWorld world(2);
        std::vector<double> losses;
        std::mutex mutex;
        small::on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice& device) {
            for (int step = 0; step < kManySteps; ++step) {
                const StepReport report = trainer.step(small::tokens_of, 1e-2);
                const std::scoped_lock lock(mutex);
                if (rank == 0) losses.push_back(report.loss);
                if (!rounds) continue;
                for (const StatePiece& piece : trainer.state()) {
                    if (piece.name.find("/exp_avg") == std::string::npos) continue;
                    std::vector<float> values(static_cast<std::size_t>(piece.values.elements()));
                    device.read(piece.values, values.data());
                    for (float& value : values) value = rounded_by_hand(value);
                    device.write(piece.values, values.data());
                }
            }
        });
        return losses;
    };
    const auto bf16 = losses_of(narrow, false), by_hand = losses_of(wide, true), fp32 = losses_of(wide, false);
    EXPECT_EQ(bf16, by_hand);
    EXPECT_NE(bf16, fp32);
    EXPECT_LT(bf16.back(), bf16.front());
}

TEST(NonFinite, ALossMaySkipTheStepAndNothingChanges) {
    TrainingTask task = small::task(small::llama(), {.dp = 2});
    task.gradients.on_non_finite = OnNonFinite::skip;
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = true;
    runtime::InProcessWorld world(2);
    small::on_all_ranks(task, world, [&](int, RankTrainer& trainer, runtime::CpuDevice&) {
        (void)trainer.step(small::tokens_of, kRuinous);
        EXPECT_EQ(trainer.updates(), 1);
        const auto before = small::parameter_bytes(trainer);
        const StepReport report = trainer.step(small::tokens_of, 1e-3);
        EXPECT_FALSE(report.result.updated);
        EXPECT_TRUE(std::isnan(report.loss));
        EXPECT_EQ(report.result.problem,
                  report.result.saw_it ? "the loss of its own tokens is NaN" : "the loss of another rank's tokens is NaN");
        EXPECT_EQ(trainer.updates(), 1);
        EXPECT_EQ(small::parameter_bytes(trainer), before);
    });
}

TEST(NonFinite, AGradientIsNamedByTheRankThatOwnsItAndNothingIsUpdated) {
    const TrainingTask task = small::task(small::llama(), {.dp = 2});
    runtime::InProcessWorld world(2);
    std::map<int, StepResult> results;
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        const auto parameters = stage_parameters(task.model, task.layout, 0);
        BufferOptions layout;
        layout.dp = 2;
        layout.grad_dtype = Dtype::fp64;
        ChunkBuffers chunk(device, parameters[0], Dtype::fp64, layout);
        initialize_weights(task.model, chunk.parameters(), chunk.weights(), {}, {});
        const auto view = world.view(rank);
        const std::int32_t both[] = {0, 1}, own[] = {rank};
        const auto dp = view.join("dp-cp", both), alone = view.join("alone", own);
        OptimizerOptions options;
        options.main_dtype = options.exp_avg_dtype = options.exp_avg_sq_dtype = Dtype::fp64;
        Optimizer optimizer(device, {&chunk}, {dp.get(), alone.get(), alone.get(), alone.get(), nullptr, nullptr}, options, false);
        // The first of the model's parameters: at the buffer's end, in the last rank's shard.
        const Tensor& gradient = chunk.weights().at("embedding.word_embeddings.weight").gradient;
        std::vector<double> values(static_cast<std::size_t>(gradient.elements()), 0.5);
        values.back() = std::numeric_limits<double>::infinity();
        device.write(gradient, values.data());
        std::vector<double> before(static_cast<std::size_t>(chunk.buffers()[0].parameters.elements())), after(before.size());
        device.read(chunk.buffers()[0].parameters, before.data());
        const Tensor loss = device.zeros({1}, Dtype::fp64, MemoryCategory::workspace, "loss"),
                     outcome = device.zeros({2}, Dtype::fp64, MemoryCategory::workspace, "outcome");
        optimizer.step(1e-3, 1, loss, outcome);
        std::array<double, 2> ended{};
        device.read(outcome, ended.data());
        const Tensor sums = optimizer.take_squares();
        std::vector<double> squares(static_cast<std::size_t>(sums.elements()));
        device.read(sums, squares.data());
        const StepResult result = optimizer.result(ended, squares);
        device.read(chunk.buffers()[0].parameters, after.data());
        EXPECT_EQ(before, after);
        const std::scoped_lock lock(mutex);
        results[rank] = result;
    });
    EXPECT_FALSE(results.at(0).updated);
    EXPECT_FALSE(results.at(1).updated);
    EXPECT_EQ(results.at(0).problem, "the norm of all gradients is infinite");
    EXPECT_EQ(results.at(1).problem, "the gradient of embedding.word_embeddings.weight is infinite");
    EXPECT_FALSE(results.at(0).saw_it);
    EXPECT_TRUE(results.at(1).saw_it);
}

std::map<int, std::map<std::string, std::vector<double>>> initial_weights(const TrainingTask& task) {
    runtime::InProcessWorld world(static_cast<int>(task.layout.sizes.world));
    std::map<int, std::map<std::string, std::vector<double>>> weights;
    std::mutex mutex;
    small::on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice& device) {
        const std::scoped_lock lock(mutex);
        for (const auto& chunk : trainer.parameters()) {
            for (const Parameter& parameter : chunk->parameters()) {
                const Tensor& value = chunk->weights().at(parameter.name).value;
                std::vector<double> values(static_cast<std::size_t>(value.elements()));
                device.read(value, values.data());
                weights[rank][parameter.name] = values;
            }
        }
    });
    return weights;
}

TEST(Seeds, PerRankAreEqualOverDpAndDifferentOverTpAndPp) {
    TrainingTask task = small::task(small::gpt(), {.tp = 2, .pp = 2, .dp = 2});
    task.initialization.seeds = SeedKind::per_rank;
    const auto weights = initial_weights(task);  // ranks: tp fastest, then dp, then pp
    EXPECT_EQ(weights.at(0), weights.at(2));
    EXPECT_EQ(weights.at(5), weights.at(7));
    const std::string divided = "decoder.layers.0.mlp.linear_fc1.weight";
    EXPECT_NE(weights.at(0).at(divided), weights.at(1).at(divided));
    // Replicated parameters and both copies of the tied table must agree all the same.
    const std::string positions = "embedding.position_embeddings.weight";
    EXPECT_EQ(weights.at(0).at(positions), weights.at(1).at(positions));
    EXPECT_EQ(weights.at(0).at("embedding.word_embeddings.weight"), weights.at(4).at("output_layer.weight"));
    // By position, the second tp rank's shard continues the first one's whole.
    task.initialization.seeds = SeedKind::by_position;
    EXPECT_NE(initial_weights(task).at(1).at(divided), weights.at(1).at(divided));
}

TEST(TiedTable, IsACopyWhereItsFirstStageIsNot) {
    const auto copies = [](const TrainingTask& task, int stage) {
        std::vector<std::string> names;
        for (const auto& chunk : stage_parameters(task.model, task.layout, stage)) {
            for (const Parameter& parameter : chunk) {
                if (parameter.embedding_copy) names.push_back(parameter.name);
            }
        }
        return names;
    };
    const TrainingTask tied = small::task(small::gpt(), {.pp = 2, .vpp = 2});
    EXPECT_TRUE(copies(tied, 0).empty());
    EXPECT_EQ(copies(tied, 1), std::vector<std::string>{"output_layer.weight"});
    EXPECT_TRUE(copies(small::task(small::gpt(), {}), 0).empty()) << "one stage has one table";
    EXPECT_TRUE(copies(small::task(small::llama(), {.pp = 2}), 1).empty()) << "its output layer is its own";
}

TEST(Seeds, FollowMegatronLmsArithmetic) {
    Parameter divided, replicated, tied, expert;
    expert.expert = true;
    divided.shard_axis = 0;
    tied.shard_axis = 0;
    tied.shared_embedding = true;
    const ShardPlace place{.tp_rank = 3, .tp = 4, .pp_rank = 2, .ep_rank = 5, .etp_rank = 1};
    EXPECT_EQ(rank_seed(1234, divided, place), 1234U + 200 + 2718 + 3);
    EXPECT_EQ(rank_seed(1234, replicated, place), 1234U + 200);
    EXPECT_EQ(rank_seed(1234, expert, place), 1234U + 200 + 1024 + 500 + 1);
    EXPECT_EQ(rank_seed(1234, tied, place), 1234U + 2718 + 3);
}

TEST(Seeds, PerRankStillTrainsTheSameOnBothDataParallelRanks) {
    TrainingTask task = small::task(small::gpt(), {.tp = 2, .pp = 2, .dp = 2});
    task.initialization.seeds = SeedKind::per_rank;
    const auto steps = small::train(task, 5).steps;
    EXPECT_LT(steps.back().loss, steps.front().loss);
}

}  // namespace
}  // namespace mgplan::model::gradient_options_test
