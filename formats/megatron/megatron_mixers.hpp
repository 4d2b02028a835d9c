#pragma once
// Sizes of mixers with a state in Megatron-LM's flags.

#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/flag_rows.hpp"

namespace mgplan::formats {

inline constexpr std::string_view kMambaKind = "mamba2", kDeltaNetKind = "gated_delta_net";

/// The flags of a kind's sizes, with "--".
[[nodiscard]] std::vector<std::string> mixer_flags(std::string_view kind);
/// ssm/mamba_mixer.py. Its heads are as many as fill twice the hidden size unless they are given.
[[nodiscard]] LayerPart read_mamba(FlagReader& flags, const ModelSpec& model);
/// ssm/gated_delta_net/
[[nodiscard]] LayerPart read_delta_net(FlagReader& flags);
/// The sizes of a part of one of these kinds.
void write_mixer(FlagWriter& out, const LayerPart& part);

}  // namespace mgplan::formats
