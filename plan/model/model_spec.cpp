#include "plan/model/model_spec.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/model/layers_of_model.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

void check_range(Problems& problems, const std::string& where, std::string_view field, std::int64_t value, std::int64_t low,
                 std::int64_t high) {
    if (value < low || value > high)
        problems.add("{}: {} = {} is out of range; give a whole number from {} to {}", where, field, value, low, high);
}

void check_scaling(Problems& problems, const RotaryScaling& scaling, const std::string& where) {
    const auto check = [&](std::string_view field, double value, double above) {
        if (!(value > above && value <= ModelLimits::rotary_scaling))
            problems.add("{}: {} of the rotary scaling = {} is out of range; give a number above {} and at most {:g}", where, field, value,
                         above, ModelLimits::rotary_scaling);
    };
    check("factor", scaling.factor, 0);
    check("low frequency factor", scaling.low_frequency_factor, 0);
    // Equal in Llama 4 Scout's config: no frequency lies between them.
    if (!(scaling.high_frequency_factor >= scaling.low_frequency_factor && scaling.high_frequency_factor <= ModelLimits::rotary_scaling))
        problems.add("{}: high frequency factor of the rotary scaling = {} is out of range; give a number from {} to {:g}", where,
                     scaling.high_frequency_factor, scaling.low_frequency_factor, ModelLimits::rotary_scaling);
    check("beta_slow", scaling.beta_slow, 0);
    check("beta_fast", scaling.beta_fast, 0);
    for (const auto& [field, value] : {std::pair{"mscale", scaling.mscale}, {"mscale_all_dim", scaling.mscale_all_dim}}) {
        if (!(value >= 0 && value <= ModelLimits::rotary_scaling))
            problems.add("{}: {} of the rotary scaling = {} is out of range; give a number from 0 to {:g}", where, field, value,
                         ModelLimits::rotary_scaling);
    }
    check_range(problems, where, "original positions of the rotary scaling", scaling.original_positions, 0, ModelLimits::positions);
}

void check_sizes(Problems& problems, const ModelSpec& model, const std::string& where) {
    check_range(problems, where, "layers", model.layers, 1, ModelLimits::layers);
    check_range(problems, where, "hidden size", model.hidden, 1, ModelLimits::hidden);
    check_range(problems, where, "ffn size", model.ffn, 1, ModelLimits::ffn);
    check_range(problems, where, "attention heads", model.heads, 1, ModelLimits::heads);
    check_range(problems, where, "kv heads", model.kv_heads, 1, ModelLimits::heads);
    check_range(problems, where, "head size", model.head_dim, model.mla ? 0 : 1, ModelLimits::head_dim);
    check_range(problems, where, "vocabulary", model.vocab, 1, ModelLimits::vocab);
    check_range(problems, where, "width of words", model.word_width, 0, ModelLimits::hidden);
    check_range(problems, where, "maximum positions", model.max_positions, 1, ModelLimits::positions);
    check_range(problems, where, "sliding window", model.sliding_window, 0, ModelLimits::positions);
    check_range(problems, where, "layers from one full attention to the next", model.full_attention_every, 0, ModelLimits::layers);
    check_range(problems, where, "token types", model.token_types, 0, ModelLimits::hidden);
    check_range(problems, where, "mtp layers", model.mtp_layers, 0, ModelLimits::mtp_layers);
    check_range(problems, where, "vocabulary divisor", model.vocab_divisor, 1, ModelLimits::vocab);
    check_range(problems, where, "padded vocabulary", model.padded_rows, 0, ModelLimits::vocab);
    if (model.padded_rows > 0 && model.padded_rows < model.vocab)
        problems.add("{}: padded vocabulary = {} has fewer rows than the vocabulary = {} has tokens; give at least as many, or 0 to pad it",
                     where, model.padded_rows, model.vocab);
    if (model.labels) {
        check_range(problems, where, "labels", *model.labels, 0, ModelLimits::vocab);
        if (model.tied_embeddings || model.mtp_layers > 0)
            problems.add(
                "{}: labels name a head that is no output layer: it shares no table and stands beside no multi-token prediction; remove "
                "these or labels",
                where);
    }
    if (model.default_sequence) check_range(problems, where, "sequence", *model.default_sequence, 1, ModelLimits::positions);
    if (model.default_global_batch) check_range(problems, where, "global batch", *model.default_global_batch, 1, ModelLimits::positions);
    // Written so that NaN fails too.
    if (!(model.rotary_fraction > 0 && model.rotary_fraction <= 1))
        problems.add("{}: rotary fraction = {} is out of range; give a number above 0 and at most 1", where, model.rotary_fraction);
    if (!(model.rotary_base > 1 && model.rotary_base <= ModelLimits::rotary_base))
        problems.add("{}: rotary base = {} is out of range; give a number above 1 and at most {:g}", where, model.rotary_base,
                     ModelLimits::rotary_base);
    check_scaling(problems, model.rotary_scaling_values, where);
    if (!(model.norm_epsilon > 0 && model.norm_epsilon < 1))
        problems.add("{}: norm epsilon = {} is out of range; give a number above 0 and below 1", where, model.norm_epsilon);
    if (!(model.init_deviation > 0 && model.init_deviation <= ModelLimits::init_deviation))
        problems.add("{}: deviation of the weights at the start = {} is out of range; give a number above 0 and at most {:g}", where,
                     model.init_deviation, ModelLimits::init_deviation);
    if (!(model.mtp_loss_factor >= 0 && model.mtp_loss_factor <= ModelLimits::mtp_loss_factor))
        problems.add("{}: mtp loss factor = {} is out of range; give a number from 0 to {:g}", where, model.mtp_loss_factor,
                     ModelLimits::mtp_loss_factor);
    for (const auto& [field, value] : {std::pair{"attention dropout", model.attention_dropout}, {"hidden dropout", model.hidden_dropout}}) {
        if (!(value >= 0 && value < 1)) problems.add("{}: {} = {} is out of range; give a number from 0 to below 1", where, field, value);
    }
}

