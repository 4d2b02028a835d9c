#pragma once
// Changes of a GPU's rates between releases of the libraries below a framework.

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/software.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Sets the rates of an older release, given those of the newest; each change names its source. At most eight parameters may depend on the
/// release. Values in a cluster file override all of them.
void apply_software(Calibration& calibration, const ClusterSpec& cluster, Software software);

}  // namespace mgplan::simulator
