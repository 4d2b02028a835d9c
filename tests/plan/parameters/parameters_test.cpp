#include "plan/parameters/parameters.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/stage_split.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::parameters_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

ModelSpec small() {
    return tests::llama_of(
        "small", {.layers = 8, .hidden = 8, .ffn = 16, .heads = 4, .kv_heads = 2, .head_dim = 2, .vocab = 100, .max_positions = 32});
}

ModelSpec mixture(bool biases = false) {
    ModelSpec model = small();
    model.moe = MoeSpec{.experts = 4, .top_k = 1, .expert_ffn = 16};
    model.moe_layers.assign(8, true);
    model.mlp_bias = biases;
    return model;
}

ModelSpec latent(std::int64_t q_lora_rank) {
    ModelSpec model = small();
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = q_lora_rank, .kv_lora_rank = 4, .qk_nope_head_dim = 5, .qk_rope_head_dim = 6, .v_head_dim = 7};
    return model;
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
    std::vector<std::string> names;
    for (const Parameter& parameter : parameters) names.push_back(parameter.name);
    return names;
}

// tests/megatron holds the rule against Megatron-LM's own buffers.
TEST(Parameters, OfExpertsHaveGroupsOfTheirOwnUnlessTheirRanksAreThoseOfAllOthers) {
    const auto experts_apart = [](std::int64_t tp, std::int64_t ep, std::int64_t etp) {
        int apart = 0;
        for (const Parameter& parameter : layer_parameters(mixture(), LayerKind::moe, tp, ep, etp, "")) {
            EXPECT_EQ(parameter.expert, parameter.name.find(".experts.") != std::string::npos) << parameter.name;
            apart += parameter.expert_group ? 1 : 0;
        }
        return apart;
    };
    EXPECT_EQ(experts_apart(1, 1, 1), 0);
    EXPECT_EQ(experts_apart(2, 1, 2), 0);
    EXPECT_EQ(experts_apart(2, 1, 1), 2 * 4);
    EXPECT_EQ(experts_apart(1, 2, 1), 2 * 2);
    EXPECT_EQ(experts_apart(2, 2, 2), 2 * 2);
}

// Transformer Engine d0067d0d, pytorch/module/grouped_linear.py, __init__.
TEST(Parameters, OfAGroupedLinearLayerAreWeightAndBiasOfEachExpertInTurn) {
    std::vector<std::string> names = names_of(layer_parameters(mixture(true), LayerKind::moe, 1, 2, 1, ""));
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("mlp.experts."); });
    EXPECT_THAT(names, ElementsAre("mlp.experts.linear_fc1.weight0", "mlp.experts.linear_fc1.bias0", "mlp.experts.linear_fc1.weight1",
                                   "mlp.experts.linear_fc1.bias1", "mlp.experts.linear_fc2.weight0", "mlp.experts.linear_fc2.bias0",
                                   "mlp.experts.linear_fc2.weight1", "mlp.experts.linear_fc2.bias1"));
}

TEST(Parameters, HoldTheFinalNormAfterTheLastLayerIfMegatronPredictsFurtherTokens) {
    const std::string norm = "decoder.final_layernorm.weight";
    const auto stages_with_norm = [&](const ModelSpec& model, const std::string& stages, Engine engine) {
        StageSplitRequest request;
        request.layers = model.layers;
        request.mtp_layers = model.mtp_layers;
        request.pp = 4;
        request.vpp = 0;
        request.pipeline_layout = stages;
        Layout layout;
        layout.sizes.pp = layout.sizes.world = 4;
        layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
        std::vector<int> found;
        for (int stage = 0; stage < 4; ++stage) {
            const auto names = names_of(stage_parameters(model, layout, stage, engine).at(0));
            if (std::find(names.begin(), names.end(), norm) != names.end()) found.push_back(stage);
        }
        return found;
    };
    ModelSpec model = small();
    EXPECT_THAT(stages_with_norm(model, "Ettt|ttt|tt|L", Engine::megatron), ElementsAre(3)) << "without prediction";
    model.mtp_layers = 1;
    EXPECT_THAT(stages_with_norm(model, "Ettt|ttt|tt|mL", Engine::megatron), ElementsAre(2));
    EXPECT_THAT(stages_with_norm(model, "Ettt|ttt|t|tmL", Engine::megatron), ElementsAre(3));
    EXPECT_THAT(stages_with_norm(model, "Ettt|ttt|tt|mL", Engine::mgplan), ElementsAre(3)) << "where the runtime computes it";
}

TEST(Parameters, HoldANormOfQueriesWithoutALatentIfMegatronBuildsThem) {
    const std::string norm = "self_attention.linear_q_proj.layer_norm_weight";
    const auto names = [](const ModelSpec& model) { return names_of(layer_parameters(model, LayerKind::dense, 2, 1, 1, "")); };
    const ModelSpec direct = latent(0);
    EXPECT_THAT(names(direct), Not(Contains(norm)));
    EXPECT_THAT(names(as_built_by(Engine::megatron, direct)), Contains(norm));
    EXPECT_EQ(as_built_by(Engine::mgplan, direct), direct);
    const auto count = [](const ModelSpec& model) { return layer_parameter_count(model, LayerKind::dense, 2, 1, 1).total(); };
    EXPECT_EQ(count(as_built_by(Engine::megatron, direct)), count(direct) + direct.hidden);
    EXPECT_EQ(as_built_by(Engine::megatron, latent(3)), latent(3)) << "a latent has its norm already";
    ModelSpec without = direct;
    without.qk_norm = false;
    EXPECT_EQ(as_built_by(Engine::megatron, without), without);
}

}  // namespace
}  // namespace mgplan::parameters_test
