#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Name of the counted tensor with the biases of the router's scores that move the choice of experts, one for each expert, in models whose
/// class counts them among its parameters (ERNIE 4.5); `copies`: MoE layers. Training moves them (expert_bias below).
constexpr std::string_view kChoiceBias = "choice.bias";

/// A mixture of experts. Widths in elements.
struct Mixture {
    static constexpr std::string_view kKind = "mixture";
    std::int64_t experts = 0;
    std::int64_t top_k = 0;
    std::int64_t expert_ffn = 0;
    Activation activation = Activation::silu;
    bool gated = true;
    bool bias = false;
    /// Width of what the routed experts take and give, between two maps from and to the hidden size (Nemotron 3; Megatron-LM's
    /// --moe-latent-size); 0: the hidden size, without maps.
    std::int64_t latent = 0;
    std::int64_t shared_ffn = 0;  ///< width of all shared experts together; 0: none
    bool shared_gate = false;     ///< a learned gate (h -> 1) on the shared expert (Qwen2-MoE)
    /// Branches with norms of their own (Gemma 4): router and experts see the layer's input through a norm each, both branches end in one,
    /// and a trained factor scales the weights of each expert.
    bool branch_norms = false;
    bool expert_bias = false;  ///< balancing without a loss: a bias of `experts` values that no gradient trains (DeepSeek-V3)
    bool router_bias = false;  ///< a trained router bias of `experts` values (gpt-oss)
    /// Words of a table that says which experts each takes (DeepSeek-V4, modeling_deepseek_v4.py, DeepseekV4HashRouter); 0: scores choose.
    std::int64_t choosing_words = 0;
    RouterScore score = RouterScore::softmax;
    TokenDispatcher dispatcher = TokenDispatcher::all_to_all;
    bool grouped_gemm = true;
    double auxiliary_loss = 0;           ///< coefficient of the load-balancing loss (Megatron-LM's --moe-aux-loss-coeff); 0: none
    double sequence_auxiliary_loss = 0;  ///< the same within each sequence (DeepSeek-V2; Megatron-LM's seq_aux_loss)
    double capacity_factor = 0;          ///< 0: dropless
    bool pad_to_capacity = false;
    std::int64_t groups = 0;  ///< device-limited routing; 0: none
    std::int64_t group_top_k = 0;
    std::int64_t group_scores = 0;          ///< largest scores of a group that count (DeepSeek-V2: 1); 0: top_k / group_top_k of them
    double expert_bias_update_rate = 1e-3;  ///< Megatron-LM's --moe-router-bias-update-rate and its default
    double routed_scaling = 1;              ///< factor on the weights of the chosen experts (--moe-router-topk-scaling-factor)
    bool normalize_top_k = true;            ///< the weights of the chosen experts sum to 1
    bool operator==(const Mixture&) const = default;
    MGPLAN_MEMBERS(experts, top_k, expert_ffn, activation, gated, bias, latent, shared_ffn, shared_gate, branch_norms, expert_bias,
                   router_bias, choosing_words, score, dispatcher, grouped_gemm, auxiliary_loss, sequence_auxiliary_loss, capacity_factor,
                   pad_to_capacity, groups, group_top_k, group_scores, expert_bias_update_rate, routed_scaling, normalize_top_k)
};

void list_tensors(const Mixture& mixture, TensorLister& list);

}  // namespace mgplan
