#pragma once
// Bytes of parameters, gradients and optimizer state if Megatron-LM shards more than the optimizer's state: PyTorch's FSDP2 and
// Megatron-FSDP. docs/memory-optimizers.md, "Sharded parameters and gradients", explains formulas and sources.

#include <array>
#include <cstdint>

#include "plan/training/training_spec.hpp"
#include "simulator/memory/fp8_weights.hpp"
#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {

/// Elements of a part of the model on a rank before sharding: by [0] dense, [1] expert parameters.
struct UnitElements {
    std::array<std::int64_t, 2> plain{};      ///< stored in the compute type
    std::array<std::int64_t, 2> quantised{};  ///< stored in fp8 or less
    Fp8WeightBytes quantised_bytes;           ///< bytes of the quantised ones, copies for the backward included; rounded up by tensor

    [[nodiscard]] std::int64_t elements() const { return plain[0] + plain[1] + quantised[0] + quantised[1]; }
    UnitElements& operator+=(const UnitElements& other);
    [[nodiscard]] UnitElements times(std::int64_t count) const;
    bool operator==(const UnitElements&) const = default;
};

/// Contents of a model chunk, by units that are gathered together.
struct ShardedChunk {
    UnitElements layers;         ///< all decoder layers, a unit each
    UnitElements largest_layer;  ///< the largest of them
    UnitElements front, back;    ///< embedding; final norm, output layer and multi-token prediction
    bool operator==(const ShardedChunk&) const = default;
};

/// Ranks that share a chunk's parameters: `inner`: by [0] dense, [1] expert parameters, the ranks over which parameters and gradients are
/// sharded; `outer`: number of copies of these groups (optimizer instances).
struct ShardingRanks {
    std::array<std::int64_t, 2> inner{1, 1};
    std::int64_t outer = 1;
};

/// Bytes of one chunk, by the rules of Megatron-LM at d98e8a64. Without the alignment of shards: some hundred elements a unit.
///
/// PyTorch FSDP2 (core/distributed/torch_fully_sharded_data_parallel.py; torch/distributed/fsdp/_fully_shard): every layer, the embedding
/// and the output layer are a unit. Shards of parameters and gradients in the compute type, fp32 main parameters (made from the shards by
/// core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params) and moments. In addition, the largest two adjacent units are gathered:
/// one in use, one prefetched; and two units' gradients, one being computed, one being reduced.
///
/// Megatron-FSDP (core/distributed/fsdp/src/megatron_fsdp): layers are units; all other parameters are sharded too, but stay gathered after
/// the first gather (param_and_grad_buffer.py, AllGatherPipeline.reset). Half a communication unit's elements are prefetched, and gradients
/// of a whole one wait to be reduced (megatron_fsdp.py, suggested_AG_prefetch_size and suggested_RS_queue_capacity: twice a layer, at least
/// 10^9 elements, unless a size is given); with double buffers two units of each.
[[nodiscard]] ModelStateBytes sharded_state_bytes(const ShardedChunk& chunk, const ShardingRanks& ranks, const TrainingSpec& training);

}  // namespace mgplan::simulator
