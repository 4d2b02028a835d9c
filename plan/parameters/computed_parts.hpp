#pragma once
// Kinds of parts that mgplan computes (plan/model/layer_parts.hpp has all that are counted): the fields of the model that a part states,
// the sizes that rule out a layout, and the parts that it reads outside its layer. One row a kind.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan {

/// Form of a mixer's attention.
enum class Attends : std::uint8_t {
    in_its_own_form,  ///< not at all, or as its part alone describes
    as_fields_say,    ///< softmax attention that fields of ModelSpec describe, and nothing else
    beside_a_state,   ///< such attention in parallel with a state along the sequence
};

/// Kernels that Megatron-LM computes a mixer's state with, where they are no match of the ops of the layer here.
enum class StateKernels : std::uint8_t {
    of_its_ops,
    chunked_scan,        ///< mamba_ssm's scan, fused with its convolution
    chunked_delta_rule,  ///< flash-linear-attention's gated delta rule
};

/// Properties of a computed part that only some kinds have.
struct ComputedTraits {
    Attends attends = Attends::in_its_own_form;
    /// Model FLOPs of a mixer's state along the sequence, forward, for a token; nullptr where none count.
    double (*state_flops)(const PartSizes& sizes) = nullptr;
    /// True if the model has, outside its layers, the part that this one reads there; nullptr if it reads none.
    bool (*finds_beside)(const PartSizes& sizes, const ModelSpec& model) = nullptr;
    bool reads_all_streams = false;    ///< of several residual streams that no maps mix
    bool has_norms_around = false;     ///< a mixer whose layer has norms in front of it and after it
    bool brings_feed_forward = false;  ///< a mixer that is a whole layer
    /// True if these parts may follow a feed-forward in its layer; nullptr if none may.
    bool (*accepts_behind)(std::span<const LayerPart> behind, const ModelSpec& fields) = nullptr;
    /// Sets of modules that published recipes recompute, the usual one first; empty where those of other models hold.
    std::span<const EnumSet<RecomputeModule>> recompute_sets = {};
    StateKernels megatron_kernels = StateKernels::of_its_ops;
};

/// Functions of a computed mixer or feed-forward.
struct ComputedPart {
    std::string_view kind;
    /// Sets the fields that the part states; false where something of it is not computed.
    bool (*describe)(const PartSizes& sizes, ModelSpec& fields);
    /// Adds, in words, what of the part is not computed under this division: "context parallelism over Mamba-2".
    void (*add_obstacles)(std::vector<std::string>& obstacles, const ModelSpec& fields, const PartSizes& sizes,
                          const ParallelSizes& division);
    ComputedTraits traits;
};

/// A computed part that lies outside the layers.
struct ComputedBeside {
    std::string_view kind;
    /// True if the part may be there with these sizes; ComputedTraits::finds_beside checks that layers read it.
    bool (*stands)(const LayerPart& part, const ModelSpec& model);
};

/// nullptr where no layer here computes the part's kind.
[[nodiscard]] const ComputedPart* find_computed_part(const LayerPart& part);

/// nullptr where no part of this kind may lie outside the layers.
[[nodiscard]] const ComputedBeside* find_computed_beside(const LayerPart& part);

/// The sizes of a part of a known kind, those that it leaves out included.
[[nodiscard]] PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden);

// The rows, by what the parts have in common.

[[nodiscard]] std::span<const ComputedPart> computed_feed_forwards();
[[nodiscard]] std::span<const ComputedPart> computed_attention();
[[nodiscard]] std::span<const ComputedPart> computed_state_spaces();      ///< also in parallel with attention, and linear recurrences
[[nodiscard]] std::span<const ComputedPart> computed_linear_attention();  ///< delta rules, lightning attention, short convolutions

[[nodiscard]] std::span<const ComputedBeside> beside_feed_forwards();
[[nodiscard]] std::span<const ComputedBeside> beside_attention();
[[nodiscard]] std::span<const ComputedBeside> beside_state_spaces();
[[nodiscard]] std::span<const ComputedBeside> beside_streams();

// Helpers that rows share.

/// True if a part is the norms of `halves` halves of a layer, in front of them or after them: of the model's kind, over the hidden size.
[[nodiscard]] bool is_norm_of(const LayerPart& part, const ModelSpec& model, std::int64_t halves);

/// The activation that a part names; false where it names none.
[[nodiscard]] bool describe_activation(const PartSizes& sizes, ModelSpec& fields);
/// Obstacles of packed heads, with QK-norm and gate.
void add_attention_obstacles(std::vector<std::string>& obstacles, const ModelSpec& fields, const PartSizes& sizes,
                             const ParallelSizes& division);
/// An obstacle where tp does not divide a count: "tp = 4 over 6 heads of Mamba-2, which it does not divide".
void require_division(std::vector<std::string>& obstacles, std::string_view layer, std::string_view what, std::int64_t count,
                      std::int64_t tp);
/// An obstacle where cp does not divide what a tensor-parallel rank has of a count: layers with a state along the sequence exchange heads
/// for it (model/layers/head_exchange.hpp).
void require_exchange(std::vector<std::string>& obstacles, std::string_view layer, std::string_view what, std::int64_t count,
                      const ParallelSizes& division);
void refuse_context_parallelism(std::vector<std::string>& obstacles, std::string_view layer, const ParallelSizes& division);

}  // namespace mgplan
