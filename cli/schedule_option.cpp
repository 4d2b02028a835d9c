#include "cli/schedule_option.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::cli {

std::vector<std::string> schedule_choices() {
    std::vector<std::string> names{"auto"};
    for (auto& name : split_schedule_names()) names.push_back(std::move(name));
    return names;
}

std::vector<SplitSchedule> split_schedules_in(const std::vector<std::string>& words) {
    std::vector<SplitSchedule> kinds;
    for (const auto& word : words) {
        const auto kind = parse_split_schedule(word);
        if (kind && std::find(kinds.begin(), kinds.end(), *kind) == kinds.end()) kinds.push_back(*kind);
    }
    return kinds;
}

void imply_engine(SplitSchedule schedule, const Options& options, ResolvedWorkload& resolved, Console& console) {
    const bool of_command = resolved.job.layout.has_value();  // a Megatron-LM command is about engine megatron
    if (options.given("engine") || of_command) {
        if (resolved.engine == Engine::mgplan) return;
        throw ConfigError(
            fmt::format("--schedule {} with {}: Megatron-LM has no schedule with divided backwards; use --engine mgplan, or leave "
                        "--schedule out",
                        to_string(schedule), options.given("engine") ? "--engine megatron" : "a Megatron-LM command"));
    }
    const std::string before = fmt::format("engine {}", to_string(resolved.engine));
    resolved.engine = Engine::mgplan;
    std::replace(resolved.assumed.begin(), resolved.assumed.end(), before, std::string("engine mgplan"));
    console.err << fmt::format("mgplan: --schedule {} implies --engine mgplan, for Megatron-LM does not have it\n", to_string(schedule));
}

}  // namespace mgplan::cli
