#pragma once
// Figures of a model: parameters with and without multi-token prediction, and its layers by kind.

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/model/model_spec.hpp"

namespace mgplan::reports {

/// Number of layers of one kind: "attention+mlp", "window_attention+moe", "latent_attention+moe".
struct LayerCount {
    std::string kind;
    std::int64_t count = 0;
};

/// The decoder layers by kind, in the order in which the kinds first occur; without layers of multi-token prediction.
[[nodiscard]] std::vector<LayerCount> layers_by_kind(const ModelSpec& model);

/// Parameters of all layers of multi-token prediction, without the tables they share with the model; 0: there are none.
[[nodiscard]] std::int64_t mtp_parameters(const ModelSpec& model);
/// Parameters of these layers that one token uses.
[[nodiscard]] std::int64_t active_mtp_parameters(const ModelSpec& model);

/// {"name", "type", "parameters", "active_parameters", "mtp_parameters", "layers": [{"kind", "count"}], "assumed_architecture",
/// and every field of model_to_json}: parameters include the MTP layers, the vocabulary is not padded. model_from_json reads it.
[[nodiscard]] nlohmann::ordered_json model_summary_to_json(const ModelSpec& model);

/// The unknown type whose model was read as another one, or null: at the top level of commands' JSON.
[[nodiscard]] nlohmann::ordered_json assumed_architecture_to_json(const ModelSpec& model);

/// Layers by kind as text: "3 of latent attention and MLP, 58 of latent attention and experts".
[[nodiscard]] std::string layers_by_kind_text(const ModelSpec& model);

}  // namespace mgplan::reports
