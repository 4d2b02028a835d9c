#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "plan/parameters/parameter_list.hpp"

namespace mgplan {

bool norms_have_bias(const ModelSpec& model) {
    return model.normalization == Normalization::layer_norm && model.norm_bias && model.norm_weight;
}

// A rank's rows of the packed projection: with tp > kv_heads a part of one kv head's group, whose queries, key and value
// the layer puts together again (docs/decisions/0004).
std::int64_t packed_rows(const ModelSpec& model, std::int64_t tp) {
    return (model.heads * (model.attention_output_gate ? 2 : 1) + 2 * model.kv_heads) * model.head_dim / tp;
}

Parameter& ParameterList::add_sharded(std::string_view name, std::vector<std::int64_t> shape, int shard_axis, int stride) {
    Parameter& parameter = add(name, std::move(shape), PartialGradient::never);
    parameter.shard_axis = shard_axis;
    parameter.shard_stride = stride;
    return parameter;
}

Parameter& ParameterList::add_in_blocks(std::string_view name, std::vector<std::int64_t> rows, std::vector<std::int64_t> rest) {
    std::int64_t all = 0;
    for (const auto block : rows) all += block;
    rest.insert(rest.begin(), all);
    Parameter& parameter = add_sharded(name, std::move(rest), 0);
    parameter.shard_blocks = std::move(rows);
    return parameter;
}

Parameter& ParameterList::add(std::string_view name, std::vector<std::int64_t> shape, PartialGradient partial) {
    Parameter parameter;
    parameter.name.reserve(prefix_.size() + name.size());
    parameter.name.append(prefix_).append(name);
    parameter.no_weight_decay = shape.size() == 1;
    parameter.shape = std::move(shape);
    parameter.partial_gradient = partial;
    list_.push_back(std::move(parameter));
    return list_.back();
}

void ParameterList::add_norm(const ModelSpec& model, std::string_view scale, std::string_view shift, std::int64_t width,
                             PartialGradient partial) {
    if (!model.norm_weight) return;
    add(scale, {width}, partial);
    if (norms_have_bias(model)) add(shift, {width}, partial);
}

void ParameterList::add_sharded_norm(const ModelSpec& model, std::string_view scale, std::string_view shift, std::int64_t width) {
    add_sharded(scale, {width}, 0);
    if (norms_have_bias(model)) add_sharded(shift, {width}, 0);
}

namespace {

/// Whole on every rank, each of which sees all rows (experimental_attention_variant/dsa.py, DSAIndexer).
void add_indexer(ParameterList& list, const MlaSpec& mla, std::int64_t hidden) {
    const std::int64_t width = mla.index_head_dim;
    const auto add = [&](std::string_view name, const std::vector<std::int64_t>& shape) {
        list.add(fmt::format("self_attention.core_attention.indexer.{}", name), shape, PartialGradient::never);
    };
    add("linear_wq_b.weight", {mla.index_heads * width, mla.q_lora_rank});
    add("linear_wk.weight", {width, hidden});
    add("k_norm.weight", {width});
    add("k_norm.bias", {width});
    add("linear_weights_proj.weight", {mla.index_heads, hidden});
}

}  // namespace

void add_attention(ParameterList& list, const ModelSpec& model, std::int64_t tp) {
    const std::int64_t hidden = model.hidden, heads = model.heads / tp;
    if (model.mla && model.pre_norms) list.add_norm(model, "input_layernorm.weight", "input_layernorm.bias", hidden);
    if (model.attention_sinks) list.add_sharded("self_attention.core_attention.softmax_offset", {heads}, 0);
    if (model.mla && model.mla->index_heads > 0) add_indexer(list, *model.mla, hidden);
    list.add_sharded("self_attention.linear_proj.weight", {hidden, heads * model.v_head_dim()}, 1);
    if (model.attention_output_bias) list.add("self_attention.linear_proj.bias", {hidden}, PartialGradient::sequence_parallel);
    if (model.mla) {
        const MlaSpec& mla = *model.mla;
        const std::int64_t query_width = heads * model.qk_head_dim();
        if (mla.q_lora_rank > 0) {
            list.add("self_attention.linear_q_down_proj.weight", {mla.q_lora_rank, hidden}, PartialGradient::sequence_parallel);
            if (model.qk_norm)
                list.add_norm(model, "self_attention.linear_q_up_proj.layer_norm_weight", "self_attention.linear_q_up_proj.layer_norm_bias",
                              mla.q_lora_rank);
            list.add_sharded("self_attention.linear_q_up_proj.weight", {query_width, mla.q_lora_rank}, 0);
        } else {
            list.add_sharded("self_attention.linear_q_proj.weight", {query_width, hidden}, 0);
        }
        list.add("self_attention.linear_kv_down_proj.weight", {mla.kv_lora_rank + mla.qk_rope_head_dim, hidden},
                 PartialGradient::sequence_parallel);
        if (model.qk_norm)
            list.add_norm(model, "self_attention.linear_kv_up_proj.layer_norm_weight", "self_attention.linear_kv_up_proj.layer_norm_bias",
                          mla.kv_lora_rank);
        list.add_sharded("self_attention.linear_kv_up_proj.weight", {heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank}, 0);
        return;
    }
    const std::int64_t qkv_width = packed_rows(model, tp);
    if (model.pre_norms)
        list.add_norm(model, "self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    list.add_sharded("self_attention.linear_qkv.weight", {qkv_width, hidden}, 0);
    if (model.qkv_bias) list.add_sharded("self_attention.linear_qkv.bias", {qkv_width}, 0);
    if (!model.qk_norm) return;
    if (model.qk_norm_per_head) {
        // Without biases, whatever the norms of the residual stream have (modeling_stablelm.py, modeling_cohere.py).
        list.add_sharded("self_attention.q_layernorm.weight", {heads * model.head_dim}, 0);
        list.add_sharded("self_attention.k_layernorm.weight", {model.kv_heads * model.head_dim / tp}, 0);
    } else if (model.qk_norm_full_width) {
        list.add_sharded_norm(model, "self_attention.q_layernorm.weight", "self_attention.q_layernorm.bias", heads * model.head_dim);
        list.add_sharded_norm(model, "self_attention.k_layernorm.weight", "self_attention.k_layernorm.bias",
                              model.kv_heads * model.head_dim / tp);
    } else {
        // One head's weights for all heads, of which the rank sees its own.
        list.add_norm(model, "self_attention.q_layernorm.weight", "self_attention.q_layernorm.bias", model.head_dim,
                      PartialGradient::always);
        list.add_norm(model, "self_attention.k_layernorm.weight", "self_attention.k_layernorm.bias", model.head_dim,
                      PartialGradient::always);
    }
}

namespace {

bool has_mlp_norm(const ModelSpec& model) {
    return model.pre_norms && model.order != LayerOrder::parallel_shared_norm;
}

}  // namespace

void add_dense_mlp(ParameterList& list, const ModelSpec& model, std::int64_t tp) {
    const std::int64_t width = model.ffn / tp, first = model.gated_mlp ? 2 * width : width;
    const int stride = model.gated_mlp ? 2 : 1;
    if (has_mlp_norm(model)) list.add_norm(model, "mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_bias", model.hidden);
    list.add_sharded("mlp.linear_fc1.weight", {first, model.hidden}, 0, stride);
    if (model.mlp_bias) list.add_sharded("mlp.linear_fc1.bias", {first}, 0, stride);
    list.add_sharded("mlp.linear_fc2.weight", {model.hidden, width}, 1);
    if (model.mlp_bias) list.add("mlp.linear_fc2.bias", {model.hidden}, PartialGradient::sequence_parallel);
    if (model.activation != Activation::xielu) return;
    // What softplus makes 0.8, and 0.3 beside the half that is added to it (activations.py, XIELUActivation). A rank sees its own columns.
    for (const auto& [name, start] : {std::pair<std::string_view, double>{"mlp.activation_func.alpha_p", 0.8},
                                      std::pair<std::string_view, double>{"mlp.activation_func.alpha_n", 0.3}}) {
        Parameter& value = list.add(name, {1}, PartialGradient::always);
        value.initial = InitialValues::constant;
        value.initial_bound = std::log(std::expm1(start));
    }
}

void add_mixture(ParameterList& list, const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    const MoeSpec& moe = *model.moe;
    const std::int64_t hidden = model.hidden, experts = moe.experts / ep;
    if (has_mlp_norm(model)) list.add_norm(model, "pre_mlp_layernorm.weight", "pre_mlp_layernorm.bias", hidden);
    list.add("mlp.router.weight", {moe.experts, hidden}, PartialGradient::sequence_parallel);
    if (moe.router_bias) list.add("mlp.router.bias", {moe.experts}, PartialGradient::sequence_parallel);
    if (moe.branch_norms) {
        list.add("mlp.router.per_expert_scale", {moe.experts}, PartialGradient::sequence_parallel).initial = InitialValues::ones;
        list.add_norm(model, "mlp.router.layer_norm_weight", "mlp.router.layer_norm_bias", hidden);
        list.add_norm(model, "mlp.experts.layer_norm_weight", "mlp.experts.layer_norm_bias", hidden);
        list.add_norm(model, "mlp.post_experts_layernorm.weight", "mlp.post_experts_layernorm.bias", hidden);
        if (moe.shared_ffn > 0)
            list.add_norm(model, "mlp.post_shared_experts_layernorm.weight", "mlp.post_shared_experts_layernorm.bias", hidden);
    }
    const std::int64_t rows = model.routed_width();
    if (moe.latent > 0) {
        list.add("mlp.fc1_latent_proj.weight", {moe.latent, hidden}, PartialGradient::sequence_parallel);
        list.add("mlp.fc2_latent_proj.weight", {hidden, moe.latent}, PartialGradient::sequence_parallel);
    }
    const std::int64_t width = moe.expert_ffn / etp, first = model.gated_mlp ? 2 * width : width;
    const int stride = model.gated_mlp ? 2 : 1;
    // Transformer Engine's grouped linear registers all weights of a projection, then all its biases.
    const auto add_each = [&](std::string_view projection, std::string_view what, const std::vector<std::int64_t>& shape,
                              std::optional<int> axis, int blocks) {
        const std::string all = fmt::format("mlp.experts.{}.{}", projection, what);
        for (std::int64_t expert = 0; expert < experts; ++expert) {
            const std::string name = all + std::to_string(expert);
            Parameter& parameter = axis ? list.add_sharded(name, shape, *axis, blocks) : list.add(name, shape, PartialGradient::never);
            parameter.expert = true;
            parameter.local_expert = expert;
        }
    };
    add_each("linear_fc1", "weight", {first, rows}, 0, stride);
    if (model.mlp_bias) add_each("linear_fc1", "bias", {first}, 0, stride);
    add_each("linear_fc2", "weight", {rows, width}, 1, 1);
    if (model.mlp_bias) add_each("linear_fc2", "bias", {rows}, std::nullopt, 1);
    if (moe.shared_ffn > 0) {
        const std::int64_t shared = moe.shared_ffn / tp;
        if (moe.shared_gate) list.add("mlp.shared_experts.gate_weight", {1, hidden}, PartialGradient::sequence_parallel);
        list.add_sharded("mlp.shared_experts.linear_fc1.weight", {model.gated_mlp ? 2 * shared : shared, hidden}, 0, stride);
        list.add_sharded("mlp.shared_experts.linear_fc2.weight", {hidden, shared}, 1);
    }
}

void add_stream_maps(ParameterList& list, const HyperConnections& streams, std::int64_t hidden, std::string_view module) {
    const auto add = [&](std::string_view name, const std::vector<std::int64_t>& shape) {
        list.add(fmt::format("{}.{}", module, name), shape, PartialGradient::sequence_parallel);
    };
    // A module's own parameters in front of its children's, each in the order in which the constructor makes them.
    for (const char* scale : {"alpha_pre", "alpha_post", "alpha_res"}) add(scale, {1});
    add("bias", {streams.maps()});
    add("mapping_proj.weight", {streams.maps(), streams.streams * hidden});
}

void add_layer(std::vector<Parameter>& parameters, const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep,
               std::int64_t etp, const std::string& prefix) {
    ParameterList list(parameters, prefix);
    add_attention(list, model, tp);
    if (model.post_norms) list.add_norm(model, "post_self_attn_layernorm.weight", "post_self_attn_layernorm.bias", model.hidden);
    if (kind == LayerKind::moe)
        add_mixture(list, model, tp, ep, etp);
    else
        add_dense_mlp(list, model, tp);
    if (model.post_norms) list.add_norm(model, "post_mlp_layernorm.weight", "post_mlp_layernorm.bias", model.hidden);
    if (!model.hyper_connections) return;
    for (const std::string_view half : {"self_attention_hyper_connection", "mlp_hyper_connection"})
        add_stream_maps(list, *model.hyper_connections, model.hidden, half);
}

}  // namespace mgplan
