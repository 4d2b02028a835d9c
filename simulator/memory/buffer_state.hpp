#pragma once
// Bytes of parameters, gradients and optimizer state in one buffer.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::simulator {

struct ModelStateBytes {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
    std::int64_t update = 0;  ///< extra bytes during the whole optimizer step: fp32 copies of narrower gradients
    std::int64_t host = 0;    ///< optimizer state in the host's memory, not part of `optimizer`
    std::int64_t staged = 0;  ///< peak bytes of this state on the device during the optimizer step; all_stages() adds it to `update`
    /// Moments in `host` that return in chunks, and those of the largest parameter, by optimizer in order: of dense parameters and of
    /// experts, or of Muon's matrices and of all else; all_stages() adds their maximum to `update`.
    std::array<std::int64_t, 2> moving{}, largest_moving{};
    /// fp32 copies of narrower states that exist while one optimizer steps, by optimizer: of dense parameters and of experts. These step
    /// one after the other, so all_stages() adds their maximum to `update`.
    std::array<std::int64_t, 2> stepping{};
    ModelStateBytes& operator+=(const ModelStateBytes& other) {
        parameters += other.parameters;
        gradients += other.gradients;
        optimizer += other.optimizer;
        update += other.update;
        host += other.host;
        staged = std::max(staged, other.staged);
        for (std::size_t turn = 0; turn < moving.size(); ++turn) {
            moving[turn] += other.moving[turn];
            stepping[turn] += other.stepping[turn];
            largest_moving[turn] = std::max(largest_moving[turn], other.largest_moving[turn]);
        }
        return *this;
    }
    /// Bytes held all the time: without parts that exist only during the update.
    [[nodiscard]] std::int64_t alone() const { return parameters + gradients + optimizer; }
    bool operator==(const ModelStateBytes&) const = default;
};

/// Contents of a buffer of one storage type in elements: the parameters themselves and, with holes and padding, the buffer.
struct BufferElements {
    std::int64_t parameters = 0;
    std::int64_t buffer = 0;
    bool fp8 = false;
    std::int64_t shards = 1;                        ///< number of ranks that shard the optimizer state of the buffer
    std::int64_t tensors = 0;                       ///< number of parameters in it
    std::int64_t largest = 0;                       ///< elements of the largest parameter; 0: not needed
    std::int64_t matrices = 0, largest_matrix = 0;  ///< elements of Muon's matrices, all and the largest
    bool expert = false;
    std::int64_t shard = 0;  ///< elements of the rank's matrices, where each lies whole in one shard (MegatronSwitches::layer_wise_layout)
};

/// Bytes of one buffer and of the optimizer state of this rank's shard of it.
///
/// Engine mgplan (model/optimizer/): parameters and gradients as stored; main parameters if they are wider than the parameters, two
/// moments, and during the update gradients widened to the main parameters' type. Bytes per parameter: 18 without and 6 + 12/d with the
/// distributed optimizer for 16-bit parameters and fp32 gradients, 20 and 4 + 16/d with 16-bit gradients, 16 and 8 + 8/d in fp32. A buffer
/// of Muon's matrices (`matrices` is not 0), SGD and Lion have one moment. With --offload optimizer and optimizer_states the state of the
/// last elements is on the host, and slices of it, or all, on the device during the update (plan/training/offload.hpp).
///
/// Engine megatron: the same (core/optimizer/distrib_optimizer.py), and the precision-aware optimizer as in docs/memory-optimizers.md,
/// "Precision-aware optimizer"; moments by kind of optimizer (plan/training/megatron_switches.hpp). Muon's matrices are distributed as a
/// whole, so that a rank has its share of them or the largest, or with layer_wise_layout those of `shard` (layer_wise_optimizer.py). If the
/// host updates a share (core/optimizer/cpu_offloading/hybrid_optimizer.py): docs/memory-optimizers.md, "The optimizer on the host" and
/// "Its state between two updates". Copies of fp8 weights are not included.
[[nodiscard]] ModelStateBytes model_state_bytes(const BufferElements& elements, Engine engine, const TrainingSpec& training);

}  // namespace mgplan::simulator
