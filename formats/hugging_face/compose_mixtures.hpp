#pragma once
// Functions that the rules of several MoE models share.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {

/// Experts that a token passes, as most configs name them.
inline constexpr std::string_view kExpertsOfToken = "num_experts_per_tok";

/// attention_bias = true is a problem.
void refuse_attention_bias(Composer& c);

/// True for each MoE layer: mlp_layer_types, else from first_k_dense_replace on, of which moe_layer_freq takes every n-th, or lists them.
[[nodiscard]] std::vector<bool> mixtures_of(Composer& c, std::int64_t first_fallback);

/// Routed experts and shared ones as one MLP. Without `chosen`, the config states the experts of a token.
[[nodiscard]] LayerPiece mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width, std::int64_t chosen);
[[nodiscard]] LayerPiece mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width);

/// All layers: one mixer, and experts with further parts or an MLP.
void add_layers(Composer& c, const std::vector<bool>& mixtures, const std::string& name, const LayerPiece& mixer, const LayerPiece& mixture,
                const LayerPiece& beside_mixture = {});

}  // namespace mgplan::formats
