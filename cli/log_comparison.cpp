#include "cli/log_comparison.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "plan/layout/stage_ranks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

std::vector<reports::LoggedRankMemory> compare_memory(const formats::MegatronLog& log, simulator::CostModel& model, const Layout& layout,
                                                      const std::string& where) {
    std::map<std::optional<std::int64_t>, reports::LoggedRankMemory> ranks;
    std::map<std::int64_t, simulator::RankMemory> stages;
    const auto of_stage = [&](std::int64_t stage) -> const simulator::RankMemory& {
        const auto [at, fresh] = stages.try_emplace(stage);
        if (fresh) at->second = model.stage_memory(layout, static_cast<int>(stage));
        return at->second;
    };
    const auto fullest = [&] {
        std::int64_t most = 0;
        for (std::int64_t stage = 1; stage < layout.sizes.pp; ++stage) {
            if (of_stage(stage).reserved_bytes > of_stage(most).reserved_bytes) most = stage;
        }
        return most;
    };
    for (const auto& each : log.memory) {
        if (each.rank && *each.rank >= layout.sizes.world)
            throw ConfigError(
                fmt::format("{}: names rank {}, and --world is {}; give the job's own world", where, *each.rank, layout.sizes.world));
        const auto [at, fresh] = ranks.try_emplace(each.rank);
        reports::LoggedRankMemory& rank = at->second;
        if (fresh) {
            rank.rank = each.rank;
            rank.stage = each.rank ? stage_of_rank(layout.sizes, *each.rank) : fullest();
        }
        rank.measured_allocated = std::max(rank.measured_allocated, each.max_allocated);
        rank.measured_reserved = std::max(rank.measured_reserved, each.max_reserved);
    }
    std::vector<reports::LoggedRankMemory> compared;
    for (auto& [number, rank] : ranks) {
        rank.predicted_allocated = of_stage(rank.stage).framework_bytes;
        rank.predicted_reserved = of_stage(rank.stage).reserved_bytes;
        compared.push_back(rank);
    }
    return compared;
}

std::optional<double> logged_flops_ratio(const formats::SteadyIterations& steady, const Workload& work) {
    if (!steady.median_tflops_per_gpu) return std::nullopt;
    return *steady.median_tflops_per_gpu * 1e12 * steady.median_seconds * static_cast<double>(work.world) /
           simulator::model_flops(work.model, work.batch);
}

}  // namespace mgplan::cli
