#pragma once
// GPUs of each NVLink domain that a job takes if a domain spans nodes: 64 of a rack's 72, so that all domains hold the same number.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan {

/// True if an NVLink domain is a rack of several nodes, such as an NVL72's.
[[nodiscard]] inline bool spans_nodes(const ClusterSpec& cluster) {
    return cluster.nvlink_domain > cluster.gpus_per_node;
}

/// GPUs of each domain that a job of `world` ranks takes: the most whole nodes of a domain that divide the world, since ranks fill domains
/// one after the other and HybridEP (NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN) and Slurm's --segment want domains that are alike. The whole
/// domain where it is no larger than a node, holds the world, or nothing divides that.
[[nodiscard]] inline std::int64_t used_gpus_of_domain(const ClusterSpec& cluster, std::int64_t world) {
    const std::int64_t domain = cluster.fast_domain(), node = cluster.gpus_per_node;
    if (!spans_nodes(cluster) || world <= domain) return domain;
    for (std::int64_t gpus = domain; gpus >= node; gpus -= node) {
        if (world % gpus == 0) return gpus;
    }
    return domain;
}

}  // namespace mgplan
