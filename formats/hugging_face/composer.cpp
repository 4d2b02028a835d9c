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

LayerPiece::LayerPiece(std::initializer_list<LayerPiece> pieces) {
    for (const LayerPiece& piece : pieces) add(piece);
}

void LayerPiece::add(const LayerPiece& next) {
    if (next == LayerPiece()) return;
    const bool first = *this == LayerPiece();
    tensors.insert(tensors.end(), next.tensors.begin(), next.tensors.end());
    choices.insert(choices.end(), next.choices.begin(), next.choices.end());
    if (first) {
        typed = next.typed;
    } else if (!typed || !next.typed || (next.typed->mixer && (typed->mixer || typed->feed_forward)) ||
               (next.typed->feed_forward && typed->feed_forward)) {
        typed.reset();
    } else if (next.typed->mixer) {
        typed->mixer = next.typed->mixer;
        typed->window = next.typed->window;
    } else if (next.typed->feed_forward) {
        typed->feed_forward = next.typed->feed_forward;
    }
}

void LayerPiece::add_biases(std::initializer_list<std::string_view> maps) {
    for (const std::string_view map : maps) {
        const auto weight = std::find_if(tensors.begin(), tensors.end(), [&](const CountedTensor& tensor) {
            return tensor.name.starts_with(map) && tensor.name.substr(map.size()) == ".weight";
        });
        MGPLAN_ASSERT(weight != tensors.end(), map);
        tensors.push_back({std::string(map) + ".bias", {weight->shape.front()}});
    }
    typed.reset();
}

namespace {

/// Adds a weight and, for a map with one, its bias.
void add_map(LayerPiece& piece, const std::string& name, std::int64_t rows, std::int64_t columns, bool biased, std::int64_t copies = 1,
             std::int64_t used = 1) {
    piece.tensors.push_back({name + ".weight", {rows, columns}, copies, used});
    if (biased) piece.tensors.push_back({name + ".bias", {rows}, copies, used});
}

}  // namespace

LayerPiece Composer::norm_over(std::int64_t width, bool biased, std::int64_t copies, std::optional<Layer> typed) const {
    LayerPiece piece;
    piece.tensors.push_back({"norm.weight", {width}, copies, copies});
    if (biased) piece.tensors.push_back({"norm.bias", {width}, copies, copies});
    piece.typed = std::move(typed);
    return piece;
}

LayerPiece Composer::norm(std::int64_t copies, bool before, bool after) const {
    Layer layer;
    layer.norms.before = before;
    layer.norms.after = after;
    return norm_over(hidden(), false, copies, std::move(layer));
}

LayerPiece Composer::mixer(const Mixer& mixer, std::int64_t window) const {
    LayerPiece piece = std::visit([&](const auto& kind) { return listed(kind); }, mixer);
    piece.typed.emplace();
    piece.typed->mixer = mixer;
    piece.typed->window = window;
    return piece;
}

