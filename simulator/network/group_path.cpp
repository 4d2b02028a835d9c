#include "simulator/network/group_path.hpp"

#include <algorithm>

#include "plan/cluster/nvlink_domains.hpp"

namespace mgplan::simulator {

GroupPath group_path(std::span<const GridAxis> axes, const ClusterSpec& cluster, const Calibration& calibration, std::int64_t world) {
    const std::int64_t domain = used_gpus_of_domain(cluster, world);
    GroupPath path;
    for (const auto& axis : axes) {
        path.ranks *= axis.size;
        // Members along this axis inside one domain: neighbours are `stride` ranks apart.
        path.ranks_per_domain *= std::clamp<std::int64_t>(domain / std::max<std::int64_t>(axis.stride, 1), 1, axis.size);
    }
    path.ranks_per_domain = std::min(path.ranks_per_domain, path.ranks);
    // Small groups drive fewer channels (calibration.cpp).
    const double members = static_cast<double>(std::max<std::int64_t>(2, path.ranks_per_domain));
    const double links = members - 1, all_links = static_cast<double>(std::max(2, cluster.fast_domain())) - 1;
    const double small_group = cluster.direct_links
                                   ? std::min(1.0, links / all_links)
                                   : std::min(1.0, (1 - calibration.small_group_loss / members) / (1 - calibration.small_group_loss / 8));
    const bool by_nvlink = cluster.nvlink_domain > 1;
    path.inside = by_nvlink ? small_group * cluster.nvlink.bandwidth * calibration.nvlink_efficiency
                            : cluster.pcie.bandwidth * calibration.pcie_efficiency;
    path.network = cluster.network.bandwidth * calibration.network_efficiency;
    path.message_growth = calibration.message_growth;
    path.exchange_stage = calibration.exchange_stage;
    path.latency_inside = by_nvlink ? cluster.nvlink.latency : cluster.pcie.latency;
    path.latency = path.crosses_network() ? cluster.network.latency : path.latency_inside;
    path.one_port = !by_nvlink;
    if (by_nvlink) path.growth = calibration.bandwidth_growth;
    // NCCL uses NVLS from five ranks of one domain on (ml-engineering, H200 and B200 by number of GPUs).
    if (by_nvlink && cluster.nvls && !path.crosses_network() && path.ranks > 4)
        path.in_switch = cluster.nvlink.bandwidth * calibration.nvls_efficiency;
    return path;
}

GridAxis axis_of_parts(const GridAxis& data, std::int64_t parts, bool same) {
    if (same) return {data.axis, std::max<std::int64_t>(1, data.size / parts), data.stride * parts};
    return {data.axis, std::min(parts, data.size), data.stride};
}

}  // namespace mgplan::simulator
