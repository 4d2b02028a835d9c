#include "plan/megatron_memory_estimate.hpp"

#include <algorithm>
#include <utility>

#include "plan/errors.hpp"

namespace mgplan {
namespace {

double real(std::int64_t value) {
    return static_cast<double>(value);
}

void check(const MegatronEstimateArguments& a) {
    Problems problems;
    for (const auto& [name, value] : {std::pair{"num_layers", a.num_layers},
                                      {"hidden_size", a.hidden_size},
                                      {"num_attention_heads", a.num_attention_heads},
                                      {"world_size", a.world_size},
                                      {"tensor_model_parallel_size", a.tensor_model_parallel_size},
                                      {"pipeline_model_parallel_size", a.pipeline_model_parallel_size},
                                      {"virtual_pipeline_model_parallel_size", a.virtual_pipeline_model_parallel_size.value_or(1)},
                                      {"expert_model_parallel_size", a.expert_model_parallel_size},
                                      {"expert_tensor_parallel_size", a.expert_tensor_parallel_size},
                                      {"data_parallel_size", a.data_parallel_size}}) {
        if (value < 1) problems.add("{} = {} is out of range; give a whole number from 1", name, value);
    }
    if (a.multi_latent_attention && a.group_query_attention)
        problems.add("multi-latent attention has no query groups; switch group_query_attention off");
    if (a.num_experts && static_cast<std::int64_t>(a.moe_layers.size()) != a.num_layers)
        problems.add("the list of mixture layers has {} entries for {} layers; give one entry per layer", a.moe_layers.size(),
                     a.num_layers);
    problems.throw_if_any();
}

/// Parameters of one module, by how ranks hold them.
struct Held {
    double sharded = 0;     ///< divided over tp
    double replicated = 0;  ///< whole on every tp rank
    double expert = 0;      ///< divided over etp·ep
    double active_expert = 0;

