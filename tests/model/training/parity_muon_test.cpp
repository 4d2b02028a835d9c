// Training with Muon: every layout trains the same model, and every byte held and sent equals what the same code predicts on
// shapes alone.

#include <gtest/gtest.h>

#include "tests/model/training/parity_support.hpp"
#include "tests/support/hybrid_models.hpp"

namespace mgplan::model::parity_test {
namespace {

TrainingTask with(OptimizerKind optimizer, const ModelSpec& model, const Case& c, Precision precision = Precision::fp64) {
    TrainingTask task = task_for(model, c, precision);
    task.training.megatron.optimizer = optimizer;
    return task;
}
TrainingTask with_muon(const ModelSpec& model, const Case& c, Precision precision = Precision::fp64) {
    return with(OptimizerKind::muon, model, c, precision);
}

std::vector<ModelSpec> models() {
    ModelSpec attention = small_mixture();
    attention.kv_heads = 2;
    return {tests::small_gpt(), tests::small_llama(), attention, small_deepseek_v3(), small::small_nemotron_h(), small::small_qwen3_next()};
}

void expect_parity(const ModelSpec& model, const Case& c) {
    SCOPED_TRACE(model.name + " " + c.name);
    const TrainingTask task = with_muon(model, c);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, train(with_muon(model, {.name = "one"})).steps, 1e-10);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

TEST(MuonParity, HoldsUnderEveryAxisAndBothKindsOfShards) {
    for (const ModelSpec& model : models()) {
        expect_parity(model, {.name = "dp2", .dp = 2});
        expect_parity(model, {.name = "dp2_plain", .dp = 2, .distributed_optimizer = false});
        expect_parity(model, {.name = "tp2", .tp = 2, .sequence_parallel = true});
        expect_parity(model, {.name = "tp2_plain", .tp = 2, .sequence_parallel = true, .distributed_optimizer = false});
    }
    for (const ModelSpec& model : {tests::small_gpt(), tests::small_llama()}) {
        expect_parity(model, {.name = "pp2", .pp = 2});
        expect_parity(model, {.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true});
        expect_parity(model, {.name = "pp2_vpp2_dp3", .pp = 2, .vpp = 2, .dp = 2, .distributed_optimizer = false});
        expect_parity(model, {.name = "cp2", .cp = 2});
    }
    expect_parity(small_mixture(), {.name = "ep2_etp2", .tp = 2, .dp = 4, .ep = 2, .etp = 2, .sequence_parallel = true});
}

/// For a model without biases of keys, whose gradients are rounding alone: Lion takes their sign.
TEST(MomentumParity, HoldsWithSgdAndLion) {
    const ModelSpec model = tests::small_llama();
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::lion}) {
        const auto train_with = [&](const Case& c) { return train(with(optimizer, model, c)); };
        const Outcome alone = train_with({.name = "one"});
        for (const Case& c : {Case{.name = "dp2", .dp = 2}, Case{.name = "dp2_plain", .dp = 2, .distributed_optimizer = false},
                              Case{.name = "tp2_pp2", .tp = 2, .pp = 2, .sequence_parallel = true}}) {
            SCOPED_TRACE(std::string(to_string(optimizer)) + " " + c.name);
            const TrainingTask task = with(optimizer, model, c);
            Outcome outcome = train(task);
            expect_equal_steps(outcome.steps, alone.steps, 1e-10);
            for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        }
    }
}

/// Adam's losses are others: what stands above compared Muon with itself.
TEST(MuonParity, TrainsOtherwiseThanAdam) {
    const Case one{.name = "one"};
    const Outcome muon = train(with_muon(tests::small_llama(), one)), adam = train(task_for(tests::small_llama(), one, Precision::fp64));
    EXPECT_EQ(muon.steps[0].loss, adam.steps[0].loss);
    EXPECT_GT(std::abs(muon.steps[1].loss - adam.steps[1].loss), 1e-3);
}

TEST(MuonParity, PredictsBytesInEveryPrecision) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const Dtype gradients : {Dtype::fp32, Dtype::bf16}) {
            if (precision == Precision::fp32 && gradients == Dtype::bf16) continue;
            TrainingTask task = with_muon(tests::small_llama(), {.name = "", .tp = 2, .dp = 2}, precision);
            task.training.grad_dtype = gradients;
            Outcome outcome = train(task);
            EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
            for (int rank = 0; rank < 4; ++rank) expect_prediction_equals(task, outcome, rank);
        }
    }
}

/// With blocks each rank orthogonalises its shard alone: another update, which Megatron-LM takes by default.
TEST(MuonParity, BlocksOfTheRanksAreAnotherUpdate) {
    TrainingTask task = with_muon(tests::small_llama(), {.name = "", .tp = 2});
    const Outcome whole = train(task);
    task.optimizer.muon.shards = MuonShards::blockwise;
    Outcome blocks = train(task);
    EXPECT_EQ(whole.steps[0].loss, blocks.steps[0].loss);
    EXPECT_GT(std::abs(whole.steps[1].loss - blocks.steps[1].loss), 1e-4);
    for (int rank = 0; rank < 2; ++rank) expect_prediction_equals(task, blocks, rank);
}

}  // namespace
}  // namespace mgplan::model::parity_test
