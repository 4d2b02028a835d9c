#pragma once
// What became of a Megatron-LM command's flags, as JSON and in words.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "formats/input/flag_account.hpp"

namespace mgplan::reports {

/// Adds "used", "not_computed" ("--flextron (elastic sub-networks (Flextron))") and "unknown", lists of flags as the command has
/// them, each the first word of its entry.
void add_flag_account(nlohmann::ordered_json& json, const formats::FlagAccount& account);

/// Whether a flag that is not computed decides what a rank holds, or which rules the command has to keep.
[[nodiscard]] bool leaves_fit_open(const formats::FlagAccount& account);
[[nodiscard]] bool leaves_legality_open(const formats::FlagAccount& account);

/// The flags that leave it open: "--flextron (elastic sub-networks (Flextron)) is not computed"; "" where none does.
[[nodiscard]] std::string why_fit_is_open(const formats::FlagAccount& account);
[[nodiscard]] std::string why_legality_is_open(const formats::FlagAccount& account);

/// Lines for a table: flags that are not computed, and unknown ones; "" where all is honoured.
[[nodiscard]] std::string flag_account_text(const formats::FlagAccount& account);

}  // namespace mgplan::reports