    [[nodiscard]] double total() const { return sharded + replicated + expert; }
    [[nodiscard]] double active() const { return sharded + replicated + active_expert; }
};

Held operator*(double times, const Held& held) {
    return {times * held.sharded, times * held.replicated, times * held.expert, times * held.active_expert};
}

Held operator+(const Held& x, const Held& y) {
    return {x.sharded + y.sharded, x.replicated + y.replicated, x.expert + y.expert, x.active_expert + y.active_expert};
}

double attention_parameters(const MegatronEstimateArguments& a, double norm_size) {
    const double hidden = real(a.hidden_size), heads = real(a.num_attention_heads);
    if (a.multi_latent_attention) {
        const double query_width = heads * real(a.qk_head_dim + a.qk_pos_emb_head_dim);
        const double query = a.q_lora_rank ? real(*a.q_lora_rank) * (hidden + query_width + norm_size) : hidden * query_width;
        return query + real(a.kv_lora_rank) * (hidden + heads * real(a.qk_head_dim + a.v_head_dim) + norm_size) +
               hidden * real(a.qk_pos_emb_head_dim) + heads * real(a.v_head_dim) * hidden;
    }
    const double groups = a.group_query_attention ? real(a.num_query_groups.value_or(a.num_attention_heads)) : heads;
    return 2 * hidden * hidden * ((1 + groups / heads) * (real(a.kv_channels) * heads / hidden));
}

/// compute_activation_memory and compute_activation_memory_without_sp share their middle: `memory` holds all layers.
double with_embedding_and_schedule(const MegatronEstimateArguments& a, double memory) {
    const double pp = real(a.pipeline_model_parallel_size), tokens = real(a.seq_length) * real(a.micro_batch_size);
    // Input of the embedding and its dropout, for pp microbatches in flight.
    memory += 8 * tokens * pp + tokens * real(a.hidden_size) * pp;
    if (a.virtual_pipeline_model_parallel_size) {
        memory *= 1 + (pp - 1) / (pp * real(*a.virtual_pipeline_model_parallel_size));
    } else if (a.pipeline_model_parallel_size > 1 && a.num_microbatches) {
        memory *= std::min(1.0, real(*a.num_microbatches) / pp);
    }
    return memory;
}

double activations_with_sp(const MegatronEstimateArguments& a) {
    const double tokens = real(a.seq_length) * real(a.micro_batch_size), hidden = real(a.hidden_size);
    // Table 2 of arXiv 2205.05198, with the MLP's width in place of 4h.
    const double layer = tokens * hidden * (18 + 4 * (real(a.ffn_hidden_size) / hidden));
    double memory = with_embedding_and_schedule(a, layer * real(a.num_layers));
    if (a.pipeline_model_parallel_size == 1) memory += tokens * hidden * 4 * (1 + real(a.padded_vocab_size) / hidden);
    return memory / real(a.tensor_model_parallel_size);
}

double activations_without_sp(const MegatronEstimateArguments& a) {
    const double tokens = real(a.seq_length) * real(a.micro_batch_size), tp = real(a.tensor_model_parallel_size);
    const double layer = tokens * real(a.hidden_size) * (10 + 24 / tp);
    double memory = with_embedding_and_schedule(a, layer * real(a.num_layers));
    // 16-bit logits and the final norm's output.
    if (a.pipeline_model_parallel_size == 1) memory += (tokens * real(a.padded_vocab_size) / tp + tokens * real(a.hidden_size)) * 2;
    return memory * 1.05;
}

}  // namespace

MegatronMemoryEstimate megatron_memory_estimate(const MegatronEstimateArguments& a) {
    check(a);
    const double hidden = real(a.hidden_size), norm_size = a.rms_norm ? 1 : 2, gated = a.swiglu ? 1.5 : 1;
    const double tp = real(a.tensor_model_parallel_size), pp = real(a.pipeline_model_parallel_size);
    const double attention = attention_parameters(a, norm_size), norms = 2 * hidden * norm_size;

    const Held dense{attention + 2 * hidden * real(a.ffn_hidden_size) * gated, norms, 0, 0};
    Held moe{attention + 2 * hidden * real(a.moe_shared_expert_intermediate_size) * gated, norms, 0, 0};
    if (a.num_experts) {
        const double experts = real(*a.num_experts);
        // A latent mixture projects tokens down before its experts and up behind them.
        const double expert = 2 * real(a.moe_latent_size.value_or(a.hidden_size)) * real(a.moe_ffn_hidden_size) * gated;
        moe.expert = expert * experts;
        moe.active_expert = expert * real(a.moe_router_topk);
        moe.replicated += hidden * experts + (a.add_bias_linear ? experts : 0);
        if (a.moe_latent_size) moe.replicated += 2 * hidden * real(*a.moe_latent_size);
        if (a.moe_shared_expert_gate && a.moe_shared_expert_intermediate_size > 0) moe.replicated += hidden;
    }
    const auto moe_layers = a.num_experts ? std::count(a.moe_layers.begin(), a.moe_layers.end(), true) : 0;
    const Held final_norm{0, norm_size * hidden, 0, 0};
    const Held block = real(a.num_layers - moe_layers) * dense + real(moe_layers) * moe + final_norm;
    const Held mtp = real(a.mtp_num_layers) * (a.num_experts && a.moe_layers.back() ? moe : dense);
    const double embedding = hidden * real(a.padded_vocab_size);
    const double embeddings = a.untie_embeddings_and_output_weights ? 2 * embedding : embedding;

    // Most loaded: one stage's part of the layers, all MTP layers, the embedding, and with one stage the output layer.
    double sharded = (block.sharded / pp + mtp.sharded + embedding) / tp;
    if (a.untie_embeddings_and_output_weights && a.pipeline_model_parallel_size == 1) sharded += embedding / tp;
    const double replicated = block.replicated / pp + mtp.replicated;
    const double expert = (block.expert / pp + mtp.expert) / real(a.expert_tensor_parallel_size * a.expert_model_parallel_size);

    const auto bytes_per_parameter = [&](double dp) { return a.use_distributed_optimizer ? 6 + 12 / dp : 18.0; };
    const std::int64_t edp = a.world_size / (a.expert_tensor_parallel_size * a.expert_model_parallel_size * a.pipeline_model_parallel_size);
    MegatronMemoryEstimate estimate;
    estimate.weight_and_optimizer_bytes = (sharded + replicated) * bytes_per_parameter(real(a.data_parallel_size));
    if (expert > 0) estimate.weight_and_optimizer_bytes += expert * bytes_per_parameter(real(std::max<std::int64_t>(1, edp)));
    estimate.activation_bytes_sp = activations_with_sp(a);
    estimate.activation_bytes_without_sp = activations_without_sp(a);
    estimate.activation_bytes =
        a.sequence_parallel && a.recompute_selective ? estimate.activation_bytes_sp : estimate.activation_bytes_without_sp;
    estimate.total_parameters = block.total() + mtp.total() + embeddings;
    estimate.active_parameters = block.active() + mtp.total() + embeddings;
    estimate.parameters_on_most_loaded_shard = sharded + replicated + expert;
    return estimate;
}

}  // namespace mgplan
