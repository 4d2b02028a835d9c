#pragma once
// Kinds of parts that layers here compute (plan/model/layer_parts.hpp has all that are counted): the fields of the model that a part
// states, its parameters as Megatron-core names and divides them, and which sizes stand in a layout's way. One row a kind.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/parameter_list.hpp"

namespace mgplan {

/// What is known of a kind of part beyond its count.
struct ComputedPart {
    std::string_view kind;
    bool mixes_tokens;  ///< a mixer; else a feed-forward
    /// Sets the fields that the part states; false where something of it is not computed.
    bool (*describe)(const PartSizes& sizes, ModelSpec& fields);
    void (*add_parameters)(ParameterList& list, const ModelSpec& fields, const PartSizes& sizes, const ParallelSizes& division);
    /// Adds, in words, what of the part is not computed under this division: "context parallelism over Mamba-2".
    void (*add_obstacles)(std::vector<std::string>& obstacles, const ModelSpec& fields, const PartSizes& sizes,
                          const ParallelSizes& division);
    /// Model FLOPs of a mixer's state along the sequence, forward, for a token; nullptr where none count.
    double (*state_flops)(const PartSizes& sizes) = nullptr;
};

/// nullptr where no layer here computes the part's kind.
[[nodiscard]] const ComputedPart* find_computed_part(const LayerPart& part);

/// The sizes of a part of a known kind, those that it leaves out included.
[[nodiscard]] PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden);

// The rows, by what the parts have in common.

[[nodiscard]] std::span<const ComputedPart> computed_attention();
[[nodiscard]] std::span<const ComputedPart> computed_state_spaces();      ///< also beside attention, and linear recurrences
[[nodiscard]] std::span<const ComputedPart> computed_linear_attention();  ///< delta rules, lightning attention, short convolutions

// What rows share.

/// The activation that a part names; false where it names none.
[[nodiscard]] bool describe_activation(const PartSizes& sizes, ModelSpec& fields);
/// Obstacles of packed heads, with QK-norm and gate.
void add_attention_obstacles(std::vector<std::string>& obstacles, const ModelSpec& fields, const PartSizes& sizes,
                             const ParallelSizes& division);
/// An obstacle where tp does not divide a count: "tp = 4 over 6 heads of Mamba-2, which it does not divide".
void require_division(std::vector<std::string>& obstacles, std::string_view layer, std::string_view what, std::int64_t count,
                      std::int64_t tp);
void refuse_context_parallelism(std::vector<std::string>& obstacles, std::string_view layer, const ParallelSizes& division);

}  // namespace mgplan
