#include "cli/job_source.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/launch_record.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/shell_words.hpp"
#include "formats/model_source.hpp"
#include "formats/recognise/recognise.hpp"
#include "formats/trainer_source.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text_file.hpp"

namespace mgplan::cli {
namespace {

/// Vocabulary size that no rule refuses, for a command without one: so its other problems are reported together with that one.
constexpr std::int64_t kAnyVocabulary = std::int64_t{1} << 17U;

/// --set and --script-args. Throws ConfigError for what is no assignment.
formats::ScriptInputs script_inputs(const WorkloadOptions& values) {
    formats::ScriptInputs inputs;
    Problems problems;
    for (const auto& one : values.set) {
        const auto equals = one.find('=');
        const std::string name = one.substr(0, equals);
        const bool named = !name.empty() && std::all_of(name.begin(), name.end(), formats::is_name) &&
                           std::isdigit(static_cast<unsigned char>(name[0])) == 0;
        if (equals == std::string::npos || !named)
            problems.add("--set '{}' is no assignment; write NAME=VALUE, as in --set TP=8", one.substr(0, 60));
        else
            inputs.variables.emplace_back(name, one.substr(equals + 1));
    }
    problems.throw_if_any();
    if (values.script_args) {
        formats::Variables none;
        inputs.arguments.emplace();
        const std::string where = "--script-args";
        formats::WordScanner scanner(*values.script_args, 0, none, where);
        while (scanner.skip_blanks()) inputs.arguments->push_back(scanner.word());
    }
    return inputs;
}

/// Returns the contents of the file that an option names, or the text that was given in its place, with its name.
GivenText text_of(const Options& options, const char* option, const std::string& path, std::string_view what) {
    if (const GivenText* given = options.contents(option)) return *given;
    return {path, read_text_file(path, what)};
}

std::string folder_of(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

/// The model that --model names. Throws ConfigError.
formats::Job load_named_model(const Options& options, const WorkloadOptions& values) {
    const formats::ModelReading how{.vocab = values.vocab_size, .assume = values.assume.value_or("")};
    if (const GivenText* given = options.contents("model")) return formats::read_model_text(given->text, given->name, how);
    return formats::load_model(*values.model, how);
}

}  // namespace

std::vector<std::string> source_options(const WorkloadOptions& values) {
    std::vector<std::string> options;
    if (values.model) options.emplace_back("--model");
    if (values.megatron_args) options.emplace_back("--megatron-args");
    if (values.trace) options.emplace_back("--trace");
    if (values.bridge_config) options.emplace_back("--bridge-config");
    return options;
}

bool is_command(const WorkloadOptions& values) {
    return values.megatron_args || values.trace || values.bridge_config;
}

bool has_model_and_command(const WorkloadOptions& values) {
    return values.model && !values.trace && values.megatron_args.has_value() != values.bridge_config.has_value();
}

void add_source_problems(const WorkloadOptions& values, Problems& problems) {
    const auto given = source_options(values);
    if (given.empty())
        problems.add("--model is missing; give a preset (mgplan models lists them), a config.json or a Megatron-LM argument file");
    if (given.size() > 1 && !has_model_and_command(values))
        problems.add("{} and {} both name a model; give one of them", given[0], given[1]);
    if (!values.megatron_args && (!values.set.empty() || values.script_args))
        problems.add("{} is for the script of --megatron-args; give that, or drop it", values.set.empty() ? "--script-args" : "--set");
    if (values.launch && !values.trace) problems.add("--launch is for the record of --trace; give that, or drop it");
}

namespace {

SourcedJob of_launch(formats::Job job) {
    SourcedJob found{.world = job.world, .world_source = job.world_source};
    found.job = std::move(job);
    return found;
}

}  // namespace

SourcedJob load_job(const Options& options, const WorkloadOptions& values, int compute_capability) {
    formats::MegatronSurroundings surroundings{.vocab = values.vocab_size, .script = script_inputs(values), .world = values.world};
    surroundings.judges_sizes = values.looks_behind;
    if (options.given("cluster")) surroundings.compute_capability = compute_capability;  // an assumed one refuses nothing
    if (values.looks_behind) surroundings.vocab_if_missing = kAnyVocabulary;
    if (has_model_and_command(values)) {
        surroundings.model = load_named_model(options, values).model;
        surroundings.script.model_is_given = true;
    }
    if (values.megatron_args) {
        const GivenText text = text_of(options, "megatron-args", *values.megatron_args, "argument");
        surroundings.folder = options.contents("megatron-args") != nullptr ? "." : folder_of(*values.megatron_args);
        if (auto read = formats::read_trainer_text(text.text, text.name, surroundings))
            return {std::move(read->job), read->world, "its settings", std::move(read->problems)};
        return of_launch(formats::read_megatron_arguments_text(text.text, text.name, std::move(surroundings)));
    }
    if (values.trace) {
        const GivenText text = text_of(options, "trace", *values.trace, "record");
        return of_launch(
            formats::read_traced_job(formats::read_launch_record(text.text, text.name), text.name, values.launch, surroundings));
    }
    if (values.bridge_config) {
        if (const GivenText* given = options.contents("bridge-config"))
            return {.job = formats::read_bridge_config(given->text, given->name, surroundings)};
        return {.job = formats::load_bridge_config(*values.bridge_config, std::move(surroundings))};
    }
    return {.job = load_named_model(options, values)};
}

std::optional<formats::BridgeLaunch> bridge_launch_in(const std::string& path, const WorkloadOptions& values) {
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(path, unreadable)) return std::nullopt;
    const std::string text = read_text_file(path, "check");
    const auto found = formats::recognise(text);
    if (!found || found->framework != "Megatron-Bridge" || found->form != "command") return std::nullopt;
    formats::ScriptInputs inputs = script_inputs(values);
    inputs.model_is_given = true;
    formats::ArgumentWords command;
    try {
        command = formats::argument_words(text, path, folder_of(path), inputs);
    } catch (const ConfigError&) {
        return std::nullopt;  // no command in it: the reader of commands says why
    }
    auto launch = formats::read_bridge_launch(command.words, path);
    if (!launch) return std::nullopt;
    if (!command.missing.empty()) throw MissingFactError(command.missing);
    launch->notes = std::move(command.notes);
    return launch;
}

std::string settle_source(const std::string& path, WorkloadOptions& values) {
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(path, unreadable)) {  // a pipe is read once
        values.megatron_args = path;
        return "";
    }
    const std::string text = read_text_file(path, "check");
    const auto found = formats::recognise_file(text, path, std::filesystem::path(path).parent_path().string());
    const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    if (text.find("\"mgplan_record\"") < 256) {
        values.trace = path;
        return "record of mgplan record";
    }
    if (is_yaml && found && found->framework == "Megatron-Bridge") {
        values.bridge_config = path;
        return "Megatron-Bridge configuration";
    }
    values.megatron_args = path;
    if (!found) return is_yaml ? "YAML of Megatron-LM arguments" : "Megatron-LM command";
    const std::string job = found->job.empty() ? "" : fmt::format(", {}", found->job);
    const std::string model = found->model.empty() ? "" : fmt::format(" of {}", found->model);
    return fmt::format("{} {}{}{}", found->framework, found->form, job, model);
}

}  // namespace mgplan::cli
