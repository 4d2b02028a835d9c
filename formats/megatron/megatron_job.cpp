#include "formats/megatron/megatron_job.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_hybrid_flags.hpp"
#include "plan/cluster/architectures.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"

namespace mgplan::formats {
namespace {

constexpr std::string_view kLeftOpen = "Data, tokenizer, learning rate, iterations and checkpoints are yours to add.";

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
    // arguments.py, validate_args: asserted for tp, and for cp before Blackwell, so that kernels run in the order in which they are
    // issued; two batches overlapped want several queues instead (it warns otherwise).
    const ParallelSizes& sizes = plan.layout.sizes;
    std::vector<std::pair<std::string, std::string>> environment;
    if (plan.training.overlap_moe)
        environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    else if (sizes.tp > 1 || (sizes.cp > 1 && plan.cluster.compute_capability < architectures::kBlackwell))
        environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    // Asserted for Transformer Engine from 2.10 on, whose other way would offload weights as well.
    if (!plan.training.offload.modules.empty()) environment.emplace_back("NVTE_CPU_OFFLOAD_V1", "1");
    return environment;
}

MegatronJob megatron_job(const Plan& plan) {
    if (plan.layout.schedule)
        throw ConfigError(fmt::format(
            "layout.schedule = {}: Megatron-LM has no schedule with divided backwards; train the plan with mgplan run, or plan without "
            "--schedule",
            to_string(*plan.layout.schedule)));
    MegatronJob job;
    job.model = plan.model.name;
    job.layout = fmt::format("{} on {} GPUs", summary(plan.layout, plan.model, plan.training), plan.layout.sizes.world);
    Job settings = job_of(plan);
    for (const FlagPart& part : flag_parts()) {
        FlagWriter out(plan);
        for (const FlagTopic& topic : part.topics) write_topic(out, topic, settings);
        job.parts.push_back({std::string(part.title), out.take()});
    }
    job.environment = megatron_environment(plan);
    if (layers_by_pattern(plan.model)) job.script = "pretrain_hybrid.py";
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
        "does not hold; give them to mgplan launch behind --, train by the command that the plan was read from, or plan with "
        "--cp-comm-type p2p, all_gather or a2a",
        kSizes, layout.sizes.cp));
}

std::string megatron_args_text(const MegatronJob& job) {
    std::string text = fmt::format("# Megatron-LM: {}, {}\n# {}\n", job.model, job.layout, kLeftOpen);
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
    std::string text = fmt::format("# Megatron-LM: {}, {}\n# {}\n", job.model, job.layout, kLeftOpen);
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
                text += fmt::format("[{}]\n", fmt::join(flag.values, ", "));
        }
    }
    return text;
}

}  // namespace mgplan::formats
