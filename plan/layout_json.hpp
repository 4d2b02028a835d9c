#pragma once
// Layout out of JSON; the other direction, layout_to_json, is declared with the plan.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout.hpp"

namespace mgplan {

/// Reads what layout_to_json wrote. The derived fields (dp, edp, layers_per_chunk) are checked against what follows from
/// the others. Throws ConfigError with all problems: missing, unknown or ill-typed fields, sizes that contradict each
/// other, a stage split that cannot be.
[[nodiscard]] Layout layout_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
