// Parameters of linear layers stored in fp8: losses to the bit those of 16-bit parameters that are cast, bytes and traffic those of the
// same ranks on shapes, and what is refused.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/optimizer/buffer_layout.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/training/own_fp8.hpp"
#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

using testing::HasSubstr;

TrainingTask stored_task(const ModelSpec& model, const Case& c, Fp8Recipe recipe, bool stored, std::int64_t sequence = 16) {
    TrainingTask task = task_of(model, c, sequence, recipe);
    task.training.fp8_parameters = stored;
    // Shards are cut elsewhere, so that the norm's sum has another order, and clipping another last bit.
    task.optimizer.clip_norm = 0;
    return task;
}

std::vector<Case> stored_cases() {
    using enum RecomputeModule;
    model::GradientOptions small_buckets;
    small_buckets.bucket_size = 3000;
    return {{.name = "one"},
            {.name = "dp2", .dp = 2},
            {.name = "dp4_buckets", .dp = 4, .gradients = small_buckets},
            {.name = "tp2_sp_dp2", .tp = 2, .dp = 2, .sequence_parallel = true},
            {.name = "tp2_dp2", .tp = 2, .dp = 2},
            {.name = "pp2_vpp2_dp2", .pp = 2, .vpp = 2, .dp = 2},
            {.name = "tp2_sp_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
            {.name = "cp2", .cp = 2},
            {.name = "modules",
             .tp = 2,
             .dp = 2,
             .sequence_parallel = true,
             .recompute = Recompute::selective,
             .modules = {core_attn, mlp, layernorm}},
            {.name = "full", .dp = 2, .recompute = Recompute::full},
            {.name = "zb", .pp = 2, .dp = 2, .schedule = SplitSchedule::zb_h1}};
}

/// Also where gradients and gathers overlap with the passes.
void expect_those_of_cast_parameters(const ModelSpec& model, const Case& c, Fp8Recipe recipe, bool overlap) {
    const std::int64_t sequence = 16 * c.cp;
    TrainingTask stored = stored_task(model, c, recipe, true, sequence), cast = stored_task(model, c, recipe, false, sequence);
    for (TrainingTask* task : {&stored, &cast}) task->training.overlap_grad_reduce = task->training.overlap_param_gather = overlap;
    Outcome outcome = train(stored), other = train(cast);
    for (int rank = 0; rank < static_cast<int>(stored.layout.sizes.world); ++rank) expect_prediction_equals(stored, outcome, rank);
    for (std::size_t step = 0; step < outcome.steps.size(); ++step) {
        EXPECT_EQ(outcome.steps[step].loss, other.steps[step].loss) << step;
        EXPECT_NEAR(outcome.steps[step].result.grad_norm / other.steps[step].result.grad_norm, 1, 1e-12) << step;
    }
    EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
}

class Fp8ParametersOfLayouts : public testing::TestWithParam<Case> {};

TEST_P(Fp8ParametersOfLayouts, TrainAsThoseThatAreCastAndHoldWhatShapesPredict) {
    Case c = GetParam();
    const bool all = c.name == "one" || c.name == "tp2_sp_dp2";
    for (const ModelSpec& model : {tests::small_llama(2), tests::small_gpt(2), mixture(), latent_mixture()}) {
        if (!all && model.name != "small-llama") continue;
        if (model.mtp_layers > 0 && (c.schedule || c.vpp > 1)) continue;  // refused by name, or of other sizes
        if (model.moe && c.tp > 1 && !c.sequence_parallel) continue;      // likewise
        c.micro_batch = model.mla && c.sequence_parallel ? 2 : 1;         // whose rows it divides over tp
        for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
            SCOPED_TRACE(testing::Message() << model.name << (recipe == Fp8Recipe::delayed ? ", delayed" : ""));
            expect_those_of_cast_parameters(model, c, recipe, c.gradients.bucket_size.has_value() || c.name == "zb");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8ParametersOfLayouts, testing::ValuesIn(tests::sanitized_share(stored_cases(), 4)),
                         [](const auto& c) { return c.param.name; });

TEST(Fp8Parameters, OfExpertsAreGatheredByTheRanksThatHoldThem) {
    const std::vector<Case> cases{{.name = "ep2_etp2", .tp = 2, .dp = 4, .ep = 2, .etp = 2, .sequence_parallel = true},
                                  {.name = "ep2", .dp = 4, .ep = 2},
                                  {.name = "pp2_ep2", .pp = 2, .dp = 2, .ep = 2}};
    for (const Case& c : tests::sanitized_share(cases, 3)) {
        for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
            SCOPED_TRACE(testing::Message() << c.name << (recipe == Fp8Recipe::delayed ? ", delayed" : ""));
            expect_those_of_cast_parameters(mixture(), c, recipe, false);
        }
    }
}

/// Elements of a chunk's buffers on one of `dp` ranks: of codes, and of all others.
std::pair<std::int64_t, std::int64_t> buffer_elements(const TrainingTask& task) {
    std::vector<BufferParameter> list;
    const auto parameters = stage_parameters(task.model, task.layout, 0);
    for (const Parameter& parameter : parameters.front())
        list.push_back({.numel = parameter.count(),
                        .dtype = stores_own_fp8(task.model, task.training) && parameter.linear_weight ? Dtype::fp8 : Dtype::bf16,
                        .shared_embedding = parameter.shared_embedding});
    std::pair<std::int64_t, std::int64_t> elements;
    for (const BufferLayout& buffer : buffers_of(list, buffer_options(task.layout, task.training, 0, 0)))
        (buffer.param_dtype == Dtype::fp8 ? elements.first : elements.second) += buffer.numel;
    return elements;
}

TEST(Fp8Parameters, TakeAByteAndAreSentInOne) {
    const ModelSpec model = tests::small_llama(2);
    const Case dp2{.name = "dp2", .dp = 2};
    const TrainingTask stored = stored_task(model, dp2, Fp8Recipe::tensorwise, true),
                       cast = stored_task(model, dp2, Fp8Recipe::tensorwise, false);
    const Prediction a = predict(stored, 0, nullptr), b = predict(cast, 0, nullptr);
    const auto [codes, others] = buffer_elements(stored);
    const auto [none, all] = buffer_elements(cast);
    EXPECT_EQ(none, 0);
    EXPECT_GT(codes, 10 * 1024);
    std::int64_t weights = 0, linear = 0;
    const auto parameters = stage_parameters(model, stored.layout, 0);
    for (const Parameter& parameter : parameters.front()) {
        if (!parameter.linear_weight) continue;
        ++weights;
        linear += parameter.count();
    }
    const auto held = [](const Prediction& run, MemoryCategory category) {
        return run.memory.high_water[static_cast<std::size_t>(category)];
    };
    EXPECT_EQ(held(a, MemoryCategory::parameters), codes + 2 * others + linear + 8 * weights);
    EXPECT_EQ(held(b, MemoryCategory::parameters), 2 * all + 2 * linear + 8 * weights);
    EXPECT_EQ(held(a, MemoryCategory::gradients), 4 * (codes + others));
    EXPECT_EQ(held(a, MemoryCategory::optimizer), 12 * (codes + others) / 2);
    const auto sent = [](const Prediction& run, CollectiveKind kind) { return run.traffic.of("dp-cp", kind).payload_bytes; };
    // Payloads of kSteps gathers, as CollectiveRecord counts them.
    EXPECT_EQ(sent(a, CollectiveKind::all_gather) * 2 * all, sent(b, CollectiveKind::all_gather) * (codes + 2 * others));
    EXPECT_EQ(sent(a, CollectiveKind::reduce_scatter) * all, sent(b, CollectiveKind::reduce_scatter) * (codes + others));
    EXPECT_EQ(sent(a, CollectiveKind::all_reduce) - sent(b, CollectiveKind::all_reduce), kSteps * 8 * weights) << "a pair for each weight";
    const Prediction delayed = predict(stored_task(model, dp2, Fp8Recipe::delayed, true), 0, nullptr);
    EXPECT_EQ(sent(delayed, CollectiveKind::all_reduce), sent(b, CollectiveKind::all_reduce)) << "which histories of all ranks have";
}

TEST(Fp8Parameters, WhatIsNotComputedIsRefusedByName) {
    const auto refusal = [](const Case& c, void (*change)(TrainingSpec&)) {
        TrainingTask task = stored_task(tests::small_llama(2), c, Fp8Recipe::tensorwise, true);
        change(task.training);
        return refusal_of(task);
    };
    EXPECT_EQ(refusal({.name = "one"}, [](TrainingSpec&) {}), "");
    EXPECT_THAT(refusal({.name = "plain", .dp = 2, .distributed_optimizer = false}, [](TrainingSpec&) {}),
                HasSubstr("fp8-current with parameters stored in fp8 and no distributed optimizer, whose gathers they serve (leave out "
                          "--fp8-param-gather, or use --sharding optimizer)"));
    EXPECT_THAT(refusal({.name = "muon"}, [](TrainingSpec& training) { training.megatron.optimizer = OptimizerKind::muon; }),
                HasSubstr("fp8-current with parameters stored in fp8 that Muon moves (leave out --fp8-param-gather)"));
    EXPECT_THAT(refusal({.name = "fsdp", .dp = 2}, [](TrainingSpec& training) { set_data_sharding({DataSharding::full}, training); }),
                HasSubstr("sharded parameters or gradients"));
}

TEST(Fp8Parameters, MoveWithOtherOptimizersToo) {
    for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::lion}) {
        std::vector<Outcome> outcomes;
        for (const bool stored : {true, false}) {
            TrainingTask task = stored_task(tests::small_llama(2), {.name = "dp2", .dp = 2}, Fp8Recipe::tensorwise, stored);
            task.training.megatron.optimizer = kind;
            outcomes.push_back(train(task));
        }
        for (std::size_t step = 0; step < outcomes[0].steps.size(); ++step)
            EXPECT_EQ(outcomes[0].steps[step].loss, outcomes[1].steps[step].loss) << step;
    }
}

}  // namespace
}  // namespace mgplan::model::fp8_test
