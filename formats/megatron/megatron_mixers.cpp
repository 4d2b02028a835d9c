#include "formats/megatron/megatron_mixers.hpp"

#include <algorithm>
#include <array>

#include "plan/model/layer_parts.hpp"

namespace mgplan::formats {
namespace {

struct MixerSize {
    std::string_view flag, kind, size;
    std::int64_t fallback, high;
};

constexpr std::string_view kHeadWidth = "head_dim";  ///< no size of a part: its inner width over its heads

// Defaults: TransformerConfig.
constexpr std::array kMixerSizes{
    MixerSize{"mamba-state-dim", kMambaKind, "state", 128, ModelLimits::hidden},
    MixerSize{"mamba-head-dim", kMambaKind, kHeadWidth, 64, ModelLimits::hidden},
    MixerSize{"mamba-num-heads", kMambaKind, "heads", 0, ModelLimits::heads},
    MixerSize{"mamba-num-groups", kMambaKind, "groups", 8, ModelLimits::heads},
    MixerSize{"linear-conv-kernel-dim", kDeltaNetKind, "conv", 4, ModelLimits::head_dim},
    MixerSize{"linear-key-head-dim", kDeltaNetKind, "key_dim", 128, ModelLimits::head_dim},
    MixerSize{"linear-value-head-dim", kDeltaNetKind, "value_dim", 128, ModelLimits::head_dim},
    MixerSize{"linear-num-key-heads", kDeltaNetKind, "key_heads", 16, ModelLimits::heads},
    MixerSize{"linear-num-value-heads", kDeltaNetKind, "value_heads", 32, ModelLimits::heads},
};

LayerPart read_sizes(FlagReader& flags, std::string_view kind) {
    LayerPart part{std::string(kind), {}};
    for (const MixerSize& size : kMixerSizes) {
        if (size.kind == kind)
            part.sizes[std::string(size.size)] = flags.integer_or(fmt::format("--{}", size.flag), size.fallback, 1, size.high);
    }
    return part;
}

}  // namespace

std::vector<std::string> mixer_flags(std::string_view kind) {
    std::vector<std::string> flags;
    for (const MixerSize& size : kMixerSizes) {
        if (size.kind == kind) flags.push_back(fmt::format("--{}", size.flag));
    }
    return flags;
}

LayerPart read_mamba(FlagReader& flags, const ModelSpec& model) {
    LayerPart part = read_sizes(flags, kMambaKind);
    const std::int64_t head_dim = part.sizes.extract(std::string(kHeadWidth)).mapped(), groups = part.sizes["groups"];
    std::int64_t& heads = part.sizes["heads"];
    if (heads == 0) {
        constexpr std::int64_t kExpand = 2;
        if (flags.problems().empty() && kExpand * model.hidden % head_dim != 0)
            flags.problem("--mamba-head-dim = {} does not divide {} · --hidden-size = {}; use {}, or give --mamba-num-heads", head_dim,
                          kExpand, kExpand * model.hidden, divisors_text(kExpand * model.hidden, kExpand * model.hidden));
        heads = std::max<std::int64_t>(1, kExpand * model.hidden / head_dim);
    }
    if (flags.problems().empty() && heads % groups != 0)
        flags.problem("--mamba-num-groups = {} does not divide the {} heads of Mamba-2; use {}", groups, heads,
                      divisors_text(heads, heads));
    part.sizes.insert({{"inner", heads * head_dim}, {"conv", 4}, {"conv_bias", 1}, {"proj_bias", 0}, {"norm", 1}});
    return part;
}

LayerPart read_delta_net(FlagReader& flags) {
    LayerPart part = read_sizes(flags, kDeltaNetKind);
    const std::int64_t keys = part.sizes["key_heads"], values = part.sizes["value_heads"];
    if (flags.problems().empty() && values % keys != 0)
        flags.problem("--linear-num-value-heads = {} is no multiple of --linear-num-key-heads = {}; give a multiple", values, keys);
    return part;
}

void write_mixer(FlagWriter& out, const LayerPart& part) {
    for (const MixerSize& size : kMixerSizes) {
        if (size.kind != part.kind) continue;
        out.integer(size.flag, size.size == kHeadWidth ? part_size(part, "inner") / part_size(part, "heads") : part_size(part, size.size));
    }
}

}  // namespace mgplan::formats
