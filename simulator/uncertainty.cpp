#include "simulator/uncertainty.hpp"

#include <cmath>

namespace mgplan::simulator {

double relative_deviation(const TimeParts& parts, const Calibration& calibration) {
    if (parts.iteration <= 0) return calibration.run_deviation;
    const auto square = [&](double seconds, double deviation) {
        const double share = seconds / parts.iteration * deviation;
        return share * share;
    };
    return std::sqrt(calibration.run_deviation * calibration.run_deviation + square(parts.products, calibration.product_deviation) +
                     square(parts.fp8_products, calibration.fp8_deviation) + square(parts.expert_layers, calibration.expert_deviation) +
                     square(parts.host, calibration.host_deviation) + square(parts.communication, calibration.communication_deviation));
}

}  // namespace mgplan::simulator
