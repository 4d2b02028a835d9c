#pragma once
// `--model cfg`: finds out what cfg is and reads it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/input/job.hpp"
#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// Options for reading a model.
struct ModelReading {
    std::optional<std::int64_t> vocab;  ///< tokens, in place of the vocabulary that the model has, or lacks
    std::string assume{};               ///< type to read an unknown model_type as (read_hugging_face); "": it is refused
};

/// cfg is a preset name, a Hugging Face config.json or its folder, a Megatron-LM argument file (flags, a shell script's
/// array, or YAML), mgplan's own JSON, or a repository of the Hugging Face hub that a preset stands for (meta-llama/Llama-3.1-70B).
/// Throws ConfigError: unknown preset (nearest names), missing or unreadable file, broken JSON or YAML (line and column), missing or
/// absurd fields.
[[nodiscard]] Job load_model(const std::string& cfg, const ModelReading& how = {});

/// The text of such a file, which `name` stands for in messages and as the model's name where the text has none. A command's tokenizers
/// and sourced scripts are looked for in the working folder.
[[nodiscard]] Job read_model_text(const std::string& text, const std::string& name, const ModelReading& how = {});

/// A Megatron-LM argument file, with the tokenizers and sourced scripts in its folder where no folder is named. Throws ConfigError as
/// read_megatron_text() does.
[[nodiscard]] Job load_megatron_arguments(const std::string& path, MegatronSurroundings surroundings = {});
/// Reads such a file's text; messages name it `name`.
[[nodiscard]] Job read_megatron_arguments_text(const std::string& text, const std::string& name, MegatronSurroundings surroundings);

/// The text of a built-in preset; nothing for another name.
[[nodiscard]] std::optional<std::string_view> preset_text(std::string_view name);

/// Names of the built-in presets in alphabetical order.
[[nodiscard]] std::vector<std::string> preset_names();

}  // namespace mgplan::formats
