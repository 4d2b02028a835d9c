#pragma once
// What releases of the libraries below a framework change in the rates of a GPU.

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/software.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Sets the rates of an older release, given those of the newest; each with the source that names the change. At most eight parameters
/// depend on the release; what a cluster file says stands above all of them.
void apply_software(Calibration& calibration, const ClusterSpec& cluster, Software software);

}  // namespace mgplan::simulator
