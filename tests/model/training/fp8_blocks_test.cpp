// fp8 with a scale for each block: losses and gradients of a chunk against an implementation of its own, every layout against the same
// ranks on shapes and against one rank, what is kept, and what is refused.

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/ops/fp8_scaling.hpp"
#include "model/training/rank_trainer.hpp"
#include "tests/model/training/fp8_block_reference.hpp"
#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

namespace reference = tests::fp8_reference;
using testing::HasSubstr;

/// One layer, so that few values are cast behind sums whose last digits hang on their order.
ModelSpec wide_llama(std::int64_t hidden, std::int64_t ffn) {
    ModelSpec model = plain_llama();
    model.name = "wide-llama";
    model.layers = 1;
    model.hidden = hidden;
    model.ffn = ffn;
    model.heads = model.kv_heads = 2;
    model.head_dim = 16;
    return model;
}

/// The loops' casts of a recipe.
void cast_by(OwnFp8 scaling, reference::Model& loops) {
    const bool mxfp8 = scaling == OwnFp8::mxfp8;
    loops.cast_by(reference::block_casts(mxfp8 ? 32 : 128, !mxfp8));
}

void expect_blocks(const ModelSpec& model, OwnFp8 scaling, const std::vector<ChunkCase>& cases) {
    for (ChunkCase c : tests::sanitized_share(cases, 3)) {
        SCOPED_TRACE(testing::Message() << "hidden " << model.hidden << " tokens " << c.tokens << " tp " << c.tp << " cp " << c.cp
                                        << (c.sequence_parallel ? " sp" : ""));
        c.scaling = scaling;
        WeightsByRank weights;
        const reference::Result result = run_chunk(model, c, weights);
        const ChunkTokens given = chunk_tokens(c.tokens);
        reference::Model loops(sizes_of(model, c), weights);
        cast_by(scaling, loops);
        expect_those_of_the_reference(model, c, result, loops.run(given.tokens, given.targets));
    }
}

TEST(Fp8Blockwise, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    const auto hold = [](const ModelSpec& model, const std::vector<ChunkCase>& cases) { expect_blocks(model, OwnFp8::blockwise, cases); };
    // Widths beyond a block, and rows beyond one: 128 of a rank are gathered as codes, 136 in 16 bits.
    hold(wide_llama(144, 288), {{}, {.tp = 2}, {.tp = 2, .sequence_parallel = true, .modules = {layernorm, mlp, core_attn}}});
    hold(wide_llama(32, 32), {{.tokens = 272},
                              {.cp = 2, .tokens = 272},
                              {.tp = 2, .sequence_parallel = true, .tokens = 272},
                              {.tp = 2, .sequence_parallel = true, .tokens = 256},
                              {.tp = 2, .sequence_parallel = true, .modules = {layernorm, mlp}, .tokens = 256}});
}

TEST(Mxfp8, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    const auto hold = [](const ModelSpec& model, const std::vector<ChunkCase>& cases) { expect_blocks(model, OwnFp8::mxfp8, cases); };
    // Columns and rows beyond a tile of scales, which holds 128 rows and 4 blocks.
    hold(wide_llama(160, 320), {{.tokens = 32}, {.tp = 2, .tokens = 32}, {.tp = 2, .sequence_parallel = true, .tokens = 32}});
    hold(wide_llama(64, 64), {{.tokens = 288},
                              {.cp = 2, .tokens = 320},
                              {.tp = 2, .sequence_parallel = true, .tokens = 256},
                              {.tp = 2, .sequence_parallel = true, .modules = {layernorm, mlp, core_attn}, .tokens = 256}});
}

std::vector<Case> block_cases() {
    std::vector<Case> all = dense_layouts();
    all.push_back({.name = "mlp", .recompute = Recompute::selective, .modules = {RecomputeModule::mlp}});
    return all;
}

class Fp8BlockLayouts : public testing::TestWithParam<std::pair<Fp8Recipe, Case>> {};

TEST_P(Fp8BlockLayouts, TrainAndHoldWhatShapesPredict) {
    const auto& [recipe, c] = GetParam();
    // Of tp with sequence parallelism, rows that are gathered as codes too.
    for (const std::int64_t rows : {32, 256}) {
        if (rows > 32 && (!c.sequence_parallel || c.pp * c.cp > 1)) continue;
        const std::int64_t sequence = rows * c.cp;
        ModelSpec model = tests::small_llama(2);
        if (recipe == Fp8Recipe::mxfp8) model.ffn = 128;  // 32 divides a rank's half
        const TrainingTask task = task_of(model, c, sequence, recipe);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        static std::map<std::pair<Fp8Recipe, std::int64_t>, Outcome> known;
        Outcome& one = known[{recipe, sequence}];
        if (one.steps.empty()) one = train(task_of(model, {.name = "one"}, sequence, recipe));
        const bool casts_alike = c.tp * c.cp == 1;
        expect_steps_near(outcome, one, casts_alike, 0.05);
    }
}

