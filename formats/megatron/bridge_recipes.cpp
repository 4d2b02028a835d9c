#include "formats/megatron/bridge_recipes.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/bridge_fields.hpp"
#include "plan/text/embedded_files.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// The newest data file: its name ends in the release.
const Json& recipe_data() {
    static const Json kData = [] {
        const EmbeddedFile& file = embedded_recipes().back();
        return parse_json(file.text, std::string(file.name));
    }();
    return kData;
}

/// A recipe's own settings over those of its family, without the fields that it leaves alone.
Json merged_settings(const Json& recipe, const Json& bases) {
    Json settings = bases.at(recipe.at("base").get<std::string>());
    if (recipe.contains("without")) {
        for (const auto& field : recipe.at("without")) settings.erase(field.get<std::string>());
    }
    settings.update(recipe.at("settings"));
    return settings;
}

BridgeRecipes read_recipes() {
    const Json& data = recipe_data();
    BridgeRecipes all;
    all.release = data.at("release");
    for (const auto& [name, json] : data.at("recipes").items()) {
        BridgeRecipe recipe;
        recipe.name = name;
        recipe.model = json.value("model", "");
        recipe.task = json.at("task");
        recipe.gpu = json.value("gpu", "");
        if (json.contains("gpus")) recipe.gpus = json.at("gpus").get<std::int64_t>();
        recipe.precision = json.value("precision", "");
        recipe.source = json.at("source");
        all.recipes.push_back(std::move(recipe));
    }
    for (const auto& [name, reason] : data.at("not_recorded").items()) all.not_recorded[name] = reason;
    return all;
}

/// A flag of the model as the fields of Megatron-Bridge's provider.
void add_flag(Json& fields, const MegatronFlag& flag) {
    if (flag.name == "--swiglu" || flag.name == "--quick-geglu") {
        fields["gated_linear_unit"] = true;
        fields["activation_func"] = flag.name == "--swiglu" ? "silu" : "quick_gelu";
    } else if (flag.name == "--squared-relu") {
        fields["activation_func"] = "squared_relu";
    } else if (flag.name != "--group-query-attention") {
        const auto rules = bridge_field_rules();
        const auto rule = std::find_if(rules.begin(), rules.end(), [&](const FieldRule& one) { return one.flag == flag.name; });
        const bool off = flag.name.starts_with("--no-") || flag.name.starts_with("--disable-");
        std::string field = flag.name.substr(off ? flag.name.find('-', 2) + 1 : 2);
        std::replace(field.begin(), field.end(), '-', '_');
        if (rule != rules.end()) field = rule->field;
        if (flag.values.empty())
            fields[field] = rule == rules.end() ? !off : rule->form == FieldForm::if_on;
        else
            fields[field] = flag.values.size() == 1 ? Json(flag.values.front()) : Json(flag.values);
    }
}

}  // namespace

std::map<std::string, std::string, std::less<>> BridgeRecipe::settings() const {
    const Json merged = merged_settings(recipe_data().at("recipes").at(name), recipe_data().at("bases"));
    std::map<std::string, std::string, std::less<>> fields;
    for (const auto& [field, value] : merged.items()) fields[field] = value.dump();
    return fields;
}

const BridgeRecipe* BridgeRecipes::find(std::string_view name) const {
    const auto found = std::find_if(recipes.begin(), recipes.end(), [&](const BridgeRecipe& one) { return one.name == name; });
    return found == recipes.end() ? nullptr : &*found;
}

const BridgeRecipes& bridge_recipes() {
    static const BridgeRecipes kRecipes = read_recipes();
    return kRecipes;
}

bool has_recipe_for(std::int64_t gpus) {
    return embedded_recipes().back().text.find(fmt::format("\"gpus\":{},", gpus)) != std::string_view::npos;
}

std::string bridge_recipe_config(const BridgeRecipe& recipe, const MegatronFlags* model, const std::string& model_type) {
    const Json& data = recipe_data();
    const Json& providers = data.at("providers");
    const auto settings = recipe.settings();
    const auto own = settings.find("model.class");
    const std::string provider = own == settings.end() ? "GPTModelProvider" : Json::parse(own->second).get<std::string>();
    Json fields = data.at("provider_defaults").at(provider), config;
    if (model != nullptr) {
        for (const MegatronFlag& flag : model->flags) add_flag(fields, flag);
        if (providers.contains(model_type)) fields.update(providers.at(model_type));
    }
    Json tokenizer = Json::object();
    for (const auto& [path, text] : settings) {
        const auto dot = path.find('.');
        const std::string section = path.substr(0, dot), field = dot == std::string::npos ? "" : path.substr(dot + 1);
        Json value = Json::parse(text);
        if (dot == std::string::npos)
            config[path] = std::move(value);
        else
            (section == "model" ? fields : section == "tokenizer" ? tokenizer : config[section])[field] = std::move(value);
    }
    // training/setup.py: the tokenizer's vocabulary replaces the model's, and then alone is padded. That of a tokenizer on the hub is taken
    // to be the model's.
    const bool by_tokenizer = tokenizer.value("use_tokenizer_vocab_size", false);
    if (by_tokenizer && tokenizer.contains("vocab_size")) fields["vocab_size"] = tokenizer.at("vocab_size");
    fields["should_pad_vocab"] = by_tokenizer;
    // The provider takes its initial length from this field of the Hugging Face configuration (models/conversion/model_bridge.py).
    if (fields.value("position_embedding_type", "") != "learned_absolute") fields["max_position_embeddings"] = fields.at("seq_length");
    fields.erase("class");
    if (model == nullptr) config["tokenizer"] = std::move(tokenizer);
    if (own != settings.end()) fields["_target_"] = provider;
    config["model"] = std::move(fields);
    return config.dump(1) + "\n";
}

}  // namespace mgplan::formats
