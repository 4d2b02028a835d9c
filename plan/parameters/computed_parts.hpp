#pragma once
// Kinds of parts that mgplan computes (plan/model/layer_parts.hpp has all that are counted), and the fields of the model that each states.
// One row a kind.

#include <string_view>

#include "plan/model/layer_parts.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

/// A computed mixer or feed-forward.
struct ComputedPart {
    std::string_view kind;
    /// Sets the fields that the part states; false where no layer has such sizes. computed_layer() compares sizes that no field states.
    bool (*describe)(const PartSizes& sizes, ModelSpec& fields);
};

/// nullptr where no layer here computes the part's kind.
[[nodiscard]] const ComputedPart* find_computed_part(const LayerPart& part);

/// True for biases of experts that are counted and trained, outside layers that fields describe. Only counting reads the number of MoE
/// layers; a part of the model may have none.
[[nodiscard]] bool is_choice_bias(const LayerPart& part, const ModelSpec& model);

}  // namespace mgplan
