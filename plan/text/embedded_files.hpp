#pragma once
// Files that the build puts into the binary (cmake/embed_files.cmake): the presets of configs/.

#include <span>
#include <string_view>

namespace mgplan {

struct EmbeddedFile {
    std::string_view name;  ///< without its folder and without ".json"
    std::string_view text;
};

/// Files of configs/models in alphabetical order.
[[nodiscard]] std::span<const EmbeddedFile> embedded_models();

/// Files of configs/clusters in alphabetical order.
[[nodiscard]] std::span<const EmbeddedFile> embedded_clusters();

/// Files of configs/accuracy: errors of blind runs (reports/blind_accuracy.hpp).
[[nodiscard]] std::span<const EmbeddedFile> embedded_accuracy();

/// Files of configs/recipes in alphabetical order (formats/megatron/bridge_recipes.hpp).
[[nodiscard]] std::span<const EmbeddedFile> embedded_recipes();

}  // namespace mgplan
