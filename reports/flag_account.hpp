#pragma once
// Lists of a Megatron-LM command's flags by how they were treated, as JSON and as text.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "formats/input/flag_account.hpp"

namespace mgplan::reports {

/// Adds "used", "not_computed" ("--flextron (elastic sub-networks (Flextron))") and "unknown", lists of flags as in the command; the first
/// word of each entry is the flag.
void add_flag_account(nlohmann::ordered_json& json, const formats::FlagAccount& account);

/// True if a flag that is not computed affects a rank's memory (fit), the rules for the command (legality), or the network (model). An
/// unknown flag leaves fit and legality open.
[[nodiscard]] bool leaves_fit_open(const formats::FlagAccount& account);
[[nodiscard]] bool leaves_legality_open(const formats::FlagAccount& account);
[[nodiscard]] bool leaves_model_open(const formats::FlagAccount& account);

/// The flags that make fit or legality unknown: "--flextron (elastic sub-networks (Flextron)) is not computed"; "" if there are none.
[[nodiscard]] std::string why_fit_is_open(const formats::FlagAccount& account);
[[nodiscard]] std::string why_legality_is_open(const formats::FlagAccount& account);

/// Lines for a table: flags that are not computed, and unknown ones; "" if all are used.
[[nodiscard]] std::string flag_account_text(const formats::FlagAccount& account);

}  // namespace mgplan::reports
