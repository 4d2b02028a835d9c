#include "formats/megatron/megatron_arguments.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "formats/megatron/flag_reader.hpp"
#include "formats/megatron/given_model.hpp"
#include "formats/megatron/launcher_flags.hpp"
#include "formats/megatron/script_surroundings.hpp"
#include "formats/megatron/shell_command.hpp"
#include "formats/megatron/yaml_configuration.hpp"
#include "formats/recognise/recognise.hpp"
#include "plan/layout/world_division.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {

namespace {

/// True if the text names the variable: "$TP", "${TP", "$((TP*2))".
bool names_variable(const std::string& text, const std::string& name) {
    const auto names = variables_in(text);
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// Flags that change nothing unless one of these switches is given too, where d98e8a64 reads their values.
struct IdleWithout {
    std::string_view flags, switches;  ///< without "--", separated by blanks
};

constexpr std::array kIdleWithout{
    IdleWithout{"kitchen-attention-backend", "use-kitchen-attention"},         // gpt_builders.py
    IdleWithout{"moe-paged-stash-buffer-size-factor-cpu", "moe-paged-stash"},  // moe/paged_stash.py
    IdleWithout{"mtp-standalone mtp-detach-heads", "mtp-num-layers"},          // multi_token_prediction.py
    IdleWithout{"fsdp-db-use-persist-buf-on-alloc-fail megatron-fsdp-enable-fine-grained-param-gather",
                "use-megatron-fsdp use-custom-fsdp"},                 // distributed/fsdp
    IdleWithout{"no-fp8-wgrad fp8-quantizer-factory", "fp8-format"},  // fp8_utils.py
    IdleWithout{"fp4-quantizer-factory", "fp4-format"},               // fp4_utils.py
    IdleWithout{"dsa-indexer-topk-freq dsa-indexer-skip-topk-offset dsa-kernel-backend dsa-indexer-use-sparse-loss "
                "dsa-indexer-k-norm-fp32",
                "experimental-attention-variant"},  // experimental_attention_variant/dsa.py
};

/// True if the command has one of these switches, computed or not.
bool has_one_of(const ParsedFlags& parsed, std::string_view switches) {
    for (const auto& name : split(switches, ' ')) {
        const std::string flag = fmt::format("--{}", name);
        if (parsed.used.contains(flag)) return true;
        for (const FlagNotComputed& one : parsed.account.not_computed) {
            if (one.flag == flag) return true;
        }
    }
    return false;
}

/// Flags that are not computed and change nothing here become flags without effect.
void leave_out_idle(ParsedFlags& parsed) {
    for (const IdleWithout& idle : kIdleWithout) {
        if (has_one_of(parsed, idle.switches)) continue;
        const auto names = split(idle.flags, ' ');
        const auto listed = [&](const FlagNotComputed& one) {
            return std::any_of(names.begin(), names.end(), [&](const auto& name) {
                const std::string flag = fmt::format("--{}", name);
                return one.flag == flag || other_spelling(one.flag) == flag;
            });
        };
        for (const FlagNotComputed& one : parsed.account.not_computed) {
            if (listed(one)) parsed.account.without_effect.push_back(one.flag);
        }
        std::erase_if(parsed.account.not_computed, listed);
    }
}

/// The versions of Megatron-LM that have all flags of a command, but those of adapters, which programs on top of it have.
MegatronVersions versions_with_all(const ParsedFlags& parsed) {
    MegatronVersions versions = kAllMegatrons;
    for (const auto* flags : {&parsed.used, &parsed.not_read}) {
        for (const auto& [flag, values] : *flags) {
            if (flag.starts_with("--lora-")) continue;
            const auto versioned = versions_of_flag(flag);
            for (const MegatronVersionName& one : megatron_versions()) {
                if (versioned && !versioned->have.contains(one.version)) versions.remove(one.version);
            }
        }
    }
    return versions;
}

/// Where no version has all flags, those that not every version has.
std::vector<std::string> flags_without_a_version(const ParsedFlags& parsed) {
    std::vector<std::string> found;
    if (!versions_with_all(parsed).empty()) return found;
    for (const auto* flags : {&parsed.used, &parsed.not_read}) {
        for (const auto& [flag, values] : *flags) {
            if (const auto versioned = versions_of_flag(flag); versioned && !flag.starts_with("--lora-"))
                found.push_back(fmt::format("{} ({})", flag, versions_text(versioned->have)));
        }
    }
    return found;
}

/// `whole_environment`: variables that are not known are not set.
std::vector<std::string> broken_rules(const ParsedFlags& parsed, const MegatronSurroundings& surroundings, bool whole_environment) {
    const MegatronVersions versions = versions_with_all(parsed);
    return broken_argument_rules(parsed, surroundings.held_against,
                                 {.version = versions.empty() ? kNewestMegatron : newest_of(versions).version,
                                  .compute_capability = surroundings.compute_capability,
                                  .environment = surroundings.environment,
                                  .whole_environment = whole_environment});
}

/// Rules that are broken only if the environment does not set a variable.
std::vector<std::string> rules_of_environment(const ParsedFlags& parsed, const MegatronSurroundings& surroundings,
                                              const std::vector<std::string>& broken) {
    std::vector<std::string> rules = broken_rules(parsed, surroundings, true);
    std::erase_if(rules, [&](const std::string& rule) { return std::find(broken.begin(), broken.end(), rule) != broken.end(); });
    return rules;
}

/// Ranks and batch do not divide the world whatever the model is.
void check_world(FlagReader& flags, const Job& job, std::int64_t world) {
    const LayoutRequest& layout = *job.layout;
    ParallelSizes sizes;
    sizes.world = world;
    sizes.tp = layout.tp;
    sizes.cp = layout.cp;
    sizes.pp = layout.pp;
    if (const auto undivided = undivided_world(sizes)) return flags.problem("{}", *undivided);
    // Batches that grow have rules of their own.
    for (const std::string_view flag : {"--rampup-batch-size", "--step-batch-size-schedule", "--decrease-batch-size-if-needed"}) {
        if (flags.has(flag)) return;
    }
    const std::int64_t dp = world / layout.tp / layout.cp / layout.pp;
    if (!job.model.default_global_batch) return;
    if (const auto undivided = undivided_batch(*job.model.default_global_batch, dp, layout.micro_batch)) flags.problem("{}", *undivided);
}

/// The Python file in front of the first flag that is known; "" without one.
std::string program_in(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (word.ends_with(".py")) return word;
        if (word.starts_with("--") && find_flag(word.substr(0, word.find('=')))) break;
    }
    return "";
}

/// Throws if the program builds no decoder-only language model.
void refuse_other_network(const std::string& program, const std::string& where) {
    const std::string_view network = other_network_of_script(program);
    if (network.empty()) return;
    throw MissingFactError(std::vector{
        fmt::format("{}: {} trains {}, which cannot be planned: its flags do not describe the whole network; give a command of "
                    "pretrain_gpt.py or pretrain_mamba.py, or the language model alone as --model NAME|config.json with the layout",
                    where, program.substr(0, 80), network)});
}

/// The words that count: those of the YAML that the command names by --yaml-cfg, or its own.
void take_yaml_configuration(ArgumentWords& found, const std::string& where, const std::string& folder) {
    const auto file = yaml_configuration_of(found.words);
    if (!file) return;
    const auto text = sourced_file(*file, folder);
    if (!text)
        throw MissingFactError(std::vector{
            fmt::format("{}: --yaml-cfg {} replaces every flag of the command, and that file is not there; put it next to the command, or "
                        "give its settings as flags",
                        where, file->substr(0, 80))});
    found.words = words_of_yaml_configuration(*text, fmt::format("{}: --yaml-cfg {}", where, file->substr(0, 80)));
    found.notes.push_back(fmt::format("--yaml-cfg {} replaces every flag of the command, as in Megatron-LM", file->substr(0, 80)));
}

}  // namespace

Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where, const MegatronSurroundings& surroundings) {
    refuse_other_network(program_in(words), where);
    ParsedFlags parsed = parse_flags(words);
    if (parsed.used.empty())
        throw ConfigError(
            fmt::format("{}: holds no Megatron-LM flags (--num-layers 32 …), and is neither JSON nor YAML with MODEL_ARGS", where));
    leave_out_idle(parsed);
    if (surroundings.model) add_given_model(parsed, *surroundings.model, where);
    const std::vector<std::string> broken = broken_rules(parsed, surroundings, false);
    Job job;
    job.flags = std::move(parsed.account);
    if (surroundings.held_against == HeldAgainst::everything) job.flags.of_environment = rules_of_environment(parsed, surroundings, broken);
    if (surroundings.held_against == HeldAgainst::everything || surroundings.held_against == HeldAgainst::parser)
        job.flags.without_a_version = flags_without_a_version(parsed);
    Problems problems;
    FlagReader flags(parsed, where, problems, job.flags, surroundings);
    job.layout.emplace();
    job.training.emplace();
    read_model(flags, job);
    const std::size_t of_model = problems.list().size();
    read_layout(flags, job);
    const bool whole_layout = problems.list().size() == of_model;
    read_training(flags, job);
    for (const std::string& message : broken) flags.problem("{}", message);
    job.model.name = "megatron";
    job.model.source = where;
    if (surroundings.model) take_given_model(job, *surroundings.model, where, problems);
    if (of_model == 0) {  // whatever is wrong with the layout
        try {
            validate(job.model, where);
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    }
    if (!problems.empty() && whole_layout && surroundings.judges_sizes && surroundings.world) check_world(flags, job, *surroundings.world);
    problems.throw_if_any();
    job.model = by_fields_if_possible(std::move(job.model));
    read_adapters(flags, job);
    problems.throw_if_any();
    return job;
}

namespace {

/// The job of the text's command, with the words' notes.
Job read_command(ArgumentWords found, const std::string& where, const MegatronSurroundings& surroundings) {
    refuse_other_network(found.program, where);
    take_yaml_configuration(found, where, surroundings.folder);
    MegatronSurroundings told = surroundings;
    told.environment = std::move(found.environment);
    // A flag that another one needs may be missing from the file's text, and one that it excludes may be in a branch that does not run.
    const bool whole = found.notes.empty() && found.not_sourced.empty();
    if (!whole && told.held_against == HeldAgainst::everything) told.held_against = HeldAgainst::parser;
    // ms-swift makes the configuration itself, without Megatron-LM's parser (swift/megatron/model/utils.py).
    if (whole && told.held_against == HeldAgainst::everything && found.launcher == "ms-swift")
        told.held_against = HeldAgainst::configurations;
    Problems problems;
    try {
        Job job = read_megatron_arguments(found.words, where, told);
        for (const auto& part : found.missing) problems.add("{}", part);
        problems.throw_if_any();
        job.notes = std::move(found.notes);
        job.world = found.world.ranks;
        job.world_source = std::move(found.world.source);
        std::ranges::move(found.assumptions, std::back_inserter(job.assumptions));
        return job;
    } catch (const ConfigError& error) {
        if (!problems.empty()) throw;  // all missing parts are reported
        // The missing part may be one that could not be read.
        problems.absorb(error);
        for (const auto& part : found.missing) problems.add("{}", part);
        for (const auto& [name, why] : found.unresolved) {
            const auto& list = error.problems();
            if (std::any_of(list.begin(), list.end(), [&](const std::string& problem) { return names_variable(problem, name); }))
                problems.add_missing_fact("{}: ${} is not known: {}", where, name, why);
        }
        for (const auto& note : found.notes) problems.add_missing_fact("{}", note);
        if (!found.not_sourced.empty()) problems.add_missing_fact("{}", found.not_sourced);
        problems.throw_if_any();
        throw;
    }
}

/// Throws the refusal of a text that another framework made, if it shows one. Of a script that exits first (`exits`), a model next to it
/// would not help.
void refuse_recognised(std::string_view text, const std::string& where, bool exits) {
    const auto seen = recognise(text);
    if (seen && !(exits && seen->states_layout)) throw MissingFactError(std::vector{refusal_of(*seen, where)});
}

}  // namespace

Job read_megatron_text(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings) {
    bool states_model = surroundings.model.has_value(), exits = true, has_flags = true;
    try {
        ArgumentWords found = argument_words(text, where, surroundings.folder, surroundings.script);
        exits = false;
        add_launcher_flags(found, text, surroundings.model);
        has_flags = !parse_flags(found.words).used.empty();
        // A file that is not there may hold the model's flags.
        states_model = states_model || names_model(found.words) || !found.not_sourced.empty() || !found.missing.empty();
        return read_command(std::move(found), where, surroundings);
    } catch (const ConfigError&) {
        if (!states_model || !has_flags) refuse_recognised(text, where, exits);
        throw;
    }
}

}  // namespace mgplan::formats
