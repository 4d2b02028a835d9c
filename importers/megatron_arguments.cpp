#include "importers/megatron_arguments.hpp"

#include "importers/flag_reader.hpp"

namespace mgplan::importers {

Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where) {
    ParsedFlags parsed = parse_flags(words);
    if (parsed.used.empty())
        throw ConfigError(
            fmt::format("{}: holds no Megatron-LM flags (--num-layers 32 …), and is neither JSON nor YAML with MODEL_ARGS", where));
    Job job;
    job.flags_without_effect = std::move(parsed.without_effect);
    job.features_not_computed = std::move(parsed.not_computed);
    job.unknown_flags = std::move(parsed.unknown);
    Problems problems;
    FlagReader flags(parsed, where, problems);
    MegatronSwitches switches;
    read_model(flags, job, switches);
    read_layout(flags, job);
    read_training(flags, job, switches);
    problems.throw_if_any();
    job.model.name = "megatron";
    job.model.source = where;
    validate(job.model, where);
    return job;
}

Job read_megatron_text(std::string_view text, const std::string& where) {
    ArgumentWords found = argument_words(text, where);
    try {
        Job job = read_megatron_arguments(found.words, where);
        job.notes = std::move(found.notes);
        return job;
    } catch (const ConfigError& error) {
        // What could not be read may be what is missing.
        Problems problems;
        problems.absorb(error);
        for (const auto& note : found.notes) problems.add("{}", note);
        problems.throw_if_any();
        throw;
    }
}

}  // namespace mgplan::importers
