#include "formats/hugging_face/composer.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plan/parts/layer_parts.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::int64_t Composer::number(Aliases names) {
    return config().integer(names, 0, ModelLimits::part_size);
}

std::int64_t Composer::number_or(Aliases names, std::int64_t fallback) {
    return config().integer_or(names, fallback, 0, ModelLimits::part_size);
}

std::vector<std::string> Composer::words_of_layers(std::string_view field) {
    std::vector<std::string> words = config().texts(field);
    if (!words.empty() && static_cast<std::int64_t>(words.size()) != layers()) {
        config().problem("{} has {} entries for {} layers; give one entry per layer", field, words.size(), layers());
        words.clear();
    }
    return words;
}

bool Composer::knows_words(std::string_view field, const std::vector<std::string>& words, Aliases known) {
    const auto other = std::find_if(words.begin(), words.end(),
                                    [&](const std::string& word) { return std::find(known.begin(), known.end(), word) == known.end(); });
    if (other == words.end()) return true;
    config().problem("{} holds '{}', which no layer of this type is; write {}", field, other->substr(0, 40), fmt::join(known, ", "));
    return false;
}

std::vector<std::string> Composer::words_of_layers(std::string_view field, Aliases known) {
    std::vector<std::string> words = words_of_layers(field);
    if (!knows_words(field, words, known)) words.clear();
    return words;
}

const Json* Composer::config_of_layer(std::int64_t layer) {
    if (!by_layer_) {
        by_layer_.emplace();
        const Json* const stated = config().object("per_layer_config");
        if (stated == nullptr) return nullptr;
        for (const auto& [name, fields] : stated->items()) {
            const auto number = parse_integer(name);
            if (!number || *number < 0 || *number >= layers())
                config().problem("per_layer_config has an entry '{}', which is no layer; give numbers from 0 to {}", name.substr(0, 40),
                                 layers() - 1);
            else if (fields.is_object())
                by_layer_->emplace(*number, &fields);
            else if (!fields.is_null())
                config().problem("per_layer_config: {} = {} is not an object; give one, or leave it out", name, shown_json(fields));
        }
    }
    const auto found = by_layer_->find(layer);
    return found == by_layer_->end() ? nullptr : found->second;
}

bool is_recurrent(const std::string& word) {
    return word == "linear_attention" || word == "mamba" || word == "conv" || word == "recurrent";
}

std::vector<std::string> Composer::mixers_of_layers() {
    std::vector<std::string> words = words_of_layers("layer_types");
    for (const std::string& word : words) {
        if (is_recurrent(word) || word == "full_attention" || word == "attention") continue;
        config().problem("layer_types holds '{}', which no layer of this type is; write full_attention, or linear_attention, mamba or conv",
                         word.substr(0, 20));
        return {};
    }
    return words;
}

std::vector<bool> Composer::sparse_layers(std::int64_t first_sparse) {
    std::vector<bool> sparse;
    for (const std::string& word : words_of_layers("mlp_layer_types", {"sparse", "dense"})) sparse.push_back(word == "sparse");
    if (!sparse.empty()) return sparse;
    std::set<std::int64_t> dense;
    for (const auto layer : config().integers("mlp_only_layers", 0, ModelLimits::layers)) dense.insert(layer);
    const std::int64_t step = std::max<std::int64_t>(1, number_or({"decoder_sparse_step"}, 1));
    for (std::int64_t layer = 0; layer < layers(); ++layer)
        sparse.push_back(layer >= first_sparse && (layer + 1) % step == 0 && !dense.contains(layer));
    return sparse;
}

LayerPart Composer::norm(std::int64_t copies) const {
    return part("norm", {{"width", hidden()}, {"copies", copies}});
}

LayerPart Composer::layer_norm(std::int64_t copies) const {
    return part("norm", {{"width", hidden()}, {"bias", 1}, {"copies", copies}});
}

LayerPart Composer::attention(const PartSizesGiven& sizes) {
    const ModelSpec& spec = model();
    LayerPart attention = part("attention", {{"heads", spec.heads}, {"kv_heads", spec.kv_heads}, {"head_dim", spec.head_dim}});
    for (const auto& [name, value] : sizes) attention.sizes[name] = value;
    return attention;
}

LayerPart Composer::latent_attention() {
    return part("latent_attention", {{"heads", model().heads},
                                     {"q_lora_rank", number_or({"q_lora_rank"}, 0)},
                                     {"kv_lora_rank", number({"kv_lora_rank"})},
                                     {"qk_nope", number({"qk_nope_head_dim"})},
                                     {"qk_rope", number({"qk_rope_head_dim"})},
                                     {"v_head_dim", number({"v_head_dim"})},
                                     {"down_bias", flag({"attention_bias"}, false) ? 1 : 0},
                                     {"output_bias", flag({"attention_bias"}, false) ? 1 : 0}});
}

LayerPart Composer::mamba2(std::int64_t inner, bool normed) {
    return part("mamba2", {{"inner", inner},
                           {"heads", number({"mamba_n_heads"})},
                           {"groups", number({"mamba_n_groups"})},
                           {"state", number({"mamba_d_state"})},
                           {"conv", number({"mamba_d_conv"})},
                           {"conv_bias", flag({"mamba_conv_bias"}, true) ? 1 : 0},
                           {"proj_bias", flag({"mamba_proj_bias"}, false) ? 1 : 0},
                           {"norm", normed ? 1 : 0}});
}

LayerPart Composer::indexer() {
    return part("indexer",
                {{"heads", number({"index_n_heads"})}, {"head_dim", number({"index_head_dim"})}, {"q_lora_rank", number({"q_lora_rank"})}});
}

