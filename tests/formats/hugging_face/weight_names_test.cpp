// Names of published weights: each tensor is covered once by the model's parameters, and what is not known is refused by name.
// What the names mean is held against transformers' gradients (tests/model/training/transformers_vectors_test.cpp).

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hugging_face/weight_names.hpp"
#include "formats/model_source.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::weight_names_test {
namespace {

using ::testing::HasSubstr;

std::string refusal(const ModelSpec& model) {
    try {
        (void)published_weights(model);
        return "accepted";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

/// Small enough to look at every element.
ModelSpec shrunk(ModelSpec model) {
    model.mtp_layers = 0;
    model.layers = std::min<std::int64_t>(model.layers, 2);
    if (model.moe) {
        model.moe->experts = 4;
        model.moe->top_k = 2;
        model.moe->groups = model.moe->group_top_k = 0;
        model.moe_layers.resize(static_cast<std::size_t>(model.layers));
        if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) model.moe_layers.back() = true;
    }
    model.vocab = 16;
    return model;
}

TEST(WeightNames, CoverEachElementOfEachTensorOnce) {
    std::set<std::string> types;
    for (const std::string& name : preset_names()) {
        const ModelSpec preset = load_model(name).model;
        const std::vector<std::string> known = types_with_published_weights();
        if (std::find(known.begin(), known.end(), preset.type) == known.end() || !preset.kinds.empty() || !preset.counted.empty()) continue;
        if (!types.insert(preset.type).second) continue;
        const ModelSpec model = shrunk(preset);
        const PublishedWeights weights = published_weights(model);
        std::vector<std::int64_t> covered(weights.tensors.size());
        std::int64_t biases = 0;
        for (const PublishedParameter& parameter : weights.parameters) {
            std::int64_t rows = 0;
            for (const PublishedRows& piece : parameter.pieces) {
                EXPECT_EQ(piece.first_row, rows) << parameter.name;
                rows += piece.rows;
                const std::int64_t last = piece.begin + (piece.rows - 1) * piece.row_step + (parameter.columns - 1) * piece.column_step;
                EXPECT_LT(last, weights.tensors[piece.tensor].elements()) << parameter.name;
                covered[piece.tensor] += piece.rows * parameter.columns;
            }
            EXPECT_EQ(rows, parameter.rows) << parameter.name;
            if (parameter.name.ends_with("expert_bias")) biases += parameter.rows;
        }
        std::int64_t elements = 0;
        for (std::size_t i = 0; i < covered.size(); ++i) {
            EXPECT_EQ(covered[i], weights.tensors[i].elements()) << name << " " << weights.tensors[i].name;
            elements += weights.tensors[i].elements();
        }
        EXPECT_EQ(elements, total_parameters(model) + biases) << name;
    }
    EXPECT_GE(types.size(), 10U);
}

TEST(WeightNames, AreThoseOfTheHub) {
    const PublishedWeights weights = published_weights(load_model("qwen3-0.6b").model);
    const auto has = [&](const std::string& name) {
        return std::any_of(weights.tensors.begin(), weights.tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
    };
    EXPECT_TRUE(has("model.layers.27.self_attn.q_norm.weight"));
    EXPECT_TRUE(has("model.layers.0.mlp.gate_proj.weight"));
    EXPECT_FALSE(has("lm_head.weight")) << "the table of words is the output layer";
    EXPECT_THAT(weights.unused_endings, ::testing::Contains("lm_head.weight")) << "a copy may lie there all the same";
}

TEST(WeightNames, RefuseWhatHasNoPlaceInACheckpoint) {
    ModelSpec model = load_model("llama3-8b").model;
    EXPECT_EQ(refusal(model), "accepted");
    model.mtp_layers = 1;
    EXPECT_THAT(refusal(model), HasSubstr("multi-token prediction are not mapped; set num_nextn_predict_layers = 0"));
    model.mtp_layers = 0;
    model.assumed_architecture = "llama";
    EXPECT_THAT(refusal(model), HasSubstr("its type is assumed"));
    EXPECT_THAT(refusal(load_model("gpt3-175b").model), HasSubstr("model_type 'megatron_gpt' name their weights is not known; known are"));
}

TEST(WeightNames, AreListedInOrder) {
    const std::vector<std::string> types = types_with_published_weights();
    EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
    EXPECT_EQ(std::set<std::string>(types.begin(), types.end()).size(), types.size());
}

}  // namespace
}  // namespace mgplan::formats::weight_names_test
