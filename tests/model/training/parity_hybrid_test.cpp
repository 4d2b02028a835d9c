// Layers of Mamba-2, also beside attention, of gated delta nets, Kimi delta attention, lightning attention and short convolutions under
// every layout that they are computed in: losses and gradient norms of a few steps equal those of one rank, bytes and messages those that
// the same code predicts on shapes; and their parameters are those that are counted.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/parameters/whole_parameter.hpp"
#include "plan/text/errors.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::parity_hybrid_test {
namespace {

struct Run {
    ModelSpec model;
    Case layout;
    Precision precision = Precision::fp64;
    std::int64_t sequence = 16;
};

std::vector<Case> dense_cases() {
    using enum RecomputeModule;
    return {{.name = "tp2", .tp = 2},
            {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
            {.name = "pp2", .pp = 2},
            {.name = "zb_h1_tp2_sp_pp2", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = SplitSchedule::zb_h1},
            {.name = "dp2", .dp = 2},
            {.name = "dp2_plain", .dp = 2, .distributed_optimizer = false},
            {.name = "mbs2", .micro_batch = 2},
            {.name = "full", .recompute = Recompute::full},
            {.name = "full2_tp2_sp", .tp = 2, .sequence_parallel = true, .recompute = Recompute::full, .recompute_layers = 2},
            {.name = "block1_pp2", .pp = 2, .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 1},
            {.name = "selective", .recompute = Recompute::selective, .modules = {core_attn, mlp, layernorm}},
            {.name = "pp2_vpp2_mbs2", .pp = 2, .vpp = 2, .micro_batch = 2},
            {.name = "tp2_sp_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}};
}

std::vector<Case> mixture_cases() {
    using enum RecomputeModule;
    return {{.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
            {.name = "pp2", .pp = 2},
            {.name = "zb_h1_pp2", .pp = 2, .schedule = SplitSchedule::zb_h1},
            {.name = "dp2_ep2", .dp = 2, .ep = 2},
            {.name = "tp2_sp_etp2", .tp = 2, .etp = 2, .sequence_parallel = true},
            {.name = "full", .recompute = Recompute::full},
            {.name = "selective", .recompute = Recompute::selective, .modules = {core_attn, moe_act, layernorm}},
            {.name = "tp2_sp_pp2_dp2_ep2", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}};
}

/// Context parallelism over heads of the state; more ranks than groups of Mamba-2 where `shared`.
std::vector<Case> context_cases(bool mixture, bool shared) {
    using enum RecomputeModule;
    std::vector<Case> cases{{.name = "cp2", .cp = 2},
                            {.name = "cp2_pp2_mbs2", .cp = 2, .pp = 2, .micro_batch = 2},
                            {.name = "cp2_full", .cp = 2, .recompute = Recompute::full},
                            {.name = "cp2_selective", .cp = 2, .recompute = Recompute::selective, .modules = {core_attn, layernorm}}};
    if (mixture)
        cases.push_back({.name = "cp2_dp2_ep4", .cp = 2, .dp = 2, .ep = 4});
    else
        cases.push_back({.name = "cp2_dp2_plain", .cp = 2, .dp = 2, .distributed_optimizer = false});
    if (shared) {
        cases.push_back({.name = "cp4", .cp = 4, .cp_comm_type = CpCommType::all_gather});
        cases.push_back({.name = "tp2_sp_cp2", .tp = 2, .cp = 2, .sequence_parallel = true});
    }
    return cases;
}

std::vector<ModelSpec> models() {
    return {small::small_mamba2(),
            small::small_nemotron_h(),
            small::small_nemotron_h_moe(),
            small::small_qwen3_next(),
            small::small_bamba(),
            small::small_lfm2(),
            small::small_lfm2_moe(),
            small::small_falcon_h1(),
            small::small_kimi_linear(),
            small::small_minimax(),
            small::small_nemotron_latent(),
            small::small_olmo_hybrid(),
            small::small_nemotron_predicting(2)};
}

std::vector<Run> runs() {
    std::vector<Run> list;
    for (const ModelSpec& model : models()) {
        for (const Case& layout : model.moe ? mixture_cases() : dense_cases()) {
            // Four stages of chunks want as many layers in each.
            if (layout.vpp > 1 && model.layers % (layout.pp * layout.vpp) != 0) continue;
            if (layout.schedule && model.mtp_layers > 0) continue;  // refused by name
            list.push_back({model, layout});
        }
    }
    for (const ModelSpec& model : {small::small_mamba2(), small::small_nemotron_h(), small::small_nemotron_h_moe(), small::small_bamba(),
                                   small::small_falcon_h1(), small::small_nemotron_latent()})
        for (const Case& layout : context_cases(model.moe.has_value(), true)) list.push_back({model, layout});
    for (const ModelSpec& model : {small::small_qwen3_next(), small::small_olmo_hybrid()})
        for (const Case& layout : context_cases(model.moe.has_value(), false)) list.push_back({model, layout});
    list.push_back({small::small_mamba2(), {.name = "odd_tp2", .tp = 2}, Precision::fp64, 13});
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        list.push_back({small::small_nemotron_h(), {.name = "tp2_sp_pp2", .tp = 2, .pp = 2, .sequence_parallel = true}, precision});
        list.push_back({small::small_bamba(), {.name = "tp2_sp_dp2", .tp = 2, .dp = 2, .sequence_parallel = true}, precision});
        list.push_back({small::small_nemotron_h(), {.name = "tp2_sp_cp2", .tp = 2, .cp = 2, .sequence_parallel = true}, precision});
        list.push_back({small::small_olmo_hybrid(), {.name = "cp2", .cp = 2}, precision});
    }
    return tests::sanitized_share(list, 12);
}

class HybridParity : public testing::TestWithParam<Run> {};

TEST_P(HybridParity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [model, layout, precision, sequence] = GetParam();
    const double tolerance = precision == Precision::fp64 ? 1e-10 : precision == Precision::fp32 ? 1e-5 : 1e-2;
    // Near a tie, rounding decides which expert a token takes, and rounding differs by processor.
    ASSERT_TRUE(!model.moe || precision == Precision::fp64) << "MoE models are compared in fp64";
    const TrainingTask task = task_for(model, layout, precision, sequence);
    Outcome outcome = train(task);
    if (model.moe) {
        EXPECT_GT(one_rank(model, layout.micro_batch).routing[0].smallest_margin(), 1e-9);
    }
    // A mixture's auxiliary loss is of a microbatch.
    expect_equal_steps(outcome.steps, one_rank(model, model.moe ? layout.micro_batch : 1, precision, sequence).steps, tolerance,
                       precision == Precision::bf16 ? 1 : kSteps);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HybridParity, testing::ValuesIn(runs()), [](const auto& test) {
    std::string name;
    for (const char c : test.param.model.name.substr(6)) name += c == '-' ? '_' : c;
    return name + "_" + std::string(to_string(test.param.precision)) + "_" + test.param.layout.name;
});

/// Elements of the depths of multi-token prediction, which published totals leave out.
std::int64_t of_predictions(const ModelSpec& model) {
    return model.mtp_layers > 0 ? model.mtp_layers * mtp_layer_parameter_count(model, 1, 1, 1).total() : 0;
}

/// Elements of the whole model, from the shards of all tp ranks: each tp rank holds a share, or the same whole.
TEST(HybridParameters, AreAsManyAsArePartsCounted) {
    for (ModelSpec model : models()) {
        model.vocab_divisor = 1;
        model.vocab = 64;
        ASSERT_FALSE(is_counted_only(model)) << model.name;
        for (const std::int64_t tp : {1, 2}) {
            Layout layout;
            layout.sizes = {tp, tp, 1, 1, tp, 1, AxisOrder{}, 1};
            layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, model.mtp_layers, 1, 1).value());
            std::int64_t whole = 0, of_rank = 0;
            const auto chunks = stage_parameters(model, layout, 0);
            for (const Parameter& parameter : chunks.front()) {
                const ShardOfWhole shard = shard_of_whole(model, parameter, {.tp = tp, .etp = tp});
                whole += shard.whole_elements();
                of_rank += parameter.count();
            }
            EXPECT_EQ(whole - of_predictions(model), total_parameters(model)) << model.name << ", tp " << tp;
            EXPECT_EQ(of_rank, stage_parameter_count(model, layout, 0).total()) << model.name << ", tp " << tp;
        }
    }
}

/// What the trainer says of a task; empty where it accepts.
std::string refusal(const ModelSpec& model, const Case& layout) {
    try {
        check_features(task_for(model, layout, Precision::fp32));
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

TEST(HybridParameters, WhatDoesNotDivideOrIsNotComputedIsNamed) {
    using testing::HasSubstr;
    EXPECT_EQ(refusal(small::small_nemotron_h(), {.name = "tp2", .tp = 2}), "");
    EXPECT_THAT(refusal(small::small_nemotron_h(), {.name = "tp4", .tp = 4}),
                HasSubstr("tp = 4 over 2 groups of Mamba-2, which it does not divide"));
    EXPECT_EQ(refusal(small::small_mamba2(), {.name = "cp2", .cp = 2}), "");
    EXPECT_EQ(refusal(small::small_mamba2(), {.name = "cp4", .cp = 4}), "") << "two ranks for each group";
    EXPECT_THAT(refusal(small::small_mamba2(), {.name = "cp8", .cp = 8}),
                HasSubstr("cp = 8 over 4 heads of Mamba-2 on a tensor-parallel rank, which it does not divide"));
    ModelSpec three_groups = small::small_mamba2();
    std::get<mgplan::Mamba2>(*three_groups.kinds.front().layer.mixer).groups = 3;
    std::get<mgplan::Mamba2>(*three_groups.kinds.front().layer.mixer).heads = 6;
    EXPECT_THAT(refusal(three_groups, {.name = "cp2", .cp = 2}),
                HasSubstr("cp = 2 over 3 groups of Mamba-2 on a tensor-parallel rank, which it does not divide"));
    EXPECT_EQ(refusal(small::small_qwen3_next(), {.name = "cp2", .cp = 2}), "");
    EXPECT_THAT(refusal(small::small_qwen3_next(), {.name = "tp2_cp2", .tp = 2, .cp = 2, .sequence_parallel = true}),
                HasSubstr("cp = 2 over 1 key heads of gated delta nets on a tensor-parallel rank, which it does not divide"));
    EXPECT_THAT(refusal(small::small_qwen3_next(), {.name = "tp4", .tp = 4, .sequence_parallel = true}),
                AllOf(HasSubstr("tp = 4 over 2 key heads of gated delta nets"),
                      HasSubstr("a gate of attention's output with tp = 4 above 2 kv heads")));
    EXPECT_THAT(refusal(small::small_lfm2(), {.name = "cp2", .cp = 2}), HasSubstr("context parallelism over short convolutions (cp = 2)"));
    EXPECT_THAT(refusal(small::small_falcon_h1(), {.name = "tp4", .tp = 4}),
                HasSubstr("tp = 4 over 2 groups of Mamba-2, which it does not divide"));
    EXPECT_EQ(refusal(small::small_falcon_h1(), {.name = "cp2", .cp = 2}), "");
    EXPECT_THAT(refusal(small::small_kimi_linear(), {.name = "cp2", .cp = 2}),
                HasSubstr("context parallelism over Kimi delta attention (cp = 2)"));
    EXPECT_THAT(refusal(small::small_minimax(), {.name = "cp2", .cp = 2}),
                HasSubstr("context parallelism over lightning attention (cp = 2)"));
    ModelSpec odd_heads = small::small_minimax();
    std::get<mgplan::LightningAttention>(*odd_heads.kinds.front().layer.mixer).heads = 5;
    EXPECT_THAT(refusal(odd_heads, {.name = "tp2", .tp = 2, .sequence_parallel = true}),
                HasSubstr("tp = 2 over 5 heads of lightning attention, which it does not divide"));
    ModelSpec gated = tests::small_llama();
    gated.attention_output_gate = true;
    EXPECT_EQ(refusal(gated, {.name = "tp2", .tp = 2}), "");
    EXPECT_THAT(refusal(gated, {.name = "tp4", .tp = 4}), HasSubstr("or with tp = 4 above 2 kv heads"));
    ModelSpec unknown = small::small_mamba2();
    unknown.kinds.front() = small::kind("mamba", mgplan::Mamba{.inner_width = 8, .state_size = 2, .conv_taps = 4, .dt_rank = 2});
    EXPECT_THAT(refusal(unknown, {.name = "one"}), HasSubstr("cannot be trained by this version: the selective scan of Mamba"));
    ModelSpec biased = small::small_mamba2();
    biased.kinds.front().layer = {};
    biased.kinds.front().layer.counted = {{"mixer.in_proj.bias", {8}}};
    EXPECT_THAT(refusal(biased, {.name = "one"}), HasSubstr("is counted and nothing else, for no layer here computes its layers (mamba2)"));
}

}  // namespace
}  // namespace mgplan::model::parity_hybrid_test
