#pragma once
// Megatron-LM's letters and flags of the kinds of mixers that hybrids are made of, read and written by one row a kind.

#include <span>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::formats {

struct MegatronMixer {
    std::string_view kind;  ///< kKind of the mixer
    char letter = 0;        ///< in --hybrid-layer-pattern
    /// The value of --experimental-attention-variant that puts it between layers of attention; empty where there is none. Read of delta
    /// nets alone so far (has_delta_nets()).
    std::string_view variant = {};
    std::span<const std::string_view> size_flags = {};  ///< "--mamba-state-dim"
    /// The mixer that the flags describe; what is wrong with them becomes problems.
    Mixer (*read)(FlagReader& flags, const ModelSpec& model) = nullptr;
    /// Writes the flags of a mixer's sizes.
    void (*write)(FlagWriter& out, const Mixer& mixer) = nullptr;
    /// Describes the values of such a mixer for which Megatron-LM has no flags; empty where it has them all.
    std::string (*unwritten)(const Mixer& mixer) = nullptr;
    /// Names flags of Megatron-LM for it that are not written here; such a row has nothing else.
    std::string_view elsewhere = {};
};

/// In the order in which their flags are read.
[[nodiscard]] std::span<const MegatronMixer> megatron_mixers();
/// nullptr where Megatron-LM has no flags for the kind.
[[nodiscard]] const MegatronMixer* find_megatron_mixer(std::string_view kind);
[[nodiscard]] const MegatronMixer* find_megatron_mixer(const Mixer& mixer);

/// Attention as the model's fields say.
[[nodiscard]] Attention attention_by_fields(const ModelSpec& model);

}  // namespace mgplan::formats
