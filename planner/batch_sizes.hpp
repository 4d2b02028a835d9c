#pragma once
// Global batch sizes and micro-batches that suit a world.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::planner {

/// Sequences of the batch that is assumed if none is given: 4 Mi tokens, growing linearly from 1,024 GPUs to 16 Mi at 4,096 and more; of
/// MoE models at least 8 sequences per GPU, a multiple of 4 x world. Batches of dense models are rounded up to a multiple of 4 x world, of
/// the world, or of its odd part: the first of them that is not larger than the batch.
[[nodiscard]] std::int64_t assumed_batch(const ModelSpec& model, std::int64_t world, std::int64_t sequence);

/// The multiple of 4 x world nearest to `batch`, or of the world if that differs by more than an eighth, so that every dp of the world is
/// possible; nothing if both do.
[[nodiscard]] std::optional<std::int64_t> suiting_batch(std::int64_t batch, std::int64_t world);

/// The batch from which several worlds are compared: `batch`, or up to an eighth more so that it is a multiple of the odd part of each
/// world and of a power of two as large as that allows. `batch` where none is near enough.
[[nodiscard]] std::int64_t batch_for_worlds(std::int64_t batch, const std::vector<std::int64_t>& worlds);

/// Micro-batches that a search tries unless they are pinned: the divisors of global_batch / dp up to 16. If dp does not divide the batch
/// it is 1 alone, which a rule rejects.
[[nodiscard]] std::vector<std::int64_t> searched_micro_batches(std::int64_t global_batch, std::int64_t dp);

/// The nearest smaller and the nearest larger batch with which the space has a legal layout; fewer if there are none nearby.
[[nodiscard]] std::vector<std::int64_t> nearest_legal_batches(const Workload& workload, const SearchSpace& space);

}  // namespace mgplan::planner