LayerPart Composer::mlp(std::int64_t width, bool gated, bool bias) const {
    return part("mlp", {{"width", width}, {"gated", gated ? 1 : 0}, {"bias", bias ? 1 : 0}});
}

LayerPart Composer::experts(std::int64_t experts, std::int64_t top_k, std::int64_t width, bool gated) const {
    return part("experts", {{"experts", experts}, {"top_k", top_k}, {"width", width}, {"gated", gated ? 1 : 0}});
}

LayerPart Composer::activated(LayerPart part) const {
    part.sizes["activation"] = 1 + static_cast<std::int64_t>(parts_.model.activation);
    return part;
}

LayerPart Composer::linear(std::int64_t in, std::int64_t out, bool bias, std::int64_t copies) const {
    return part("linear", {{"in", in}, {"out", out}, {"bias", bias ? 1 : 0}, {"copies", copies}});
}

void Composer::describe_mixture(const LayerPart& experts, std::int64_t shared_width, bool shared_gate) {
    if (!config().problems().empty()) return;
    MoeSpec moe;
    moe.experts = part_size(experts, "experts");
    moe.top_k = part_size(experts, "top_k");
    moe.expert_ffn = part_size(experts, "width");
    moe.shared_ffn = shared_width;
    moe.shared_gate = shared_gate;
    read_router(config(), parts_.type, moe);
    moe.router_bias = part_size(experts, "router_bias") != 0;
    model().moe = moe;
}

void Composer::leave_out_step_limits() {
    const Json* limits = config().list("time_step_limit");
    if (limits == nullptr) return;
    // Infinity, which is no JSON: a text here (formats/hugging_face/config_text.hpp), or an object as transformers 5 writes it.
    const auto is_limit = [](const Json& limit) {
        return limit.is_number() || limit == "Infinity" || (limit.is_object() && limit.contains("__float__"));
    };
    if (limits->size() != 2 || !is_limit(limits->at(0)) || !is_limit(limits->at(1))) {
        config().problem("time_step_limit is no list of two numbers; give the lowest and the highest step, or leave it out");
        return;
    }
    constexpr double kNoStepReaches = 1e6;
    const auto& low = limits->at(0);
    const auto& high = limits->at(1);
    if ((low.is_number() && low.get<double>() > 0) || (high.is_number() && high.get<double>() < kNoStepReaches))
        leave_out("limits of Mamba-2's steps (time_step_limit)");
}

void Composer::add_layer(const std::string& kind, Parts parts) {
    std::vector<LayerComposition>& kinds = parts_.layers.kinds;
    const LayerComposition next{kind, std::move(parts)};
    const auto found = std::find(kinds.begin(), kinds.end(), next);
    parts_.layers.of_layer.push_back(static_cast<std::uint16_t>(found - kinds.begin()));
    if (found != kinds.end()) return;
    kinds.push_back(next);
    if (kinds.size() == ModelLimits::layer_kinds + 1)
        config().problem("layers are of more than {} kinds, which is more than mgplan tells apart", ModelLimits::layer_kinds);
}

void Composer::add_final_norm() {
    if (has_final_norm_) add_beside(model().normalization == Normalization::layer_norm ? layer_norm() : norm());
}

Parts joined(std::initializer_list<Parts> lists) {
    Parts all;
    for (const Parts& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

namespace {

/// Mixtures of which a token takes more experts than there are, by the name that the file or its class has for it.
void refuse_more_chosen_than_there_are(ConfigReader& config, const ModelParts& layers) {
    const Aliases kChosenExperts{"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"};
    for (const LayerComposition& layer : layers.kinds) {
        for (const LayerPart& part : layer.parts) {
            if (!config.problems().empty() || role_of(part) != PartRole::mixture) continue;
            const std::int64_t chosen = part_size(part, "top_k"), all = part_size(part, "experts") + part_size(part, "zero_experts");
            if (all < 1 || chosen <= all) continue;
            const std::string_view stated = config.stated(kChosenExperts);
            config.problem("{} = {} is more than the {} that a mixture has; give at most {}", stated.empty() ? "experts per token" : stated,
                           chosen, counted(all, "expert"), all);
        }
    }
}

}  // namespace

void read_composed(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    if (!config.problems().empty()) return;
    // No count depends on these sizes, which all models have for messages and tables.
    (void)config.text_or({"hidden_act", "activation_function", "hidden_activation", "activation"}, "");
    model.ffn = std::max<std::int64_t>(1, model.ffn);
    Composer composer(parts);
    parts.type.compose(composer);
    composer.add_final_norm();
    for (const auto* field : {"final_logit_softcapping", "logits_soft_cap", "attn_logit_softcapping"}) {
        const double cap = config.real_or({field}, 0, 0, ModelLimits::multiplier);
        const bool computed = cap == model.logit_softcap && field != std::string_view("attn_logit_softcapping");
        if (cap > 0 && !computed) composer.leave_out(fmt::format("a soft cap of {:g} ({})", cap, field));
    }
    refuse_more_chosen_than_there_are(config, parts.layers);
    if (!config.problems().empty()) return;
    if (model.moe) {
        for (const auto kind : parts.layers.of_layer)
            model.moe_layers.push_back(has_part_with(parts.layers.kinds.at(kind), PartRole::mixture));
        if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) {
            model.moe.reset();
            model.moe_layers.clear();
        }
    }
    if (model.mtp_layers > 0) composer.leave_out("the layers of multi-token prediction");
    model.mtp_layers = 0;
}

}  // namespace mgplan::formats
