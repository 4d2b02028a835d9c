#pragma once
// Releases of NVIDIA's training containers: the libraries below a framework change what a GPU reaches.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgplan {

/// In order of time. nemo-25.09 and so on, as Megatron-Bridge's performance summaries name them.
enum class Software : std::uint8_t { v25_04, v25_09, v25_11, v26_02, v26_02_01, v26_04, v26_04_01, v26_06, v26_06_01, v26_08 };

inline constexpr Software kNewestSoftware = Software::v26_08;

/// "25.09".
[[nodiscard]] std::string_view to_string(Software software);
[[nodiscard]] std::optional<Software> parse_software(std::string_view text);
/// Known releases, oldest first, joined by commas.
[[nodiscard]] std::string known_software();
/// The known release that is nearest in time to `text`, which need not be one ("25.10" -> 25.09); the newest where it is no release.
[[nodiscard]] Software nearest_software(std::string_view text);

}  // namespace mgplan
