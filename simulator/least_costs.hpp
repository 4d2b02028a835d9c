#pragma once
// What layers cost at least, whatever is switched on for them: for bounds of a search.

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/compute/layer_costs.hpp"

namespace mgplan::simulator {

/// Each piece as fast as in either; of no layers yet, those of `other`.
void take_least(LayerCosts& least, const LayerCosts& other);

/// Without the host's launches, which graphs leave out.
void take_launches_off(LayerCosts& costs);

/// Without what is exposed in passes that run alone where others are paired.
void take_unpaired_off(LayerCosts& costs);

/// Without launches and communication.
void take_all_but_compute_off(LayerCosts& costs);

/// Seconds of the device for a microbatch in all layers, ends and depths of multi-token prediction, with nothing repeated.
[[nodiscard]] double seconds_of_model(const LayerCosts& costs, const LayerKinds& kinds, std::int64_t mtp_layers);

struct PassPair {
    double forward = 0, backward = 0;  ///< seconds
};

/// The products of the experts of a rank with its even share of rows, in a mixture layer; the gate's are left out.
[[nodiscard]] PassPair expert_products(const Layout& layout, const Workload& workload, const KernelTimes& kernels);

/// Adds them to every layer with a mixture.
void add_to_mixtures(LayerCosts& costs, const PassPair& seconds);

}  // namespace mgplan::simulator
