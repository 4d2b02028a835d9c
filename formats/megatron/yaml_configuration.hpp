#pragma once
// The YAML of --yaml-cfg, by which Megatron-LM replaces every flag of the command (arguments.py, parse_args, and yaml_arguments.py at
// d98e8a64).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// The file that the words name by --yaml-cfg; nothing without the flag.
[[nodiscard]] std::optional<std::string> yaml_configuration_of(const std::vector<std::string>& words);

/// Flags and values that say the same as the YAML: arguments by their own names, and the sections language_model and model_parallel by the
/// fields of TransformerConfig and ModelParallelConfig. A field without a flag becomes a flag that is not known. Throws ConfigError for
/// what is no such YAML.
[[nodiscard]] std::vector<std::string> words_of_yaml_configuration(std::string_view text, const std::string& where);

/// Name of the flag, without "--", that the value of a field belongs to.
[[nodiscard]] std::string flag_of_yaml_field(std::string_view field);

/// Returns true for a field whose flag has another name, or that needs none.
[[nodiscard]] bool is_field_of_yaml(std::string_view field);

}  // namespace mgplan::formats