void check_moe(Problems& problems, const ModelSpec& model, const std::string& where) {
    const MoeSpec& moe = *model.moe;
    check_range(problems, where, "experts", moe.experts, 1, ModelLimits::experts);
    check_range(problems, where, "experts per token", moe.top_k, 1, ModelLimits::experts);
    check_range(problems, where, "expert ffn size", moe.expert_ffn, 1, ModelLimits::ffn);
    check_range(problems, where, "width of the experts' rows", moe.latent, 0, ModelLimits::hidden);
    check_range(problems, where, "shared expert ffn size", moe.shared_ffn, 0, ModelLimits::ffn);
    check_range(problems, where, "expert groups", moe.groups, 0, ModelLimits::experts);
    check_range(problems, where, "expert groups per token", moe.group_top_k, 0, ModelLimits::experts);
    if (moe.branch_norms && (model.kinds.empty() || moe.shared_ffn == 0 || moe.latent != 0 || moe.shared_gate))
        problems.add(
            "{}: branch_norms is known of mixtures in layers by kind (layer_kinds), with shared experts, without their gate and "
            "without maps of the experts' rows; remove it",
            where);
    for (const double coefficient : {moe.auxiliary_loss, moe.sequence_auxiliary_loss}) {
        if (!(coefficient >= 0 && coefficient <= ModelLimits::auxiliary_loss))
            problems.add("{}: coefficient of the auxiliary loss = {} is out of range; give a number from 0 (none) to {}", where,
                         coefficient, ModelLimits::auxiliary_loss);
    }
    if (!(moe.routed_scaling > 0 && moe.routed_scaling <= ModelLimits::routed_scaling))
        problems.add("{}: scaling factor of the routed experts = {} is out of range; give a number above 0 and at most {:g}", where,
                     moe.routed_scaling, ModelLimits::routed_scaling);
    if (!(moe.capacity_factor >= 0 && moe.capacity_factor <= ModelLimits::experts))
        problems.add("{}: capacity factor = {} is out of range; give 0 (dropless) or a positive number", where, moe.capacity_factor);
    if (moe.top_k > moe.experts && moe.experts > 0)
        problems.add("{}: experts per token = {} is more than experts = {}; use at most {}", where, moe.top_k, moe.experts, moe.experts);
    if (moe.groups > 0 && moe.experts > 0 && moe.experts % moe.groups != 0)
        problems.add("{}: expert groups = {} does not divide experts = {}; use {}", where, moe.groups, moe.experts,
                     divisors_text(moe.experts, moe.experts));
    if (moe.groups > 0 && (moe.group_top_k < 1 || moe.group_top_k > moe.groups))
        problems.add("{}: expert groups per token = {} must lie between 1 and expert groups = {}", where, moe.group_top_k, moe.groups);
    if (moe.groups > 0 && moe.group_top_k >= 1 && moe.experts % moe.groups == 0 && moe.group_top_k * (moe.experts / moe.groups) < moe.top_k)
        problems.add("{}: {} groups of {} experts hold fewer than experts per token = {}; allow more groups", where, moe.group_top_k,
                     moe.experts / moe.groups, moe.top_k);
    if (!(moe.expert_bias_update_rate >= 0 && moe.expert_bias_update_rate <= ModelLimits::expert_bias_update_rate))
        problems.add("{}: update rate of the expert bias = {} is out of range; give a number from 0 to {:g}", where,
                     moe.expert_bias_update_rate, ModelLimits::expert_bias_update_rate);
    if (moe.pad_to_capacity && moe.capacity_factor == 0)
        problems.add("{}: padding experts to capacity needs a capacity factor above 0", where);
    if (static_cast<std::int64_t>(model.moe_layers.size()) != model.layers)
        problems.add("{}: the list of mixture layers has {} entries for {} layers; give one entry per layer", where,
                     model.moe_layers.size(), model.layers);
}

