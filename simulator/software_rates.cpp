#include "simulator/software_rates.hpp"

#include "plan/cluster/architectures.hpp"

namespace mgplan::simulator {

void apply_software(Calibration& calibration, const ClusterSpec& cluster, Software software) {
    // Transformer Engine #2004 and #2013 (July 2025, first in 2.7) let activations and norms find the largest magnitude of what they write.
    if (software < Software::v25_09) calibration.producers_find_amax = false;
    if (cluster.compute_capability < architectures::kBlackwell) return;
    // Transformer Engine #2555 (March 2026, first in 2.14) casts to nvfp4 along rows and, behind the Hadamard transform, along columns in
    // one kernel; two kernels read the tensor before.
    if (software < Software::v26_04) calibration.nvfp4_casts = 2;
}

}  // namespace mgplan::simulator
