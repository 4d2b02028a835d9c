#pragma once
// Megatron-LM's generalized tensor parallelism: weights that data-parallel neighbours hold in parts, and gather one by one where they
// multiply. Source: megatron/core/tensor_parallel/generalized_tensor_parallelism.py and docs/api-guide/core/generalized_tensor_parallel.md
// of NVIDIA/Megatron-LM at d98e8a64.

#include <cstdint>

namespace mgplan {

/// Each part is of the rows (output features) that tensor parallelism leaves a rank. The ranks that hold the parts of a weight have data of
/// their own: they are neighbours along data parallelism, or along the experts' own.
struct WeightShards {
    std::int64_t dense = 1;           ///< parts of a weight: --tensor-parallel-num-weight-shards over tp
    std::int64_t experts = 1;         ///< of an expert's: --expert-tensor-parallel-num-weight-shards over etp
    bool latent_projections = false;  ///< --gtp-remat-opt-in-modules moe_latent_proj: those of latent experts, too

    [[nodiscard]] bool active() const { return dense > 1 || experts > 1; }
    bool operator==(const WeightShards&) const = default;
};

}  // namespace mgplan
