#pragma once
// What a GPU is spared where the activations of its first layers wait in the host's memory (engine megatron,
// --cpu-offloading-num-layers).

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/activation_memory.hpp"

namespace mgplan::simulator {

/// Layers whose activations wait there; 0 where none do, as with a pipeline.
[[nodiscard]] std::int64_t offloaded_layers(const Workload& workload, const Layout& layout);

/// Bytes that the first `layers` decoder layers keep for their backwards. `activations`: of the workload.
[[nodiscard]] std::int64_t kept_by_first_layers(const Workload& workload, ActivationMemory& activations, const Layout& layout,
                                                std::int64_t layers);

/// Bytes that the GPU is spared of these at its fullest instant: the last offloaded layer leaves with the last layer's forward, and comes
/// back beside the last layer's backward (Transformer Engine, cpu_offload_v1.py, layer_window_map; from 2.10 on a layer later,
/// cpu_offload.py, start_reload_map). In output layer and loss, between the two, all of them are away.
[[nodiscard]] std::int64_t spared_by_offloading(const Workload& workload, ActivationMemory& activations, const Layout& layout);

}  // namespace mgplan::simulator
