#include "plan/json/model_composition_json.hpp"

#include <array>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/enum_words.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parts/model_parts.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

/// Fields of ModelSpec by name; the default of each is that of an empty model.
constexpr std::array<std::pair<std::string_view, bool ModelSpec::*>, 10> kFlags{
    {{"rotary_interleaved", &ModelSpec::rotary_interleaved},
     {"pre_norms", &ModelSpec::pre_norms},
     {"post_norms", &ModelSpec::post_norms},
     {"norm_bias", &ModelSpec::norm_bias},
     {"norm_weight", &ModelSpec::norm_weight},
     {"output_bias", &ModelSpec::output_bias},
     {"embedding_norm", &ModelSpec::embedding_norm},
     {"qk_norm_per_head", &ModelSpec::qk_norm_per_head},
     {"qk_norm_behind_rotary", &ModelSpec::qk_norm_behind_rotary},
     {"attention_output_gate", &ModelSpec::attention_output_gate}}};
constexpr std::array<std::pair<std::string_view, double ModelSpec::*>, 9> kNumbers{
    {{"window_rotary_base", &ModelSpec::window_rotary_base},
     {"embedding_multiplier", &ModelSpec::embedding_multiplier},
     {"residual_multiplier", &ModelSpec::residual_multiplier},
     {"logit_multiplier", &ModelSpec::logit_multiplier},
     {"attention_multiplier", &ModelSpec::attention_multiplier},
     {"attention_softcap", &ModelSpec::attention_softcap},
     {"logit_softcap", &ModelSpec::logit_softcap},
     {"qkv_clip", &ModelSpec::qkv_clip},
     {"state_norm_epsilon", &ModelSpec::state_norm_epsilon}}};
constexpr std::array<std::pair<std::string_view, double BranchMultipliers::*>, 9> kMultipliers{
    {{"attention_output", &BranchMultipliers::attention_output},
     {"state_output", &BranchMultipliers::state_output},
     {"state_gate", &BranchMultipliers::state_gate},
     {"state_input", &BranchMultipliers::state_input},
     {"state_write", &BranchMultipliers::state_write},
     {"state_read", &BranchMultipliers::state_read},
     {"state_step", &BranchMultipliers::state_step},
     {"mlp_gate", &BranchMultipliers::mlp_gate},
     {"mlp_output", &BranchMultipliers::mlp_output}}};
constexpr std::array<std::pair<std::string_view, PathFactors NormedResidual::*>, 3> kPaths{
    {{"attention", &NormedResidual::attention}, {"state", &NormedResidual::state}, {"mlp", &NormedResidual::mlp}}};
constexpr std::array<std::pair<std::string_view, std::vector<bool> ModelSpec::*>, 2> kLists{
    {{"window_layers", &ModelSpec::window_layers}, {"rotary_layers", &ModelSpec::rotary_layers}}};

Json parts_to_json(const std::vector<LayerPart>& parts) {
    Json json = Json::array();
    for (const LayerPart& part : parts) {
        Json entry{{"part", part.kind}};
        for (const auto& [name, value] : part.sizes) entry[name] = value;
        json.push_back(std::move(entry));
    }
    return json;
}

std::vector<LayerPart> parts_from_json(const Json& json, const std::string& where, Problems& problems) {
    std::vector<LayerPart> parts;
    if (!json.is_array()) {
        problems.add("{} is no list; give a list of parts", where);
        return parts;
    }
    for (const Json& entry : json) {
        LayerPart part;
        if (!entry.is_object() || !entry.contains("part") || !entry.at("part").is_string()) {
            problems.add("{}: a part has no kind; give {{\"part\": \"mlp\", …}}", where);
            return parts;
        }
        for (const auto& [name, value] : entry.items()) {
            if (name == "part")
                part.kind = value.get<std::string>();
            else if (value.is_number_integer())
                part.sizes[name] = value.get<std::int64_t>();
            else
                problems.add("{}: {} of part '{}' is no whole number; give one", where, name.substr(0, 40), part.kind.substr(0, 40));
        }
        parts.push_back(std::move(part));
    }
    return parts;
}

