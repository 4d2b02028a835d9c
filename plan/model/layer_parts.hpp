#pragma once
// The kinds of parts that layers are composed of where the fields of ModelSpec do not describe them. Each kind is described in one
// place: its sizes, their ranges, and the tensors that follow from them. Counts are sums over these tensors.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {

/// A size that a kind of part has.
struct PartSize {
    std::string_view name;
    std::int64_t low = 0;        ///< the smallest that is meant; the largest is ModelLimits::part_size
    std::int64_t fallback = -1;  ///< taken where a part does not state it; -1: it must
};

/// Sizes of one part, those that it leaves out at their fallbacks. The part has passed check_part().
class PartSizes {
public:
    PartSizes(const LayerPart& part, std::span<const PartSize> sizes, std::int64_t hidden) : part_(part), sizes_(sizes), hidden_(hidden) {}
    [[nodiscard]] std::int64_t operator[](std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const;
    [[nodiscard]] std::int64_t hidden() const { return hidden_; }

private:
    const LayerPart& part_;
    std::span<const PartSize> sizes_;
    std::int64_t hidden_;
};

/// Role of a part in the layer that holds it.
enum class PartRole : std::uint8_t {
    addition,      ///< to a half of a layer, or outside the layers: linear maps, tables, single values
    norm,          ///< in front of the halves or after them
    mixer,         ///< of tokens: the first half
    feed_forward,  ///< the second half
    mixture,       ///< a feed-forward of experts
    stream_maps,   ///< mixes residual streams into the halves and back
    word_choice,   ///< chooses experts by words
};

/// Further facts of a kind of part: a model's properties are those of the kinds of its parts.
struct PartTraits {
    PartRole role = PartRole::addition;
    std::string_view timed_at_least = {};  ///< words for the computation whose time is a lower bound: "the selective scan of Mamba"
    std::string_view shapes_alone = {};  ///< words for the part that runs on shapes alone, so that nothing trains it, beyond timed_at_least
    bool shared = false;                 ///< lies outside the layers, and more than one of them reads it
    std::string_view takes_over = {};    ///< the size that is not 0 where keys and values are an earlier layer's
    std::string_view streams = {};       ///< the size that counts a model's residual streams if this part lies outside its layers
    bool between_streams = false;        ///< is predicted between residual streams that maps mix (ModelSpec::hyper_connections)
    bool takes_multipliers = false;      ///< ModelSpec::branch_multipliers scale what it computes
    bool projects_latents = false;       ///< has latents that are projected up (RecomputeModule::mla_up_proj)
    bool keeps_core = false;             ///< attention whose core no recompute repeats
    bool joins_documents = false;        ///< its prediction ignores the documents that a sequence packs
    /// Name of models with it where published runs are grouped; empty where the runs of other kinds represent it.
    std::string_view published_as = {};
};

/// One kind of part.
struct PartKind {
    std::string_view name;
    std::string_view words;  ///< for messages: "Mamba-2"
    std::span<const PartSize> sizes;
    std::vector<CountedTensor> (*tensors)(const PartSizes&);
    PartTraits traits;
};

/// All kinds, and one by name (nullptr: not known).
[[nodiscard]] std::vector<const PartKind*> part_kinds();
[[nodiscard]] const PartKind* find_part_kind(std::string_view name);

/// Traits of a part's kind; those of an addition where the kind is not known.
[[nodiscard]] const PartTraits& traits_of(const LayerPart& part);
[[nodiscard]] const PartTraits& traits_of(const Mixer& mixer);

/// True if a kind of layer of the model holds a part of this role, or of a kind with this trait.
[[nodiscard]] bool has_part_with(const LayerComposition& layer, PartRole role);
[[nodiscard]] bool has_part_with(const ModelSpec& model, bool PartTraits::*trait);

/// True if a layer of the model has a feed-forward without experts.
[[nodiscard]] bool has_dense_mlp(const ModelSpec& model);

/// True if a layer of the model takes keys and values over from an earlier one.
[[nodiscard]] bool has_keys_taken_over(const ModelSpec& model);

/// Adds a problem for an unknown kind, a missing or unknown size, one out of range.
void check_part(const LayerPart& part, const std::string& where, Problems& problems);

/// A size of a part that check_part() found right: the stated one, else its fallback.
[[nodiscard]] std::int64_t part_size(const LayerPart& part, std::string_view name);

/// Sizes of a part of a known kind, those that it leaves out included.
[[nodiscard]] PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden);

/// The tensors of a part, whole (not divided over tp); check_part() must have found it right.
[[nodiscard]] std::vector<CountedTensor> part_tensors(const LayerPart& part, std::int64_t hidden);
/// The number of their elements in floating point, which cannot overflow.
[[nodiscard]] double estimate_parts(const std::vector<LayerPart>& parts, std::int64_t hidden);

}  // namespace mgplan
