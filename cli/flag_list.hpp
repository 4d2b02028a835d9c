#pragma once
// Megatron-LM's flags in mgplan: which a prediction honours, and which not, and why.

#include <string>

#include "reports/table.hpp"

namespace mgplan::cli {

/// A row for each flag of the table (formats/megatron/megatron_flags.hpp), by name: flag, what it is to a prediction ("used", "not
/// computed", "without effect"), and of those not computed their feature and what stays open ("time alone", "fits", "legal and fits").
[[nodiscard]] reports::Table flag_list();

/// The table as text, and how many flags of each kind there are.
[[nodiscard]] std::string flag_list_text();

/// [{"flag", "effect", "asks_for", "leaves_open"}]: the same; texts that do not apply are null.
[[nodiscard]] std::string flag_list_json();

}  // namespace mgplan::cli
