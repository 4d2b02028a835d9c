#include "formats/megatron/launch_record.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/script_surroundings.hpp"
#include "formats/megatron/shell_command.hpp"
#include "formats/megatron/shell_script.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using RecordJson = nlohmann::ordered_json;
using LaunchWords = std::vector<std::string>;

constexpr std::size_t kMostLaunches = 4096;

/// The ranks that a command starts, whose program is its first Python file.
LaunchWorld world_of(const LaunchWords& words, const VariableLookup& lookup) {
    const auto program = std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.ends_with(".py"); });
    if (program == words.end()) return launch_world(words, "", words, lookup);
    return launch_world({words.begin(), program}, *program, {program + 1, words.end()}, lookup);
}

/// The words of the training that a launch starts; nothing where it starts none.
std::optional<TrainingLaunch> training_of(const RecordedLaunch& launch) {
    LaunchWords words{launch.program};
    words.insert(words.end(), launch.words.begin(), launch.words.end());
    TrainingLaunch training;
    const VariableLookup lookup = [&](const std::string& name) {
        const auto found = launch.variables.find(name);
        return found == launch.variables.end() ? std::nullopt : std::optional(found->second);
    };
    if (names_model(words)) {
        training.world = world_of(words, lookup);
        training.words = std::move(words);
        return training;
    }
    for (const std::string& text : launch.words) {
        if (text.find("--num-layers") == std::string::npos && text.find("--hidden-size") == std::string::npos) continue;
        ScriptInputs inputs;
        inputs.variables.assign(launch.variables.begin(), launch.variables.end());
        try {
            ArgumentWords found = script_words(text, launch.program, "", inputs);
            if (!names_model(found.words)) continue;
            LaunchWords whole{launch.program};
            Variables known;
            for (const auto& [name, value] : inputs.variables) known.fix(name, value);
            whole.insert(whole.end(), launch.words.begin(), launch.words.end());
            add_words(whole, text, known, launch.program);
            training.world = world_of(whole, lookup);
            training.words = std::move(found.words);
            training.unresolved = std::move(found.unresolved);
            return training;
        } catch (const ConfigError&) {
            continue;  // a text whose quotes stay open is no command
        }
    }
    return std::nullopt;
}

}  // namespace

std::string launch_record_json(const LaunchRecord& record) {
    RecordJson launches = RecordJson::array();
    for (const RecordedLaunch& launch : record.launches)
        launches.push_back(
            {{"program", launch.program}, {"folder", launch.folder}, {"words", launch.words}, {"variables", RecordJson(launch.variables)}});
    const RecordJson json{
        {"mgplan_record", 1}, {"command", record.command}, {"exit_code", record.exit_code}, {"launches", std::move(launches)}};
    return json.dump(1, ' ', false, RecordJson::error_handler_t::replace) + "\n";
}

LaunchRecord read_launch_record(std::string_view text, const std::string& where) {
    const RecordJson json = parse_json(text, where);
    const auto refuse = [&](std::string_view reason) -> ConfigError {
        return ConfigError(fmt::format("{}: {}; give a file that mgplan record wrote", where, reason));
    };
    const auto texts = [&](const RecordJson& from, const char* field) {
        LaunchWords list;
        const auto found = from.find(field);
        if (found == from.end() || !found->is_array()) throw refuse(fmt::format("field '{}' is no list", field));
        for (const auto& word : *found) {
            if (!word.is_string()) throw refuse(fmt::format("field '{}' holds what is no text", field));
            list.push_back(word.get<std::string>());
        }
        return list;
    };
    if (!json.is_object() || !json.contains("mgplan_record")) throw refuse("is no record");
    if (json["mgplan_record"] != 1) throw refuse("is a record of another version");
    LaunchRecord record;
    record.command = texts(json, "command");
    if (const auto code = json.find("exit_code"); code != json.end() && code->is_number_integer())
        record.exit_code = static_cast<int>(std::clamp<std::int64_t>(code->get<std::int64_t>(), 0, 255));
    const auto launches = json.find("launches");
    if (launches == json.end() || !launches->is_array()) throw refuse("field 'launches' is no list");
    if (launches->size() > kMostLaunches) throw refuse(fmt::format("more than {} launches", kMostLaunches));
    for (const auto& each : *launches) {
        if (!each.is_object() || !each.contains("program") || !each["program"].is_string()) throw refuse("a launch without a program");
        RecordedLaunch launch{each["program"].get<std::string>(), "", texts(each, "words"), {}};
        if (each.contains("folder") && each["folder"].is_string()) launch.folder = each["folder"].get<std::string>();
        if (each.contains("variables") && each["variables"].is_object()) {
            for (const auto& [name, value] : each["variables"].items()) {
                if (value.is_string()) launch.variables[name] = value.get<std::string>();
            }
        }
        record.launches.push_back(std::move(launch));
    }
    return record;
}

std::vector<TrainingLaunch> training_launches(const LaunchRecord& record) {
    std::vector<TrainingLaunch> found;
    for (std::size_t i = 0; i < record.launches.size(); ++i) {
        auto training = training_of(record.launches[i]);
        if (!training) continue;
        training->number = static_cast<std::int64_t>(i) + 1;
        found.push_back(std::move(*training));
    }
    return found;
}

Job read_traced_job(const LaunchRecord& record, const std::string& where, std::optional<std::int64_t> number,
                    const MegatronSurroundings& surroundings) {
    const std::vector<TrainingLaunch> launches = training_launches(record);
    if (launches.empty()) {
        for (const RecordedLaunch& launch : record.launches) {
            if (launch.program == "sbatch" && !launch.words.empty())
                throw ConfigError(
                    fmt::format("{}: none of its {} trains a Megatron-LM model; it submits {}, so record that: mgplan record -- bash {}",
                                where, counted(std::ssize(record.launches), "launch", "es"), launch.words.back().substr(0, 200),
                                launch.words.back().substr(0, 200)));
        }
        throw ConfigError(
            fmt::format("{}: none of its {} trains a Megatron-LM model (--num-layers, --hidden-size); record the script that does", where,
                        counted(std::ssize(record.launches), "launch", "es")));
    }
    std::vector<std::string> numbers;
    for (const auto& launch : launches) numbers.push_back(std::to_string(launch.number));
    const bool differ = std::any_of(launches.begin(), launches.end(), [&](const TrainingLaunch& launch) {
        return launch.words != launches.front().words || launch.world.ranks != launches.front().world.ranks;
    });
    if (!number && differ)
        throw ConfigError(fmt::format("{}: holds {} that train, and differ; choose one by --launch {}", where,
                                      counted(std::ssize(launches), "launch", "es"), any_of_text(numbers)));
    const auto chosen =
        number ? std::find_if(launches.begin(), launches.end(), [&](const auto& one) { return one.number == *number; }) : launches.begin();
    if (chosen == launches.end())
        throw ConfigError(
            fmt::format("--launch = {} is none of the launches of {} that train; use {}", *number, where, any_of_text(numbers)));
    MegatronSurroundings of_launch = surroundings;
    if (!of_launch.world) of_launch.world = chosen->world.ranks;
    try {
        Job job = read_megatron_arguments(chosen->words, where, of_launch);
        job.world = chosen->world.ranks;
        job.world_source = chosen->world.source;
        return job;
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error);
        for (const auto& [name, why] : chosen->unresolved) problems.add_missing_fact("{}: ${} is not known: {}", where, name, why);
        problems.throw_if_any();
        throw;
    }
}

}  // namespace mgplan::formats
