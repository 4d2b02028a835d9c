#pragma once
// The string form of Megatron-LM's --pipeline-model-parallel-layout: which layers each stage holds.

#include <string>
#include <string_view>
#include <vector>

namespace mgplan {

/// Most letters, and most stages, that a layout string may expand to.
inline constexpr std::size_t kMaxLayoutLetters = 65'536;
inline constexpr std::size_t kMaxLayoutStages = 65'536;

/// Expands a layout string to the letters of each stage: E embedding, t decoder, m MTP layer, L loss; `|` ends a stage,
/// `(…)*n` repeats a group (stage ends included), `x*n` one character; commas mean nothing. Same reading as Megatron-LM
/// (pipeline_parallel_layer_layout.py parse_str_to_list): groups do not nest, groups are unrolled before letters,
/// neither twice. Throws ConfigError with a caret at the spot; refuses long expansions before making them.
[[nodiscard]] std::vector<std::string> parse_pipeline_layout(std::string_view text);

/// A short string that parse_pipeline_layout() expands to exactly these stages: "Et*3|(tt|)*29m|L".
[[nodiscard]] std::string compact_pipeline_layout(const std::vector<std::string>& stages);

}  // namespace mgplan