void check_mla(Problems& problems, const ModelSpec& model, const std::string& where) {
    const MlaSpec& mla = *model.mla;
    check_range(problems, where, "q lora rank", mla.q_lora_rank, 0, ModelLimits::hidden);
    check_range(problems, where, "kv lora rank", mla.kv_lora_rank, 1, ModelLimits::hidden);
    check_range(problems, where, "qk nope head size", mla.qk_nope_head_dim, 1, ModelLimits::head_dim);
    check_range(problems, where, "qk rope head size", mla.qk_rope_head_dim, 0, ModelLimits::head_dim);
    check_range(problems, where, "v head size", mla.v_head_dim, 1, ModelLimits::head_dim);
    check_range(problems, where, "index heads", mla.index_heads, 0, ModelLimits::heads);
    check_range(problems, where, "index head size", mla.index_head_dim, 0, ModelLimits::head_dim);
    check_range(problems, where, "index top k", mla.index_top_k, 0, ModelLimits::positions);
    const bool indexed = mla.index_heads > 0;
    if (indexed != (mla.index_head_dim > 0) || indexed != (mla.index_top_k > 0))
        problems.add("{}: index heads = {}, index head size = {} and index top k = {} belong together; give all three or none", where,
                     mla.index_heads, mla.index_head_dim, mla.index_top_k);
    else if (indexed && (mla.q_lora_rank == 0 || mla.qk_rope_head_dim > mla.index_head_dim))
        problems.add(
            "{}: an indexer takes queries from their latent (q lora rank = {}) and turns {} of the {} values of its heads; give a "
            "q lora rank, and heads as wide as what is turned",
            where, mla.q_lora_rank, mla.qk_rope_head_dim, mla.index_head_dim);
    if (mla.query_norm && mla.q_lora_rank > 0)
        problems.add("{}: query_norm with q lora rank = {}: latents have norms by qk_norm; remove one of the two", where, mla.q_lora_rank);
    if (model.kv_heads != model.heads)
        problems.add("{}: kv heads = {} beside multi-latent attention, which has no key-value groups; use {}", where, model.kv_heads,
                     model.heads);
}

void check_layer_list(Problems& problems, const std::vector<bool>& list, std::string_view what, const ModelSpec& model,
                      const std::string& where) {
    if (!list.empty() && static_cast<std::int64_t>(list.size()) != model.layers)
        problems.add("{}: the list of {} has {} entries for {} layers; give one entry per layer", where, what, list.size(), model.layers);
}

