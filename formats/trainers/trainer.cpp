#include "formats/trainers/trainer.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::array<const Trainer*, 10> kTrainers{&kAreal, &kFlagScale, &kGptNeox, &kLlamaFactory, &kNanotron,
                                                   &kNemo,  &kNemoRl,    &kPrimus,  &kRoll,         &kVerl};

bool is_among(std::string_view name, std::string_view list) {
    const auto names = split(list, ' ');
    return std::find(names.begin(), names.end(), name) != names.end();
}

void add_sections(const Trainer& trainer, const Settings& settings, TrainerJob& job) {
    for (const std::string& section : split(trainer.sections, ' ')) {
        for (auto& [name, value] : settings.directly_below(section == "." ? "" : section)) {
            const std::string setting = section == "." ? name : fmt::format("{}.{}", section, name);
            const auto is_renamed = [&](const TrainerSetting& row) { return row.name == setting; };
            if (is_among(name, trainer.own) || std::any_of(trainer.settings.begin(), trainer.settings.end(), is_renamed)) continue;
            std::string field = name;
            std::replace(field.begin(), field.end(), '-', '_');
            job.names[field] = setting;
            if (value.empty())
                job.fields.erase(field);  // null takes a default away
            else
                job.fields[field] = value;
        }
    }
}

/// The part of a path that names a repository of the hub: "$HOME/models/Qwen/Qwen3-8B" -> "Qwen/Qwen3-8B".
std::string repository_of(std::string path) {
    while (path.ends_with('/')) path.pop_back();
    const auto last = path.rfind('/');
    if (last == std::string::npos || last == 0) return path;
    const auto before = path.rfind('/', last - 1);
    return before == std::string::npos ? path : path.substr(before + 1);
}

}  // namespace

std::int64_t field_or(const TrainerJob& job, std::string_view field, std::int64_t otherwise) {
    const auto found = job.fields.find(field);
    const auto value = found == job.fields.end() ? std::nullopt : parse_integer(found->second);
    return value.value_or(otherwise);
}

void settle_world(TrainerJob& job, std::optional<std::int64_t> nodes, std::optional<std::int64_t> gpus) {
    if (!job.world && nodes && gpus && *nodes > 0 && *gpus > 0 && *nodes < (1 << 20) && *gpus < (1 << 10)) job.world = *nodes * *gpus;
}

void add_adapters(const Settings& settings, const AdapterSettings& names, TrainerJob& job) {
    const auto stated = [&](std::string_view name) {
        const std::string value = settings.get(name).value_or("");
        return value == "[]" ? "" : value;
    };
    const auto refuse = [&](std::string_view name, std::string_view value) {
        job.problems.add_missing_fact("{} = {}: these adapters cannot be planned; give the job as options with --lora", name,
                                      value.substr(0, 60));
    };
    if (const std::string type = stated(names.type); !type.empty() && type != "lora") refuse(names.type, type);
    // Without targets Megatron-Bridge chooses by the class of a layer: also the output layer, no grouped experts (peft/module_matcher.py).
    const std::string modules = stated(names.modules);
    if (modules.empty()) refuse(names.modules, "[]");
    if (const std::string excluded = stated(names.excluded); !excluded.empty() || settings.has_below(std::string(names.excluded) + "."))
        refuse(names.excluded, excluded);
    if (const std::string dtype = lower_case(stated(names.dtype)); !dtype.empty() && dtype != "none" && dtype != "null")
        refuse(names.dtype, dtype);
    if (const std::string dropout = stated(names.dropout); !dropout.empty() && parse_real(dropout) != 0.0) {
        job.fields["lora_dropout"] = dropout;
        job.names["lora_dropout"] = names.dropout;
    }
    const std::string rank = stated(names.rank), alpha = stated(names.alpha);
    if (!parse_integer(rank)) refuse(names.rank, rank);
    for (auto& [field, name, value] : {std::tuple("lora_rank", names.rank, rank),
                                       {"lora_alpha", names.alpha, alpha.empty() ? "32" : alpha},
                                       {"lora_target_modules", names.modules, modules}}) {
        job.fields[field] = value;
        job.names[field] = name;
    }
}

std::int64_t data_parallel_size(const TrainerJob& job) {
    std::int64_t model_ranks = 1;
    for (const std::string_view size : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"}) {
        const std::int64_t one = field_or(job, size, 1);
        if (one < 1 || one > (std::int64_t{1} << 24)) return 1;
        model_ranks *= one;
        if (model_ranks > (std::int64_t{1} << 24)) return 1;
    }
    return std::max<std::int64_t>(1, job.world.value_or(1) / model_ranks);
}

std::span<const Trainer* const> trainers() {
    return kTrainers;
}

std::optional<TrainerJob> trainer_job(std::string_view framework, const Settings& settings, std::optional<std::int64_t> world) {
    const auto found =
        std::find_if(kTrainers.begin(), kTrainers.end(), [framework](const Trainer* one) { return one->framework == framework; });
    if (found == kTrainers.end()) return std::nullopt;
    const Trainer& trainer = **found;
    if (trainer.reads != nullptr && !trainer.reads(settings)) return std::nullopt;
    TrainerJob job;
    job.world = world;
    for (const std::string& fixed : split(trainer.fixed, ' ')) {
        const auto equals = fixed.find('=');
        job.fields[fixed.substr(0, equals)] = fixed.substr(equals + 1);
    }
    add_sections(trainer, settings, job);
    for (const TrainerSetting& row : trainer.settings) {
        job.names.try_emplace(std::string(row.field), row.name);
        if (auto value = settings.get(row.name)) {
            job.fields[std::string(row.field)] = std::move(*value);
            job.names[std::string(row.field)] = row.name;
        }
    }
    for (const TrainerSetting& row : trainer.computed) job.names.try_emplace(std::string(row.field), row.name);
    for (const std::string& name : split(trainer.model, ' ')) {
        if (const auto value = settings.get(name); value && job.model.empty()) job.model = repository_of(*value);
    }
    if (trainer.finish != nullptr) trainer.finish(settings, job);
    // Megatron-LM's command line has fp32 gradients for bf16 unless another flag says otherwise; a configuration says it by this field.
    if (const auto reduced = job.fields.find("grad_reduce_in_fp32");
        reduced != job.fields.end() && lower_case(reduced->second) == "false") {
        job.fields.erase(reduced);
        if (job.fields.contains("bf16")) job.fields["grad_reduce_in_bf16"] = "True";
    }
    return job;
}

}  // namespace mgplan::formats
