#include "formats/megatron/megatron_hybrid_flags.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "formats/megatron/megatron_hybrid.hpp"
#include "formats/megatron/megatron_mixers.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

[[noreturn]] void refuse_layers(const Plan& plan, std::string_view why) {
    throw ConfigError(fmt::format("{}: {}, for which Megatron-LM has no flags; {}export another model", plan.model.name, why,
                                  layers_known_of_shapes(plan.model).empty() ? "train it with mgplan run, or " : ""));
}

void write_mamba(FlagWriter& out, const LayerPart& part) {
    // MambaMixer's own: d_conv, rmsnorm.
    if (part_size(part, "conv") != 4)
        refuse_layers(out.plan(), fmt::format("Mamba-2 with a convolution of {} taps", part_size(part, "conv")));
    if (part_size(part, "norm") == 0) refuse_layers(out.plan(), "Mamba-2 without a norm behind its scan");
    write_mixer(out, part);
}

/// The flags of a kind of mixer, of which there may be one set of sizes.
void write_mixers(FlagWriter& out, const LayerKinds& kinds) {
    const Plan& plan = out.plan();
    for (const LayerHalf& mixer : kinds.mixers) {
        const auto alike = std::count_if(kinds.mixers.begin(), kinds.mixers.end(),
                                         [&](const LayerHalf& other) { return other.part.kind == mixer.part.kind; });
        if (alike > 1) refuse_layers(plan, fmt::format("{} layers of {} sizes", mixer.part.kind, alike));
        if (mixer.part.kind == kMambaKind) write_mamba(out, mixer.part);
        if (mixer.part.kind == kDeltaNetKind) write_mixer(out, mixer.part);
    }
    const auto mlps =
        std::count_if(kinds.feed_forwards.begin(), kinds.feed_forwards.end(), [](const LayerHalf& half) { return !half.mixture; });
    if (mlps > 1) refuse_layers(plan, fmt::format("MLPs of {} sizes", mlps));
}

void refuse_other_mixers(const Plan& plan, const LayerKinds& kinds) {
    for (const LayerHalf& mixer : kinds.mixers) {
        const std::string& kind = mixer.part.kind;
        if (kind == "compressed_attention")
            throw ConfigError(fmt::format(
                "{}: layers of compressed attention, for which Megatron-LM has no flags at d98e8a64, which are written here, and "
                "its branch dev some of its own (--experimental-attention-variant dsv4_hybrid); export another model",
                plan.model.name));
        if (kind != "attention" && kind != kMambaKind && kind != kDeltaNetKind)
            refuse_layers(plan, fmt::format("layers of {}", find_part_kind(kind)->words));
        if (mixer.normed_behind) refuse_layers(plan, "layers whose norms stand behind their halves");
        if (kind == kDeltaNetKind && part_size(mixer.part, "strength") != 1)
            refuse_layers(plan, "gated delta nets that write up to twice as strongly");
    }
}

char letter_of(const LayerKinds& kinds, const LayerKindHalves& kind) {
    if (kind.mixture) return 'E';
    if (kind.mixer == LayerKindHalves::kNone) return '-';
    const std::string& mixer = kinds.mixers[static_cast<std::size_t>(kind.mixer)].part.kind;
    return mixer == kMambaKind ? 'M' : mixer == kDeltaNetKind ? 'G' : '*';
}

std::string pattern_of(const Plan& plan, const LayerKinds& kinds) {
    const StageSplit& split = *plan.layout.split;
    std::string pattern;
    for (int chunk = 0; chunk < split.vpp(); ++chunk) {
        for (int rank = 0; rank < split.pp(); ++rank) {
            const StageChunk& held = split.chunk(rank, chunk);
            if (chunk + rank > 0) pattern += '|';
            for (std::int64_t i = 0; i < held.decoders; ++i)
                pattern += letter_of(kinds, kinds.kinds[kinds.of_layer[static_cast<std::size_t>(held.first_decoder + i)]]);
        }
    }
    return pattern;
}

int halves(const LayerKindHalves& kind) {
    return (kind.mixer == LayerKindHalves::kNone ? 0 : 1) + (kind.feed_forward == LayerKindHalves::kNone ? 0 : 1);
}

bool by_pattern(const LayerKinds& kinds) {
    return std::all_of(kinds.kinds.begin(), kinds.kinds.end(), [](const LayerKindHalves& kind) { return halves(kind) == 1; });
}

void read_layers(FlagReader& flags, Job& job) {
    compose_hybrid(flags, job.model, hybrid_pattern(flags));
}

void write_layers(FlagWriter& out, const Job& /*job*/) {
    const Plan& plan = out.plan();
    if (plan.model.compositions.empty()) return;
    const LayerKinds kinds = layer_kinds(plan.model);
    refuse_other_mixers(plan, kinds);
    if (by_pattern(kinds)) {
        // HybridModel's layers (pretrain_hybrid.py) are these.
        out.flag("spec", {"megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"});
        out.word("hybrid-layer-pattern", pattern_of(plan, kinds));
        return write_mixers(out, kinds);
    }
    const auto is_delta = [&](const LayerKindHalves& kind) {
        return kind.mixer != LayerKindHalves::kNone && kinds.mixers[static_cast<std::size_t>(kind.mixer)].part.kind == kDeltaNetKind;
    };
    for (const LayerKindHalves& kind : kinds.kinds) {
        const bool attends = kind.mixer != LayerKindHalves::kNone && !kinds.mixers[static_cast<std::size_t>(kind.mixer)].carries_state;
        if (halves(kind) != 2 || !(attends || is_delta(kind)))
            refuse_layers(plan,
                          "layers that are a mixer with a state and a feed-forward in one, or that differ in the number of their halves");
    }
    std::vector<bool> delta;
    for (const std::uint16_t kind : kinds.of_layer) delta.push_back(is_delta(kinds.kinds[kind]));
    out.word("experimental-attention-variant", kDeltaNetKind);
    out.word("linear-attention-freq", layer_pattern_text(delta));
    write_mixers(out, kinds);
}

constexpr std::array kLayerFlags{
    FlagRow{"spec=+ hybrid-layer-pattern= hybrid-override-pattern= hybrid-attention-ratio= hybrid-mlp-ratio= is-hybrid-model "
            "experimental-attention-variant= linear-attention-type= linear-attention-freq= mamba-state-dim= mamba-head-dim= "
            "mamba-num-heads= mamba-num-groups= linear-conv-kernel-dim= linear-key-head-dim= linear-value-head-dim= linear-num-key-heads= "
            "linear-num-value-heads=",
            Both{read_layers, write_layers}},
};

}  // namespace

constinit const FlagTopic kLayerTopic{kLayerFlags};

bool layers_by_pattern(const ModelSpec& model) {
    return !model.compositions.empty() && by_pattern(layer_kinds(model));
}

}  // namespace mgplan::formats
