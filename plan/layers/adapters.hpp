#pragma once
// Low-rank adapters of frozen linear layers.

#include <array>
#include <cstdint>
#include <string_view>

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// How frozen weights of linear layers are kept: in the model's own type, or as QLoRA does (arXiv 2305.14314, section 3), in 4 bits by
/// bitsandbytes.
enum class FrozenStorage : std::uint8_t { own, nf4 };
constexpr auto words_of(FrozenStorage /*type*/) {
    return std::array<std::string_view, 2>{"own", "nf4"};
}

/// Bytes of `elements` values in nf4: 4 bits each, an 8-bit scale for 64 of them and an fp32 scale for 256 of these scales, 4.127 bits in
/// all (bitsandbytes/functional.py, quantize_4bit with compress_statistics).
[[nodiscard]] constexpr std::int64_t nf4_bytes(std::int64_t elements) {
    const std::int64_t scales = (elements + 63) / 64;
    return (elements + 1) / 2 + scales + (scales + 255) / 256 * 4;
}

/// Adapters of one layer (LoRA, arXiv 2106.09685): y = x Wᵀ + alpha / rank · (x Aᵀ) Bᵀ, where A (rank, in) and B (out, rank) are trained,
/// and W and all other tensors are not. Division over tp as in Megatron-Bridge (067f987d, peft/utils.py, ParallelLinearAdapter): where the
/// rows of W are divided, both have their rows divided; where its columns are, A its columns and B its rows. Experts of one rank share a
/// pair (peft/lora.py, share_expert_adapters) or have one each (ms-swift, mcore-bridge 1.6.5, tuners/lora.py). Defaults are those of
/// Megatron-Bridge.
struct Adapters {
    std::int64_t rank = 32;
    double alpha = 32;
    // Linear layers with adapters.
    bool qkv = true;                ///< packed projection of queries, keys and values
    bool proj = true;               ///< attention's output
    bool fc1 = true;                ///< first product of MLPs and shared experts
    bool fc2 = true;                ///< second product of these
    bool experts = true;            ///< both products of routed experts
    bool latent = false;            ///< down and up projections of latent attention
    bool in_proj = false;           ///< input projection of mixers with a state (Mamba-2, gated delta net)
    bool out_proj = false;          ///< their output projection
    bool shared_by_experts = true;  ///< one pair for all routed experts of a rank; false: one for each expert
    FrozenStorage base = FrozenStorage::own;
    bool operator==(const Adapters&) const = default;
    MGPLAN_MEMBERS(rank, alpha, qkv, proj, fc1, fc2, experts, latent, in_proj, out_proj, shared_by_experts, base)

    /// True if the linear layer of this path within the layer ("self_attention.linear_qkv") has an adapter.
    [[nodiscard]] bool stand_beside(std::string_view module) const;
    /// Factor of what an adapter adds.
    [[nodiscard]] double factor() const { return alpha / static_cast<double>(rank); }
};

/// Adds the adapters' tensors, each pair after the tensors of its linear layer, and marks all others as frozen.
void add_adapters(const Adapters& adapters, std::vector<LayerTensor>& tensors);

}  // namespace mgplan
