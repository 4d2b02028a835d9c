#pragma once
// Members of typed layers and the fields of ModelSpec and sizes of parts that say the same: for the adapter between both.

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "plan/layers/layer.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

constexpr double kMillion = 1e6;

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

/// Members whose sizes have other names in parts; all others have their own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSizesOfMembers{{{"inner_width", "inner"},
                                                                                         {"state_size", "state"},
                                                                                         {"conv_taps", "conv"},
                                                                                         {"layer_input_width", "input"},
                                                                                         {"layer_input_rows", "input_rows"},
                                                                                         {"bypass_rank", "bypass"},
                                                                                         {"number", "block"},
                                                                                         {"ffn", "width"},
                                                                                         {"adapter_rank", "rank"},
                                                                                         {"rotary_dim", "rotated"},
                                                                                         {"output_groups", "groups"},
                                                                                         {"output_group_rank", "group_rank"},
                                                                                         {"compression_rate", "rate"},
                                                                                         {"index_head_dim", "index_dim"}}};

constexpr std::string_view size_of_member(std::string_view member) {
    for (const auto& [name, size] : kSizesOfMembers) {
        if (name == member) return size;
    }
    return member;
}

/// Members that a part says as whole numbers.
template <class Member>
constexpr bool kIsSize = std::is_integral_v<Member> || std::is_same_v<Member, InnerNorms>;

/// Sets a mixer's members that are sizes of its part.
template <class Kind>
void read_sizes(Kind& mixer, const PartSizes& sizes) {
    Kind::visit_members(mixer, [&](std::string_view name, auto& member) {
        if constexpr (kIsSize<std::decay_t<decltype(member)>>)
            member = static_cast<std::decay_t<decltype(member)>>(sizes[size_of_member(name)]);
    });
}

/// The same back.
template <class Kind>
void write_sizes(const Kind& mixer, LayerPart& part) {
    Kind::visit_members(mixer, [&](std::string_view name, const auto& member) {
        if constexpr (kIsSize<std::decay_t<decltype(member)>>)
            part.sizes[std::string(size_of_member(name))] = static_cast<std::int64_t>(member);
    });
}

}  // namespace mgplan
