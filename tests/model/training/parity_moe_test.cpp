// Mixtures of experts under every layout: the same losses, gradient norms and auxiliary losses as on one rank, and every
// byte held and sent as predicted from the run's own routing counts, or from balanced ones.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/text/errors.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::parity_moe_test {
namespace {

std::vector<Case> cases() {
    using enum RecomputeModule;
    constexpr auto selective = Recompute::selective;
    return {
        {.name = "dp2_ep2", .dp = 2, .ep = 2},
        {.name = "dp4_ep4", .dp = 4, .ep = 4},
        {.name = "dp8_ep8", .dp = 8, .ep = 8},
        {.name = "dp4_ep2", .dp = 4, .ep = 2},
        {.name = "dp4_ep2_plain", .dp = 4, .ep = 2, .distributed_optimizer = false},
        {.name = "dp2_plain", .dp = 2, .distributed_optimizer = false},
        {.name = "dp2_etp2", .dp = 2, .etp = 2},
        {.name = "dp4_etp4", .dp = 4, .etp = 4},
        {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2},
        {.name = "dp8_ep2_etp2_plain", .dp = 8, .ep = 2, .etp = 2, .distributed_optimizer = false},
        {.name = "tp2", .tp = 2, .sequence_parallel = true},
        {.name = "tp2_etp2", .tp = 2, .etp = 2, .sequence_parallel = true},
        {.name = "tp2_ep2", .tp = 2, .ep = 2, .sequence_parallel = true},
        {.name = "tp2_dp2_ep2_etp2", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
        {.name = "tp2_dp2_ep4", .tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
        {.name = "tp4_dp2_ep4_etp2", .tp = 4, .dp = 2, .ep = 4, .etp = 2, .sequence_parallel = true},
        {.name = "cp2_ep2", .cp = 2, .ep = 2},
        {.name = "cp2_etp2", .cp = 2, .etp = 2},
        {.name = "cp2_dp2_ep4", .cp = 2, .dp = 2, .ep = 4},
        {.name = "tp2_cp2_ep2_etp2", .tp = 2, .cp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
        {.name = "pp2_dp2_ep2", .pp = 2, .dp = 2, .ep = 2},
        {.name = "pp4_dp2_ep2", .pp = 4, .dp = 2, .ep = 2},
        {.name = "pp2_vpp2_dp2_ep2", .pp = 2, .vpp = 2, .dp = 2, .ep = 2},
        {.name = "tp2_pp2_vpp2_dp4_ep4_etp2", .tp = 2, .pp = 2, .vpp = 2, .dp = 4, .ep = 4, .etp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2_ep4", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2_ep2_etp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2_ep2_etp2_plain",
         .tp = 2,
         .cp = 2,
         .pp = 2,
         .dp = 2,
         .ep = 2,
         .etp = 2,
         .sequence_parallel = true,
         .distributed_optimizer = false},
        {.name = "tp2_cp2_pp2_vpp2_dp2_ep8", .tp = 2, .cp = 2, .pp = 2, .vpp = 2, .dp = 2, .ep = 8, .sequence_parallel = true},
        {.name = "cp2_dp2_ep4_average", .cp = 2, .dp = 2, .ep = 4, .gradients = {.bucket_size = {}, .average_in_collective = true}},
        {.name = "tp2_cp2_dp2_ep2_etp2_per_token",
         .tp = 2,
         .cp = 2,
         .dp = 2,
         .ep = 2,
         .etp = 2,
         .sequence_parallel = true,
         .gradients = {.bucket_size = {}, .per_token_loss = true}},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "dp2_ep2_mbs2", .dp = 2, .ep = 2, .micro_batch = 2},
        {.name = "tp2_pp2_dp2_ep2_etp2_mbs2", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .micro_batch = 2, .sequence_parallel = true},
        {.name = "moe_act", .dp = 2, .ep = 2, .recompute = selective, .modules = {moe_act}},
        {.name = "shared_experts", .dp = 2, .ep = 2, .recompute = selective, .modules = {shared_experts}},
        {.name = "moe", .dp = 4, .ep = 2, .etp = 2, .recompute = selective, .modules = {moe}},
        {.name = "norm_mlp_moe_act_core", .dp = 2, .ep = 2, .recompute = selective, .modules = {layernorm, mlp, moe_act, core_attn}},
        {.name = "norm_moe_tp2", .tp = 2, .ep = 2, .sequence_parallel = true, .recompute = selective, .modules = {layernorm, moe}},
        {.name = "full", .dp = 2, .ep = 2, .recompute = Recompute::full},
        {.name = "full2_tp2_pp2",
         .tp = 2,
         .pp = 2,
         .etp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::full,
         .recompute_layers = 2},
        {.name = "block", .dp = 2, .ep = 2, .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 2},
        // other orders of the axes
        {.name = "tp_ep_cp_dp_pp",
         .tp = 2,
         .cp = 2,
         .pp = 2,
         .dp = 2,
         .ep = 2,
         .etp = 2,
         .sequence_parallel = true,
         .order = "tp-ep-cp-dp-pp"},
        {.name = "dp_ep_cp_tp_pp_plain",
         .tp = 2,
         .cp = 2,
         .pp = 2,
         .dp = 2,
         .ep = 4,
         .sequence_parallel = true,
         .distributed_optimizer = false,
         .order = "dp-ep-cp-tp-pp"},
        {.name = "pp_dp_ep_cp_tp", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .order = "pp-dp-ep-cp-tp"},
        {.name = "ep_dp_tp_cp", .tp = 2, .cp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true, .order = "ep-dp-tp-cp"},
    };
}

void expect_predictions_equal(const TrainingTask& task, Outcome& outcome) {
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

class MixtureParity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(MixtureParity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [sigmoid, c] = GetParam();
    const ModelSpec model = sigmoid ? small_sigmoid_mixture() : small_mixture();
    const TrainingTask task = task_for(model, c, Precision::fp64);
    Outcome outcome = train(task);
    const Outcome& expected = one_rank(model, c.micro_batch);
    EXPECT_GT(expected.steps.front().auxiliary_loss, 1) << "nothing is quite balanced";
    expect_equal_steps(outcome.steps, expected.steps, 1e-10);
    expect_predictions_equal(task, outcome);
}

std::string name_of(const testing::TestParamInfo<std::tuple<bool, Case>>& test) {
    return std::string(std::get<0>(test.param) ? "Sigmoid_" : "Softmax_") + std::get<1>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, MixtureParity, testing::Combine(testing::Bool(), testing::ValuesIn(tests::sanitized_share(cases(), 6))),
                         name_of);

/// Sizes with which no choice hangs on fp32's rounding; NoChoiceOfExpertsIsNearATie looks.
ModelSpec steady_mixture(bool sigmoid) {
    if (sigmoid) return small_sigmoid_mixture();
    ModelSpec model = small_mixture();
    model.name = "steady-mixture";
    model.moe->experts = 4;
    model.moe->expert_ffn = 32;
    model.moe->top_k = 3;
    return model;
}

std::vector<Case> single_precision_cases() {
    using enum RecomputeModule;
    return {
        {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2},
        {.name = "dp4_ep4", .dp = 4, .ep = 4},
        {.name = "tp2_ep2", .tp = 2, .ep = 2, .sequence_parallel = true},
        {.name = "cp2_dp2_ep4", .cp = 2, .dp = 2, .ep = 4},
        {.name = "pp2_vpp2_dp2_ep2", .pp = 2, .vpp = 2, .dp = 2, .ep = 2},
        {.name = "tp2_cp2_pp2_dp2_ep2_etp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
        {.name = "moe_tp2_etp2",
         .tp = 2,
         .etp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::selective,
         .modules = {moe, layernorm}},
        {.name = "full_dp2_ep2_plain", .dp = 2, .ep = 2, .recompute = Recompute::full, .distributed_optimizer = false},
    };
}

class SinglePrecisionMixtureParity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(SinglePrecisionMixtureParity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [sigmoid, c] = GetParam();
    const ModelSpec model = steady_mixture(sigmoid);
    const TrainingTask task = task_for(model, c, Precision::fp32);
    Outcome outcome = train(task);
    const Outcome& expected = one_rank(model, c.micro_batch, Precision::fp32);
    expect_equal_steps(outcome.steps, expected.steps, 1e-5);
    expect_predictions_equal(task, outcome);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SinglePrecisionMixtureParity,
                         testing::Combine(testing::Bool(), testing::ValuesIn(tests::sanitized_share(single_precision_cases(), 4))),
                         name_of);

// Rounding differs by about 1e-13 between layouts, in fp32 by about 1e-6: no choice of the reference runs may hang on so little.
TEST(MixtureParity, NoChoiceOfExpertsIsNearATie) {
    for (const ModelSpec& model : {small_mixture(), small_sigmoid_mixture()}) {
        for (const int micro_batch : {1, 2}) {
            const double margin = one_rank(model, micro_batch).routing[0].smallest_margin();
            EXPECT_GT(margin, 1e-9) << model.name;
            EXPECT_LT(margin, 1) << "rows were watched";
        }
    }
    for (const bool sigmoid : {false, true}) {
        const ModelSpec model = steady_mixture(sigmoid);
        EXPECT_GT(one_rank(model, 1, Precision::fp32).routing[0].smallest_margin(), 1e-5) << model.name;
    }
}

// Two rows a rank, one expert a row: many a pass leaves an expert, and a whole rank, without rows.
TEST(MixtureParity, HoldsWhereRanksGetNoRows) {
    ModelSpec model = small_mixture();
    model.name = "single-choice-mixture";
    model.moe->top_k = 1;
    model.moe->score = RouterScore::sigmoid;
    for (const Case& c : {Case{.name = "ep8", .tp = 2, .cp = 4, .dp = 2, .ep = 8, .sequence_parallel = true},
                          Case{.name = "ep4_etp2", .tp = 2, .cp = 4, .dp = 2, .ep = 4, .etp = 2, .sequence_parallel = true}}) {
        const TrainingTask task = task_for(model, c, Precision::fp64);
        Outcome outcome = train(task);
        EXPECT_GT(one_rank(model, 1).routing[0].smallest_margin(), 1e-9);
        expect_equal_steps(outcome.steps, one_rank(model, 1).steps, 1e-10);
        expect_predictions_equal(task, outcome);
        bool idle = false;
        for (const std::int64_t layer : {1, 2, 3}) {
            for (std::int64_t microbatch = 0; microbatch < task.layout.num_microbatches; ++microbatch) {
                const RoutingTable& copies = outcome.routing[0].at({1, microbatch, layer});
                for (std::int64_t e = 0; e < model.moe->experts; ++e) {
                    std::int64_t sum = 0;
                    for (std::int64_t at = e; at < std::ssize(copies); at += model.moe->experts)
                        sum += copies[static_cast<std::size_t>(at)];
                    idle = idle || sum == 0;
                }
            }
        }
        EXPECT_TRUE(idle) << "some expert had nothing to do";
    }
}

TEST(MixtureParity, HoldsBehindLatentAttentionAndOverUnevenStages) {
    ModelSpec model = small_mixture();
    model.name = "small-deepseek-mixture";
    model.head_dim = 0;
    model.mla = MlaSpec{.q_lora_rank = 12, .kv_lora_rank = 10, .qk_nope_head_dim = 6, .qk_rope_head_dim = 4, .v_head_dim = 5};
    const Case c{.name = "mla", .tp = 2, .pp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .stages = "Et|tttL"};
    const TrainingTask task = task_for(model, c, Precision::fp64);
    Outcome outcome = train(task);
    EXPECT_GT(one_rank(model, 1).routing[0].smallest_margin(), 1e-9);
    expect_equal_steps(outcome.steps, one_rank(model, 1).steps, 1e-10);
    expect_predictions_equal(task, outcome);
}

std::vector<Case> model_cases() {
    using enum RecomputeModule;
    return {
        {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2},
        {.name = "dp4_ep2_etp2_plain", .dp = 4, .ep = 2, .etp = 2, .distributed_optimizer = false},
        {.name = "tp2_ep2", .tp = 2, .ep = 2, .sequence_parallel = true},
        {.name = "tp2_etp2", .tp = 2, .etp = 2, .sequence_parallel = true},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp2_gather_ep2", .cp = 2, .ep = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "pp2_dp2_ep2", .pp = 2, .dp = 2, .ep = 2},
        {.name = "pp2_vpp2_dp2", .pp = 2, .vpp = 2, .dp = 2},
        {.name = "tp2_cp2_pp2_dp2_ep2_etp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "full_dp2", .dp = 2, .recompute = Recompute::full},
        {.name = "block_pp2", .pp = 2, .recompute = Recompute::full, .method = RecomputeMethod::block},
        {.name = "moe_core_norm_tp2",
         .tp = 2,
         .etp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::selective,
         .modules = {moe, core_attn, layernorm}},
        {.name = "per_token_cp2_dp2", .cp = 2, .dp = 2, .gradients = {.bucket_size = {}, .per_token_loss = true}},
    };
}

class ModelParity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(ModelParity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [deepseek, c] = GetParam();
    const ModelSpec model = deepseek ? small_deepseek_v3() : small_gpt_oss();
    const TrainingTask task = task_for(model, c, Precision::fp64);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(model, c.micro_batch).steps, 1e-10);
    expect_predictions_equal(task, outcome);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ModelParity,
                         testing::Combine(testing::Bool(), testing::ValuesIn(tests::sanitized_share(model_cases(), 4))),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param) ? "DeepSeekV3_" : "GptOss_") + std::get<1>(test.param).name;
                         });

TEST(ModelParity, EveryFeatureChangesTheTraining) {
    const auto last = [](ModelSpec model, const std::string& name) {
        model.name = name;
        return one_rank(model, 1).steps.back().loss;
    };
    const auto differs = [&](const ModelSpec& model, const std::string& name, void (*change)(ModelSpec&)) {
        ModelSpec changed = model;
        change(changed);
        EXPECT_NE(last(changed, name), one_rank(model, 1).steps.back().loss) << name;
    };
    const ModelSpec deepseek = small_deepseek_v3(), gpt_oss = small_gpt_oss();
    differs(deepseek, "no groups", [](ModelSpec& m) { m.moe->groups = m.moe->group_top_k = 0; });
    differs(deepseek, "no bias", [](ModelSpec& m) { m.moe->expert_bias = false; });
    differs(deepseek, "no further tokens", [](ModelSpec& m) { m.mtp_loss_factor = 0; });
    differs(deepseek, "no yarn", [](ModelSpec& m) { m.rotary_scaling = ""; });
    differs(gpt_oss, "no window", [](ModelSpec& m) { m.sliding_window = 0; });
    differs(gpt_oss, "windows everywhere", [](ModelSpec& m) { m.full_attention_every = 0; });
    differs(gpt_oss, "no llama3", [](ModelSpec& m) { m.rotary_scaling = ""; });
    // Sinks of 0 and biases that move are no absence of them.
    differs(gpt_oss, "no sinks", [](ModelSpec& m) { m.attention_sinks = false; });
    differs(gpt_oss, "no expert biases", [](ModelSpec& m) { m.mlp_bias = false; });
    differs(gpt_oss, "no router bias", [](ModelSpec& m) { m.moe->router_bias = false; });
}

class BalancedMixture : public testing::TestWithParam<Case> {};

TEST_P(BalancedMixture, IsPredictedFromSizesAlone) {
    Case c = GetParam();
    c.balanced_routing = true;
    const TrainingTask task = task_for(small_mixture(), c, Precision::fp32);
    Outcome outcome = train(task);
    EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
    expect_predictions_equal(task, outcome);
}

INSTANTIATE_TEST_SUITE_P(Layouts, BalancedMixture, testing::ValuesIn(tests::sanitized_share(cases(), 6)),
                         [](const auto& test) { return test.param.name; });

/// A case whose ranks route whole microbatches, as one rank does: what is dropped then does not depend on the layout.
class CapacityParity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(CapacityParity, DropsTheSameCopiesAsOneRank) {
    const auto& [pads, c] = GetParam();
    ModelSpec model = small_mixture();
    model.name = pads ? "padded-mixture" : "dropping-mixture";
    model.moe->capacity_factor = 1;
    model.moe->pad_to_capacity = pads;
    const TrainingTask task = task_for(model, c, Precision::fp64);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(model, 1).steps, 1e-10);
    EXPECT_GT(std::abs(one_rank(model, 1).steps[0].result.grad_norm / one_rank(small_mixture(), 1).steps[0].result.grad_norm - 1), 1e-6)
        << "something is dropped";
    expect_predictions_equal(task, outcome);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, CapacityParity,
    testing::Combine(
        testing::Bool(),
        testing::Values(
            Case{.name = "dp2_ep2", .dp = 2, .ep = 2}, Case{.name = "pp2_dp4_ep2_etp2", .pp = 2, .dp = 4, .ep = 2, .etp = 2},
            Case{.name = "dp4_ep4_moe", .dp = 4, .ep = 4, .recompute = Recompute::selective, .modules = {RecomputeModule::moe}})),
    [](const auto& test) { return std::string(std::get<0>(test.param) ? "Padding_" : "Dropping_") + std::get<1>(test.param).name; });

TEST(MixturePrediction, HoldsInBf16) {
    const TrainingTask task = task_for(small_mixture(), {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2}, Precision::bf16);
    Outcome outcome = train(task);
    EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
    expect_predictions_equal(task, outcome);
}

// Per mixture and microbatch of n = b·s/(cp·tp) rows, balanced or not: each rank sends n·top_k copies of h elements to the
// experts and back, forward and backward, and one probability with each copy (Megatron-LM token_dispatcher.py,
// token_dispatch and token_combine); with etp the sum of all etp ranks' rows is gathered and scattered beside.
TEST(MixturePrediction, SendsTopKCopiesOfEachRowFourTimes) {
    const TrainingTask task = task_for(small_mixture(), {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2}, Precision::fp64);
    const CollectiveCounter traffic = predict(task, 3, nullptr).traffic;
    constexpr std::int64_t copies = 16 * 2, hidden = 32, element = 8, mixtures = 3, microbatches = 2;
    constexpr std::int64_t passes = mixtures * microbatches * kSteps;
    constexpr std::int64_t there_and_back = passes * copies * (4 * hidden + 2) * element;
    EXPECT_EQ(traffic.of("expert:ep", CollectiveKind::all_to_all), (CollectiveTotal{6 * passes, there_and_back}));
    // Rows and probabilities forward, output gradients backward; outputs forward, both gradients backward. Counts are int32.
    constexpr std::int64_t gathered = passes * 2 * copies * (2 * hidden + 1) * element, counts = passes * 2 * 2 * 8 * 4;
    EXPECT_EQ(traffic.of("expert:tp", CollectiveKind::all_gather), (CollectiveTotal{4 * passes, gathered + counts}));
    EXPECT_EQ(traffic.of("expert:tp", CollectiveKind::reduce_scatter), (CollectiveTotal{3 * passes, gathered}));
    EXPECT_EQ(traffic.of("expert:ep", CollectiveKind::all_gather), (CollectiveTotal{passes, counts / 2}));
}

TEST(MixturePrediction, DependsOnTheCounts) {
    const TrainingTask task = task_for(small_mixture(), {.name = "dp2_ep2", .dp = 2, .ep = 2}, Precision::fp64);
    const Outcome outcome = train(task);
    EXPECT_NE(predict(task, 0, nullptr).traffic, outcome.traffic[0]) << "balanced counts are not those of the run";
}

testing::AssertionResult refused_with(const TrainingTask& task, const std::string& words) {
    try {
        check_features(task);
    } catch (const ConfigError& error) {
        if (std::string(error.what()).find(words) != std::string::npos) return testing::AssertionSuccess();
        return testing::AssertionFailure() << error.what();
    }
    return testing::AssertionFailure() << "accepted";
}

TEST(MixtureRefusals, NameWhatIsNotTrained) {
    TrainingTask task = task_for(small_mixture(), {.name = "tp2", .tp = 2, .etp = 2}, Precision::fp32);
    EXPECT_TRUE(refused_with(task, "experts with tp = 2 and without sequence parallelism"));
    task = task_for(small_mixture(), {.name = "ep3", .dp = 3, .ep = 3}, Precision::fp32);
    EXPECT_TRUE(refused_with(task, "experts = 8 divided over ep = 3"));
    task = task_for(small_mixture(), {.name = "etp5", .dp = 5, .etp = 5}, Precision::fp32);
    EXPECT_TRUE(refused_with(task, "expert ffn size = 24 divided over etp = 5"));
    task = task_for(small_mixture(), {.name = "one"}, Precision::fp32);
    task.model.moe->dispatcher = TokenDispatcher::deep_ep;
    EXPECT_TRUE(refused_with(task, "DeepEP"));
}

}  // namespace
}  // namespace mgplan::model::parity_moe_test
