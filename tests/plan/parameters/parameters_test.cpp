#include "plan/parameters/parameters.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/small_models.hpp"

namespace mgplan::parameters_test {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace mgplan::parameters_test
