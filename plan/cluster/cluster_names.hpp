#pragma once
// Maps a GPU's name to a cluster: the short one that people type, and the one that a driver gives a card.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan {

/// Names of those of `clusters` that a short name means: "h100" is dgx-h100, "gb200" gb200-nvl72; "a100" may be any of three. Clusters
/// that were calibrated are left out: they repeat another one with measurements of a card.
[[nodiscard]] std::vector<std::string> clusters_of_gpu(std::string_view gpu, std::span<const ClusterSpec> clusters);

/// Names of those of `clusters` whose GPU the driver's name of a card means: "NVIDIA H200" is an H200-SXM-141GB and neither an H20 nor a
/// GB200, "NVIDIA A100-PCIE-80GB" no A100-SXM4-80GB, and "NVIDIA H100 NVL" none. Calibrated clusters are left out here too.
[[nodiscard]] std::vector<std::string> clusters_of_card(std::string_view card, std::span<const ClusterSpec> clusters);

}  // namespace mgplan
