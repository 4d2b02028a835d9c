#pragma once
// Megatron-LM's flags in mgplan: those that a prediction honours, those that it does not, and the reasons.

#include <string>

#include "reports/table.hpp"

namespace mgplan::cli {

/// Returns a row for each flag of the table (formats/megatron/megatron_flags.hpp), by name: flag, effect ("used", "not computed",
/// "without effect"), and for those not computed the feature and the open question ("time alone", "fits", "legal and fits").
[[nodiscard]] reports::Table flag_list();

/// Returns the table as text, with the number of flags of each kind.
[[nodiscard]] std::string flag_list_text();

/// [{"flag", "effect", "asks_for", "leaves_open"}]: the same; texts that do not apply are null.
[[nodiscard]] std::string flag_list_json();

}  // namespace mgplan::cli
