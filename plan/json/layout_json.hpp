#pragma once
// A layout as JSON, both ways.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout/layout.hpp"

namespace mgplan {

/// The layout with the fields of CLI.md plus what reading it back needs (world, the split's own request under "split").
[[nodiscard]] nlohmann::ordered_json layout_to_json(const Layout& layout);

/// Reads what layout_to_json wrote. The derived fields (dp, edp, layers_per_chunk) are checked against what follows from
/// the others. Throws ConfigError with all problems: missing, unknown or ill-typed fields, sizes that contradict each
/// other, a stage split that cannot be.
[[nodiscard]] Layout layout_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
