// Linear attention: gated delta nets, Kimi delta attention, lightning attention; and short convolutions.

#include <array>

#include <fmt/core.h>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

bool describe_delta_net(const PartSizes& s, ModelSpec& fields) {
    return s["value_heads"] % s["key_heads"] == 0 && fields.normalization == Normalization::rms_norm;
}

void add_delta_net_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "gated delta nets", "key heads", s["key_heads"], division.tp);
    require_division(obstacles, "gated delta nets", "value heads", s["value_heads"], division.tp);
    require_exchange(obstacles, "gated delta nets", "key heads", s["key_heads"], division);
    require_exchange(obstacles, "gated delta nets", "value heads", s["value_heads"], division);
}

bool describe_kimi_delta(const PartSizes& s, ModelSpec& fields) {
    return s["gate_bias"] == 0 && fields.normalization == Normalization::rms_norm;
}

void add_kimi_delta_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "Kimi delta attention", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "Kimi delta attention", division);
}

/// Copies its own factors of the residual path to where layers read those of attention.
bool describe_lightning(const PartSizes& /*sizes*/, ModelSpec& fields) {
    if (fields.normed_residual) fields.normed_residual->attention = fields.normed_residual->state;
    return fields.normalization == Normalization::rms_norm;
}

void add_lightning_obstacles(Words& obstacles, const ModelSpec& /*fields*/, const PartSizes& s, const ParallelSizes& division) {
    require_division(obstacles, "lightning attention", "heads", s["heads"], division.tp);
    refuse_context_parallelism(obstacles, "lightning attention", division);
}

bool describe_short_convolution(const PartSizes& s, ModelSpec& /*fields*/) {
    return s["bias"] == 0;
}

void add_short_convolution_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    require_division(obstacles, "short convolutions", "channels", fields.hidden, division.tp);
    refuse_context_parallelism(obstacles, "short convolutions", division);
}

/// The convolution, and four products with a state of `key` values a channel, as Megatron-LM counts them (training.py, gdn_layer_flops).
double delta_rule_flops(std::int64_t taps, std::int64_t convolved, std::int64_t values, std::int64_t key) {
    return 2.0 * (static_cast<double>(taps) * static_cast<double>(convolved) + 4 * static_cast<double>(values) * static_cast<double>(key));
}

double delta_net_flops(const PartSizes& s) {
    const std::int64_t keys = s["key_heads"] * s["key_dim"], values = s["value_heads"] * s["value_dim"];
    return delta_rule_flops(s["conv"], 2 * keys + values, values, s["key_dim"]);
}

/// As a delta net with a decay for each value of a key, which is no product (docs/decisions/0023).
double kimi_delta_flops(const PartSizes& s) {
    const std::int64_t width = s["heads"] * s["head_dim"];
    return delta_rule_flops(s["conv"], 3 * width, width, s["head_dim"]);
}

/// The two products that write the state and read it.
double lightning_flops(const PartSizes& s) {
    const auto dim = static_cast<double>(s["head_dim"]);
    return 4 * static_cast<double>(s["heads"]) * dim * dim;
}

constexpr std::array kComputedLinearAttention{
    ComputedPart{"gated_delta_net",
                 describe_delta_net,
                 add_delta_net_obstacles,
                 {.state_flops = delta_net_flops, .megatron_kernels = StateKernels::chunked_delta_rule}},
    ComputedPart{"kimi_delta_attention", describe_kimi_delta, add_kimi_delta_obstacles, {.state_flops = kimi_delta_flops}},
    ComputedPart{"lightning_attention", describe_lightning, add_lightning_obstacles, {.state_flops = lightning_flops}},
    ComputedPart{"short_convolution", describe_short_convolution, add_short_convolution_obstacles, {}}};

}  // namespace

std::span<const ComputedPart> computed_linear_attention() {
    return kComputedLinearAttention;
}

}  // namespace mgplan
