#include "formats/megatron/megatron_arguments.hpp"

#include "formats/megatron/flag_reader.hpp"
#include "formats/megatron/shell_words.hpp"

namespace mgplan::formats {

namespace {

/// Whether the text names the variable: "$TP", "${TP".
bool names_variable(const std::string& text, const std::string& name) {
    for (const std::string& reference : {"$" + name, "${" + name}) {
        for (auto at = text.find(reference); at != std::string::npos; at = text.find(reference, at + 1)) {
            const std::size_t end = at + reference.size();
            if (end >= text.size() || !is_name(text[end])) return true;
        }
    }
    return false;
}

}  // namespace

Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where, const MegatronSurroundings& surroundings) {
    ParsedFlags parsed = parse_flags(words);
    if (parsed.used.empty())
        throw ConfigError(
            fmt::format("{}: holds no Megatron-LM flags (--num-layers 32 …), and is neither JSON nor YAML with MODEL_ARGS", where));
    Job job;
    job.flags = std::move(parsed.account);
    Problems problems;
    FlagReader flags(parsed, where, problems, job.flags);
    MegatronSwitches switches;
    read_model(flags, job, switches, surroundings);
    read_layout(flags, job);
    read_training(flags, job, switches);
    problems.throw_if_any();
    job.model.name = "megatron";
    job.model.source = where;
    validate(job.model, where);
    return job;
}

Job read_megatron_text(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings) {
    ArgumentWords found = argument_words(text, where, surroundings.folder, surroundings.script);
    Problems problems;
    try {
        Job job = read_megatron_arguments(found.words, where, surroundings);
        for (const auto& part : found.missing) problems.add("{}", part);
        problems.throw_if_any();
        job.notes = std::move(found.notes);
        return job;
    } catch (const ConfigError& error) {
        if (!problems.empty()) throw;  // all that is missing is told
        // What could not be read may be what is missing.
        problems.absorb(error);
        for (const auto& part : found.missing) problems.add("{}", part);
        for (const auto& [name, why] : found.unresolved) {
            const auto list = error.problems();
            if (std::any_of(list.begin(), list.end(), [&](const std::string& problem) { return names_variable(problem, name); }))
                problems.add("{}: ${} is not known: {}", where, name, why);
        }
        for (const auto& note : found.notes) problems.add("{}", note);
        if (!found.not_sourced.empty()) problems.add("{}", found.not_sourced);
        problems.throw_if_any();
        throw;
    }
}

}  // namespace mgplan::formats
