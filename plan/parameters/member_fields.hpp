#pragma once
// Members of typed layers and the fields of ModelSpec that say the same: for the adapter between both.

#include <array>
#include <tuple>
#include <utility>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

constexpr std::array<std::pair<std::int64_t MlaSpec::*, std::int64_t LatentAttention::*>, 8> kLatentFields{
    {{&MlaSpec::q_lora_rank, &LatentAttention::q_lora_rank},
     {&MlaSpec::kv_lora_rank, &LatentAttention::kv_lora_rank},
     {&MlaSpec::qk_nope_head_dim, &LatentAttention::qk_nope_head_dim},
     {&MlaSpec::qk_rope_head_dim, &LatentAttention::qk_rope_head_dim},
     {&MlaSpec::v_head_dim, &LatentAttention::v_head_dim},
     {&MlaSpec::index_heads, &LatentAttention::index_heads},
     {&MlaSpec::index_head_dim, &LatentAttention::index_head_dim},
     {&MlaSpec::index_top_k, &LatentAttention::index_top_k}}};

constexpr auto kMixtureFields = std::tuple{std::pair{&MoeSpec::experts, &Mixture::experts},
                                           std::pair{&MoeSpec::top_k, &Mixture::top_k},
                                           std::pair{&MoeSpec::expert_ffn, &Mixture::expert_ffn},
                                           std::pair{&MoeSpec::latent, &Mixture::latent},
                                           std::pair{&MoeSpec::shared_ffn, &Mixture::shared_ffn},
                                           std::pair{&MoeSpec::shared_gate, &Mixture::shared_gate},
                                           std::pair{&MoeSpec::branch_norms, &Mixture::branch_norms},
                                           std::pair{&MoeSpec::expert_bias, &Mixture::expert_bias},
                                           std::pair{&MoeSpec::router_bias, &Mixture::router_bias},
                                           std::pair{&MoeSpec::score, &Mixture::score},
                                           std::pair{&MoeSpec::dispatcher, &Mixture::dispatcher},
                                           std::pair{&MoeSpec::grouped_gemm, &Mixture::grouped_gemm},
                                           std::pair{&MoeSpec::auxiliary_loss, &Mixture::auxiliary_loss},
                                           std::pair{&MoeSpec::sequence_auxiliary_loss, &Mixture::sequence_auxiliary_loss},
                                           std::pair{&MoeSpec::capacity_factor, &Mixture::capacity_factor},
                                           std::pair{&MoeSpec::pad_to_capacity, &Mixture::pad_to_capacity},
                                           std::pair{&MoeSpec::groups, &Mixture::groups},
                                           std::pair{&MoeSpec::group_top_k, &Mixture::group_top_k},
                                           std::pair{&MoeSpec::group_scores, &Mixture::group_scores},
                                           std::pair{&MoeSpec::expert_bias_update_rate, &Mixture::expert_bias_update_rate},
                                           std::pair{&MoeSpec::routed_scaling, &Mixture::routed_scaling},
                                           std::pair{&MoeSpec::normalize_top_k, &Mixture::normalize_top_k}};

constexpr std::array<std::pair<double BranchMultipliers::*, double AttentionBesideMamba2::*>, 7> kBesideMultipliers{
    {{&BranchMultipliers::attention_output, &AttentionBesideMamba2::attention_output_multiplier},
     {&BranchMultipliers::state_output, &AttentionBesideMamba2::state_output_multiplier},
     {&BranchMultipliers::state_gate, &AttentionBesideMamba2::state_gate_multiplier},
     {&BranchMultipliers::state_input, &AttentionBesideMamba2::state_input_multiplier},
     {&BranchMultipliers::state_write, &AttentionBesideMamba2::state_write_multiplier},
     {&BranchMultipliers::state_read, &AttentionBesideMamba2::state_read_multiplier},
     {&BranchMultipliers::state_step, &AttentionBesideMamba2::state_step_multiplier}}};

// Members that fields state (plan/parameters/model_adapter.cpp). `layer`: its number, on which rotary positions depend.

[[nodiscard]] std::optional<Rotary> rotary_of(const ModelSpec& spec, std::int64_t layer);
[[nodiscard]] Attention attention_of(const ModelSpec& spec, std::int64_t layer);
[[nodiscard]] LatentAttention latent_attention_of(const ModelSpec& spec, std::int64_t layer);
[[nodiscard]] Mlp mlp_of(const ModelSpec& spec);
[[nodiscard]] Mixture mixture_of(const ModelSpec& spec);
/// Norms and residual path of a layer, without halves.
[[nodiscard]] Layer frame_of(const ModelSpec& spec);

}  // namespace mgplan
