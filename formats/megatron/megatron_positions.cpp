#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"

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
    const std::string type = flags.text("--rope-type").value_or("yarn");
    job.model.rotary_scaling = type == "rope" ? "" : type.substr(0, 40);
}

void write_rope_type(FlagWriter& out, const Job& job) {
    out.word("rope-type", is_scaled(job) ? std::string_view(job.model.rotary_scaling) : "rope");
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
    // An integer in Megatron-LM.
    if (!job.model.mla && job.model.rotary_scaling == "linear")
        out.real("rotary-seq-len-interpolation-factor", job.model.rotary_scaling_values.factor);
}

constexpr std::array kSequenceFlags{
    FlagRow{"seq-length encoder-seq-length", Stated{MGPLAN_FIELD(model.default_sequence), 1, ModelLimits::positions}},
    FlagRow{"max-position-embeddings", Whole{MGPLAN_FIELD(model.max_positions), 0, 1, ModelLimits::positions}},
};

constexpr std::array kPositionFlags{
    FlagRow{"position-embedding-type= use-rotary-position-embeddings no-position-embedding", Both{read_position_kind, write_position_kind}},
    FlagRow{"rotary-percent", Real{MGPLAN_FIELD(model.rotary_fraction), 1, 0, 1}, Written::changed, turns},
    FlagRow{"rotary-base", Real{MGPLAN_FIELD(model.rotary_base), 10000, 0, ModelLimits::rotary_base}, Written::always, turns},
};

constexpr double kMostScaling = ModelLimits::rotary_scaling;

// Defaults: MLATransformerConfig.
constexpr std::array kLatentScalingFlags{
    FlagRow{"rope-type=", Both{read_rope_type, write_rope_type}},
    FlagRow{"rotary-scaling-factor", Real{MGPLAN_FIELD(model.rotary_scaling_values.factor), 40, kLeastFactor, kMostScaling},
            Written::always, is_scaled},
    FlagRow{"original-max-position-embeddings",
            Whole{MGPLAN_FIELD(model.rotary_scaling_values.original_positions), 4096, 0, ModelLimits::positions}, Written::always,
            is_scaled},
    FlagRow{"beta-fast", Real{MGPLAN_FIELD(model.rotary_scaling_values.beta_fast), 32, kLeastFactor, kMostScaling}, Written::always,
            is_scaled},
    FlagRow{"beta-slow", Real{MGPLAN_FIELD(model.rotary_scaling_values.beta_slow), 1, kLeastFactor, kMostScaling}, Written::always,
            is_scaled},
    FlagRow{"mscale", Real{MGPLAN_FIELD(model.rotary_scaling_values.mscale), 1, 0, kMostScaling}, Written::always, is_scaled},
    FlagRow{"mscale-all-dim", Real{MGPLAN_FIELD(model.rotary_scaling_values.mscale_all_dim), 0, 0, kMostScaling}, Written::always,
            is_scaled},
};

constexpr std::array kScalingFlags{
    FlagRow{"use-rope-scaling rope-scaling-factor=", Both{read_llama3_scaling, write_llama3_scaling}},
    FlagRow{"rotary-seq-len-interpolation-factor=", Both{read_linear_scaling, write_linear_scaling}},
};

}  // namespace

constinit const FlagTopic kSequenceTopic{kSequenceFlags};
constinit const FlagTopic kPositionTopic{kPositionFlags};
constinit const FlagTopic kLatentScalingTopic{kLatentScalingFlags, [](const Job& job) { return job.model.mla.has_value(); }};
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
