#include "formats/megatron/megatron_mixers.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "plan/parameters/member_fields.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr auto kDeltaFlags = std::to_array<std::string_view>(
    {"--linear-conv-kernel-dim", "--linear-key-head-dim", "--linear-value-head-dim", "--linear-num-key-heads", "--linear-num-value-heads"});
constexpr auto kMambaFlags =
    std::to_array<std::string_view>({"--mamba-state-dim", "--mamba-head-dim", "--mamba-num-groups", "--mamba-num-heads"});

/// ssm/mamba_mixer.py; defaults: TransformerConfig.
Mixer read_mamba(FlagReader& flags, const ModelSpec& model) {
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
    return Mamba2{.inner_width = *heads * head_dim, .heads = *heads, .groups = groups, .state_size = state, .conv_taps = 4};
}

void write_mamba(FlagWriter& out, const Mixer& mixer) {
    const auto& mamba2 = std::get<Mamba2>(mixer);
    out.integer("mamba-state-dim", mamba2.state_size);
    out.integer("mamba-head-dim", mamba2.inner_width / mamba2.heads);
    out.integer("mamba-num-heads", mamba2.heads);
    out.integer("mamba-num-groups", mamba2.groups);
}

/// MambaMixer's own: d_conv, rmsnorm.
std::string unwritten_of_mamba(const Mixer& mixer) {
    const auto& mamba2 = std::get<Mamba2>(mixer);
    if (mamba2.conv_taps != 4) return fmt::format("Mamba-2 with a convolution of {} taps", mamba2.conv_taps);
    return mamba2.norm ? "" : "Mamba-2 without a norm after its scan";
}

/// ssm/gated_delta_net/; defaults: TransformerConfig.
Mixer read_delta_net(FlagReader& flags, const ModelSpec& /*model*/) {
    const auto read = [&](std::string_view flag, std::int64_t fallback, std::int64_t high) {
        return flags.integer_or(flag, fallback, 1, high);
    };
    const std::int64_t keys = read("--linear-num-key-heads", 16, ModelLimits::heads),
                       values = read("--linear-num-value-heads", 32, ModelLimits::heads);
    if (flags.problems().empty() && values % keys != 0)
        flags.problem("--linear-num-value-heads = {} is no multiple of --linear-num-key-heads = {}; give a multiple", values, keys);
    return GatedDeltaNet{.key_heads = keys,
                         .key_dim = read("--linear-key-head-dim", 128, ModelLimits::head_dim),
                         .value_heads = values,
                         .value_dim = read("--linear-value-head-dim", 128, ModelLimits::head_dim),
                         .conv_taps = read("--linear-conv-kernel-dim", 4, ModelLimits::head_dim)};
}

void write_delta_net(FlagWriter& out, const Mixer& mixer) {
    const auto& net = std::get<GatedDeltaNet>(mixer);
    out.integer("linear-conv-kernel-dim", net.conv_taps);
    out.integer("linear-key-head-dim", net.key_dim);
    out.integer("linear-value-head-dim", net.value_dim);
    out.integer("linear-num-key-heads", net.key_heads);
    out.integer("linear-num-value-heads", net.value_heads);
}

std::string unwritten_of_delta_net(const Mixer& mixer) {
    return std::get<GatedDeltaNet>(mixer).strength != 1 ? "gated delta nets that write up to twice as strongly" : "";
}

Mixer read_attention(FlagReader& /*flags*/, const ModelSpec& model) {
    return attention_by_fields(model);
}

/// Its sizes are those of all layers.
void write_attention(FlagWriter& /*out*/, const Mixer& /*mixer*/) {}

std::string nothing_unwritten(const Mixer& /*mixer*/) {
    return "";
}

constexpr std::array kMixers{
    MegatronMixer{.kind = Mamba2::kKind,
                  .letter = 'M',
                  .size_flags = kMambaFlags,
                  .read = read_mamba,
                  .write = write_mamba,
                  .unwritten = unwritten_of_mamba},
    MegatronMixer{.kind = GatedDeltaNet::kKind,
                  .letter = 'G',
                  .variant = "gated_delta_net",
                  .size_flags = kDeltaFlags,
                  .read = read_delta_net,
                  .write = write_delta_net,
                  .unwritten = unwritten_of_delta_net},
    MegatronMixer{
        .kind = Attention::kKind, .letter = '*', .read = read_attention, .write = write_attention, .unwritten = nothing_unwritten},
    MegatronMixer{.kind = CompressedAttention::kKind,
                  .elsewhere = "its branch dev some of its own (--experimental-attention-variant dsv4_hybrid)"}};

}  // namespace

Attention attention_by_fields(const ModelSpec& model) {
    Attention attention = attention_of(model, 0);
    // Which layers rotate is a question of their number.
    attention.rotary.reset();
    if (model.position == PositionEmbedding::rope) attention.rotary.emplace();
    return attention;
}

std::span<const MegatronMixer> megatron_mixers() {
    return kMixers;
}

const MegatronMixer* find_megatron_mixer(std::string_view kind) {
    const auto found = std::find_if(kMixers.begin(), kMixers.end(), [&](const MegatronMixer& one) { return one.kind == kind; });
    return found == kMixers.end() ? nullptr : &*found;
}

const MegatronMixer* find_megatron_mixer(const Mixer& mixer) {
    return find_megatron_mixer(std::visit([](const auto& kind) { return kind.kKind; }, mixer));
}

}  // namespace mgplan::formats
