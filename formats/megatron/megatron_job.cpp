#include "formats/megatron/megatron_job.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/megatron/argument_rules.hpp"
#include "formats/megatron/flag_rows.hpp"
#include "plan/cluster/architectures.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"

namespace mgplan::formats {
namespace {

constexpr std::string_view kLeftOpen = "Data, tokenizer, learning rate, iterations and checkpoints are yours to add.";

bool hides_exchanges(const Plan& plan) {
    return plan.training.overlap_moe && plan.model.moe;
}

/// A variable of the environment with the value that Megatron-LM asserts.
struct NeededVariable {
    std::string_view name, value;
    bool (*needed)(const Plan&);
};

constexpr std::array kNeededVariables{
    // Two batches overlapped want several queues: validate_args warns otherwise.
    NeededVariable{"CUDA_DEVICE_MAX_CONNECTIONS", "32", [](const Plan& plan) { return hides_exchanges(plan); }},
    // Kernels run in the order in which they are issued. FSDP of either kind refuses it.
    NeededVariable{"CUDA_DEVICE_MAX_CONNECTIONS", "1",
                   [](const Plan& plan) {
                       return (plan.layout.sizes.tp > 1 || plan.layout.sizes.cp > 1) && !hides_exchanges(plan) &&
                              plan.cluster.compute_capability < architectures::kBlackwell && !plan.training.megatron.fully_sharded.active();
                   }},
    // Transformer Engine from 2.10 on would else offload weights as well.
    NeededVariable{"NVTE_CPU_OFFLOAD_V1", "1", [](const Plan& plan) { return !plan.training.offload.modules.empty(); }},
    NeededVariable{
        "NVTE_APPLY_QK_LAYER_SCALING", "1",
        [](const Plan& plan) { return plan.training.megatron.query_key_layer_scaling && plan.training.megatron.transformer_engine; }},
    NeededVariable{"CUDA_GRAPHS_USE_NODE_PRIORITY", "1",
                   [](const Plan& plan) {
                       return plan.training.megatron.weight_shards.active() && !plan.layout.cuda_graphs.empty() &&
                              plan.cluster.compute_capability >= architectures::kBlackwell;
                   }},
};

std::string headline(const MegatronJob& job) {
    const std::string version =
        job.version ? fmt::format(" {} ({})", name_of(*job.version).name, name_of(*job.version).source) : std::string();
    return fmt::format("# Megatron-LM{}: {}, {}\n# {}\n", version, job.model, job.layout, kLeftOpen);
}

/// Before branch dev pretrain_gpt.py builds no layers of multi-token prediction with attention of another kind (gpt_layer_specs.py,
/// get_gpt_decoder_layer_specs). Without it the model trains; the check of values that flags do not say finds that it is missing.
bool may_predict_more(const ModelSpec& model, std::optional<MegatronVersion> version) {
    const bool varied = (model.mla && model.mla->index_heads > 0) || (!model.kinds.empty() && !layers_by_pattern(model));
    return !varied || !version || !kReleasedMegatrons.contains(*version);
}

/// Removes multi-token prediction from the model, and its layers from the stages.
void leave_out_predictions(Job& job) {
    job.model.mtp_layers = 0;
    job.model.kind_of_prediction.reset();
    if (!job.layout || !job.layout->split || !job.layout->split->pipeline_layout) return;
    auto stages = parse_pipeline_layout(*job.layout->split->pipeline_layout);
    for (std::string& stage : stages) std::erase(stage, 'm');
    job.layout->split->pipeline_layout = compact_pipeline_layout(stages);
}

/// Takes away the flags that the version does not have. Throws ConfigError where the plan cannot be trained without one.
void leave_out_missing(MegatronJob& job, MegatronVersion version) {
    Problems problems;
    for (MegatronFlags& part : job.parts) {
        std::erase_if(part.flags, [&](const MegatronFlag& flag) {
            const auto versioned = versions_of_flag(flag.name);
            if (!versioned || versioned->have.contains(version)) return false;
            if (versioned->without == WithoutFlag::refuse)
                problems.add("{}: Megatron-LM {} does not have it, {} does; export with --megatron {}, or plan without it", flag.name,
                             name_of(version).name, versions_text(versioned->have), newest_of(versioned->have).name);
            return true;
        });
    }
    problems.throw_if_any();
}

}  // namespace

std::vector<std::string> MegatronJob::words() const {
    std::vector<std::string> all;
    for (const auto& part : parts) {
        for (const auto& flag : part.flags) {
            all.push_back(flag.name);
            all.insert(all.end(), flag.values.begin(), flag.values.end());
        }
    }
    return all;
}

std::vector<std::pair<std::string, std::string>> megatron_environment(const Plan& plan) {
    std::vector<std::pair<std::string, std::string>> environment;
    for (const NeededVariable& variable : kNeededVariables) {
        if (variable.needed(plan)) environment.emplace_back(variable.name, variable.value);
    }
    return environment;
}

MegatronJob megatron_job(const Plan& plan, std::optional<MegatronVersion> version) {
    if (plan.layout.schedule)
        throw ConfigError(fmt::format(
            "layout.schedule = {}: Megatron-LM has no schedule with divided backwards; train the plan with mgplan run, or plan without "
            "--schedule",
            to_string(*plan.layout.schedule)));
    if (plan.model.adapters && version)
        throw ConfigError(
            "model.adapters: Megatron-LM's own flags have no adapters (LoRA); export the plan --to bridge-overrides, for a PEFT recipe of "
            "Megatron-Bridge, or plan without --lora");
    MegatronJob job;
    job.version = version;
    job.adapters = plan.model.adapters;
    if (job.adapters && targets_in("fc1,fc2", plan.model).empty()) job.adapters->fc1 = job.adapters->fc2 = job.adapters->experts;
    job.experts = plan.model.moe.has_value();
    job.model = plan.model.name;
    job.layout = fmt::format("{} on {} GPUs", summary(plan.layout, plan.model, plan.training), plan.layout.sizes.world);
    Job settings = job_of(plan);
    if (!may_predict_more(plan.model, version)) leave_out_predictions(settings);
    for (const FlagPart& part : flag_parts()) {
        FlagWriter out(plan, version);
        for (const FlagTopic& topic : part.topics) write_topic(out, topic, settings);
        job.parts.push_back({std::string(part.title), out.take()});
    }
    job.environment = megatron_environment(plan);
    if (layers_by_pattern(plan.model)) job.script = "pretrain_hybrid.py";
    if (version) leave_out_missing(job, *version);
    return job;
}

void refuse_incomplete_job(const Plan& plan, std::span<const std::string> added) {
    constexpr std::string_view kSizes = "--hierarchical-context-parallel-sizes";
    const Layout& layout = plan.layout;
    if (layout.sizes.cp == 1 || layout.cp_comm_type != CpCommType::a2a_p2p) return;
    if (std::any_of(added.begin(), added.end(),
                    [&](const std::string& word) { return word == kSizes || (word.starts_with(kSizes) && word[kSizes.size()] == '='); }))
        return;
    throw ConfigError(fmt::format(
        "layout.cp_comm_type = a2a+p2p: Megatron-LM stops without the sizes of both exchanges ({}, their product cp = {}), which a plan "
        "does not hold; give them to mgplan launch after --, train by the command that the plan was read from, or plan with "
        "--cp-comm-type p2p, all_gather or a2a",
        kSizes, layout.sizes.cp));
}

void refuse_what_stops(const MegatronJob& job, int compute_capability, std::span<const std::string> added) {
    const MegatronVersionName& version = name_of(job.version.value_or(kNewestMegatron));
    JobSurroundings around{.version = version.version, .compute_capability = compute_capability, .whole_environment = true};
    for (const auto& [name, value] : job.environment) around.environment.emplace(name, value);
    std::vector<std::string> words = job.words();
    words.insert(words.end(), added.begin(), added.end());
    Problems problems;
    for (const std::string& broken : broken_argument_rules(parse_flags(words), HeldAgainst::everything, around))
        problems.add("Megatron-LM {} stops at this plan's flags: {}", version.name, broken);
    problems.throw_if_any();
}

std::string megatron_args_text(const MegatronJob& job) {
    std::string text = headline(job);
    text += fmt::format("# source this file, then: torchrun ... {} \"${{MEGATRON_ARGS[@]}}\" ...\n", job.script);
    for (const auto& [name, value] : job.environment) text += fmt::format("export {}={}\n", name, value);
    text += "MEGATRON_ARGS=(\n";
    for (const auto& part : job.parts) {
        text += fmt::format("    # {}\n", part.title);
        for (const auto& flag : part.flags) {
            text += "    " + flag.name;
            for (const auto& value : flag.values) text += " " + shell_word(value);
            text += "\n";
        }
    }
    return text + ")\n";
}

std::string megatron_yaml_text(const MegatronJob& job) {
    std::string text = headline(job);
    if (!job.environment.empty()) text += "ENV_VARS:\n";
    for (const auto& [name, value] : job.environment) text += fmt::format("  {}: {}\n", name, value);
    text += "MODEL_ARGS:\n";
    for (const auto& part : job.parts) {
        text += fmt::format("  # {}\n", part.title);
        for (const auto& flag : part.flags) {
            text += fmt::format("  {}: ", flag.name);
            if (flag.values.empty())
                text += "true\n";
            else if (flag.values.size() == 1)
                text += shell_word(flag.values.front()) + "\n";
            else
                text += fmt::format("\"[{}]\"\n", fmt::join(flag.values, " "));  // as NVIDIA's runner and Bridge's translation read them
        }
    }
    return text;
}

}  // namespace mgplan::formats
