#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/model/layer_pattern.hpp"

// Lengths, kinds of positions, and how rotary angles are changed for longer sequences.

namespace mgplan::formats {
namespace {

bool turns(const Job& job) {
    return job.model.position == PositionEmbedding::rope;
}

bool is_scaled(const Job& job) {
    return !job.model.rotary_scaling.empty();
}

/// --position-embedding-type.
PositionEmbedding position_kind(FlagReader& flags) {
    constexpr std::string_view kFlag = "--position-embedding-type";
    if (flags.raw(kFlag) == "alibi") {  // of forks: BigScience's Megatron-DeepSpeed, MindSpeed-LLM
        flags.cannot_plan("{} = alibi: attention scores lowered by distance (ALiBi) cannot be planned; use rope or learned_absolute",
                          kFlag);
        return PositionEmbedding::none;
    }
    return flags.choice<PositionEmbedding>(kFlag, PositionEmbedding::learned,
                                           {{"learned_absolute", PositionEmbedding::learned},
                                            {"rope", PositionEmbedding::rope},
                                            {"yarn", PositionEmbedding::rope},
                                            {"mrope", PositionEmbedding::rope},
                                            {"relative", PositionEmbedding::none},
                                            {"none", PositionEmbedding::none}});
}

void read_position_kind(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    model.position = position_kind(flags);
    if (flags.has("--use-rotary-position-embeddings")) model.position = PositionEmbedding::rope;
    if (flags.has("--no-position-embedding") && model.position == PositionEmbedding::learned) model.position = PositionEmbedding::none;
    const std::string kind = flags.text("--position-embedding-type").value_or("");
    if (kind == "yarn" || kind == "mrope") model.rotary_scaling = kind;
}

void write_position_kind(FlagWriter& out, const Job& job) {
    const ModelSpec& model = job.model;
    // With multi-latent attention --rope-type names the kind; a kind without flags of its own is still named.
    const bool by_name = !model.mla && (model.rotary_scaling == "yarn" || model.rotary_scaling == "mrope");
    switch (model.position) {
        case PositionEmbedding::learned:
            return out.word("position-embedding-type", "learned_absolute");
        case PositionEmbedding::none:
            return out.word("position-embedding-type", "none");
        case PositionEmbedding::rope:
            return out.word("position-embedding-type", by_name ? std::string_view(model.rotary_scaling) : "rope");
    }
}

/// MLATransformerConfig's rope_type is yarn unless it is named.
void read_rope_type(FlagReader& flags, Job& job) {
    if (!job.model.mla) return;
    const std::string type = flags.text("--rope-type").value_or("yarn");
    job.model.rotary_scaling = type == "rope" ? "" : type.substr(0, 40);
}

void write_rope_type(FlagWriter& out, const Job& job) {
    if (job.model.mla) out.word("rope-type", is_scaled(job) ? std::string_view(job.model.rotary_scaling) : "rope");
}

constexpr double kLeastFactor = 1e-6;

/// rotary_pos_embedding.py, apply_scaling: Llama 3's own numbers but for the factor.
void read_llama3_scaling(FlagReader& flags, Job& job) {
    const double factor = flags.real_or("--rope-scaling-factor", 8, kLeastFactor, ModelLimits::rotary_scaling);
    if (!flags.has("--use-rope-scaling")) return;
    job.model.rotary_scaling = "llama3";
    job.model.rotary_scaling_values.factor = factor;
    job.model.rotary_scaling_values.original_positions = 8192;
}

void write_llama3_scaling(FlagWriter& out, const Job& job) {
    if (job.model.mla || job.model.rotary_scaling != "llama3") return;
    out.flag("use-rope-scaling");
    out.real("rope-scaling-factor", job.model.rotary_scaling_values.factor);
}

void read_linear_scaling(FlagReader& flags, Job& job) {
    constexpr std::string_view kFlag = "--rotary-seq-len-interpolation-factor";
    if (!flags.has(kFlag) || !turns(job)) return;
    job.model.rotary_scaling = "linear";
    job.model.rotary_scaling_values.factor = flags.real_or(kFlag, 1, kLeastFactor, ModelLimits::rotary_scaling);
}

void write_linear_scaling(FlagWriter& out, const Job& job) {
    const double factor = job.model.rotary_scaling_values.factor;
    const bool sayable = !out.version() || factor == std::round(factor);  // an integer to the parser
    if (!job.model.mla && job.model.rotary_scaling == "linear" && sayable) out.real("rotary-seq-len-interpolation-factor", factor);
}

/// A whole number to the parser, up to the newest version.
void read_rotary_base(FlagReader& flags, Job& job) {
    job.model.rotary_base = flags.real_or("--rotary-base", 10000, 0, ModelLimits::rotary_base);
}

void write_rotary_base(FlagWriter& out, const Job& job) {
    if (turns(job)) out.real("rotary-base", out.version() ? std::round(job.model.rotary_base) : job.model.rotary_base);
}

/// --no-rope-freq N: every N-th layer has no rotary positions; a list: those with 1 do not.
void read_unrotated_layers(FlagReader& flags, Job& job) {
    constexpr std::string_view kFlag = "--no-rope-freq";
    const auto pattern = flags.text(kFlag);
    ModelSpec& model = job.model;
    if (!pattern || !turns(job) || model.mla) return;
    std::vector<bool> without(static_cast<std::size_t>(model.layers));
    if (pattern->find('[') == std::string::npos) {
        const auto every = static_cast<std::size_t>(flags.integer_or(kFlag, 0, 0, ModelLimits::layers));
        for (std::size_t i = 0; every > 0 && i < without.size(); ++i) without[i] = (i + 1) % every == 0;
    } else {
        try {
            without = parse_layer_pattern(*pattern, ModelLimits::layers);
        } catch (const ConfigError& error) {
            flags.problems().absorb(error, fmt::format("{}: {}: ", flags.where(), kFlag));
            return;
        }
        if (std::ssize(without) != model.layers)
            return flags.problem("{} = {} has {} entries for --num-layers = {}; give one entry per layer", kFlag,
                                 FlagReader::shown(*pattern), without.size(), model.layers);
    }
    if (std::find(without.begin(), without.end(), true) == without.end()) return;
    without.flip();
    model.rotary_layers = std::move(without);
}

void write_unrotated_layers(FlagWriter& out, const Job& job) {
    std::vector<bool> without = job.model.rotary_layers;
    if (without.empty() || !turns(job) || job.model.mla) return;
    without.flip();
    out.word("no-rope-freq", fmt::format("({})", layer_pattern_text(without)));
}

constexpr std::array kSequenceFlags{
    FlagRow{"seq-length encoder-seq-length", Stated{MGPLAN_FIELD(model.default_sequence), 1, ModelLimits::positions}},
    FlagRow{"max-position-embeddings", Whole{MGPLAN_FIELD(model.max_positions), 0, 1, ModelLimits::positions}},
};

constexpr std::array kPositionFlags{
    FlagRow{"position-embedding-type= use-rotary-position-embeddings no-position-embedding", Both{read_position_kind, write_position_kind}},
    FlagRow{"rotary-percent", Real{MGPLAN_FIELD(model.rotary_fraction), 1, 0, 1}, Written::changed, turns},
    FlagRow{"rotary-base=", Both{read_rotary_base, write_rotary_base}},
    FlagRow{"no-rope-freq=", Both{read_unrotated_layers, write_unrotated_layers}},
};

constexpr double kMostScaling = ModelLimits::rotary_scaling;

/// A number of YaRN: its flags and their defaults for plain attention (argument_utils.py, _apply_yarn_config_from_args) and for latent
/// attention (transformer_config.py, MLATransformerConfig).
struct YarnNumber {
    std::string_view plain, latent;
    double RotaryScaling::*number;
    double of_plain, of_latent;
    double least;
};

constexpr std::array kYarnNumbers{
    YarnNumber{"rotary-scaling-factor", "rotary-scaling-factor", &RotaryScaling::factor, 1, 40, kLeastFactor},
    YarnNumber{"yarn-beta-fast", "beta-fast", &RotaryScaling::beta_fast, 32, 32, kLeastFactor},
    YarnNumber{"yarn-beta-slow", "beta-slow", &RotaryScaling::beta_slow, 1, 1, kLeastFactor},
    YarnNumber{"mscale", "mscale", &RotaryScaling::mscale, 1, 1, 0},
    YarnNumber{"mscale-all-dim", "mscale-all-dim", &RotaryScaling::mscale_all_dim, 0, 0, 0},
};
constexpr std::string_view kPlainOriginal = "yarn-original-max-position-embeddings", kLatentOriginal = "original-max-position-embeddings";
constexpr std::string_view kPartsOfPairs = "no-yarn-correction-range-round-to-int";

bool is_yarn(const Job& job) {
    return job.model.mla || job.model.rotary_scaling == "yarn";
}

void read_yarn(FlagReader& flags, Job& job) {
    if (!is_yarn(job)) return;
    const bool latent = job.model.mla.has_value();
    const auto flag = [](std::string_view name) { return fmt::format("--{}", name); };
    RotaryScaling& values = job.model.rotary_scaling_values;
    for (const YarnNumber& one : kYarnNumbers)
        values.*one.number =
            flags.real_or(flag(latent ? one.latent : one.plain), latent ? one.of_latent : one.of_plain, one.least, kMostScaling);
    values.original_positions = flags.integer_or(flag(latent ? kLatentOriginal : kPlainOriginal), 4096, 0, ModelLimits::positions);
    values.whole_pairs = latent || !flags.has(flag(kPartsOfPairs));
}

void write_yarn(FlagWriter& out, const Job& job) {
    if (!is_yarn(job) || !is_scaled(job)) return;
    const bool latent = job.model.mla.has_value();
    const RotaryScaling& values = job.model.rotary_scaling_values;
    for (const YarnNumber& one : kYarnNumbers) {
        out.real(latent ? one.latent : one.plain, values.*one.number);
        if (one.number == &RotaryScaling::factor) out.integer(latent ? kLatentOriginal : kPlainOriginal, values.original_positions);
    }
    out.flag_if(!latent && !values.whole_pairs, kPartsOfPairs);
}

constexpr std::array kYarnFlags{
    FlagRow{"rope-type=", Both{read_rope_type, write_rope_type}},
    FlagRow{"rotary-scaling-factor= original-max-position-embeddings= yarn-original-max-position-embeddings= beta-fast= yarn-beta-fast= "
            "beta-slow= yarn-beta-slow= mscale= mscale-all-dim= no-yarn-correction-range-round-to-int",
            Both{read_yarn, write_yarn}},
};

constexpr std::array kScalingFlags{
    FlagRow{"use-rope-scaling rope-scaling-factor=", Both{read_llama3_scaling, write_llama3_scaling}},
    FlagRow{"rotary-seq-len-interpolation-factor=", Both{read_linear_scaling, write_linear_scaling}},
};

}  // namespace

constinit const FlagTopic kSequenceTopic{kSequenceFlags};
constinit const FlagTopic kPositionTopic{kPositionFlags};
constinit const FlagTopic kYarnTopic{kYarnFlags};
constinit const FlagTopic kScalingTopic{kScalingFlags};

void read_lengths(FlagReader& flags, Job& job) {
    read_topic(flags, kSequenceTopic, job);
    ModelSpec& model = job.model;
    if (model.max_positions == 0) model.max_positions = model.default_sequence.value_or(4096);
    if (!model.default_sequence || *model.default_sequence <= model.max_positions) return;
    const bool encoder = !flags.has("--seq-length") && flags.has("--encoder-seq-length");
    flags.problem("{} = {} is longer than --max-position-embeddings = {}; raise the latter",
                  encoder ? "--encoder-seq-length" : "--seq-length", *model.default_sequence, model.max_positions);
}

}  // namespace mgplan::formats
