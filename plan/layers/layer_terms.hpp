#pragma once
// Terms that several kinds of layers share: enumerations with their words in JSON, rotary positions, residual paths.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/layers/members.hpp"

namespace mgplan {

/// gelu is the form by tanh (Megatron-LM's fused GELU, gelu_new), gelu_exact the one by erf. clamped_swish gates alone: x · sigmoid(1.702
/// x) of x up to 7, times 1 + the value within ±7 (gpt-oss, modeling_gpt_oss.py). xielu has two trained values a layer and no gate
/// (Apertus; model/ops/xielu.hpp).
enum class Activation : std::uint8_t { gelu, silu, relu, squared_relu, gelu_exact, clamped_swish, xielu };
enum class Normalization : std::uint8_t { layer_norm, rms_norm };
enum class RouterScore : std::uint8_t { softmax, sigmoid };
/// Order of the two halves of a layer: one after the other, or in parallel on the layer's input, each with a norm of its own (GPT-NeoX) or
/// after one norm that they share (GPT-J, Cohere).
enum class LayerOrder : std::uint8_t { sequential, parallel, parallel_shared_norm };
/// Exchange of tokens between expert-parallel ranks.
enum class TokenDispatcher : std::uint8_t { all_gather, all_to_all, deep_ep, hybrid_ep };

// The words of enumerators in JSON, in their order.

constexpr auto words_of(Activation /*type*/) {
    return std::array<std::string_view, 7>{"gelu", "silu", "relu", "squared_relu", "gelu_exact", "clamped_swish", "xielu"};
}
constexpr auto words_of(Normalization /*type*/) {
    return std::array<std::string_view, 2>{"layer_norm", "rms_norm"};
}
constexpr auto words_of(RouterScore /*type*/) {
    return std::array<std::string_view, 2>{"softmax", "sigmoid"};
}
constexpr auto words_of(LayerOrder /*type*/) {
    return std::array<std::string_view, 3>{"sequential", "parallel", "parallel_shared_norm"};
}
constexpr auto words_of(TokenDispatcher /*type*/) {
    return std::array<std::string_view, 4>{"all_gather", "all_to_all", "deep_ep", "hybrid_ep"};
}

/// Numbers of a rotary scaling; defaults are those of Megatron-LM and transformers.
struct RotaryScaling {
    double factor = 1;                                           ///< extended context length over the original one
    std::int64_t original_positions = 0;                         ///< llama3, yarn: before; 0: the model's maximum
    double low_frequency_factor = 1, high_frequency_factor = 4;  ///< llama3
    double beta_fast = 32, beta_slow = 1;                        ///< yarn
    double mscale = 1, mscale_all_dim = 0;                       ///< yarn
    bool whole_pairs = true;                                     ///< yarn: its ramp begins and ends at whole pairs (truncate)
    bool operator==(const RotaryScaling&) const = default;
    MGPLAN_MEMBERS(factor, original_positions, low_frequency_factor, high_frequency_factor, beta_fast, beta_slow, mscale, mscale_all_dim,
                   whole_pairs)
};

/// Rotary positions of one attention.
struct Rotary {
    double fraction = 1;   ///< of a head's values that are rotated
    double base = 10'000;  ///< of the angles ("rope theta")
    std::string scaling;   ///< how the angles change for longer sequences, by name ("yarn", "llama3"); empty: not at all
    RotaryScaling scaling_values;
    bool interleaved = false;  ///< published weights rotate neighbours of a head, not its halves
    bool operator==(const Rotary&) const = default;
    MGPLAN_MEMBERS(fraction, base, scaling, scaling_values, interleaved)
};

/// Factors of both terms of a residual addition: path · what it carries + branch · what a half computes.
struct PathFactors {
    double path = 1;
    double branch = 1;
    bool operator==(const PathFactors&) const = default;
    MGPLAN_MEMBERS(path, branch)
};

/// Parallel residual streams whose mixes are computed from the streams (manifold-constrained hyper-connections, arXiv 2512.24880, equations
/// 5 to 9; Megatron-LM's --enable-mhc-connections at d98e8a64, core/transformer/hyper_connection.py): each half of a layer reads a weighted
/// sum of them, adds its output to each with a weight, and mixes them by a matrix whose rows and columns sum to 1.
struct HyperConnections {
    std::int64_t streams = 4;               ///< Megatron-LM's default
    std::int64_t sinkhorn_iterations = 20;  ///< rounds in which the matrix comes to its sums
    /// In front of the last norm the streams come together by trained weights, and maps are computed in fp32 (Megatron-LM's branch dev at
    /// d48bd6be, --enable-hyper-connections); else by their mean, with maps in the storage type.
    bool learned_head = false;
    bool operator==(const HyperConnections&) const = default;
    MGPLAN_MEMBERS(streams, sinkhorn_iterations, learned_head)

    /// Values of one token that mix its streams: n weights in, n weights out, n · n between them.
    [[nodiscard]] std::int64_t maps() const { return streams * (streams + 2); }
};

}  // namespace mgplan
