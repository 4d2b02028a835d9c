#pragma once
// What a model is in numbers: parameters with and without multi-token prediction, and its layers by kind.

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/model/model_spec.hpp"

namespace mgplan::reports {

/// Layers of one kind: "attention+mlp", "window_attention+moe", "latent_attention+moe".
struct LayerCount {
    std::string kind;
    std::int64_t count = 0;
};

/// The decoder layers by kind, in the order in which the kinds first occur; layers of multi-token prediction are not among them.
[[nodiscard]] std::vector<LayerCount> layers_by_kind(const ModelSpec& model);

/// Parameters of the layers of multi-token prediction together, without the tables they share with the model; 0: there are none.
[[nodiscard]] std::int64_t mtp_parameters(const ModelSpec& model);
/// Those of them that one token uses.
[[nodiscard]] std::int64_t active_mtp_parameters(const ModelSpec& model);

/// {"name", "type", "parameters", "active_parameters", "mtp_parameters", "layers": [{"kind", "count"}], "assumed_architecture",
/// and every field of model_to_json}: parameters with the MTP layers, vocabulary as it is, not padded. model_from_json reads it.
[[nodiscard]] nlohmann::ordered_json model_summary_to_json(const ModelSpec& model);

/// The type that an unknown one was read as, or null: at the top level of what commands print.
[[nodiscard]] nlohmann::ordered_json assumed_architecture_to_json(const ModelSpec& model);

/// The same layers for people: "3 of latent attention and MLP, 58 of latent attention and experts".
[[nodiscard]] std::string layers_by_kind_text(const ModelSpec& model);

}  // namespace mgplan::reports