void check_activation_and_norms(Problems& problems, const ModelSpec& model, const std::string& where) {
    if (model.activation == Activation::xielu && (model.gated_mlp || model.moe))
        problems.add("{}: xielu has trained values, which gated MLPs and experts here have not; set gated_mlp = false, without experts",
                     where);
    if (model.embedding_norm && (model.mtp_layers > 0 || !model.kinds.empty()))
        problems.add("{}: embedding_norm beside multi-token prediction or layer_kinds, which know none; remove one of them", where);
    if (model.norm_weight) return;
    if (model.normalization != Normalization::layer_norm || model.post_norms || model.qk_norm || model.mla || model.mtp_layers > 0 ||
        !model.kinds.empty())
        problems.add(
            "{}: norm_weight = false is known of LayerNorm in front of attention and MLP, without QK-norm, latent attention, multi-token "
            "prediction and layer_kinds; remove these or norm_weight",
            where);
}

void check_streams(Problems& problems, const ModelSpec& model, const std::string& where) {
    check_range(problems, where, "residual streams", model.hyper_connections->streams, 1, ModelLimits::residual_streams);
    check_range(problems, where, "rounds of Sinkhorn and Knopp", model.hyper_connections->sinkhorn_iterations, 1,
                ModelLimits::sinkhorn_iterations);
    if (model.mtp_layers > 0 || model.order != LayerOrder::sequential || model.normed_residual || model.residual_multiplier != 1)
        problems.add(
            "{}: hyper_connections are known of layers whose halves are one behind the other, without multi-token prediction, "
            "normed_residual and residual_multiplier; remove these or hyper_connections",
            where);
}

/// Checks the order and norms of a layer's halves, and multipliers.
void check_arrangement(Problems& problems, const ModelSpec& model, const std::string& where) {
    check_layer_list(problems, model.window_layers, "layers with a window", model, where);
    check_layer_list(problems, model.rotary_layers, "layers with rotary positions", model, where);
    if (!model.pre_norms && !model.post_norms)
        problems.add("{}: layers without norms in front and behind; set pre_norms or post_norms", where);
    if (model.order != LayerOrder::sequential && !model.pre_norms)
        problems.add("{}: attention and MLP beside each other need norms in front; set pre_norms", where);
    if (model.qk_norm_per_head && (!model.qk_norm || model.qk_norm_full_width || model.mla))
        problems.add("{}: norms of each head need qk_norm, and neither a full-width QK-norm nor latent attention; remove qk_norm_per_head",
                     where);
    if (model.window_rotary_base != 0 && !(model.window_rotary_base > 1 && model.window_rotary_base <= ModelLimits::rotary_base))
        problems.add("{}: rotary base of layers with a window = {} is out of range; give a number above 1 and at most {:g}", where,
                     model.window_rotary_base, ModelLimits::rotary_base);
    const auto check = [&](std::string_view field, double value, bool zero) {
        if (!(value >= 0 && value <= ModelLimits::multiplier) || (value == 0 && !zero))
            problems.add("{}: {} = {} is out of range; give a number {} 0 and at most {:g}", where, field, value, zero ? "from" : "above",
                         ModelLimits::multiplier);
    };
    check("multiplier of the embeddings", model.embedding_multiplier, false);
    check("multiplier of additions to the residual stream", model.residual_multiplier, false);
    check("multiplier of the logits", model.logit_multiplier, false);
    check("multiplier of the attention scores", model.attention_multiplier, true);
    const BranchMultipliers& branch = model.branch_multipliers;
    check("multiplier of attention's output", branch.attention_output, false);
    check("multiplier of the state-space output", branch.state_output, false);
    check("multiplier of the state-space gate", branch.state_gate, false);
    check("multiplier of the state-space input", branch.state_input, false);
    check("multiplier of what writes states", branch.state_write, false);
    check("multiplier of what reads states", branch.state_read, false);
    check("multiplier of the state-space steps", branch.state_step, false);
    check("multiplier of the MLP's gate", branch.mlp_gate, false);
    check("multiplier of the MLP's output", branch.mlp_output, false);
    if (branch != BranchMultipliers{} && !has_counted_layers(model) && !has_mixer_with(model, &MixerTraits::takes_multipliers))
        problems.add("{}: branch_multipliers belong to layers of attention beside Mamba-2, which the model has not; remove them", where);
    if (model.normed_residual) {
        const NormedResidual& factors = *model.normed_residual;
        for (const PathFactors& one : {factors.attention, factors.state, factors.mlp}) {
            check("factor of the residual path", one.path, false);
            check("factor of additions to the residual path", one.branch, false);
        }
        if (!model.pre_norms || model.order != LayerOrder::sequential)
            problems.add("{}: normed_residual needs norms in front of halves that follow each other; set pre_norms and order, or remove it",
                         where);
    }
    if (model.hyper_connections) check_streams(problems, model, where);
    check_activation_and_norms(problems, model, where);
    check("epsilon of the norm of what gated delta nets give", model.state_norm_epsilon, true);
    check("bound of queries, keys and values", model.qkv_clip, true);
    if (model.qkv_clip > 0 && model.mla)
        problems.add("{}: qkv_clip belongs to attention with one projection to queries, keys and values; remove it or mla", where);
    check("soft cap of the logits", model.logit_softcap, true);
    check("soft cap of the attention scores", model.attention_softcap, true);
}

