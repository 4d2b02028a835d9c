#pragma once
// Describes in words a world that the sizes do not divide: for rules of whole layouts and for commands whose model is wrong.

#include <cstdint>
#include <optional>
#include <string>

#include "plan/layout/rank_groups.hpp"

namespace mgplan {

/// "1, 2 or 4": divisors of n that also divide the world, for the way out of a message; at most 12.
[[nodiscard]] std::string usable_divisors(std::int64_t n, std::int64_t world);

/// The first of tp, tp·cp and tp·cp·pp that does not divide the world, with a way out; nothing where all do. Sizes from 1.
[[nodiscard]] std::optional<std::string> undivided_world(const ParallelSizes& sizes);

/// A message that a global batch is no multiple of the sequences that `dp` ranks take at once, with a fix; nothing where it is one.
[[nodiscard]] std::optional<std::string> undivided_batch(std::int64_t global_batch, std::int64_t dp, std::int64_t micro_batch);

}  // namespace mgplan
