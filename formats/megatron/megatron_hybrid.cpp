#include "formats/megatron/megatron_hybrid.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "formats/megatron/megatron_mixers.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/member_fields.hpp"
#include "plan/parameters/model_adapter.hpp"

namespace mgplan::formats {
namespace {

// Letters of layers: of mixers in megatron_mixers.cpp.
constexpr char kMambaLetter = 'M', kDeltaNetLetter = 'G', kAttentionLetter = '*', kMlpLetter = '-', kExpertsLetter = 'E';

constexpr std::array kPatternFlags{"--hybrid-layer-pattern", "--hybrid-override-pattern"};

/// hybrid_layer_allocation.py, pattern_from_ratios: attention spread evenly between Mamba layers, then MLPs in place of some of these.
/// Python rounds halves to even.
std::string pattern_of_ratios(std::int64_t layers, double attention_ratio, double mlp_ratio) {
    std::string pattern(static_cast<std::size_t>(layers), kMambaLetter);
    const double attention = std::nearbyint(static_cast<double>(layers) * attention_ratio);
    double mamba = static_cast<double>(layers) - attention;
    const double section = mamba / (attention + 1);
    double left = section;
    for (char& layer : pattern) {
        if (left < 0.5) {
            layer = kAttentionLetter;
            left += section;
        } else {
            left -= 1;
        }
    }
    const double mlps = std::nearbyint(static_cast<double>(layers) * mlp_ratio);
    if (mlps <= 0) return pattern;
    mamba -= mlps;
    const double between = mamba / mlps;
    left = between;
    for (char& layer : pattern) {
        if (layer != kMambaLetter) continue;
        if (left < 0.5) {
            layer = kMlpLetter;
            left += between;
        } else {
            left -= 1;
        }
    }
    return pattern;
}

bool is_letter_of_mixer(char letter) {
    const auto all = megatron_mixers();
    return letter != 0 && std::any_of(all.begin(), all.end(), [&](const MegatronMixer& mixer) { return mixer.letter == letter; });
}

bool is_feed_forward(char letter) {
    return letter == kMlpLetter || letter == kExpertsLetter;
}

/// True if the layers of a depth of multi-token prediction are the halves of one: a mixer, a feed-forward, or both in this order, as in
/// Nemotron 3 Super.
bool predicts_one_layer(const HybridPattern& pattern) {
    const std::string& depth = pattern.prediction;
    if (depth.size() == 2) return !is_feed_forward(depth[0]) && is_feed_forward(depth[1]);
    return depth.size() == 1;
}

HybridPattern parsed_pattern(std::string_view flag, const std::string& text) {
    HybridPattern pattern;
    pattern.flag = flag;
    if (text.empty()) return pattern;
    const auto parts = split(text, '/');
    for (const auto& segment : split(parts.front(), '|')) {
        pattern.layers += segment;
        pattern.segments.push_back(static_cast<std::int64_t>(segment.size()));
    }
    const bool predicts = std::any_of(parts.begin() + 1, parts.end(), [](const std::string& depth) { return !depth.empty(); });
    if (!predicts) return pattern;
    pattern.prediction = parts[1];
    pattern.depths = std::ssize(parts) - 1;
    pattern.depths_differ = std::any_of(parts.begin() + 1, parts.end(), [&](const std::string& depth) { return depth != parts[1]; });
    return pattern;
}

/// Layers one by one; equal ones are one kind.
class Kinds {
public:
    explicit Kinds(ModelSpec& model) : model_(model) {}
    void add(const std::string& name, std::optional<Mixer> mixer, std::optional<FeedForward> feed_forward) {
        model_.kind_of_layer.push_back(index_of(name, std::move(mixer), feed_forward));
    }
    /// The number of a kind of layer, which is added where it is new.
    std::uint16_t index_of(const std::string& name, std::optional<Mixer> mixer, std::optional<FeedForward> feed_forward) {
        Layer layer;
        layer.mixer = std::move(mixer);
        layer.feed_forward = feed_forward;
        NamedLayer kind{name, without_fields(layer)};
        const auto found = std::find(model_.kinds.begin(), model_.kinds.end(), kind);
        const auto index = static_cast<std::uint16_t>(found - model_.kinds.begin());
        if (found == model_.kinds.end()) model_.kinds.push_back(std::move(kind));
        return index;
    }

private:
    ModelSpec& model_;
};

/// --linear-attention-freq: of N layers the last attends; a list holds 1 for a delta net, 0 for attention.
std::vector<bool> delta_net_layers(FlagReader& flags, std::int64_t layers) {
    std::vector<bool> delta(static_cast<std::size_t>(layers), false);
    const auto text = flags.text("--linear-attention-freq");
    if (!text) {
        flags.problem(
            "--linear-attention-freq is missing; say of how many layers the last one attends (Qwen3-Next: 4), or list the layers");
        return delta;
    }
    if (text->find('[') == std::string::npos) {
        const std::int64_t every = flags.integer_or("--linear-attention-freq", 1, 1, ModelLimits::layers);
        for (std::int64_t i = 0; i < layers; ++i) delta[static_cast<std::size_t>(i)] = (i + 1) % every != 0;
        return delta;
    }
    try {
        delta = parse_layer_pattern(*text, ModelLimits::layers);
    } catch (const ConfigError& error) {
        flags.problems().absorb(error, fmt::format("{}: --linear-attention-freq: ", flags.where()));
        return delta;
    }
    if (static_cast<std::int64_t>(delta.size()) != layers)
        flags.problem("--linear-attention-freq = {} has {} entries for --num-layers = {}; give one entry per layer",
                      FlagReader::shown(*text), delta.size(), layers);
    delta.resize(static_cast<std::size_t>(layers));
    return delta;
}

FeedForward feed_forward_by_fields(const ModelSpec& model, bool experts) {
    return experts ? FeedForward(mixture_of(model)) : FeedForward(mlp_of(model));
}

std::string_view name_of(const Mixer& mixer) {
    return std::visit([](const auto& kind) { return kind.kKind; }, mixer);
}

void compose_pattern(FlagReader& flags, ModelSpec& model, const HybridPattern& pattern) {
    Kinds layers(model);
    std::map<char, Mixer> mixers;
    for (const MegatronMixer& mixer : megatron_mixers()) {
        if (pattern.holds(mixer.letter)) mixers.emplace(mixer.letter, mixer.read(flags, model));
    }
    const auto feed_forward_of = [&](char letter) { return feed_forward_by_fields(model, letter == kExpertsLetter); };
    for (const char letter : pattern.layers) {
        if (const auto mixer = mixers.find(letter); mixer != mixers.end())
            layers.add(std::string(name_of(mixer->second)), mixer->second, std::nullopt);
        else
            layers.add(letter == kExpertsLetter ? "moe" : "mlp", std::nullopt, feed_forward_of(letter));
    }
    if (!predicts_one_layer(pattern)) return;
    std::string name;
    std::optional<Mixer> mixer;
    std::optional<FeedForward> feed_forward;
    for (const char letter : pattern.prediction) {
        name += name.empty() ? "" : "+";
        if (is_feed_forward(letter)) {
            name += letter == kExpertsLetter ? "moe" : "mlp";
            feed_forward = feed_forward_of(letter);
        } else {
            mixer = mixers.at(letter);
            name += name_of(*mixer);
        }
    }
    model.mtp_layers = pattern.depths;
    model.kind_of_prediction = layers.index_of(name, std::move(mixer), feed_forward);
}

}  // namespace

std::optional<HybridPattern> hybrid_pattern(FlagReader& flags) {
    for (const auto* flag : kPatternFlags) {
        if (!flags.has(flag)) continue;
        const std::string text = flags.raw(flag);
        HybridPattern pattern = parsed_pattern(flag, text);
        // arguments.py: the name before, for patterns without depths.
        const std::int64_t depths = parse_integer(flags.raw("--mtp-num-layers")).value_or(0);
        if (text.find('/') == std::string::npos && depths > 0) {
            pattern.prediction = flags.raw("--mtp-hybrid-override-pattern");
            pattern.depths = pattern.prediction.empty() ? 0 : std::min(depths, ModelLimits::mtp_layers + 1);
        }
        return pattern;
    }
    if (!flags.has("--is-hybrid-model") && !flags.has("--hybrid-attention-ratio") && !flags.has("--hybrid-mlp-ratio")) return std::nullopt;
    const auto ratio = [&](std::string_view flag) { return parse_real(flags.raw(flag)).value_or(0); };
    const auto layers = parse_integer(flags.raw("--num-layers"));
    if (!layers || *layers < 1 || *layers > ModelLimits::layers) return std::nullopt;
    const double attention = ratio("--hybrid-attention-ratio"), mlp = ratio("--hybrid-mlp-ratio");
    if (!(attention >= 0 && mlp >= 0 && attention + mlp <= 1)) return parsed_pattern("--hybrid-attention-ratio", "");
    return parsed_pattern("--hybrid-attention-ratio", pattern_of_ratios(*layers, attention, mlp));
}

bool has_delta_nets(FlagReader& flags) {
    for (const auto* flag : {"--experimental-attention-variant", "--linear-attention-type"}) {
        const std::string variant = flags.raw(flag);
        if (variant == "gated_delta_net" || variant == "gdn") return true;
    }
    return false;
}

void check_hybrid(FlagReader& flags, const HybridPattern& pattern) {
    if (flags.has(kPatternFlags[0]) && flags.has(kPatternFlags[1]))
        flags.problem("{} and {} give the pattern twice; keep the first, which replaces the second", kPatternFlags[0], kPatternFlags[1]);
    for (const auto* flag : {"--hybrid-attention-ratio", "--hybrid-mlp-ratio"}) {
        (void)flags.real_or(flag, 0, 0, 1);
        if (pattern.flag != "--hybrid-attention-ratio") flags.idle(flag);
    }
    if (pattern.flag != "--hybrid-attention-ratio" && !flags.text(pattern.flag)) return;  // says why
    if (pattern.layers.empty()) {
        flags.problem("{} names no layers; give a letter for each, as in M-M*- (M Mamba-2, * attention, - MLP, E experts)", pattern.flag);
        return;
    }
    if (std::ssize(pattern.layers) > ModelLimits::layers) {
        flags.problem("{} has {} layers; give at most {}", pattern.flag, pattern.layers.size(), ModelLimits::layers);
        return;
    }
    std::set<char> wrong;
    if (pattern.prediction.find('|') != std::string::npos) {
        flags.problem("{}: | ends a stage in front of the first / alone; remove it from the depths of multi-token prediction",
                      pattern.flag);
        return;
    }
    for (const char letter : pattern.layers + pattern.prediction) {
        if (letter == 'D' || letter == '+') {
            flags.problem("{}: '{}' is sparse or latent attention, which no layer of a hybrid here computes; give * for attention",
                          pattern.flag, letter);
            return;
        }
        if (!is_feed_forward(letter) && !is_letter_of_mixer(letter)) wrong.insert(letter);
    }
    if (!wrong.empty())
        flags.problem(
            "{} holds '{}', which is no layer; use M (Mamba-2), G (gated delta net), * (attention), - (MLP), E (experts), and | "
            "between stages",
            pattern.flag, std::string(wrong.begin(), wrong.end()).substr(0, 20));
    const bool piped = pattern.segments.size() > 1;
    const auto exclude = [&](std::initializer_list<const char*> others, std::string_view way_out) {
        for (const auto* other : others) {
            if (flags.has(other)) flags.problem("{} with {}; {}", other, pattern.flag, way_out);
        }
    };
    exclude({"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout",
             "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"},
            "remove it, and write stages into the pattern with |");
    if (piped)
        exclude({"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"}, "remove it, for | in the pattern says so");
    if (pattern.depths_differ)
        flags.problem("{}: the patterns after / differ; give the same layers for each depth of multi-token prediction", pattern.flag);
    if (pattern.depths > ModelLimits::mtp_layers)
        flags.problem("{} has {} depths of multi-token prediction; give at most {}", pattern.flag, pattern.depths, ModelLimits::mtp_layers);
    // Without a pattern for them HybridModel makes no layers of multi-token prediction.
    if (pattern.depths == 0) {
        for (const auto* flag : {"--mtp-num-layers", "--mtp-hybrid-override-pattern"}) flags.idle(flag);
    } else {
        (void)flags.text("--mtp-hybrid-override-pattern");
    }
    if (pattern.depths > 0 && !predicts_one_layer(pattern)) {
        const std::string_view named = flags.has("--mtp-num-layers") ? "--mtp-num-layers" : std::string_view(pattern.flag);
        for (const std::string_view flag : {named, std::string_view("--mtp-use-repeated-layer")})
            flags.not_computed(flag, "multi-token prediction of more than a mixer and a feed-forward", Decides::fit);
    }
    const bool experts = pattern.holds(kExpertsLetter);
    if (experts && parse_integer(flags.raw("--num-experts")).value_or(flags.has("--num-experts") ? 1 : 0) < 1)
        flags.problem("{} has layers of experts (E), but --num-experts is missing or 0; give it, or write - in their place", pattern.flag);
    if (!experts && flags.has("--num-experts")) {
        flags.not_computed("--num-experts", "experts of a pattern that has no layers of them (E)", Decides::fit);
        for (const FlagRow& row : kMixtureTopic.rows) {
            for (const RowFlag& flag : flags_of(row)) flags.idle(fmt::format("--{}", flag.name));
        }
        for (const auto* flag : {"--moe-permute-fusion", "--moe-router-dtype", "--moe-shared-expert-overlap"}) flags.idle(flag);
    }
    if (experts) flags.idle("--moe-layer-freq");
}

void read_spec(FlagReader& flags, bool hybrid) {
    const std::vector<std::string> spec = flags.texts("--spec");
    // pretrain_hybrid.py's default, and its name before.
    const bool own = spec == std::vector<std::string>{"megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"} ||
                     spec == std::vector<std::string>{"megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"};
    if (hybrid && own)
        flags.idle("--spec");
    else
        flags.not_computed("--spec", "layers written elsewhere", Decides::fit_and_legal);
}

void compose_hybrid(FlagReader& flags, ModelSpec& model, const std::optional<HybridPattern>& pattern) {
    const bool delta_nets = has_delta_nets(flags);
    const auto holds = [&](char letter) { return pattern && pattern->holds(letter); };
    for (const MegatronMixer& mixer : megatron_mixers()) {
        if (holds(mixer.letter) || (delta_nets && !mixer.variant.empty())) continue;
        for (const std::string_view flag : mixer.size_flags) flags.idle(flag);
    }
    if (!delta_nets && !holds(kDeltaNetLetter)) {
        flags.idle("--linear-attention-freq");
        const bool indexed = model.mla && model.mla->index_heads > 0;
        for (const auto* flag : {"--experimental-attention-variant", "--linear-attention-type"}) {
            if (!indexed) flags.not_computed(flag, "another attention", Decides::fit_and_legal);
        }
        for (const auto* flag : {"--dsa-indexer-n-heads", "--dsa-indexer-head-dim", "--dsa-indexer-topk"}) {
            if (!indexed) flags.not_computed(flag, "sparse attention (DSA)", Decides::fit_and_legal);
        }
    }
    if (!pattern && !delta_nets) return;
    if (model.mla) {
        flags.problem("--multi-latent-attention with Mamba-2 or gated delta nets is not computed; give plain attention");
        return;
    }
    if (holds(kExpertsLetter) && !model.moe)
        flags.problem("{} has layers of experts (E), but --moe-layer-freq leaves none; remove it", pattern->flag);
    if (!flags.problems().empty()) return;
    if (pattern) {
        if (holds(kDeltaNetLetter) && model.normalization == Normalization::layer_norm) {
            flags.not_computed(pattern->flag, "gated delta nets (G) with LayerNorm, predicted with RMSNorm", Decides::fit_and_legal);
            model.normalization = Normalization::rms_norm;
        }
        model.mtp_layers = 0;
        compose_pattern(flags, model, *pattern);
        if (model.moe) {
            for (std::size_t i = 0; i < model.moe_layers.size(); ++i) model.moe_layers[i] = pattern->layers[i] == kExpertsLetter;
        }
    } else {
        const MegatronMixer& delta_nets_row = *find_megatron_mixer("gated_delta_net");
        if (model.normalization == Normalization::layer_norm) {
            // Their output norm would be LayerNorm with biases too.
            for (const auto* flag : {"--experimental-attention-variant", "--linear-attention-type"})
                flags.not_computed(flag, "gated delta nets with LayerNorm, planned as attention", Decides::fit_and_legal);
            flags.not_computed("--linear-attention-freq", "gated delta nets with LayerNorm", Decides::fit);
            for (const std::string_view flag : delta_nets_row.size_flags)
                flags.not_computed(flag, "gated delta nets with LayerNorm", Decides::fit);
            return;
        }
        Kinds layers(model);
        const Mixer delta = delta_nets_row.read(flags, model);
        const std::vector<bool> is_delta = delta_net_layers(flags, model.layers);
        if (!flags.problems().empty()) return;
        for (std::int64_t i = 0; i < model.layers; ++i) {
            const bool own = is_delta[static_cast<std::size_t>(i)], mixture = model.is_moe_layer(i);
            const std::string name = std::string(own ? "gated_delta_net" : "attention") + (mixture ? "+moe" : "+mlp");
            layers.add(name, own ? delta : attention_by_fields(model), feed_forward_by_fields(model, mixture));
        }
    }
}

std::optional<std::string> stages_of_pattern(const HybridPattern& pattern) {
    if (pattern.segments.size() < 2) return std::nullopt;
    std::vector<std::string> stages;
    for (const std::int64_t layers : pattern.segments) stages.emplace_back(static_cast<std::size_t>(layers), 't');
    stages.front().insert(0, "E");
    if (predicts_one_layer(pattern)) stages.back().append(static_cast<std::size_t>(pattern.depths), 'm');
    stages.back() += 'L';
    return compact_pipeline_layout(stages);
}

}  // namespace mgplan::formats
