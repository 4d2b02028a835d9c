#pragma once
// Rules of inference engines for the layout of a model.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "simulator/rollout/engine_values.hpp"

namespace mgplan::simulator {

/// Mixers of the model whose cache is not known here, in words; empty if the engine's memory and time can be predicted.
[[nodiscard]] std::vector<std::string> unknown_caches(const Model& model);

/// Rules of the engine that a layout breaks, as sentences with the sizes that are possible; empty if it runs. Sources: vllm/config/model.py
/// (verify_with_parallel_config: heads divide by tp), model_executor/models/llama.py (kv heads divide by tp, or tp by them),
/// model_executor/layers/fused_moe/layer.py. SGLang has the same. The caches are known (unknown_caches()).
[[nodiscard]] std::vector<std::string> obstacles(const Model& model, const EngineLayout& layout);

/// The tp up to `most` that an engine takes without expert parallelism or with it, in ascending order.
[[nodiscard]] std::vector<std::int64_t> possible_tp(const Model& model, std::int64_t most, bool expert_parallel);

}  // namespace mgplan::simulator
