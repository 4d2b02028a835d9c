#pragma once
// Names of repositories on the Hugging Face hub, for the presets that stand for them.

#include <span>
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

}  // namespace mgplan::formats
