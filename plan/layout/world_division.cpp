#include "plan/layout/world_division.hpp"

#include <vector>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan {

std::string usable_divisors(std::int64_t n, std::int64_t world) {
    std::vector<std::string> names;
    for (const auto d : divisors(n)) {
        if (world % d == 0 && names.size() < 12) names.push_back(std::to_string(d));
    }
    return any_of_text(names);
}

std::optional<std::string> undivided_world(const ParallelSizes& sizes) {
    const std::int64_t world = sizes.world;
    if (world % sizes.tp != 0)
        return fmt::format("tp = {} does not divide world = {}; use {}", sizes.tp, world, usable_divisors(world, world));
    const std::int64_t behind_tp = world / sizes.tp;
    if (behind_tp % sizes.cp != 0)
        return fmt::format("tp·cp = {}·{} does not divide world = {}; use a cp of {}", sizes.tp, sizes.cp, world,
                           usable_divisors(behind_tp, world));
    const std::int64_t behind_cp = behind_tp / sizes.cp;
    if (behind_cp % sizes.pp != 0)
        return fmt::format("tp·cp·pp = {}·{}·{} does not divide world = {}; use a pp of {}", sizes.tp, sizes.cp, sizes.pp, world,
                           usable_divisors(behind_cp, world));
    return std::nullopt;
}

std::optional<std::string> undivided_batch(std::int64_t global_batch, std::int64_t dp, std::int64_t micro_batch) {
    const std::int64_t at_once = dp * micro_batch;
    if (global_batch % at_once == 0) return std::nullopt;
    return fmt::format(
        "global batch = {} is no multiple of dp·micro-batch = {}·{}; use a micro-batch of {} or a batch that is a multiple of {}",
        global_batch, dp, micro_batch, global_batch % dp == 0 ? divisors_text(global_batch / dp, 16) : "1 on fewer dp ranks", at_once);
}

}  // namespace mgplan
