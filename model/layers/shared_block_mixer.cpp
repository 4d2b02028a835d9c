#include "model/layers/shared_block_mixer.hpp"

#include <cmath>
#include <string_view>
#include <utility>

#include "model/layers/rotary_scaling.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/qkv.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {
namespace {

constexpr std::array<std::string_view, 3> kAdapted{"q", "k", "v"};

std::optional<Adapter> find_adapter(const WeightTable& weights, const std::string& name) {
    if (!weights.find(name + "_down.weight").defined()) return std::nullopt;
    return Adapter{DuplicatedLinear(weights.at(name + "_down.weight")), ColumnParallelLinear(weights.at(name + "_up.weight"), {})};
}

/// (rows, heads, width) as (rows, heads · width).
Tensor flattened(const Tensor& heads) {
    return heads.view({heads.shape()[0], heads.shape()[1] * heads.shape()[2]});
}

std::string name_of_block(const SharedBlockMamba2& mixer) {
    return "shared_blocks." + std::to_string(mixer.block.number) + ".";
}

}  // namespace

SharedBlockMixer::SharedBlockMixer(const SharedBlockMamba2& mixer, const LayerSite& site)
    : block_(mixer.block),
      hidden_(site.hidden),
      max_positions_(site.max_positions),
      residual_(site, ResidualPlace::attention),
      joined_norm_(site.weights.at(name_of_block(mixer) + "input_layernorm.weight")),
      attended_norm_(site.weights.at(name_of_block(mixer) + "pre_mlp_layernorm.weight")),
      qkv_(site.weights.at(name_of_block(mixer) + "linear_qkv.weight"), {}),
      first_(site.weights.at(name_of_block(mixer) + "linear_fc1.weight"), {}),
      output_(site.weights.at(name_of_block(mixer) + "linear_proj.weight"), {}),
      second_(site.weights.at(name_of_block(mixer) + "linear_fc2.weight"), {}),
      mlp_adapter_(find_adapter(site.weights, site.prefix + "adapter")),
      map_(site.weights.at(site.prefix + "shared_map.weight")),
      norm_(site, site.prefix + "mixer.in_proj.layer_norm_"),
      state_(mixer.mamba2, site) {
    for (std::size_t i = 0; i < kAdapted.size(); ++i)
        attention_adapters_[i] = find_adapter(site.weights, site.prefix + std::string(kAdapted[i]) + "_adapter");
}

void SharedBlockMixer::turn(const RankContext& context, const MicrobatchContext& microbatch, Tensor& q, Tensor& k, bool inverse) const {
    if (!block_.rotary) return;
    const Positions positions = positions_of(context, microbatch);
    const RotaryAngles angles = rotary_angles(*block_.rotary, block_.head_dim, max_positions_);
    q = rotary(q, positions, block_.head_dim, angles, inverse);
    k = rotary(k, positions, block_.head_dim, angles, inverse);
}

Tensor SharedBlockMixer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor sum = block(context, microbatch, x, saved);
    add(x, sum);
    saved.normed = norm_.forward(context, sum, saved.norm);
    const Tensor y = state_.branch(context, microbatch, saved.normed, saved.state);
    return residual_.sum(context, microbatch, y, x);
}

