#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/flag_rows.hpp"
#include "plan/layout/megatron_offload.hpp"

// State that waits in the host's memory.

namespace mgplan::formats {
namespace {

/// --optimizer-cpu-offload and its settings.
void read_host_optimizer(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    constexpr std::string_view kSwitch = "--optimizer-cpu-offload", kShare = "--optimizer-offload-fraction",
                               kOverlap = "--overlap-cpu-optimizer-d2h-h2d";
    const double share = flags.real_or(kShare, 1, 0, 1);
    if (!flags.has(kSwitch)) {
        for (const std::string_view flag : {kShare, kOverlap}) flags.idle(flag);
        return;
    }
    training.offload.optimizer = share;
    training.megatron.overlap_host_update = flags.has(kOverlap);
    if (!training.megatron.precision_aware_optimizer) flags.problem("{} needs --use-precision-aware-optimizer; add it", kSwitch);
}

void write_host_optimizer(FlagWriter& out, const Job& job) {
    const TrainingSpec& training = *job.training;
    if (!exports_host_optimizer(training)) return;
    out.flag("optimizer-cpu-offload");
    if (training.offload.optimizer < 1) out.real("optimizer-offload-fraction", training.offload.optimizer);
    out.flag_if(training.megatron.overlap_host_update, "overlap-cpu-optimizer-d2h-h2d");
}

/// --chunked-optimizer-state-offload and its settings, of Megatron-LM's branch dev (at d48bd6be), and the name that it had before, which
/// takes Adam alone (optimizer_config.py, __post_init__).
void read_waiting_states(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    constexpr std::string_view kShare = "--optimizer-state-offload-fraction", kChunk = "--optimizer-state-offload-chunk-size-mb";
    const bool former = flags.has("--offload-optimizer-states");
    const bool chunked = flags.has("--chunked-optimizer-state-offload");
    const double share = flags.real_or(kShare, 1, 0, 1);
    const std::int64_t chunk = flags.integer_or(kChunk, 0, 0, kMostOffloadChunk);
    if (!former && !chunked) {
        for (const std::string_view flag : {kShare, kChunk}) flags.idle(flag);
    }
    if ((!former && !chunked) || share == 0) {
        for (const std::string_view flag : {"--async-save", "--no-save-optim", "--no-load-optim"}) flags.idle(flag);
        return;
    }
    training.offload.states = share;
    training.megatron.offload_chunk_mib = chunk;
    if (former && training.megatron.optimizer == OptimizerKind::muon)
        flags.problem("--offload-optimizer-states is for Adam; use --chunked-optimizer-state-offload");
    const std::string_view asked = former ? "--offload-optimizer-states" : "--chunked-optimizer-state-offload";
    const std::string format = flags.text("--ckpt-format").value_or("torch_dist");
    const bool saves = !flags.has("--no-save-optim"), loads = !flags.has("--no-load-optim");
    if (format != "torch_dist" && (saves || loads))
        flags.problem(
            "{} needs --ckpt-format torch_dist where optimizer state is saved or loaded, not {}; or add --no-save-optim and "
            "--no-load-optim",
            asked, FlagReader::shown(format));
    if (saves && flags.has("--async-save")) flags.problem("{} does not go with --async-save; leave one out, or add --no-save-optim", asked);
}

/// As exports_host_optimizer() says it of the optimizer, of state that waits between updates.
bool states_may_wait(const TrainingSpec& training) {
    TrainingSpec alone = training;
    alone.offload.modules = {};
    return megatron_offload_obstacles(alone, {}).empty();
}

/// The name that every version with the feature has, where that says all.
void write_waiting_states(FlagWriter& out, const Job& job) {
    const TrainingSpec& training = *job.training;
    if (training.offload.states == 0 || !states_may_wait(out.plan().training)) return;
    const std::int64_t chunk = training.megatron.offload_chunk_mib;
    const bool plain = training.offload.states == 1 && chunk == 0 && training.megatron.optimizer == OptimizerKind::adam;
    out.flag(plain ? "offload-optimizer-states" : "chunked-optimizer-state-offload");
    if (training.offload.states < 1) out.real("optimizer-state-offload-fraction", training.offload.states);
    if (chunk > 0) out.integer("optimizer-state-offload-chunk-size-mb", chunk);
}

/// --fine-grained-activation-offloading and its settings.
void read_offloaded_modules(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    constexpr std::string_view kSwitch = "--fine-grained-activation-offloading", kModules = "--offload-modules",
                               kFraction = "--activation-offload-fraction", kDelta = "--delta-offload-bytes-across-pp-ranks",
                               kLeast = "--min-offloaded-tensor-size";
    const std::int64_t bytes = std::int64_t{1} << 50;
    training.megatron.least_offloaded = flags.integer_or(kLeast, kLeastOffloaded, 0, bytes);
    const double fraction = flags.real_or(kFraction, 1, 0, 1);
    const std::int64_t delta = flags.integer_or(kDelta, 0, 0, bytes);
    const std::vector<std::string> words = flags.texts(kModules);
    if (!flags.has(kSwitch)) {
        training.megatron.least_offloaded = kLeastOffloaded;
        for (const std::string_view flag : {kModules, kFraction, kDelta, kLeast}) flags.idle(flag);
        return;
    }
    if (words.empty()) flags.problem("{} needs --offload-modules; name some, such as core_attn", kSwitch);
    std::vector<std::string> names;
    for (const OffloadModule module : kOffloadModules) names.emplace_back(to_string(module));
    for (const std::string& word : words) {
        if (const auto module = parse_offload_module(word))
            training.offload.modules.add(*module);
        else if (word == "fused_group_mlp" || word == "gdp_qkv")
            flags.not_computed(kModules, fmt::format("offloading {} to the host", word), Decides::fit);
        else
            flags.problem("{} = '{}' is no module that is offloaded; use {}", kModules, FlagReader::shown(word), any_of_text(names));
    }
    if (fraction < 1) flags.not_computed(kFraction, "a part of the offloaded groups stays on the device", Decides::fit);
    if (delta > 0) flags.not_computed(kDelta, "later stages offload less", Decides::fit);
}

void write_offloaded_modules(FlagWriter& out, const Job& job) {
    const EnumSet<OffloadModule>& offloaded = job.training->offload.modules;
    std::vector<std::string> modules;
    for (const OffloadModule module : kOffloadModules) {
        const bool alone = module == OffloadModule::attn_proj && !offloaded.contains(OffloadModule::core_attn);
        if (offloaded.contains(module) && !alone) modules.emplace_back(to_string(module));
    }
    if (modules.empty()) return;
    out.flag("fine-grained-activation-offloading");
    out.flag("offload-modules", modules);
    const std::int64_t least = job.training->megatron.least_offloaded;
    if (least != kLeastOffloaded) out.integer("min-offloaded-tensor-size", least);
}

constexpr std::array kOffloadingFlags{
    FlagRow{"optimizer-cpu-offload optimizer-offload-fraction= overlap-cpu-optimizer-d2h-h2d",
            Both{read_host_optimizer, write_host_optimizer}},
    FlagRow{"offload-optimizer-states chunked-optimizer-state-offload optimizer-state-offload-fraction= "
            "optimizer-state-offload-chunk-size-mb=",
            Both{read_waiting_states, write_waiting_states}},
    FlagRow{"fine-grained-activation-offloading offload-modules=+ min-offloaded-tensor-size=",
            Both{read_offloaded_modules, write_offloaded_modules}},
};

}  // namespace

constinit const FlagTopic kOffloadingTopic{kOffloadingFlags};

bool exports_host_optimizer(const TrainingSpec& training) {
    return training.offload.optimizer > 0 && training.megatron.optimizer == OptimizerKind::adam && training.distributed_optimizer &&
           !training.megatron.fully_sharded.active();
}

/// Reads the flags of state that waits in the host's memory. Rules: plan/layout/megatron_offload.hpp.
void read_offloading(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    read_topic(flags, kOffloadingTopic, job);
    if (flags.has("--cpu-offloading")) {
        if (flags.has("--recompute-granularity"))
            flags.problem("--cpu-offloading and --recompute-granularity exclude each other; keep one");
        if (job.layout->pp > 1) flags.problem("--cpu-offloading works without a pipeline only; use a pipeline size of 1");
    }
    BesideOffload beside;
    beside.full_recompute = job.layout->recompute == Recompute::full;
    if (job.layout->recompute == Recompute::selective) beside.recomputed = job.layout->recompute_modules;
    beside.graphs = job.layout->cuda_graphs;
    for (const std::string& obstacle : megatron_offload_obstacles(training, beside)) flags.problem("{}", obstacle);
    const UnpredictedOffload missing = unpredicted_megatron_offload(job.model, training, beside);
    if (!missing.optimizer.empty()) {
        flags.not_computed("--optimizer-cpu-offload", missing.optimizer.front(), Decides::fit);
        training.offload.optimizer = 0;
    }
    if (!missing.modules.empty()) {
        flags.not_computed("--fine-grained-activation-offloading", missing.modules.front(), Decides::fit);
        training.offload.modules = {};
    }
}

}  // namespace mgplan::formats
