#pragma once
// Optimizer state that engine megatron keeps in the host's memory: updated there (--optimizer-cpu-offload), or only waiting there between
// two updates (--chunked-optimizer-state-offload). docs/memory-optimizers.md, "The optimizer on the host", "Its state between two updates".

#include <cstdint>

#include "plan/training/training_spec.hpp"
#include "simulator/memory/buffer_state.hpp"

namespace mgplan::simulator {

/// Elements of main parameters and moments that a rank keeps of a buffer.
struct OwnedElements {
    std::int64_t all = 0, matrices = 0;  ///< Muon's matrices are part of all
};

/// Bytes that an optimizer keeps of an element beside the main parameter.
[[nodiscard]] std::int64_t moment_bytes(OptimizerKind optimizer, const TrainingSpec& training);

/// With a share of the parameters updated on the host: sets what the device and the host keep. `largest`: elements of the largest
/// parameter's shard, 0 where not known; `mixed`: parameters of 16 bits.
void divide_between_devices(ModelStateBytes& bytes, std::int64_t owned, std::int64_t largest, bool mixed, const TrainingSpec& training);

/// With state that waits on the host between updates: moves it there. `main`: bytes of a main parameter. Returns the most elements that
/// are updated at once.
[[nodiscard]] std::int64_t keep_between_updates(ModelStateBytes& bytes, const BufferElements& elements, const OwnedElements& owned,
                                                std::int64_t main, const TrainingSpec& training);

/// Moments in chunks that are on the device at one time, of all that a stage has.
[[nodiscard]] std::int64_t most_moving(const ModelStateBytes& bytes, const TrainingSpec& training);

}  // namespace mgplan::simulator
