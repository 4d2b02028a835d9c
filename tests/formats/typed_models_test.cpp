// Every preset as typed layers: the same counts and tensors as its ModelSpec, and nothing lost on the way through JSON and back.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/model_source.hpp"
#include "plan/json/model_json.hpp"
#include "plan/json/model_layers_json.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/layer_kinds.hpp"
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

/// The parameters that a tensor is on a single rank.
std::vector<Parameter> undivided(const LayerTensor& tensor) {
    std::vector<Parameter> all;
    for (std::int64_t copy = 0; copy < tensor.copies; ++copy) {
        Parameter parameter;
        parameter.name = tensor.name + (tensor.expert ? std::to_string(copy) : "");
        parameter.shape = tensor.shape;
        parameter.shard_axis = tensor.shard_axis;
        parameter.shard_stride = tensor.equal_blocks;
        parameter.shard_blocks = tensor.blocks;
        parameter.initial = tensor.initial;
        parameter.initial_bound = tensor.initial_bound;
        parameter.partial_gradient = tensor.partial_gradient;
        parameter.expert = tensor.expert;
        parameter.local_expert = copy;
        all.push_back(std::move(parameter));
    }
    return all;
}

/// A kind's tensors are the parameters of one of its layers on a single rank.
void expect_same_tensors(const ModelSpec& spec, const Model& model, std::int64_t layer) {
    const std::vector<Parameter> expected = decoder_layer_parameters(spec, layer, ParallelSizes{}, "");
    const Layer& kind = model.kinds.at(model.kind_of_layer.at(static_cast<std::size_t>(layer)));
    std::size_t next = 0;
    for (const LayerTensor& tensor : tensors(kind, model.hidden)) {
        for (const Parameter& ours : undivided(tensor)) {
            ASSERT_LT(next, expected.size()) << spec.name << ": " << ours.name;
            const Parameter& theirs = expected[next++];
            const std::string shown = spec.name + ": " + ours.name;
            ASSERT_EQ(ours.name, theirs.name) << spec.name;
            EXPECT_EQ(ours.shape, theirs.shape) << shown;
            EXPECT_EQ(ours.shard_axis, theirs.shard_axis) << shown;
            EXPECT_EQ(ours.shard_stride, theirs.shard_stride) << shown;
            EXPECT_EQ(ours.shard_blocks, theirs.shard_blocks) << shown;
            EXPECT_EQ(ours.initial, theirs.initial) << shown;
            EXPECT_EQ(ours.initial_bound, theirs.initial_bound) << shown;
            EXPECT_EQ(ours.partial_gradient, theirs.partial_gradient) << shown;
            EXPECT_EQ(ours.expert, theirs.expert) << shown;
            EXPECT_EQ(ours.local_expert, theirs.local_expert) << shown;
            EXPECT_EQ(tensor.dtype == DtypeClass::gemm_weight, is_linear_weight(theirs)) << shown;
        }
    }
    EXPECT_EQ(next, expected.size()) << spec.name;
}

TEST(TypedPresets, ListTheTensorsOfTheirLayers) {
    for (const auto& [spec, model] : presets()) {
        if (!is_computed(spec)) continue;
        std::vector<bool> seen(model.kinds.size());
        for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
            const std::size_t kind = model.kind_of_layer.at(static_cast<std::size_t>(layer));
            if (!seen[kind]) expect_same_tensors(spec, model, layer);
            seen[kind] = true;
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
        EXPECT_EQ(again.compositions.empty(), spec.compositions.empty()) << spec.name;
        if (!again.compositions.empty()) ++by_parts;
    }
    EXPECT_EQ(by_parts, 11U);
}

/// Fields and parts that say the same network are the same layers, for each preset that parts can say.
TEST(TypedPresets, AreTheSameLayersWhetherFieldsOrPartsDescribeThem) {
    std::vector<std::string> fields_alone;
    for (const auto& [spec, model] : presets()) {
        if (!spec.compositions.empty() || !is_computed(spec)) continue;
        const ModelSpec parts = spec_of_parts(model);
        validate(parts, spec.name);
        if (typed_model(parts) != model) fields_alone.push_back(spec.name);
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