std::vector<std::pair<Fp8Recipe, Case>> recipes_and_cases() {
    std::vector<std::pair<Fp8Recipe, Case>> list;
    for (const Case& c : block_cases()) {
        for (const Fp8Recipe recipe : {Fp8Recipe::blockwise, Fp8Recipe::mxfp8}) list.emplace_back(recipe, c);
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8BlockLayouts, testing::ValuesIn(tests::sanitized_share(recipes_and_cases(), 4)),
                         [](const auto& c) { return (c.param.first == Fp8Recipe::mxfp8 ? "mxfp8_" : "blockwise_") + c.param.second.name; });

TEST(Fp8Blockwise, KeepsTwoCopiesOfAWeightAndTheScalesOfBothWays) {
    const ModelSpec model = tests::small_llama(2);
    const TrainingTask narrow = task_of(model, {.name = "pp2", .pp = 2}, 16, Fp8Recipe::blockwise);
    TrainingTask wide = narrow;
    wide.training.precision = Precision::bf16;
    const auto held = [](const TrainingTask& task, MemoryCategory category) {
        return predict(task, 0, nullptr).memory.high_water[static_cast<std::size_t>(category)];
    };
    std::int64_t bytes = 0;
    const auto squares = [](std::int64_t size) { return (size + 127) / 128; };
    const auto padded = [](std::int64_t count) { return (count + 3) / 4 * 4; };
    const auto parameters = stage_parameters(model, narrow.layout, 0);
    for (const Parameter& parameter : parameters.front()) {
        if (!parameter.linear_weight) continue;
        const std::int64_t down = squares(parameter.shape[0]), across = squares(parameter.shape[1]);
        bytes += 2 * parameter.count() + 4 * (down * padded(across) + across * padded(down));
    }
    EXPECT_EQ(held(narrow, MemoryCategory::parameters), held(wide, MemoryCategory::parameters) + bytes);
    EXPECT_EQ(held(narrow, MemoryCategory::gradients), held(wide, MemoryCategory::gradients));
    EXPECT_EQ(held(narrow, MemoryCategory::optimizer), held(wide, MemoryCategory::optimizer));
}

/// What a step of a rank allocates, and how often it runs ops of a name.
struct StepRecord {
    std::vector<AllocationRecord> taken;
    std::map<std::string, std::int64_t> ops;
};
StepRecord step_of(const TrainingTask& task) {
    MetaDevice device({.keep_allocations = true, .keep_ops = true});
    RankTrainer trainer(task, device, recording_world(0, static_cast<int>(task.layout.sizes.world)));
    (void)trainer.step([](std::int64_t /*sequence*/, std::span<std::int32_t> into) { std::ranges::fill(into, 7); }, 1e-3);
    StepRecord step{device.allocations(), {}};
    for (const auto& op : device.ops()) ++step.ops[std::string(op.name)];
    return step;
}

// Inputs and gradients of outputs are read once for both casts, and columns written as products want them. The output projection's input
// stays in 16 bits, and is cast once in the forward and once for the gradient of its weight.
TEST(Fp8Blockwise, AStepOfOneRankTransposesNothing) {
    for (const Fp8Recipe recipe : {Fp8Recipe::blockwise, Fp8Recipe::mxfp8}) {
        const TrainingTask task = task_of(tests::small_llama(2), {.name = "one"}, 32, recipe);
        StepRecord step = step_of(task);
        const std::int64_t layers = 4, microbatches = 8;
        EXPECT_EQ(step.ops["cast_to_fp8"], layers * (9 * microbatches + 4));
        EXPECT_EQ(step.ops["transpose_codes"], 0);
    }
}

// Codes that tp ranks gather lie as rows, and are transposed behind that.
TEST(Fp8Blockwise, AGatheredInputGoesOnceItIsTurned) {
    for (const Fp8Recipe recipe : {Fp8Recipe::blockwise, Fp8Recipe::mxfp8}) {
        ModelSpec model = tests::small_llama(2);
        model.ffn = 128;
        const TrainingTask task = task_of(model, {.name = "sp", .tp = 2, .sequence_parallel = true}, 256, recipe);
        StepRecord step = step_of(task);
        const std::int64_t layers = 4, microbatches = 8;
        EXPECT_EQ(step.ops["transpose_codes"], layers * 2 * microbatches) << "inputs of the packed projection and of the MLP";
        int turned = 0;
        for (std::size_t i = 0; i < step.taken.size(); ++i) {
            if (step.taken[i].name != "transposed codes") continue;
            ++turned;
            const auto gathered = std::find_if(step.taken.rbegin() + static_cast<std::ptrdiff_t>(step.taken.size() - i), step.taken.rend(),
                                               [](const AllocationRecord& each) { return each.name == "gathered rows"; });
            ASSERT_NE(gathered, step.taken.rend());
            EXPECT_LT(gathered->returned, step.taken[i].returned) << "in front of the product";
        }
        EXPECT_EQ(turned, step.ops["transpose_codes"]);
    }
}

TEST(Fp8Blockwise, WhatIsNotComputedIsRefusedByName) {
    TrainingTask task = task_of(tests::small_llama(2), {.name = "one"}, 16, Fp8Recipe::blockwise);
    EXPECT_EQ(refusal_of(task), "");
    task.training.megatron.fp8_gradients_in_e4m3 = true;
    EXPECT_EQ(refusal_of(task), "") << "gradients of blocks are e4m3";
    task.training.fp8_parameters = true;
    EXPECT_THAT(refusal_of(task), HasSubstr("fp8-blockwise with parameters stored in fp8"));
    EXPECT_THAT(refusal_of(task_of(tests::small_llama(2), {.name = "short"}, 8, Fp8Recipe::blockwise)),
                HasSubstr("fp8-blockwise products of 8 rows of a microbatch on a rank, no multiple of 16"));
}

TEST(Mxfp8, WhatIsNotComputedIsRefusedByName) {
    EXPECT_EQ(refusal_of(task_of(tests::small_llama(2), {.name = "one"}, 32, Fp8Recipe::mxfp8)), "");
    EXPECT_THAT(refusal_of(task_of(tests::small_llama(2), {.name = "short"}, 48, Fp8Recipe::mxfp8)),
                HasSubstr("mxfp8 products of 48 rows of a microbatch on a rank, no multiple of 32"));
}

}  // namespace
}  // namespace mgplan::model::fp8_test