Json counted_to_json(const std::vector<CountedTensor>& tensors) {
    Json json = Json::array();
    for (const CountedTensor& tensor : tensors)
        json.push_back(
            {{"name", tensor.name}, {"shape", tensor.shape}, {"copies", tensor.copies}, {"copies_of_token", tensor.copies_of_token}});
    return json;
}

std::vector<CountedTensor> counted_from_json(const Json& json, const std::string& where, Problems& problems) {
    std::vector<CountedTensor> tensors;
    if (!json.is_array()) problems.add("{}: counted is no list; give a list of tensors", where);
    for (const Json& entry : json.is_array() ? json : Json::array()) {
        JsonReader reader(entry, where + ": counted", problems);
        CountedTensor& tensor = tensors.emplace_back();
        tensor.name = reader.text("name");
        tensor.shape = reader.integers("shape", 1, ModelLimits::part_size);
        tensor.copies = reader.integer_or("copies", 1, 1, ModelLimits::part_size);
        tensor.copies_of_token = reader.integer_or("copies_of_token", 1, 0, tensor.copies);
        reader.finish();
    }
    return tensors;
}

Json kind_to_json(const ModelSpec& model, const NamedLayer& kind) {
    if (!kind.layer.counted.empty()) return {{"name", kind.name}, {"counted", counted_to_json(kind.layer.counted)}};
    return {{"name", kind.name}, {"parts", parts_to_json(composition_of(with_fields(model, kind.layer, 0), model.hidden).parts)}};
}

}  // namespace

Json runs_to_json(const std::vector<std::uint16_t>& kinds) {
    Json json = Json::array();
    for (std::size_t start = 0; start < kinds.size();) {
        std::size_t end = start;
        while (end < kinds.size() && kinds[end] == kinds[start]) ++end;
        json.push_back(Json::array({kinds[start], end - start}));
        start = end;
    }
    return json;
}

std::vector<std::uint16_t> runs_from_json(const Json& json, const std::string& where, Problems& problems) {
    std::vector<std::uint16_t> kinds;
    const auto is_run = [](const Json& run) {
        return run.is_array() && run.size() == 2 && run[0].is_number_unsigned() && run[1].is_number_unsigned() &&
               run[0].get<std::uint64_t>() < ModelLimits::layer_kinds && run[1].get<std::uint64_t>() <= ModelLimits::layers;
    };
    if (!json.is_array()) {
        problems.add("{}: layers is no list; give [[kind, layers], …]", where);
        return kinds;
    }
    for (const Json& run : json) {
        if (!is_run(run) || kinds.size() + run[1].get<std::uint64_t>() > static_cast<std::uint64_t>(ModelLimits::layers)) {
            problems.add("{}: an entry of layers is no [kind, layers] or leads to more than {} layers", where, ModelLimits::layers);
            return kinds;
        }
        kinds.insert(kinds.end(), run[1].get<std::size_t>(), run[0].get<std::uint16_t>());
    }
    return kinds;
}

void composition_to_json(const ModelSpec& model, Json& json) {
    const ModelSpec plain;
    if (model.order != plain.order) json["order"] = word_of(model.order);
    for (const auto& [name, flag] : kFlags) {
        if (model.*flag != plain.*flag) json[std::string(name)] = model.*flag;
    }
    for (const auto& [name, number] : kNumbers) {
        if (model.*number != plain.*number) json[std::string(name)] = model.*number;
    }
    if (model.branch_multipliers != plain.branch_multipliers) {
        Json multipliers = Json::object();
        for (const auto& [name, number] : kMultipliers) multipliers[std::string(name)] = model.branch_multipliers.*number;
        json["branch_multipliers"] = std::move(multipliers);
    }
    if (model.normed_residual) {
        Json factors = Json::object();
        for (const auto& [name, path] : kPaths) {
            const PathFactors& own = (*model.normed_residual).*path;
            factors[std::string(name)] = Json{{"path", own.path}, {"branch", own.branch}};
        }
        json["normed_residual"] = std::move(factors);
    }
    for (const auto& [name, list] : kLists) {
        if (!(model.*list).empty()) json[std::string(name)] = layer_pattern_text(model.*list);
    }
    if (!model.kinds.empty()) {
        Json kinds = Json::array();
        for (const NamedLayer& kind : model.kinds) kinds.push_back(kind_to_json(model, kind));
        Json& described = json["layer_kinds"] = Json{{"kinds", std::move(kinds)}, {"layers", runs_to_json(model.kind_of_layer)}};
        if (model.kind_of_prediction) described["prediction"] = *model.kind_of_prediction;
    }
    std::vector<LayerPart> outside;
    std::vector<CountedTensor> counted;
    if (!model.kinds.empty() && model.counted.empty() && !has_counted_layers(model)) {
        const std::vector<Layer> kinds = typed_kinds(model);
        outside = parts_beside(kinds, kinds.front().norms.norm, model);
    }
    for (const CountedTensor& tensor : model.counted) {
        if (tensor.name == kChoiceBias && model.kinds.empty())
            outside.push_back({"choice_biases", {{"experts", tensor.shape.front()}, {"mixtures", tensor.copies}}});
        else
            counted.push_back(tensor);
    }
    if (!outside.empty()) json["beside_layers"] = parts_to_json(outside);
    if (!counted.empty()) json["counted"] = counted_to_json(counted);
}