void check_kinds(Problems& problems, const ModelSpec& model, const std::string& where) {
    if (model.kinds.size() > ModelLimits::layer_kinds)
        problems.add("{}: {} kinds of layers; give at most {}", where, model.kinds.size(), ModelLimits::layer_kinds);
    if (const auto kind = model.kind_of_prediction) {
        if (*kind >= model.kinds.size())
            problems.add("{}: layers of multi-token prediction are of kind {} of {}; count kinds from 0", where, *kind, model.kinds.size());
        if (model.mtp_layers == 0)
            problems.add("{}: layer_kinds name a kind for multi-token prediction, but mtp_layers = 0; remove it, or give mtp_layers",
                         where);
    }
    if (model.kinds.empty() && model.kind_of_layer.empty()) return;
    if (static_cast<std::int64_t>(model.kind_of_layer.size()) != model.layers)
        problems.add("{}: the list of the layers' kinds has {} entries for {} layers; give one entry per layer", where,
                     model.kind_of_layer.size(), model.layers);
    for (const auto kind : model.kind_of_layer) {
        if (kind < model.kinds.size()) continue;
        problems.add("{}: a layer is of kind {} of {}; count kinds from 0", where, kind, model.kinds.size());
        break;
    }
}

/// Elements of tensors in floating point, which cannot overflow.
template <class Tensor>
double estimate(const std::vector<Tensor>& tensors) {
    double sum = 0;
    for (const Tensor& tensor : tensors) {
        auto elements = static_cast<double>(tensor.copies);
        for (const std::int64_t extent : tensor.shape) elements *= static_cast<double>(extent);
        sum += elements;
    }
    return sum;
}

/// An upper estimate of the parameter count in floating point, which cannot overflow.
double estimated_parameters(const ModelSpec& model) {
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    const double hidden = real(std::max(model.hidden, model.word_width));
    const double head_width = real(std::max(model.qk_head_dim(), model.v_head_dim()));
    const double latent = model.mla ? real(model.mla->q_lora_rank + model.mla->kv_lora_rank) : 0;
    const double indexed = model.mla ? (real(model.mla->index_heads) + 1) * (real(model.mla->index_head_dim) + 1) : 0;
    const double attention = 4 * (hidden + latent) * (real(model.heads) * head_width + latent + indexed + 1);
    double mlp = real(model.ffn);
    if (model.moe)
        mlp = std::max(
            mlp, real(model.moe->experts) * (real(model.moe->expert_ffn) + 1) + real(model.moe->shared_ffn) + real(model.moe->latent));
    double layer = attention + 3 * (hidden + 2) * mlp + 16 * hidden;
    if (model.hyper_connections) layer += 2 * (real(model.stream_width()) + 1) * real(model.hyper_connections->maps() + 4);
    double kinds = 0;
    for (const NamedLayer& kind : model.kinds) {
        const Layer& listed = kind.layer;
        kinds = std::max(kinds, listed.counted.empty() ? estimate(tensors(listed, model.hidden)) : estimate(listed.counted));
    }
    layer += kinds;
    const std::int64_t rows = std::max(model.vocab, model.padded_rows) + model.max_positions + model.token_types;
    return estimate(model.counted) + 2 * hidden * real(rows) + real(model.layers + model.mtp_layers) * layer;
}

}  // namespace

