// fp8 with current scaling: losses and gradients of a chunk against an implementation of its own, every layout against that with as many
// ranks, bytes and traffic against the same ranks on shapes, and what is refused.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layers/fp8_weight.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/fp8_reference.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

namespace reference = tests::fp8_reference;
using testing::HasSubstr;

TEST(Fp8, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    const ModelSpec model = plain_llama();
    const ChunkTokens given = chunk_tokens();
    for (const ChunkCase& c : {ChunkCase{},
                               {2},
                               {2, 1, true},
                               {2, 1, true, {layernorm, mlp, core_attn}},
                               {1, 2},
                               {2, 2, true},
                               {1, 2, false, {}, CpCommType::all_gather},
                               {1, 2, false, {}, CpCommType::a2a}}) {
        SCOPED_TRACE(testing::Message() << "tp " << c.tp << " cp " << c.cp << (c.sequence_parallel ? " sp" : ""));
        WeightsByRank weights;
        const reference::Result result = run_chunk(model, c, weights);
        expect_those_of_the_reference(model, c, result, reference::Model(sizes_of(model, c), weights).run(given.tokens, given.targets));
    }
}

std::vector<Case> cases() {
    std::vector<Case> all = dense_layouts();
    all.push_back({.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a});
    return all;
}

class Fp8Layouts : public testing::TestWithParam<Case> {};

