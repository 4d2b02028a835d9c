#include <algorithm>
#include <array>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_hybrid.hpp"
#include "plan/parameters/layer_kinds.hpp"

// A command's model: sizes, norms, dropout, multi-token prediction, and the order in which all topics are read.

namespace mgplan::formats {
namespace {

bool predicts_more(const Job& job) {
    return job.model.mtp_layers > 0;
}

constexpr std::array kSizeFlags{
    FlagRow{"num-layers encoder-num-layers", Whole{MGPLAN_FIELD(model.layers), 1, 1, ModelLimits::layers}, Written::always,
            [](const Job& job) { return !layers_by_pattern(job.model); }},
    FlagRow{"hidden-size", Whole{MGPLAN_FIELD(model.hidden), 1, 1, ModelLimits::hidden}, Written::always},
};

constexpr std::array<std::pair<std::string_view, Normalization>, 2> kNormalizations{
    {{"LayerNorm", Normalization::layer_norm}, {"RMSNorm", Normalization::rms_norm}}};

constexpr std::array kNormFlags{
    FlagRow{"normalization", Word<Normalization>{MGPLAN_FIELD(model.normalization), Normalization::layer_norm, kNormalizations},
            Written::always},
    FlagRow{"norm-epsilon", Real{MGPLAN_FIELD(model.norm_epsilon), 1e-5, 0, 1}, Written::always},
    FlagRow{"init-method-std", Real{MGPLAN_FIELD(model.init_deviation), 0.02, 0, ModelLimits::init_deviation}},
};

constexpr std::array kDropoutFlags{
    FlagRow{"untie-embeddings-and-output-weights", Switch{MGPLAN_FIELD(model.tied_embeddings), false}},
    FlagRow{"attention-dropout", Real{MGPLAN_FIELD(model.attention_dropout), 0.1, 0, 1}, Written::always},
    FlagRow{"hidden-dropout", Real{MGPLAN_FIELD(model.hidden_dropout), 0.1, 0, 1}, Written::always},
    FlagRow{"mtp-num-layers", Whole{MGPLAN_FIELD(model.mtp_layers), 0, 0, ModelLimits::mtp_layers}},
    FlagRow{"mtp-use-repeated-layer", Switch{MGPLAN_FIELD(model.mtp_repeated)}, Written::changed, predicts_more},
    FlagRow{"mtp-loss-scaling-factor", Real{MGPLAN_FIELD(model.mtp_loss_factor), {}, 0, ModelLimits::mtp_loss_factor}, Written::always,
            predicts_more},
};

}  // namespace

constinit const FlagTopic kSizeTopic{kSizeFlags};
constinit const FlagTopic kNormTopic{kNormFlags};
constinit const FlagTopic kDropoutTopic{kDropoutFlags};

void read_model(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    refuse_other_models(flags);
    const auto need = [&](std::string_view flag, std::string_view why) {
        if (!flags.has(flag)) flags.problem("{} is missing; {}", flag, why);
    };
    const std::optional<HybridPattern> hybrid = hybrid_pattern(flags);
    if (hybrid) check_hybrid(flags, *hybrid);
    read_spec(flags, hybrid.has_value());
    const std::string_view layers_flag =
        flags.has("--num-layers") || !flags.has("--encoder-num-layers") ? "--num-layers" : "--encoder-num-layers";
    if (!hybrid) need(layers_flag, "give the number of transformer layers");
    need("--hidden-size", "give the width of the model");
    need("--num-attention-heads", "give the number of attention heads");
    read_topic(flags, kSizeTopic, job);
    if (hybrid && hybrid->flag.ends_with("pattern")) {
        model.layers = std::max<std::int64_t>(1, std::ssize(hybrid->layers));  // arguments.py takes the pattern's number
        flags.idle(layers_flag);
    }
    read_attention(flags, job);
    read_mlp(flags, job);
    read_topic(flags, kNormTopic, job);
    for (const FlagTopic* topic : {&kPositionTopic, &kScalingTopic, &kYarnTopic}) read_topic(flags, *topic, job);
    if (model.mla && model.rotary_scaling.empty()) model.rotary_scaling_values = {};
    read_topic(flags, kVocabularyTopic, job);
    read_topic(flags, kDropoutTopic, job);
    if (hybrid) model.mtp_layers = hybrid->depths;  // arguments.py takes the pattern's number
    model.mtp_repeated = model.mtp_repeated && model.mtp_layers > 1;
    if (!model.mtp_repeated) flags.idle("--mtp-use-repeated-layer");
    if (!hybrid || hybrid->holds('E')) read_mixture(flags, job);
    read_lengths(flags, job);
    read_topic(flags, kBatchTopic, job);
    read_topic(flags, kLayerTopic, job);
    if (model.default_sequence && model.default_global_batch)
        job.batch = BatchSpec{.global_batch = *model.default_global_batch, .sequence = *model.default_sequence};
}

}  // namespace mgplan::formats
