#pragma once
// A resolved configuration as Megatron-Bridge writes it: the YAML of its ConfigContainer (ConfigContainer.to_yaml, run_config.yaml next to
// a checkpoint).

#include <span>
#include <string>
#include <string_view>

#include "formats/input/job.hpp"
#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// The job that it describes. Fields become Megatron-LM's flags and are judged as these are; the account and all problems name fields
/// ("model.num_layers"). What mixed_precision and comm_overlap say goes before the other sections, as Megatron-Bridge applies it.
/// Throws ConfigError for what is no such file, with all problems: adapters, encoders with decoders, rules of Megatron-Bridge's own.
[[nodiscard]] Job read_bridge_config(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings = {});

/// The same of a file, with the tokenizers in its folder.
[[nodiscard]] Job load_bridge_config(const std::string& path, MegatronSurroundings surroundings = {});

/// The configuration with the changes of `overrides` (YAML; "" for none) and then of `words`, each `section.field=value`, as the launch
/// scripts of Megatron-Bridge apply them: mappings are merged, other values replaced, `~section.field` removes one. Throws ConfigError,
/// naming `where` for the YAML, for what is no mapping and for words of another form.
[[nodiscard]] std::string changed_bridge_config(std::string_view config, std::string_view overrides, const std::string& where,
                                                std::span<const std::string> words);

}  // namespace mgplan::formats
