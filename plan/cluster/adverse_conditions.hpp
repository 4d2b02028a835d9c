#pragma once
// Conditions in which a run is slower than predicted, whatever its layout: a network, a host and a routing that are fitted to published
// runs.

#include <string_view>

namespace mgplan {

struct AdverseConditions {
    double network = 1;  ///< inter-node bandwidth relative to the predicted one; latencies grow by its inverse
    double host = 1;     ///< launch time of a kernel relative to the predicted one
    double routing = 0;  ///< exponent of Zipf's law by which tokens spread over experts (RoutingKind::zipf)

    bool operator==(const AdverseConditions&) const = default;
};

/// The conditions in configs/accuracy/adverse.json, which tests/accuracy/adverse.py fits to published runs.
[[nodiscard]] const AdverseConditions& published_adverse_conditions();

/// Reads "network=0.7,host=1.3,routing=0.5"; conditions left out are the published ones. Throws ConfigError with all problems.
[[nodiscard]] AdverseConditions parse_adverse_conditions(std::string_view text);

}  // namespace mgplan
