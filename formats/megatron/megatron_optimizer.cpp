#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"

// The optimizer, who holds its state, and in which types.

namespace mgplan::formats {
namespace {

/// --optimizer. dist_muon is the older name of Muon with the distributed optimizer.
void read_optimizer(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    const std::string name = flags.text("--optimizer").value_or("adam");
    OptimizerKind& kind = training.megatron.optimizer;
    if (name == "adam" || name == "adamw") return;
    for (const OptimizerKind known : {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::muon, OptimizerKind::ademamix}) {
        if (name == to_string(known)) kind = known;
    }
    if (name == "dist_muon") {
        kind = OptimizerKind::muon;
        training.distributed_optimizer = true;
    }
    // core/optimizer/optimizer_config.py, __post_init__; of AdEMAMix's own fork nothing is known
    if ((kind == OptimizerKind::sgd || kind == OptimizerKind::lion || kind == OptimizerKind::muon) &&
        training.megatron.precision_aware_optimizer)
        flags.problem("--use-precision-aware-optimizer is Adam's, and here it is {}; leave one of them out", name);
    if (kind == OptimizerKind::adam)
        flags.not_computed("--optimizer", fmt::format("optimizer {}, predicted as Adam", FlagReader::shown(name)), Decides::fit);
}

void write_optimizer(FlagWriter& out, const Job& job) {
    const OptimizerKind kind = job.training->megatron.optimizer;
    if (kind != OptimizerKind::adam) out.word("optimizer", to_string(kind));
}

/// Branch dev lays out matrices one by one only with its flag. Commands with dist_muon are older than the layout.
void read_layer_wise_layout(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    const bool asked = flags.has("--use-layer-wise-param-layout"), refused = flags.has("--no-use-layer-wise-param-layout");
    const bool older = flags.text("--optimizer") == "dist_muon";
    training.megatron.layer_wise_layout = training.is_layer_wise() && !refused && (asked || !older);
}

void write_layer_wise_layout(FlagWriter& out, const Job& job) {
    const TrainingSpec& training = *job.training;
    if (!training.is_layer_wise()) return;
    const bool dev = out.version() == MegatronVersion::dev;
    if (training.megatron.layer_wise_layout == dev) out.flag(dev ? "use-layer-wise-param-layout" : "no-use-layer-wise-param-layout");
}

bool is_aware(const Job& job) {
    return job.training->megatron.precision_aware_optimizer;
}

using DtypeWord = std::pair<std::string_view, Dtype>;
constexpr std::array kMainTypes{DtypeWord{"fp32", Dtype::fp32}, DtypeWord{"fp16", Dtype::fp16}};
constexpr std::array kMomentTypes{DtypeWord{"fp32", Dtype::fp32}, DtypeWord{"bf16", Dtype::bf16}, DtypeWord{"fp16", Dtype::fp16},
                                  DtypeWord{"fp8", Dtype::fp8}};

constexpr std::array kOptimizerFlags{
    FlagRow{"optimizer=", Both{read_optimizer, write_optimizer}},
    FlagRow{"no-use-layer-wise-param-layout use-layer-wise-param-layout", Both{read_layer_wise_layout, write_layer_wise_layout}},
};

constexpr std::array kMomentFlags{
    FlagRow{"use-distributed-optimizer", Switch{MGPLAN_FIELD(training->distributed_optimizer)}},
    FlagRow{"num-distributed-optimizer-instances",
            NumberRow<int>{MGPLAN_FIELD(training->distributed_optimizer_instances), 1, 1, static_cast<int>(kSizeLimit)}},
    FlagRow{"use-precision-aware-optimizer", Switch{MGPLAN_FIELD(training->megatron.precision_aware_optimizer)}},
    FlagRow{"main-params-dtype", Word<Dtype>{MGPLAN_FIELD(training->main_param_dtype), Dtype::fp32, kMainTypes}, Written::always, is_aware},
    FlagRow{"exp-avg-dtype", Word<Dtype>{MGPLAN_FIELD(training->exp_avg_dtype), Dtype::fp32, kMomentTypes}, Written::always, is_aware},
    FlagRow{"exp-avg-sq-dtype", Word<Dtype>{MGPLAN_FIELD(training->exp_avg_sq_dtype), Dtype::fp32, kMomentTypes}, Written::always,
            is_aware},
};

}  // namespace

constinit const FlagTopic kOptimizerTopic{kOptimizerFlags};
constinit const FlagTopic kMomentTopic{kMomentFlags};

bool needs_aware_optimizer(const TrainingSpec& training) {
    const bool narrow =
        training.main_param_dtype != Dtype::fp32 || training.exp_avg_dtype != Dtype::fp32 || training.exp_avg_sq_dtype != Dtype::fp32;
    return training.megatron.precision_aware_optimizer || narrow || exports_host_optimizer(training);
}

void read_moments(FlagReader& flags, Job& job) {
    read_topic(flags, kMomentTopic, job);
    const TrainingSpec& training = *job.training;
    // core/optimizer/optimizer_config.py, __post_init__
    const std::pair<std::string_view, Dtype> states[]{{"--main-params-dtype", training.main_param_dtype},
                                                      {"--exp-avg-dtype", training.exp_avg_dtype},
                                                      {"--exp-avg-sq-dtype", training.exp_avg_sq_dtype}};
    for (const auto& [flag, dtype] : states) {
        if (dtype != Dtype::fp32 && !training.megatron.precision_aware_optimizer)
            flags.problem("{} {} needs --use-precision-aware-optimizer; add it, or leave {} out", flag, to_string(dtype), flag);
    }
}

}  // namespace mgplan::formats