TEST_P(Fp8Layouts, TrainAndHoldWhatShapesPredict) {
    const Case& c = GetParam();
    for (const ModelSpec& model : {tests::small_llama(2), tests::small_gpt(2)}) {
        if (model.name == "small-gpt" && c.tp * c.dp == 1 && c.name != "one") continue;  // alike
        const std::int64_t sequence = 16 * c.cp;
        const TrainingTask task = task_of(model, c, sequence);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        // Shares of tp and cp are cast by their own largest values, so that their losses are near one rank's; all others see the same
        // microbatches, whose sums come in another order.
        static std::map<std::pair<std::string, std::int64_t>, Outcome> known;
        Outcome& one = known[{model.name, sequence}];
        if (one.steps.empty()) one = train(task_of(model, {.name = "one"}, sequence));
        SCOPED_TRACE(model.name);
        expect_steps_near(outcome, one, c.tp * c.cp == 1, 0.05);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Layouts, testing::ValuesIn(tests::sanitized_share(cases(), 4)),
                         [](const auto& c) { return c.param.name; });

/// Counts ops by their name.
class OpCounter final : public OpListener {
public:
    void on_op(const OpRecord& record) override { ++counts[std::string(record.name)]; }
    std::map<std::string, int> counts;
};

// With the MLP made again in the backward its first product reads the input's codes twice as they lie; a second copy is not kept for the
// gradient of the weight.
TEST(Fp8, AnInputThatIsMultipliedAgainIsKeptOnce) {
    const TrainingTask task =
        task_of(tests::small_llama(2), {.name = "mlp", .recompute = Recompute::selective, .modules = {RecomputeModule::mlp}});
    runtime::InProcessWorld world(1);
    runtime::CpuDevice device;
    RankTrainer trainer(task, device, world.view(0));
    OpCounter counter;
    device.set_listener(&counter);
    (void)trainer.step(tests::tokens_of, 1e-2);
    device.set_listener(nullptr);
    const int layers = 4, microbatches = 8;
    EXPECT_EQ(counter.counts["transpose_codes"], layers * microbatches) << "turned in front of the gradient of the weight";
}

TEST(Fp8, WeightsAreCastOnceAStep) {
    const TrainingTask task = task_of(tests::small_llama(2), {.name = "one"});
    runtime::InProcessWorld world(1);
    runtime::CpuDevice device;
    RankTrainer trainer(task, device, world.view(0));
    const int layers = 4, microbatches = 8;
    for (int step = 0; step < 2; ++step) {
        OpCounter counter;
        device.set_listener(&counter);
        (void)trainer.step(tests::tokens_of, 1e-2);
        device.set_listener(nullptr);
        // Four inputs and four gradients of outputs, and the input of the output projection once more; the four
        // weights, of which the largest magnitudes of each half are found together.
        EXPECT_EQ(counter.counts["cast_to_fp8"], layers * (9 * microbatches + 4)) << "step " << step;
        EXPECT_EQ(counter.counts["largest_magnitude"], layers * (9 * microbatches + 2));
        EXPECT_EQ(counter.counts["transpose_codes"], 0) << "casts write what gradients of weights and of inputs read transposed";
        // The copies are those of the weights that the step began with, cast as they are now they differ.
        const Weight& weight = trainer.buffers(0).weights().at("decoder.layers.1.mlp.linear_fc1.weight");
        const Fp8Tensor now = to_fp8(weight.value, Dtype::fp8, nullptr, Fp8Copies::rows, "weight");
        std::vector<std::uint8_t> kept(static_cast<std::size_t>(weight.value.elements())), made(kept.size());
        device.read(weight.fp8->values.codes, kept.data());
        device.read(now.codes, made.data());
        EXPECT_NE(kept, made);
    }
}

TEST(Fp8, KeepsAByteForEachValueThatProductsRead) {
    // What waits for the backward of one layer, beside bf16: the norms' outputs and what the activation gives, each with its scale.
    const ModelSpec model = tests::small_llama(2);
    const TrainingTask narrow = task_of(model, {.name = "pp2", .pp = 2});
    TrainingTask wide = narrow;
    wide.training.precision = Precision::bf16;
    const auto held = [](const TrainingTask& task, MemoryCategory category) {
        return predict(task, 0, nullptr).memory.high_water[static_cast<std::size_t>(category)];
    };
    std::int64_t elements = 0, matrices = 0;
    const auto parameters = stage_parameters(model, narrow.layout, 0);
    for (const Parameter& parameter : parameters.front()) {
        if (!parameter.linear_weight) continue;
        elements += parameter.count();
        ++matrices;
    }
    EXPECT_EQ(held(narrow, MemoryCategory::parameters), held(wide, MemoryCategory::parameters) + 2 * elements + 8 * matrices);
    EXPECT_EQ(held(narrow, MemoryCategory::gradients), held(wide, MemoryCategory::gradients));
    EXPECT_EQ(held(narrow, MemoryCategory::optimizer), held(wide, MemoryCategory::optimizer));
    EXPECT_LT(held(narrow, MemoryCategory::activations), held(wide, MemoryCategory::activations));
}

TEST(Fp8, WhatIsNotComputedIsRefusedByName) {
    const auto changed = [&](const std::function<void(TrainingTask&)>& change) {
        TrainingTask task = task_of(tests::small_llama(2), {.name = "one"});
        change(task);
        return refusal_of(task);
    };
    EXPECT_EQ(changed([](TrainingTask&) {}), "");
    EXPECT_THAT(changed([](TrainingTask& task) { task.training.precision = Precision::nvfp4; }),
                HasSubstr("nvfp4 (use fp8-current, fp8-delayed, fp8-blockwise, mxfp8 or bf16)"));
    EXPECT_THAT(changed([](TrainingTask& task) {
                    task.training.megatron.fp8_recipe = Fp8Recipe::blockwise;
                    task.training.fp8_parameters = true;
                }),
                HasSubstr("parameters stored in fp8 (leave out --fp8-param-gather, or use fp8-current or fp8-delayed)"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.training.megatron.fp8_attention = true; }), HasSubstr("attention in fp8"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.training.megatron.fp8_gradients_in_e4m3 = true; }), HasSubstr("gradients in e4m3"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.model.normed_residual.emplace(); }), HasSubstr("begins behind the norm"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.model.hyper_connections.emplace(); }), HasSubstr("residual streams"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.training.megatron.bf16_layers_at_start = 1; }),
                HasSubstr("layers that stay in bf16"));
    EXPECT_THAT(changed([](TrainingTask& task) { task.training.offload.modules.add(OffloadModule::core_attn); }), HasSubstr("--offload"));
    for (const Case& c : {Case{.name = "short"}, Case{.name = "cp2", .cp = 2}})
        EXPECT_THAT(refusal_of(task_of(tests::small_llama(2), c, 8 * c.cp)),
                    HasSubstr("8 rows of a microbatch on a rank, no multiple of 16"));
    EXPECT_THAT(refusal_of(task_of(tests::small_gpt(), {.name = "tp2", .tp = 2})),
                HasSubstr("fp8-current products of 24 rows of mlp.linear_fc1.weight on a rank, no multiple of 16"));
}

}  // namespace
}  // namespace mgplan::model::fp8_test
