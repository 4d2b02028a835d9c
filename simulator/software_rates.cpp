#include "simulator/software_rates.hpp"

namespace mgplan::simulator {

void apply_software(Calibration& calibration, const ClusterSpec& cluster, Software software) {
    if (cluster.compute_capability < 90) return;
    (void)calibration;
    (void)software;
}

}  // namespace mgplan::simulator
