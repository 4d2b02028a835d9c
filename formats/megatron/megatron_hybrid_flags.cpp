// Flags for layers that differ in their mixer: a pattern of letters for layers of one half (core/models/hybrid), or gated delta nets
// between layers of attention (experimental_attention_variant). Writing them throws ConfigError for layers that Megatron-LM has no flags
// for.

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_hybrid.hpp"
#include "formats/megatron/megatron_mixers.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

[[noreturn]] void refuse_layers(const Plan& plan, std::string_view why) {
    throw ConfigError(fmt::format("{}: {}, for which Megatron-LM has no flags; {}export another model", plan.model.name, why,
                                  layers_known_of_shapes(plan.model).empty() ? "train it with mgplan run, or " : ""));
}

/// Its row, which refuse_other_mixers() found.
const MegatronMixer& row_of(const LayerHalf& mixer) {
    return *find_megatron_mixer(*mixer.layer.mixer);
}

/// The mixer of a kind of layer; nullptr where it has none.
const LayerHalf* mixer_of(const LayerKinds& kinds, const LayerKindHalves& kind) {
    return kind.mixer == LayerKindHalves::kNone ? nullptr : &kinds.mixers[static_cast<std::size_t>(kind.mixer)];
}

/// The flags of a kind of mixer, of which there may be one set of sizes.
void write_mixers(FlagWriter& out, const LayerKinds& kinds) {
    const Plan& plan = out.plan();
    for (const LayerHalf& mixer : kinds.mixers) {
        const auto alike = std::count_if(kinds.mixers.begin(), kinds.mixers.end(),
                                         [&](const LayerHalf& other) { return other.layer.mixer->index() == mixer.layer.mixer->index(); });
        if (alike > 1) refuse_layers(plan, fmt::format("{} layers of {} sizes", row_of(mixer).kind, alike));
        row_of(mixer).write(out, *mixer.layer.mixer);
    }
    const auto mlps =
        std::count_if(kinds.feed_forwards.begin(), kinds.feed_forwards.end(), [](const LayerHalf& half) { return !half.mixture; });
    if (mlps > 1) refuse_layers(plan, fmt::format("MLPs of {} sizes", mlps));
}

void refuse_other_mixers(const Plan& plan, const LayerKinds& kinds) {
    for (const LayerHalf& mixer : kinds.mixers) {
        const std::string_view words = traits_of(*mixer.layer.mixer).words;
        const MegatronMixer* const row = find_megatron_mixer(*mixer.layer.mixer);
        if (row != nullptr && !row->elsewhere.empty())
            throw ConfigError(fmt::format(
                "{}: layers of {}, for which Megatron-LM has no flags at d98e8a64, which are written here, and {}; export another model",
                plan.model.name, words, row->elsewhere));
        if (row == nullptr) refuse_layers(plan, fmt::format("layers of {}", words));
        if (mixer.layer.norms.after) refuse_layers(plan, "layers with norms after their halves");
        if (const std::string what = row->unwritten(*mixer.layer.mixer); !what.empty()) refuse_layers(plan, what);
    }
}

/// A letter for each half of a kind of layer.
std::string letters_of(const LayerKinds& kinds, const LayerKindHalves& kind) {
    std::string letters;
    if (const LayerHalf* const mixer = mixer_of(kinds, kind)) letters += row_of(*mixer).letter;
    if (kind.feed_forward != LayerKindHalves::kNone) letters += kind.mixture ? 'E' : '-';
    return letters;
}

std::string pattern_of(const Plan& plan, const LayerKinds& kinds) {
    const StageSplit& split = *plan.layout.split;
    std::string pattern;
    for (int chunk = 0; chunk < split.vpp(); ++chunk) {
        for (int rank = 0; rank < split.pp(); ++rank) {
            const StageChunk& held = split.chunk(rank, chunk);
            if (chunk + rank > 0) pattern += '|';
            for (std::int64_t i = 0; i < held.decoders; ++i)
                pattern += letters_of(kinds, kinds.kinds[kinds.of_layer[static_cast<std::size_t>(held.first_decoder + i)]]);
            if (held.mtp > 0 && !held.loss) refuse_layers(plan, "multi-token prediction on another stage than the loss");
        }
    }
    for (std::int64_t depth = 0; depth < plan.model.mtp_layers; ++depth)
        pattern += "/" + letters_of(kinds, kinds.kinds[kinds.of_prediction]);
    return pattern;
}

void read_layers(FlagReader& flags, Job& job) {
    compose_hybrid(flags, job.model, hybrid_pattern(flags));
}

void write_layers(FlagWriter& out, const Job& /*job*/) {
    const Plan& plan = out.plan();
    if (plan.model.kinds.empty()) return;
    const LayerKinds kinds = layer_kinds(plan.model);
    refuse_other_mixers(plan, kinds);
    if (kinds.one_half_each()) {
        // HybridModel's layers (pretrain_hybrid.py) are these.
        out.flag("spec", {"megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"});
        out.word("hybrid-layer-pattern", pattern_of(plan, kinds));
        return write_mixers(out, kinds);
    }
    const auto variant_of = [&](const LayerKindHalves& kind) {
        const LayerHalf* const mixer = mixer_of(kinds, kind);
        return mixer == nullptr ? std::string_view() : row_of(*mixer).variant;
    };
    std::string_view variant;
    for (const LayerKindHalves& kind : kinds.kinds) {
        const LayerHalf* const mixer = mixer_of(kinds, kind);
        const bool attends = mixer != nullptr && !mixer->carries_state, varied = !variant_of(kind).empty();
        if (kind.count() != 2 || !(attends || varied) || (varied && !variant.empty() && variant != variant_of(kind)))
            refuse_layers(plan,
                          "layers that are a mixer with a state and a feed-forward in one, or that differ in the number of their halves");
        if (varied) variant = variant_of(kind);
    }
    if (variant.empty()) variant = find_megatron_mixer("gated_delta_net")->variant;  // of no layer
    if (plan.model.mtp_layers > 0 && kinds.of_prediction != kinds.of_layer.back())
        refuse_layers(plan, "multi-token prediction by other layers than the last one");
    std::vector<bool> varied;
    for (const std::uint16_t kind : kinds.of_layer) varied.push_back(!variant_of(kinds.kinds[kind]).empty());
    out.word("experimental-attention-variant", variant);
    out.word("linear-attention-freq", layer_pattern_text(varied));
    write_mixers(out, kinds);
}

constexpr std::array kLayerFlags{
    FlagRow{"spec=+ hybrid-layer-pattern= hybrid-override-pattern= mtp-hybrid-override-pattern= hybrid-attention-ratio= hybrid-mlp-ratio= "
            "is-hybrid-model "
            "experimental-attention-variant= linear-attention-type= linear-attention-freq= mamba-state-dim= mamba-head-dim= "
            "mamba-num-heads= mamba-num-groups= linear-conv-kernel-dim= linear-key-head-dim= linear-value-head-dim= linear-num-key-heads= "
            "linear-num-value-heads=",
            Both{read_layers, write_layers}},
};

}  // namespace

constinit const FlagTopic kLayerTopic{kLayerFlags};

}  // namespace mgplan::formats
