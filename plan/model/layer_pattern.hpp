#pragma once
// MoE layers of a model, written the way Megatron-LM's --moe-layer-freq writes them: "([0]*3+[1]*58)".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan {

/// Evaluates a list expression of 0 and 1: lists in brackets, + joins, * repeats, parentheses group.
/// Throws ConfigError (with a caret) for anything else, or when the list would be longer than `limit`.
[[nodiscard]] std::vector<bool> parse_layer_pattern(std::string_view text, std::int64_t limit);

/// The shortest run-by-run form: "[0]*3+[1]*58"; "[]" for no layers. parse_layer_pattern reads it back.
[[nodiscard]] std::string layer_pattern_text(const std::vector<bool>& layers);

}  // namespace mgplan
