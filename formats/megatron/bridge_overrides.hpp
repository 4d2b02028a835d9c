#pragma once
// A plan's layout, batch and overlaps as Megatron-Bridge's command line takes them: overrides of a recipe, section.field=value.

#include <string>
#include <vector>

#include "formats/megatron/megatron_job.hpp"

namespace mgplan::formats {

/// One override for each field that the layout, the batch, recomputation, graphs or overlaps decide, those that are off included, since the
/// recipe may have them on. Model, precision and optimizer stay the recipe's. Throws ConfigError for hybrids with virtual stages, which
/// Megatron-Bridge does not build.
[[nodiscard]] std::vector<std::string> bridge_overrides(const MegatronJob& job);

/// A file for a shell: the overrides as an array MEGATRON_BRIDGE_OVERRIDES=( … ), one a line.
[[nodiscard]] std::string bridge_overrides_text(const MegatronJob& job);

}  // namespace mgplan::formats
