#pragma once
// `--model cfg`: finds out what cfg is and reads it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/job.hpp"

namespace mgplan::importers {

/// cfg is a preset name, a Hugging Face config.json or its folder, a Megatron-LM argument file (flags, a shell script's
/// array, or YAML), or mgplan's own JSON. Throws ConfigError: unknown preset (nearest names), missing or unreadable
/// file, broken JSON or YAML (line and column), missing or absurd fields.
/// `vocab` counts instead of the vocabulary that cfg has, or lacks.
[[nodiscard]] Job load_model(const std::string& cfg, std::optional<std::int64_t> vocab = std::nullopt);

/// A Megatron-LM argument file, with the tokenizers and sourced scripts that lie beside it. Throws ConfigError as read_megatron_text()
/// does.
[[nodiscard]] Job load_megatron_arguments(const std::string& path, std::optional<std::int64_t> vocab = std::nullopt);

/// Names of the built-in presets in alphabetical order.
[[nodiscard]] std::vector<std::string> preset_names();

/// Reads a whole text file of at most `limit` bytes; throws ConfigError naming `what`, the path and the reason.
[[nodiscard]] std::string read_text_file(const std::string& path, std::string_view what, std::size_t limit = 16U << 20U);

}  // namespace mgplan::importers
