// Every preset as typed layers: the same counts and tensors as its ModelSpec, and nothing lost on the way through JSON and back.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/model_source.hpp"
#include "plan/json/model_json.hpp"
#include "plan/json/model_layers_json.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/divide.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::typed_models_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Preset {
    ModelSpec spec;
    Model model;
};

const std::vector<Preset>& presets() {
    static const std::vector<Preset> kAll = [] {
        std::vector<Preset> all;
        for (const std::string& name : preset_names()) {
            ModelSpec spec = load_model(name).model;
            Model model = typed_model(spec);
            all.push_back({std::move(spec), std::move(model)});
        }
        return all;
    }();
    return kAll;
}

TEST(TypedPresets, CountWhatTheirSpecsCount) {
    for (const auto& [spec, model] : presets())
        EXPECT_EQ(count_parameters(model), (ModelCount{total_parameters(spec), active_parameters(spec)})) << spec.name;
}

/// Names of the modules in which Megatron-core has linear layers.
bool is_named_linear(const LayerTensor& tensor) {
    const auto named = [&](std::string_view module) { return tensor.name.find(module) != std::string::npos; };
    return tensor.shape.size() == 2 &&
           (named("linear_") || named("eh_proj") || named("latent_proj") || named("in_proj.weight") || named("out_proj.weight"));
}

TEST(TypedPresets, HaveShardsThatMakeUpTheirTensors) {
    ParallelSizes sizes;
    sizes.tp = sizes.ep = 2;
    sizes.etp = 4;
    for (const auto& [spec, model] : presets()) {
        for (const Layer& layer : model.kinds) {
            for (const LayerTensor& tensor : tensors(layer, model.hidden)) {
                std::vector<Parameter> shards;
                add_shards(shards, {tensor}, sizes, "layer.");
                std::int64_t elements = tensor.copies;
                for (const std::int64_t extent : tensor.shape) elements *= extent;
                ASSERT_EQ(std::ssize(shards), tensor.expert ? tensor.copies / 2 : 1) << spec.name << ": " << tensor.name;
                std::int64_t of_all_ranks = 0;
                for (const Parameter& shard : shards)
                    of_all_ranks += shard.count() * (tensor.expert ? 2 : 1) * (!tensor.shard_axis ? 1 : tensor.expert ? 4 : 2);
                EXPECT_EQ(of_all_ranks, elements) << spec.name << ": " << tensor.name;
                EXPECT_EQ(shards.front().linear_weight, is_named_linear(tensor)) << spec.name << ": " << tensor.name;
                EXPECT_EQ(shards.front().name, "layer." + tensor.name + (tensor.expert ? "0" : ""));
            }
        }
    }
}

TEST(TypedPresets, AreReadAsTheyAreWritten) {
    for (const auto& [spec, model] : presets()) {
        if (!is_computed(spec)) continue;
        EXPECT_EQ(layers_from_json(layers_to_json(model), "model"), model) << spec.name;
    }
}

TEST(TypedPresets, AreTheSameSpecAgain) {
    std::size_t by_parts = 0;
    for (const auto& [spec, model] : presets()) {
        if (!is_computed(spec)) continue;
        const ModelSpec again = spec_from_layers_json(layers_to_json(model), spec.name);
        EXPECT_EQ(typed_model(again), model) << spec.name;
        EXPECT_EQ(again.kinds.empty(), spec.kinds.empty()) << spec.name;
        if (!again.kinds.empty()) ++by_parts;
    }
    EXPECT_EQ(by_parts, 19U);
}

TEST(TypedPresets, KeepTheLayersInBf16ThatTheTrainingNames) {
    const ModelSpec spec = load_model("llama3-8b").model;
    MegatronSwitches switches;
    switches.bf16_layers_at_start = 1;
    switches.bf16_layers_at_end = 2;
    const Model model = typed_model(spec, switches);
    ASSERT_EQ(model.kinds.size(), 2U);
    std::vector<std::int64_t> in_bf16;
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        if (model.kinds[model.kind_of_layer[static_cast<std::size_t>(layer)]].precision == LayerPrecision::bf16) in_bf16.push_back(layer);
    }
    EXPECT_THAT(in_bf16, ::testing::ElementsAre(0, spec.layers - 2, spec.layers - 1));
}

/// Fields and parts that say the same network are the same layers, for each preset that parts can say.
TEST(TypedPresets, AreTheSameLayersWhetherFieldsOrPartsDescribeThem) {
    std::vector<std::string> fields_alone;
    for (const auto& [spec, model] : presets()) {
        if (!spec.kinds.empty() || !is_computed(spec)) continue;
        const ModelSpec parts = spec_of_kinds(model);
        validate(parts, spec.name);
        if (typed_model(parts) != model)
            fields_alone.push_back(spec.name);
        else
            EXPECT_TRUE(by_fields_if_possible(parts).kinds.empty()) << spec.name;
    }
    // Halves beside each other, and a bias that a class counts with its experts.
    EXPECT_THAT(fields_alone, ::testing::ElementsAre("command-r-35b", "ernie-4.5-21b-a3b", "falcon-40b", "phi-2", "pythia-6.9b"));
}

std::string refusal_of(const nlohmann::ordered_json& json) {
    try {
        (void)model_from_json(json, "model.json");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

/// Version 1: what a file says of all layers is not ignored where its layers by kind say otherwise.
TEST(LayersOfVersion1, AreNotContradictedByFieldsOfTheModel) {
    const nlohmann::ordered_json file = model_to_json(load_model("qwen3-next-80b-a3b").model);
    EXPECT_EQ(refusal_of(file), "accepted");
    for (const auto& [field, value] : {std::pair{"heads", 32}, {"kv_heads", 4}, {"head_dim", 64}}) {
        nlohmann::ordered_json changed = file;
        changed[field] = value;
        EXPECT_THAT(refusal_of(changed), AllOf(HasSubstr(fmt::format("{} = {} contradicts layer_kinds", field, value)),
                                               HasSubstr(fmt::format("where {} of part 'attention'", field))));
    }
    nlohmann::ordered_json changed = file;
    changed["moe"]["top_k"] = 8;
    EXPECT_THAT(refusal_of(changed), HasSubstr("moe.top_k = 8 contradicts layer_kinds, where top_k of part 'experts' of kind "
                                               "'attention+moe' is 10"));
}

}  // namespace
}  // namespace mgplan::formats::typed_models_test
