#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "formats/megatron/flag_reader.hpp"
#include "plan/parameters/adapters_of_model.hpp"

// Adapters: LoRA of MindSpeed-LLM (c77308a1, mindspeed_llm/features_manager/finetune/lora.py) and of Megatron-LM's branches for ROCm, of
// ms-swift (3602360a, swift/megatron/arguments/megatron_args.py, under the flags that launcher_flags.cpp gives them), and of
// Megatron-Bridge (067f987d, peft/lora.py, likewise by bridge_config.cpp).

namespace mgplan::formats {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kAdaptedModules{{{"linear_qkv", "qkv"},
                                                                                         {"query_key_value", "qkv"},
                                                                                         {"linear_proj", "proj"},
                                                                                         {"dense", "proj"},
                                                                                         {"linear_fc1", "fc1 experts"},
                                                                                         {"dense_h_to_4h", "fc1"},
                                                                                         {"linear_fc2", "fc2 experts"},
                                                                                         {"dense_4h_to_h", "fc2"},
                                                                                         {"linear_q_proj", "latent"},
                                                                                         {"linear_q_down_proj", "latent"},
                                                                                         {"linear_kv_down_proj", "latent"},
                                                                                         {"in_proj", "in_proj"},
                                                                                         {"out_proj", "out_proj"}}};
constexpr std::array<std::string_view, 2> kOfLatents{"linear_q_up_proj", "linear_kv_up_proj"};
constexpr std::string_view kAllLinear = "all-linear";

/// The targets of a module, as --lora spells them; "" where they are not known.
std::string_view targets_of(std::string_view module) {
    if (std::find(kOfLatents.begin(), kOfLatents.end(), module) != kOfLatents.end()) return "latent";
    const auto found =
        std::find_if(kAdaptedModules.begin(), kAdaptedModules.end(), [&](const auto& entry) { return entry.first == module; });
    return found == kAdaptedModules.end() ? std::string_view() : found->second;
}

}  // namespace

void read_adapters(FlagReader& flags, Job& job) {
    if (const std::string unknown = flags.unknown_beginning_with("--lora"); !unknown.empty())
        return flags.cannot_plan(
            "{}: this flag of adapters (LoRA) is not known; leave out the flags that begin with --lora, and give --lora", unknown);
    const std::string_view rank_flag = flags.has("--lora-rank") ? "--lora-rank" : "--lora-r";
    const std::vector<std::string> modules = flags.texts("--lora-target-modules");
    if (flags.has("--lora-modules-to-save"))
        return flags.cannot_plan("--lora-modules-to-save: modules trained next to adapters cannot be planned; leave it out");
    if (modules.empty()) {
        if (flags.has("--lora-target-modules"))
            return flags.missing_fact("--lora-target-modules names no module; write {}, or linear_qkv linear_proj", kAllLinear);
        for (const std::string_view flag : {rank_flag, std::string_view("--lora-alpha"), std::string_view("--lora-load")}) {
            if (!flags.has(flag)) continue;
            return flags.missing_fact(
                "{} without --lora-target-modules; name the modules, as in --lora-target-modules linear_qkv linear_proj", flag);
        }
        return;
    }
    const std::int64_t rank = flags.integer_or(rank_flag, 16, 1, ModelLimits::hidden);
    const double alpha = flags.real_or("--lora-alpha", 32, 1e-6, ModelLimits::multiplier);
    if (!flags.problems().empty()) return;
    std::string targets;
    const std::string all = job.model.mla ? "latent,proj,fc1,fc2,experts,in_proj,out_proj" : "qkv,proj,fc1,fc2,experts,in_proj,out_proj";
    for (const std::string& module : modules) {
        if (module == kAllLinear) {
            targets += fmt::format("{}{}", targets.empty() ? "" : ",", all);
            continue;
        }
        const std::string_view known = targets_of(module);
        if (known.empty())
            return flags.cannot_plan(
                "--lora-target-modules {}: adapters of this module cannot be planned; use {}, linear_qkv, linear_proj, "
                "linear_fc1 or linear_fc2",
                module.substr(0, 60), kAllLinear);
        for (const std::string& target : split(known, ' ')) {
            if (target == "experts" && !job.model.moe) continue;
            targets += fmt::format("{}{}", targets.empty() ? "" : ",", target);
        }
    }
    // Targets that every list of modules names, and this model lacks, count for nothing.
    const std::vector<std::string> found = targets_in(targets, job.model);
    if (found.empty())
        return flags.cannot_plan("--lora-target-modules {}: the model has none of these layers; use {}", fmt::join(modules, " "),
                                 kAllLinear);
    try {
        job.model.adapters = parse_adapters(fmt::format("rank={},alpha={},targets={}", rank, alpha, fmt::join(found, ",")), job.model,
                                            flags.where() + ": --lora-target-modules");
        job.model.adapters->shared_by_experts = false;
    } catch (const ConfigError& error) {
        flags.problems().absorb(error);
    }
}

}  // namespace mgplan::formats
