#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/run_command.hpp"
#include "jobs/rank_process.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

int run_rank(const std::vector<std::string>& args, Console& console) {
    try {
        Options options(
            "rank --world N --ranks-per-node N --logs DIR -- COMMAND...",
            "What the scripts of mgplan launch start for each rank: looks whether the engine started the rank that was planned, "
            "runs COMMAND with a log of its own, and leaves word when it fails.");
        jobs::RankProcessOptions values;
        std::int64_t world = 1, ranks_per_node = 1;
        constexpr std::int64_t kMost = std::numeric_limits<int>::max();
        options.integer("world", world, 1, kMost, "ranks of the job");
        options.integer("ranks-per-node", ranks_per_node, 1, kMost, "ranks on each machine");
        options.text("logs", values.logs, "DIR", "folder of the logs and of the report of the first failure");
        options.flag("torch-variables", values.torch_variables, "set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE");
        const auto mark = std::find(args.begin(), args.end(), "--");
        if (!options.parse({args.begin(), mark}, console.out)) return kDone;
        if (mark != args.end()) values.command.assign(mark + 1, args.end());
        Problems problems;
        if (values.command.empty()) problems.add("rank needs a command after --; mgplan launch writes such scripts");
        if (values.logs.empty()) problems.add("--logs is missing; name a folder that is there");
        problems.throw_if_any();
        values.world = static_cast<int>(world);
        values.ranks_per_node = static_cast<int>(ranks_per_node);
        return run_rank_process(values);
    } catch (const ConfigError&) {
        let_rank_0_speak();
        throw;
    }
}

}  // namespace mgplan::cli
