#pragma once
// Optimizer state that engine megatron keeps in the host's memory: updated there (--optimizer-cpu-offload), or only stored there between
// two updates (--chunked-optimizer-state-offload). docs/memory-optimizers.md, "The optimizer on the host", "Its state between two updates".

#include <cstdint>

#include "plan/training/training_spec.hpp"
#include "simulator/memory/buffer_state.hpp"

namespace mgplan::simulator {

/// Elements of main parameters and moments that a rank keeps of a buffer.
struct OwnedElements {
    std::int64_t all = 0, matrices = 0;  ///< Muon's matrices are part of all
};

/// Bytes that an optimizer keeps of an element in addition to the main parameter.
[[nodiscard]] std::int64_t moment_bytes(OptimizerKind optimizer, const TrainingSpec& training);

/// Splits the state between device and host if the host updates a share of the parameters. `largest`: elements of the largest parameter's
/// shard, 0 if unknown; `mixed`: 16-bit parameters.
void divide_between_devices(ModelStateBytes& bytes, std::int64_t owned, std::int64_t largest, bool mixed, const TrainingSpec& training);

/// Moves state that is stored on the host between updates. `main`: bytes of a main parameter. Returns the largest number of elements
/// updated at once.
[[nodiscard]] std::int64_t keep_between_updates(ModelStateBytes& bytes, const BufferElements& elements, const OwnedElements& owned,
                                                std::int64_t main, const TrainingSpec& training);

/// Maximum bytes of a stage's chunked moments on the device at one time.
[[nodiscard]] std::int64_t most_moving(const ModelStateBytes& bytes, const TrainingSpec& training);

}  // namespace mgplan::simulator
