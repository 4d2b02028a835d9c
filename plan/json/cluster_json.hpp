#pragma once
// ClusterSpec as JSON, the presets, and `--cluster NAME[,key=value…]|FILE`.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan {

[[nodiscard]] nlohmann::ordered_json cluster_to_json(const ClusterSpec& cluster);

/// Throws ConfigError naming `where` and each missing, unknown or ill-typed field; the result has been validated. Its
/// calibration may be incomplete, which load_cluster() refuses.
[[nodiscard]] ClusterSpec cluster_from_json(const nlohmann::ordered_json& json, const std::string& where);

/// The same for the text of a cluster file, which throws for an incomplete calibration too.
[[nodiscard]] ClusterSpec read_cluster(const std::string& text, const std::string& where);

/// Names of the built-in clusters in alphabetical order.
[[nodiscard]] std::vector<std::string> cluster_preset_names();

/// These clusters, in the same order.
[[nodiscard]] std::vector<ClusterSpec> cluster_presets();

/// Reads "dgx-a100-80g,node_network_gbits_per_second=800,gpus_per_node=4" or a file's path; "h100" is dgx-h100, as far as one preset has
/// that GPU. Keys: bf16_tflops, fp8_tflops and nvfp4_tflops (dense),
/// memory_gbytes_per_second, gpus_per_node, nvlink_domain, memory_gib, node_network_gbits_per_second (of the whole node; once
/// node_network_gbps), nvlink_gbytes_per_second (per GPU and direction; once nvlink_gbps), network_kind (or network). A change of
/// gpus_per_node keeps the node's network unless that is given too, and the NVLink domain where it was larger than a node. Throws
/// ConfigError (unknown preset with nearest names, unknown key, value out of range).
[[nodiscard]] ClusterSpec load_cluster(const std::string& text);

/// Names of the keys that load_cluster() reads, in alphabetical order, and true for each of them or an earlier name of one.
[[nodiscard]] std::vector<std::string> cluster_keys();
[[nodiscard]] bool is_cluster_key(const std::string& word);

/// A sentence for each key in `text` that has a clearer name by now: nvlink_gbps is in gigabytes, node_network_gbps in gigabits.
[[nodiscard]] std::vector<std::string> renamed_cluster_keys(const std::string& text);

}  // namespace mgplan
