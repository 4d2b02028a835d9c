#pragma once
// Assumed imbalance of a router's tokens over experts.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/model/model_spec.hpp"

namespace mgplan {

enum class RoutingKind : std::uint8_t {
    balanced,   ///< every expert takes exactly the same number of copies
    uniform,    ///< every expert is as likely as any other; counts vary as those of random draws do
    zipf,       ///< the i-th most popular expert takes a share in proportion to i^-exponent; which one it is differs by layer
    histogram,  ///< measured shares
    worst       ///< the largest possible number of copies goes to the experts of one rank
};

/// A plain value. What it means for a rank's memory: simulator/memory/routing_load.hpp.
struct RoutingSkew {
    static constexpr double most_exponent = 10;
    static constexpr double most_count = 1e15;

    RoutingKind kind = RoutingKind::uniform;
    double exponent = 1;  ///< of zipf; 0 is uniform
    /// Copies that each expert received, of a histogram. One list: the shares of every MoE layer, in an order that differs by layer as with
    /// zipf. One list for each MoE layer: of exactly these experts.
    std::vector<std::vector<double>> counts;

    bool operator==(const RoutingSkew&) const = default;
};

/// "balanced", "uniform", "zipf", "zipf:1.2" or "worst"; nothing for any other text (then it names a file). Throws
/// ConfigError for an exponent that is no number in [0, most_exponent].
[[nodiscard]] std::optional<RoutingSkew> parse_routing_skew(std::string_view text);

/// A histogram from a file's content: a list of counts, one for each expert, or a list of such lists, one for each MoE layer. Throws
/// ConfigError with all problems: no lists, lists of different lengths, counts that are negative or no numbers, a layer without any copy.
[[nodiscard]] RoutingSkew routing_histogram(const nlohmann::ordered_json& json, const std::string& where);

/// {"kind", "exponent" of zipf, "counts" of a histogram}
[[nodiscard]] nlohmann::ordered_json routing_skew_to_json(const RoutingSkew& skew);
/// Reads what routing_skew_to_json wrote; throws ConfigError with all problems.
[[nodiscard]] RoutingSkew routing_skew_from_json(const nlohmann::ordered_json& json, const std::string& where);

/// A histogram must have a count for each expert of `model`, and one list, or one for each MoE layer; a model without experts takes any
/// skew, without effect. Throws ConfigError with all problems.
void validate(const RoutingSkew& skew, const ModelSpec& model, const std::string& where);

/// "uniform", "zipf:1.2", "histogram of 64 experts", "histogram of 26 layers x 64 experts"
[[nodiscard]] std::string to_text(const RoutingSkew& skew);

}  // namespace mgplan
