#include "plan/cluster/cluster_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/cluster/cluster_limits.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

constexpr std::array<std::string_view, 4> kNetworkKinds{"infiniband", "roce", "efa", "slingshot"};

/// NaN fails both comparisons and so is refused as well.
bool within(double value, double low, double high) {
    return value >= low && value <= high;
}

void check_link(Problems& problems, const std::string& where, const char* name, const LinkSpec& link) {
    using namespace cluster_limits;
    if (!within(link.bandwidth, kBandwidth.low, kBandwidth.high))
        problems.add("{}: {}.bandwidth = {:g} is out of range; give bytes per second from {:g} to {:g}", where, name, link.bandwidth,
                     kBandwidth.low, kBandwidth.high);
    if (!within(link.latency, kLatency.low, kLatency.high))
        problems.add("{}: {}.latency = {:g} is out of range; give seconds from {:g} to {:g}", where, name, link.latency, kLatency.low,
                     kLatency.high);
}

void check_count(Problems& problems, const std::string& where, const char* name, std::int64_t value, cluster_limits::Count range) {
    if (value < range.low || value > range.high)
        problems.add("{}: {} = {} is out of range; give a whole number from {} to {}", where, name, value, range.low, range.high);
}

}  // namespace

std::string_view to_string(NetworkKind kind) {
    return kNetworkKinds[static_cast<std::size_t>(kind)];
}

std::optional<NetworkKind> parse_network_kind(std::string_view text) {
    const auto found = std::ranges::find(kNetworkKinds, text);
    if (found == kNetworkKinds.end()) return std::nullopt;
    return static_cast<NetworkKind>(found - kNetworkKinds.begin());
}

std::vector<std::string> network_kind_names() {
    return {kNetworkKinds.begin(), kNetworkKinds.end()};
}

double ClusterSpec::peak(Precision precision) const {
    const auto found = peak_flops.find(precision);
    return found == peak_flops.end() ? 0.0 : found->second;
}

void validate(const ClusterSpec& cluster, const std::string& where) {
    using namespace cluster_limits;
    Problems problems;
    if (cluster.name.empty()) problems.add("{}: name is empty; give the cluster a name", where);
    check_count(problems, where, "memory_bytes", cluster.memory_bytes, kMemoryBytes);
    check_count(problems, where, "host_memory_bytes", cluster.host_memory_bytes, kHostMemoryBytes);
    if (cluster.peak_flops.empty())
        problems.add("{}: peak_flops is empty; give the dense rate of at least one precision, such as \"bf16\": 989.4e12", where);
    for (const auto& [precision, rate] : cluster.peak_flops) {
        if (!within(rate, kPeakFlops.low, kPeakFlops.high))
            problems.add("{}: peak_flops.{} = {:g} is out of range; give FLOP/s from {:g} to {:g}, or leave out what the GPU lacks", where,
                         to_string(precision), rate, kPeakFlops.low, kPeakFlops.high);
    }
    for (const auto& [precision, rate] : cluster.measured_products) {
        if (!(rate <= cluster.peak(precision)))
            problems.add("{}: measured_products.{} = {:g} is above peak_flops, {:g}; give the rate of one product that was measured", where,
                         to_string(precision), rate, cluster.peak(precision));
    }
    if (!within(cluster.memory_bandwidth, kBandwidth.low, kBandwidth.high))
        problems.add("{}: memory_bandwidth = {:g} is out of range; give bytes per second from {:g} to {:g}", where,
                     cluster.memory_bandwidth, kBandwidth.low, kBandwidth.high);
    check_count(problems, where, "gpus_per_node", cluster.gpus_per_node, kGpusPerNode);
    check_count(problems, where, "nvlink_domain", cluster.nvlink_domain, kNvlinkDomain);
    if (cluster.gpus_per_node >= 1 && cluster.nvlink_domain >= 1 && cluster.nvlink_domain % cluster.gpus_per_node != 0 &&
        cluster.gpus_per_node % cluster.nvlink_domain != 0)
        problems.add(
            "{}: nvlink_domain = {} is neither a divisor nor a multiple of gpus_per_node = {}, so that a domain would end "
            "inside a node; use {} or a multiple of it",
            where, cluster.nvlink_domain, cluster.gpus_per_node, cluster.gpus_per_node);
    check_link(problems, where, "nvlink", cluster.nvlink);
    check_link(problems, where, "pcie", cluster.pcie);
    check_link(problems, where, "network", cluster.network);
    check_count(problems, where, "nics_per_node", cluster.nics_per_node, kNicsPerNode);
    check_count(problems, where, "compute_capability", cluster.compute_capability, kComputeCapability);
    check_count(problems, where, "compute_units", cluster.compute_units, kComputeUnits);
    problems.throw_if_any();
}

}  // namespace mgplan