bool ModelSpec::is_moe_layer(std::int64_t layer) const {
    if (!moe) return false;
    if (layer >= layers && kind_of_prediction) return feed_forward_as<Mixture>(kinds.at(*kind_of_prediction).layer) != nullptr;
    return moe_layers.at(static_cast<std::size_t>(layer < layers ? layer : layers - 1));
}

std::int64_t ModelSpec::padded_vocab(std::int64_t tp) const {
    if (padded_rows > 0) return padded_rows;
    const std::int64_t multiple = vocab_divisor * tp;
    return (vocab + multiple - 1) / multiple * multiple;
}

std::int64_t ModelSpec::output_rows(std::int64_t tp) const {
    return labels ? (*labels + tp - 1) / tp * tp : padded_vocab(tp);
}

std::int64_t ModelSpec::streams() const {
    if (hyper_connections) return hyper_connections->streams;
    for (const NamedLayer& kind : kinds) {
        if (const auto* layer = mixer_as<Gemma3nLayer>(kind.layer)) return layer->streams;
    }
    return 1;
}

std::int64_t ModelSpec::qk_head_dim() const {
    return mla ? mla->qk_nope_head_dim + mla->qk_rope_head_dim : head_dim;
}

std::int64_t ModelSpec::v_head_dim() const {
    return mla ? mla->v_head_dim : head_dim;
}

void validate(const ModelSpec& model, const std::string& where) {
    Problems problems;
    check_sizes(problems, model, where);
    if (model.heads > 0 && model.kv_heads > 0 && model.heads % model.kv_heads != 0)
        problems.add("{}: kv heads = {} does not divide attention heads = {}; use {}", where, model.kv_heads, model.heads,
                     divisors_text(std::min(model.heads, ModelLimits::heads), model.heads));
    if (model.mla) check_mla(problems, model, where);
    if (model.moe)
        check_moe(problems, model, where);
    else if (!model.moe_layers.empty())
        problems.add("{}: a list of mixture layers without experts; give the number of experts or remove the list", where);
    check_arrangement(problems, model, where);
    check_kinds(problems, model, where);
    if (model.output_bias && model.mtp_layers > 0)
        problems.add("{}: output_bias beside multi-token prediction, whose output layer has none; remove one of them", where);
    if (model.qk_norm_full_width && !model.qk_norm) problems.add("{}: a full-width QK-norm needs QK-norm itself; set qk_norm too", where);
    problems.throw_if_any();
    const double parameters = estimated_parameters(model);
    if (parameters > ModelLimits::parameters)
        problems.add(
            "{}: a model of about {:.1e} parameters; mgplan handles up to {:.1e}: check layers, hidden size, experts and vocabulary", where,
            parameters, ModelLimits::parameters);
    problems.throw_if_any();
}

std::vector<std::string> features_not_computed(const ModelSpec& model) {
    std::vector<std::string> features = model.left_out;
    if (model.mla && model.mla->index_heads > 0)
        features.push_back(fmt::format("attention to the {} alone that an indexer chooses", counted(model.mla->index_top_k, "key")));
    return features;
}

namespace {

/// Adds what the kinds of a model's mixers say of themselves in one of their columns, each sentence once.
void add_words_of_mixers(std::vector<std::string>& all, const ModelSpec& model, std::string_view MixerTraits::*column) {
    for (const NamedLayer& kind : model.kinds) {
        const std::string_view words = kind.layer.mixer ? traits_of(*kind.layer.mixer).*column : std::string_view();
        if (!words.empty() && std::find(all.begin(), all.end(), words) == all.end()) all.emplace_back(words);
    }
}

}  // namespace

std::vector<std::string> layers_timed_at_least(const ModelSpec& model) {
    std::vector<std::string> layers;
    add_words_of_mixers(layers, model, &MixerTraits::timed_at_least);
    return layers;
}

std::vector<std::string> layers_known_of_shapes(const ModelSpec& model) {
    std::vector<std::string> layers = layers_timed_at_least(model);
    if (model.hyper_connections)
        layers.push_back(fmt::format("{} that maps mix (hyper-connections)", counted(model.hyper_connections->streams, "residual stream")));
    if (model.moe && model.moe->branch_norms) layers.emplace_back("experts behind norms of their own (Gemma 4)");
    add_words_of_mixers(layers, model, &MixerTraits::shapes_alone);
    return layers;
}

}  // namespace mgplan
