#include "simulator/software_rates.hpp"

#include "plan/cluster/architectures.hpp"

namespace mgplan::simulator {

void apply_software(Calibration& calibration, const ClusterSpec& cluster, Software software) {
    // Before Transformer Engine #2004 and #2013 (July 2025, first in 2.7) activations and norms do not compute the amax of their output.
    if (software < Software::v25_09) calibration.producers_find_amax = false;
    if (cluster.compute_capability < architectures::kBlackwell) return;
    // Since Transformer Engine #2555 (March 2026, first in 2.14) one kernel casts to nvfp4 along rows and, after the Hadamard transform,
    // along columns; before, two kernels read the tensor.
    if (software < Software::v26_04) calibration.nvfp4_casts = 2;
}

}  // namespace mgplan::simulator
