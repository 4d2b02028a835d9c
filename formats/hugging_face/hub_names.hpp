#pragma once
// Names of repositories on the Hugging Face hub, for the presets that stand for them.

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mgplan::formats {

/// True if the text has the form OWNER/NAME of a repository, and is no path that starts with "." or "/" or names a file of a kind that
/// mgplan reads.
[[nodiscard]] bool looks_like_hub_name(std::string_view text);

/// Repositories that are named one by one, and their presets.
[[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> hub_repositories();

/// The preset of a repository, whatever the case of its letters; "": there is none. A repository has a preset if both have the same layers
/// and rotary embedding; instruction-tuned ones are the same network.
[[nodiscard]] std::string_view preset_of_hub_name(std::string_view repository);

/// Lower-case letters and digits alone: "mixtral_8x7B_v0.1" and "Mixtral-8x7B-v0.1" are one name.
[[nodiscard]] std::string plain_name(std::string_view name);

/// The preset that a prediction for a repository may take: preset_of_hub_name(), also for mirrors of other owners, quantised copies and
/// trained successors whose rotary embedding alone differs (Qwen3-…-Instruct-2507, Qwen2.5-Math, DeepSeek-R1-Distill).
[[nodiscard]] std::string_view preset_with_layers_of(std::string_view repository);

/// A repository's name for messages, with that of the preset whose layers stand for it: "Qwen/Qwen2-7B with the layers of qwen2.5-7b".
[[nodiscard]] std::string named_with_layers(const std::string& repository);

}  // namespace mgplan::formats
