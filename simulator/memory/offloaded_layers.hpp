#pragma once
// GPU memory saved by offloading the activations of the first layers to the host (engine megatron, --cpu-offloading-num-layers).

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/activation_memory.hpp"

namespace mgplan::simulator {

/// Number of layers whose activations are offloaded; 0 with a pipeline.
[[nodiscard]] std::int64_t offloaded_layers(const Workload& workload, const Layout& layout);

/// Bytes that the first `layers` decoder layers keep for their backwards. `activations`: of the workload.
[[nodiscard]] std::int64_t kept_by_first_layers(const Workload& workload, ActivationMemory& activations, const Layout& layout,
                                                std::int64_t layers);

/// Offloaded bytes that are not on the GPU at its peak: the last offloaded layer leaves with the last layer's forward, and returns during
/// the last layer's backward (Transformer Engine, cpu_offload_v1.py, layer_window_map; from 2.10 on a layer later, cpu_offload.py,
/// start_reload_map). During output layer and loss, between the two, all of them are on the host.
[[nodiscard]] std::int64_t spared_by_offloading(const Workload& workload, ActivationMemory& activations, const Layout& layout);

}  // namespace mgplan::simulator
