#include "simulator/uncertainty.hpp"

#include <cmath>

namespace mgplan::simulator {

double relative_deviation(const TimeParts& parts, const Deviations& deviations) {
    if (parts.iteration <= 0) return deviations.run;
    const auto square = [&](double seconds, double deviation) {
        const double share = seconds / parts.iteration * deviation;
        return share * share;
    };
    return std::sqrt(deviations.run * deviations.run + square(parts.products, deviations.products) +
                     square(parts.fp8_products, deviations.fp8) + square(parts.expert_layers, deviations.experts) +
                     square(parts.host, deviations.host) + square(parts.communication, deviations.communication));
}

}  // namespace mgplan::simulator
