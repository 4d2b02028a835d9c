#include "formats/hugging_face/composer.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plan/parameters/model_adapter.hpp"
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

void Composer::add_layer(const std::string& kind, LayerPiece layer) {
    const Kind next{kind, std::move(layer)};
    const auto found = std::find(kinds_.begin(), kinds_.end(), next);
    model().kind_of_layer.push_back(static_cast<std::uint16_t>(found - kinds_.begin()));
    if (found != kinds_.end()) return;
    kinds_.push_back(next);
    if (kinds_.size() == ModelLimits::layer_kinds + 1)
        config().problem("layers are of more than {} kinds, which is more than mgplan tells apart", ModelLimits::layer_kinds);
}

namespace {

/// Experts of which a token takes none, or more than there are, by the name that the file or its class has for it.
void check_choice(ConfigReader& config, const ExpertChoice& choice) {
    const Aliases kChosenExperts{"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"};
    if (!config.problems().empty() || choice.all < 1 || (choice.chosen >= 1 && choice.chosen <= choice.all)) return;
    const std::string_view stated = config.stated(kChosenExperts), name = stated.empty() ? "experts per token" : stated;
    if (choice.chosen < 1)
        config.problem("{} = {} leaves a token without experts; give 1 to {}", name, choice.chosen, choice.all);
    else
        config.problem("{} = {} is more than the {} that a mixture has; give at most {}", name, choice.chosen,
                       counted(choice.all, "expert"), choice.all);
}

void check_shapes(ConfigReader& config, const std::string& place, const LayerPiece& piece) {
    const auto wrong = [](std::int64_t size) { return size < 1 || size > ModelLimits::part_size; };
    for (const CountedTensor& tensor : piece.tensors) {
        if (!config.problems().empty()) return;
        std::vector<std::int64_t> sizes = tensor.shape;
        sizes.push_back(tensor.copies);
        if (const auto found = std::find_if(sizes.begin(), sizes.end(), wrong); found != sizes.end())
            config.problem("{} would have a tensor {} with a size of {}; give sizes that make it 1 to {}", place, tensor.name, *found,
                           ModelLimits::part_size);
    }
}

}  // namespace

void Composer::finish() {
    ModelSpec& spec = model();
    if (has_final_norm_) read_by_layers_.add(spec.normalization == Normalization::layer_norm ? layer_norm() : norm());
    for (const Kind& kind : kinds_) {
        for (const ExpertChoice& choice : kind.layer.choices) check_choice(config(), choice);
    }
    for (const Kind& kind : kinds_) check_shapes(config(), fmt::format("layers of kind '{}'", kind.name), kind.layer);
    check_shapes(config(), "what is outside the layers", beside_);
    check_shapes(config(), "what is outside the layers", read_by_layers_);
    if (!config().problems().empty()) return;
    bool counted = !beside_.tensors.empty() || !has_final_norm_;
    for (const Kind& kind : kinds_) {
        Layer& layer = spec.kinds.emplace_back(NamedLayer{kind.name, {}}).layer;
        if (kind.layer.typed)
            layer = without_fields(*kind.layer.typed);
        else
            layer.counted = kind.layer.tensors;
        counted = counted || !kind.layer.typed;
    }
    if (counted) spec.counted = LayerPiece{beside_, read_by_layers_}.tensors;
    if (!spec.moe) return;
    for (const auto kind : spec.kind_of_layer) spec.moe_layers.push_back(!kinds_.at(kind).layer.choices.empty());
    if (std::find(spec.moe_layers.begin(), spec.moe_layers.end(), true) == spec.moe_layers.end()) {
        spec.moe.reset();
        spec.moe_layers.clear();
    }
}

void read_composed(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    if (!config.problems().empty()) return;
    // No count depends on these sizes, which all models have for messages and tables.
    (void)config.text_or({"hidden_act", "activation_function", "hidden_activation", "activation"}, "");
    model.ffn = std::max<std::int64_t>(1, model.ffn);
    Composer composer(parts);
    parts.type.compose(composer);
    for (const auto* field : {"final_logit_softcapping", "logits_soft_cap", "attn_logit_softcapping"}) {
        const double cap = config.real_or({field}, 0, 0, ModelLimits::multiplier);
        const bool computed = cap == model.logit_softcap && field != std::string_view("attn_logit_softcapping");
        if (cap > 0 && !computed) composer.leave_out(fmt::format("a soft cap of {:g} ({})", cap, field));
    }
    composer.finish();
    if (!config.problems().empty()) return;
    if (model.mtp_layers > 0) composer.leave_out("the layers of multi-token prediction");
    model.mtp_layers = 0;
}

}  // namespace mgplan::formats
