#pragma once
// Predictions as the JSON of CLI.md ("predicted").

#include <nlohmann/json_fwd.hpp>

#include "simulator/prediction.hpp"

namespace mgplan::reports {

[[nodiscard]] nlohmann::ordered_json prediction_to_json(const simulator::Prediction& prediction);

/// The fields of predicted.memory for one rank; also its missing bytes and the name of its largest category.
[[nodiscard]] nlohmann::ordered_json rank_memory_to_json(const simulator::RankMemory& memory, std::int64_t rank, std::int64_t limit_bytes);

/// predicted.memory.allocator_replay.
[[nodiscard]] nlohmann::ordered_json reserved_memory_to_json(const simulator::ReservedMemory& memory);

}  // namespace mgplan::reports