Attention Composer::plain_attention(bool rotary, bool biased) const {
    const ModelSpec& spec = parts_.model;
    Attention attention{.heads = spec.heads, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
    if (rotary) attention.rotary.emplace();
    attention.qkv_bias = attention.output_bias = biased;
    return attention;
}

LayerPiece Composer::latent_attention() {
    LatentAttention sizes{.heads = model().heads,
                          .q_lora_rank = number_or({"q_lora_rank"}, 0),
                          .kv_lora_rank = size({"kv_lora_rank"}),
                          .qk_nope_head_dim = number({"qk_nope_head_dim"}),
                          .qk_rope_head_dim = number({"qk_rope_head_dim"}),
                          .v_head_dim = number({"v_head_dim"}),
                          .rotary = {},
                          .latent_norms = true,
                          .output_bias = flag({"attention_bias"}, false)};
    LayerPiece piece = mixer(sizes);
    if (!sizes.output_bias) return piece;
    if (sizes.q_lora_rank > 0) piece.add_biases({"self_attention.linear_q_down_proj"});
    piece.add_biases({"self_attention.linear_kv_down_proj"});
    return piece;
}

Mamba2 Composer::mamba2_by_fields(std::int64_t inner, bool normed) {
    return {.inner_width = inner,
            .heads = size({"mamba_n_heads"}),
            .groups = size({"mamba_n_groups"}),
            .state_size = size({"mamba_d_state"}),
            .conv_taps = size({"mamba_d_conv"}),
            .norm = normed};
}

GatedDeltaNet Composer::gated_delta_net() {
    return {.key_heads = size({"linear_num_key_heads"}),
            .key_dim = size({"linear_key_head_dim"}),
            .value_heads = size({"linear_num_value_heads"}),
            .value_dim = size({"linear_value_head_dim"}),
            .conv_taps = size({"linear_conv_kernel_dim"})};
}

LayerPiece Composer::with_mamba2(const Mixer& mixer, bool conv_bias, bool proj_bias) const {
    LayerPiece piece = this->mixer(mixer);
    if (!conv_bias) {
        std::erase_if(piece.tensors, [](const CountedTensor& tensor) { return tensor.name == "mixer.conv1d_bias"; });
        piece.typed.reset();
    }
    if (proj_bias) piece.add_biases({"mixer.in_proj", "mixer.out_proj"});
    return piece;
}

LayerPiece Composer::short_convolution() {
    LayerPiece piece = mixer(ShortConvolution{.conv_taps = size({"conv_L_cache"})});
    if (flag({"conv_bias"}, false)) piece.add_biases({"mixer.in_proj", "mixer.conv", "mixer.out_proj"});
    return piece;
}

LayerPiece Composer::typed_mlp(std::int64_t width, bool gated, bool bias) const {
    LayerPiece piece = mlp(width, gated, bias);
    piece.typed.emplace();
    piece.typed->feed_forward = Mlp{.width = width, .activation = parts_.model.activation, .gated = gated, .bias = bias};
    return piece;
}

LayerPiece Composer::mixture(Mixture sizes) {
    LayerPiece piece = experts({.experts = sizes.experts,
                                .top_k = sizes.top_k,
                                .width = sizes.expert_ffn,
                                .gated = sizes.gated,
                                .bias = sizes.bias,
                                .in = sizes.latent,
                                .router_bias = sizes.router_bias});
    if (sizes.shared_ffn > 0) piece.add(mlp(sizes.shared_ffn, sizes.gated));
    if (sizes.shared_gate) piece.add(linear(hidden(), 1));
    if (sizes.latent > 0) piece.add({linear(hidden(), sizes.latent), linear(sizes.latent, hidden())});
    if (sizes.branch_norms) piece.add({norm(4), values(sizes.experts)});
    if (!config().problems().empty()) return piece;
    MoeSpec stated{.experts = sizes.experts, .top_k = sizes.top_k, .expert_ffn = sizes.expert_ffn};
    stated.latent = sizes.latent;
    stated.shared_ffn = sizes.shared_ffn;
    stated.shared_gate = sizes.shared_gate;
    stated.branch_norms = sizes.branch_norms;
    if (!model().moe) {
        read_router(config(), parts_.type, stated);
        stated.router_bias = sizes.router_bias;
        model().moe = stated;
    }
    if (model().moe->shared_ffn != sizes.shared_ffn) return piece;
    sizes.activation = model().activation;
    piece.typed.emplace();
    piece.typed->feed_forward = sizes;
    return piece;
}

LayerPiece Composer::attention(CountedAttention s) const {
    const auto stated = [](std::int64_t own, std::int64_t usual) { return own > 0 ? own : usual; };
    const std::int64_t in = stated(s.in, hidden()), heads = stated(s.heads, parts_.model.heads),
                       groups = stated(s.kv_heads, parts_.model.kv_heads), width = stated(s.head_dim, parts_.model.head_dim),
                       v_width = stated(s.v_head_dim, width);
    LayerPiece piece;
    add_map(piece, "q", heads * width * (s.output_gate ? 2 : 1), in, s.qkv_bias);
    add_map(piece, "k", groups * width, in, s.qkv_bias);
    add_map(piece, "v", groups * v_width, in, s.qkv_bias);
    add_map(piece, "output", hidden(), heads * v_width, s.output_bias);
    if (s.qk_norm != QkNorm::none) {
        for (const auto& [name, all] : {std::pair{"q_norm", heads}, std::pair{"k_norm", groups}}) {
            const std::vector<std::int64_t> shape{s.qk_norm == QkNorm::shared_by_heads ? width : all * width};
            piece.tensors.push_back({std::string(name) + ".weight", shape});
            if (s.qk_norm_bias) piece.tensors.push_back({std::string(name) + ".bias", shape});
        }
    }
    if (s.sinks) piece.tensors.push_back({"sinks", {heads}});
    return piece;
}

LayerPiece Composer::indexer() {
    const std::int64_t heads = number({"index_n_heads"}), width = number({"index_head_dim"});
    LayerPiece piece;
    add_map(piece, "indexer.q", heads * width, number({"q_lora_rank"}), false);
    add_map(piece, "indexer.k", width, hidden(), false);
    piece.tensors.push_back({"indexer.k_norm.weight", {width}});
    piece.tensors.push_back({"indexer.k_norm.bias", {width}});
    add_map(piece, "indexer.weights", heads, hidden(), false);
    return piece;
}

LayerPiece Composer::mlp(std::int64_t width, bool gated, bool bias) const {
    const std::int64_t first = gated ? 2 * width : width;
    LayerPiece piece;
    piece.tensors = {{"first.weight", {first, hidden()}}, {"second.weight", {hidden(), width}}};
    if (bias) piece.tensors.insert(piece.tensors.end(), {{"first.bias", {first}}, {"second.bias", {hidden()}}});
    return piece;
}

LayerPiece Composer::experts(const CountedExperts& s) const {
    const std::int64_t outer = s.in > 0 ? s.in : hidden(), first = s.gated ? 2 * s.width : s.width, scored = s.experts + s.zero_experts;
    const std::int64_t used = s.idle ? 0 : std::min(s.top_k, s.experts);
    LayerPiece piece;
    piece.choices.push_back({s.top_k, scored});
    if (s.router) piece.tensors.push_back({"router.weight", {scored, hidden()}});
    if (s.router_bias) piece.tensors.push_back({"router.bias", {scored}});
    add_map(piece, "experts.first", first, outer, s.bias, s.experts, used);
    if (s.idle_first > 0) piece.tensors.push_back({"experts.idle.weight", {first, outer}, s.idle_first, 0});
    add_map(piece, "experts.second", outer, s.width, s.bias, s.experts, used);
    return piece;
}

LayerPiece Composer::values(std::int64_t count) const {
    LayerPiece piece;
    piece.tensors.push_back({"values", {count}});
    return piece;
}

LayerPiece Composer::linear(std::int64_t in, std::int64_t out, bool bias, std::int64_t copies) const {
    LayerPiece piece;
    add_map(piece, "linear", out, in, bias, copies, copies);
    return piece;
}

LayerPiece Composer::table(std::int64_t rows, std::int64_t width, std::int64_t read) const {
    LayerPiece piece;
    if (read == 0)
        piece.tensors.push_back({"table.weight", {rows, width}});
    else
        piece.tensors.push_back({"table.weight", {width}, rows, std::min(read, rows)});
    return piece;
}

LayerPiece Composer::hyper_connection(std::int64_t streams, std::int64_t maps, std::int64_t scales, std::int64_t copies) const {
    LayerPiece piece;
    piece.tensors = {{"hyper.weight", {maps, streams * hidden()}, copies, copies},
                     {"hyper.bias", {maps}, copies, copies},
                     {"hyper.scale", {scales}, copies, copies}};
    return piece;
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
