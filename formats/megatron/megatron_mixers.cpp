#include "formats/megatron/megatron_mixers.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "plan/model/layer_parts.hpp"

namespace mgplan::formats {
namespace {

constexpr auto kDeltaFlags = std::to_array<std::string_view>(
    {"--linear-conv-kernel-dim", "--linear-key-head-dim", "--linear-value-head-dim", "--linear-num-key-heads", "--linear-num-value-heads"});
constexpr auto kMambaFlags =
    std::to_array<std::string_view>({"--mamba-state-dim", "--mamba-head-dim", "--mamba-num-groups", "--mamba-num-heads"});

void write_size(FlagWriter& out, std::string_view flag, const LayerPart& part, std::string_view size) {
    out.integer(flag, part_size(part, size));
}

/// ssm/mamba_mixer.py; defaults: TransformerConfig.
LayerPart read_mamba(FlagReader& flags, const ModelSpec& model) {
    const std::int64_t state = flags.integer_or("--mamba-state-dim", 128, 1, ModelLimits::hidden);
    const std::int64_t head_dim = flags.integer_or("--mamba-head-dim", 64, 1, ModelLimits::hidden);
    const std::int64_t groups = flags.integer_or("--mamba-num-groups", 8, 1, ModelLimits::heads);
    auto heads = flags.integer("--mamba-num-heads", 1, ModelLimits::heads);
    if (!heads) {
        constexpr std::int64_t kExpand = 2;
        if (flags.problems().empty() && kExpand * model.hidden % head_dim != 0)
            flags.problem("--mamba-head-dim = {} does not divide {} · --hidden-size = {}; use {}, or give --mamba-num-heads", head_dim,
                          kExpand, kExpand * model.hidden, divisors_text(kExpand * model.hidden, kExpand * model.hidden));
        heads = std::max<std::int64_t>(1, kExpand * model.hidden / head_dim);
    }
    if (flags.problems().empty() && *heads % groups != 0)
        flags.problem("--mamba-num-groups = {} does not divide the {} heads of Mamba-2; use {}", groups, *heads,
                      divisors_text(*heads, *heads));
    return {"mamba2",
            {{"inner", *heads * head_dim},
             {"heads", *heads},
             {"groups", groups},
             {"state", state},
             {"conv", 4},
             {"conv_bias", 1},
             {"proj_bias", 0},
             {"norm", 1}}};
}

void write_mamba(FlagWriter& out, const LayerPart& part) {
    write_size(out, "mamba-state-dim", part, "state");
    out.integer("mamba-head-dim", part_size(part, "inner") / part_size(part, "heads"));
    write_size(out, "mamba-num-heads", part, "heads");
    write_size(out, "mamba-num-groups", part, "groups");
}

/// MambaMixer's own: d_conv, rmsnorm.
std::string unwritten_of_mamba(const LayerPart& part) {
    if (const std::int64_t taps = part_size(part, "conv"); taps != 4) return fmt::format("Mamba-2 with a convolution of {} taps", taps);
    return part_size(part, "norm") == 0 ? "Mamba-2 without a norm after its scan" : "";
}

/// ssm/gated_delta_net/; defaults: TransformerConfig.
LayerPart read_delta_net(FlagReader& flags, const ModelSpec& /*model*/) {
    const auto read = [&](std::string_view flag, std::int64_t fallback, std::int64_t high) {
        return flags.integer_or(flag, fallback, 1, high);
    };
    const std::int64_t keys = read("--linear-num-key-heads", 16, ModelLimits::heads),
                       values = read("--linear-num-value-heads", 32, ModelLimits::heads);
    if (flags.problems().empty() && values % keys != 0)
        flags.problem("--linear-num-value-heads = {} is no multiple of --linear-num-key-heads = {}; give a multiple", values, keys);
    return {"gated_delta_net",
            {{"key_heads", keys},
             {"key_dim", read("--linear-key-head-dim", 128, ModelLimits::head_dim)},
             {"value_heads", values},
             {"value_dim", read("--linear-value-head-dim", 128, ModelLimits::head_dim)},
             {"conv", read("--linear-conv-kernel-dim", 4, ModelLimits::head_dim)}}};
}

void write_delta_net(FlagWriter& out, const LayerPart& part) {
    write_size(out, "linear-conv-kernel-dim", part, "conv");
    write_size(out, "linear-key-head-dim", part, "key_dim");
    write_size(out, "linear-value-head-dim", part, "value_dim");
    write_size(out, "linear-num-key-heads", part, "key_heads");
    write_size(out, "linear-num-value-heads", part, "value_heads");
}

std::string unwritten_of_delta_net(const LayerPart& part) {
    return part_size(part, "strength") != 1 ? "gated delta nets that write up to twice as strongly" : "";
}

LayerPart read_attention(FlagReader& /*flags*/, const ModelSpec& model) {
    return attention_part_of_fields(model);
}

/// Its sizes are those of all layers.
void write_attention(FlagWriter& /*out*/, const LayerPart& /*part*/) {}

std::string nothing_unwritten(const LayerPart& /*part*/) {
    return "";
}

constexpr std::array kMixers{
    MegatronMixer{.kind = "mamba2",
                  .letter = 'M',
                  .size_flags = kMambaFlags,
                  .read = read_mamba,
                  .write = write_mamba,
                  .unwritten = unwritten_of_mamba},
    MegatronMixer{.kind = "gated_delta_net",
                  .letter = 'G',
                  .variant = "gated_delta_net",
                  .size_flags = kDeltaFlags,
                  .read = read_delta_net,
                  .write = write_delta_net,
                  .unwritten = unwritten_of_delta_net},
    MegatronMixer{.kind = "attention", .letter = '*', .read = read_attention, .write = write_attention, .unwritten = nothing_unwritten},
    MegatronMixer{.kind = "compressed_attention",
                  .elsewhere = "its branch dev some of its own (--experimental-attention-variant dsv4_hybrid)"}};

}  // namespace

LayerPart attention_part_of_fields(const ModelSpec& model) {
    return {"attention",
            {{"heads", model.heads},
             {"kv_heads", model.kv_heads},
             {"head_dim", model.head_dim},
             {"qkv_bias", model.qkv_bias ? 1 : 0},
             {"output_bias", model.attention_output_bias ? 1 : 0},
             {"output_gate", model.attention_output_gate ? 1 : 0},
             {"qk_norm", model.qk_norm ? 1 : 0},
             {"positions", model.position == PositionEmbedding::rope ? 2 : 1}}};
}

std::span<const MegatronMixer> megatron_mixers() {
    return kMixers;
}

const MegatronMixer* find_megatron_mixer(std::string_view kind) {
    const auto found = std::find_if(kMixers.begin(), kMixers.end(), [&](const MegatronMixer& one) { return one.kind == kind; });
    return found == kMixers.end() ? nullptr : &*found;
}

}  // namespace mgplan::formats