Tensor SharedBlockMixer::block(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const std::int64_t hidden = hidden_, tp = context.tp->size();
    saved.joined = context.device->empty({x.shape()[0], 2 * hidden}, x.dtype(), MemoryCategory::activations, "stream and embeddings");
    set_columns(x, saved.joined, 0);
    set_columns(x, saved.joined, hidden);
    saved.normed_joined =
        norm(saved.joined, joined_norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.joined_statistics);
    QkvParts parts = split_qkv(qkv_.forward(context, saved.normed_joined), block_.query_heads / tp, block_.kv_heads / tp, block_.head_dim);
    const std::array<Tensor*, 3> adapted{&parts.q, &parts.k, &parts.v};
    for (std::size_t i = 0; i < adapted.size(); ++i) {
        if (!attention_adapters_[i]) continue;
        saved.attention_latents[i] = attention_adapters_[i]->down.forward(context, saved.normed_joined);
        add(attention_adapters_[i]->up.forward(context, saved.attention_latents[i]), flattened(*adapted[i]));
    }
    turn(context, microbatch, parts.q, parts.k, false);
    const CoreAttention core{.scale = std::sqrt(2 / static_cast<double>(block_.head_dim)), .sinks = {}};
    saved.core = sharded_attention(context, microbatch, parts.q, parts.k, parts.v, core);
    saved.q = parts.q;
    saved.k = parts.k;
    saved.v = parts.v;
    saved.attended = output_.forward(context, flattened(saved.core.output));
    saved.normed_attended =
        norm(saved.attended, attended_norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.attended_statistics);
    saved.before = first_.forward(context, saved.normed_attended);
    if (mlp_adapter_) {
        saved.mlp_latent = mlp_adapter_->down.forward(context, saved.normed_attended);
        add(mlp_adapter_->up.forward(context, saved.mlp_latent), saved.before);
    }
    saved.after = activation(saved.before, block_.activation, true);
    saved.mlp_output = second_.forward(context, saved.after);
    return map_.forward(context, saved.mlp_output);
}

Tensor SharedBlockMixer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    const Tensor d_branch = residual_.backward(context, microbatch, dy);
    const Tensor d_sum = norm_.backward(state_.branch_backward(context, microbatch, d_branch, saved.normed, saved.state), saved.norm);
    saved.normed = {};
    saved.state = {};
    Tensor dx = block_backward(context, microbatch, d_sum, saved);
    add(d_sum, dx);
    residual_.add_to_input(dy, dx);
    saved = {};
    return dx;
}

Tensor SharedBlockMixer::block_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                        Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_after = second_.backward(context, map_.backward(context, dy, saved.mlp_output), saved.after);
    saved.mlp_output = saved.after = {};
    Tensor d_before = activation_backward(d_after, saved.before, block_.activation, true);
    d_after = saved.before = {};
    Tensor d_normed = first_.backward(context, d_before, saved.normed_attended);
    if (mlp_adapter_)
        add(mlp_adapter_->down.backward(context, mlp_adapter_->up.backward(context, d_before, saved.mlp_latent), saved.normed_attended),
            d_normed);
    d_before = saved.mlp_latent = saved.normed_attended = {};
    Tensor d_attended = norm_backward(d_normed, saved.attended, attended_norm_.value, saved.attended_statistics, Normalization::rms_norm,
                                      attended_norm_.gradient, {});
    d_normed = saved.attended = {};
    const Tensor d_output = output_.backward(context, d_attended, flattened(saved.core.output));
    d_attended = {};
    const CoreAttention core{.scale = std::sqrt(2 / static_cast<double>(block_.head_dim)), .sinks = {}};
    AttentionGradients gradients = sharded_attention_backward(context, microbatch, d_output.view(saved.core.output.shape()), saved.q,
                                                              saved.k, saved.v, saved.core, core);
    saved.core = {};
    saved.q = saved.k = saved.v = {};
    turn(context, microbatch, gradients.q, gradients.k, true);
    Tensor d_normed_joined = qkv_.backward(context, join_qkv({gradients.q, gradients.k, gradients.v}), saved.normed_joined);
    const std::array<Tensor*, 3> adapted{&gradients.q, &gradients.k, &gradients.v};
    for (std::size_t i = 0; i < adapted.size(); ++i) {
        if (!attention_adapters_[i]) continue;
        const Tensor d_latent = attention_adapters_[i]->up.backward(context, flattened(*adapted[i]), saved.attention_latents[i]);
        add(attention_adapters_[i]->down.backward(context, d_latent, saved.normed_joined), d_normed_joined);
        saved.attention_latents[i] = {};
        *adapted[i] = {};
    }
    gradients = {};
    saved.normed_joined = {};
    const Tensor d_joined = norm_backward(d_normed_joined, saved.joined, joined_norm_.value, saved.joined_statistics,
                                          Normalization::rms_norm, joined_norm_.gradient, {});
    d_normed_joined = saved.joined = {};
    Tensor dx = columns(d_joined, 0, hidden_);
    add(columns(d_joined, hidden_, 2 * hidden_), dx);
    return dx;
}

}  // namespace mgplan::model
