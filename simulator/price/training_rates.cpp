#include "simulator/price/training_rates.hpp"

namespace mgplan::simulator {

TrainingRates::TrainingRates(const ClusterSpec& cluster, const Calibration& calibration, const TrainingSpec& training)
    : calibration_(calibration),
      products_(cluster, calibration, training.precision, bytes_of(training.grad_dtype), training.format()),
      storage_(cluster, calibration, quantised(training.precision) ? Precision::bf16 : training.precision, bytes_of(training.grad_dtype)),
      host_bandwidth_(cluster.host_bandwidth()) {}

}  // namespace mgplan::simulator