ModelParts composition_from_json(JsonReader& reader, ModelSpec& model) {
    ModelParts parts;
    model.order = read_word(reader, "order", model.order);
    for (const auto& [name, flag] : kFlags) model.*flag = reader.boolean_or(name, model.*flag);
    for (const auto& [name, number] : kNumbers) model.*number = reader.real_or(name, model.*number, 0, ModelLimits::rotary_base);
    if (const Json* multipliers = reader.member("branch_multipliers")) {
        JsonReader nested(*multipliers, reader.where() + ": branch_multipliers", reader.problems());
        for (const auto& [name, number] : kMultipliers)
            model.branch_multipliers.*number = nested.real_or(name, 1, 0, ModelLimits::multiplier);
        nested.finish();
    }
    if (const Json* factors = reader.member("normed_residual")) {
        NormedResidual& residual = model.normed_residual.emplace();
        JsonReader nested(*factors, reader.where() + ": normed_residual", reader.problems());
        for (const auto& [name, path] : kPaths) {
            const Json* const own = nested.member(name);
            if (own == nullptr) continue;
            JsonReader both(*own, nested.where() + "." + std::string(name), reader.problems());
            (residual.*path).path = both.real_or("path", 1, 0, ModelLimits::multiplier);
            (residual.*path).branch = both.real_or("branch", 1, 0, ModelLimits::multiplier);
            both.finish();
        }
        nested.finish();
    }
    for (const auto& [name, list] : kLists) {
        const std::string text = reader.text_or(name, "");
        if (text.empty()) continue;
        try {
            model.*list = parse_layer_pattern(text, ModelLimits::layers);
        } catch (const ConfigError& error) {
            reader.problems().absorb(error, fmt::format("{}: {}: ", reader.where(), name));
        }
    }
    if (const Json* kinds = reader.member("layer_kinds")) {
        const std::string where = reader.where() + ": layer_kinds";
        JsonReader nested(*kinds, where, reader.problems());
        if (const Json* list = nested.member("kinds"); list != nullptr && list->is_array()) {
            for (const Json& entry : *list) {
                JsonReader kind(entry, where, reader.problems());
                LayerComposition& composition = parts.kinds.emplace_back();
                composition.name = kind.text("name");
                if (const Json* own = kind.member("parts")) composition.parts = parts_from_json(*own, where, reader.problems());
                if (const Json* own = kind.member("counted")) composition.counted = counted_from_json(*own, where, reader.problems());
                kind.finish();
            }
        }
        if (const Json* layers = nested.member("layers")) parts.of_layer = runs_from_json(*layers, where, reader.problems());
        if (nested.member("prediction") != nullptr)
            parts.of_prediction =
                static_cast<std::uint16_t>(nested.integer("prediction", 0, static_cast<std::int64_t>(ModelLimits::layer_kinds) - 1));
        nested.finish();
    }
    if (const Json* outside = reader.member("beside_layers"))
        parts.outside = parts_from_json(*outside, reader.where() + ": beside_layers", reader.problems());
    if (const Json* counted = reader.member("counted")) model.counted = counted_from_json(*counted, reader.where(), reader.problems());
    return parts;
}

}  // namespace mgplan
