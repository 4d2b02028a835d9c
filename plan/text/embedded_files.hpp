#pragma once
// The preset files of configs/, put into the binary at build time (cmake/embed_presets.cmake).

#include <span>
#include <string_view>

namespace mgplan {

struct EmbeddedFile {
    std::string_view name;  ///< without ".json"
    std::string_view text;
};

/// Files of configs/models in alphabetical order.
[[nodiscard]] std::span<const EmbeddedFile> embedded_models();

/// Files of configs/clusters in alphabetical order.
[[nodiscard]] std::span<const EmbeddedFile> embedded_clusters();

/// Files of configs/accuracy: what tests/accuracy/score found last (reports/published_accuracy.hpp).
[[nodiscard]] std::span<const EmbeddedFile> embedded_accuracy();

/// Files of configs/recipes in alphabetical order (formats/megatron/bridge_recipes.hpp).
[[nodiscard]] std::span<const EmbeddedFile> embedded_recipes();

}  // namespace mgplan
