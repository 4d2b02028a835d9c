#pragma once
// Inputs of the CUDA graph of a whole iteration (scope full_iteration) at fixed addresses: the batch.
//
// Sources: mgplan model/training/microbatch_source.hpp; Megatron-LM core/full_cuda_graph.py (StaticBufferLoader).

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/graphs/graph_slots.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::simulator {

/// One rank's part in an iteration.
struct IterationShare {
    GraphPolicy policy = GraphPolicy::slots;
    std::int64_t microbatches = 1;
    bool first = false, last = false;  ///< embeds tokens; computes losses
    const ModelSpec* model = nullptr;  ///< null: unknown, and inputs of specific models are left out
    std::int64_t rows = 0;             ///< tokens of a microbatch on this rank; 0: only tensors are counted, and most bytes are 0
    std::int64_t mask_bytes = 0;       ///< policy megatron: attention masks of all microbatches, if its data loader creates them
};

/// Tensors of one name.
struct IterationInput {
    std::string_view name;
    std::int64_t tensors = 0;  ///< number with distinct addresses
    std::int64_t bytes = 0;    ///< sum over all of them
    bool operator==(const IterationInput&) const = default;
};

/// Policy slots: by the names in mgplan's runtime. Policy megatron: its loader copies each microbatch's tensors (ids, positions, targets,
/// loss mask, attention mask) together, and each microbatch counts as one. Lists only inputs that exist.
[[nodiscard]] std::vector<IterationInput> iteration_inputs(const IterationShare& share);

}  // namespace mgplan::simulator
