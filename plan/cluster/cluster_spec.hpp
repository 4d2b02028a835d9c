#pragma once
// The hardware of a job: one kind of GPU, the links inside a node or NVLink domain, and the network between them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/cluster/cluster_calibration.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// A link as a latency-bandwidth pair.
struct LinkSpec {
    double bandwidth = 0;  ///< bytes per second and direction, per GPU, of the hardware (before any efficiency)
    double latency = 0;    ///< seconds for one message
    bool operator==(const LinkSpec&) const = default;
};

/// One homogeneous cluster. Bandwidths in bytes/s, rates in FLOP/s, latencies in seconds, memory in bytes.
/// Fabric between nodes. It decides the rate of an all-to-all and which dispatchers reach other nodes.
enum class NetworkKind : std::uint8_t { infiniband, roce, efa, slingshot };

[[nodiscard]] std::string_view to_string(NetworkKind kind);
[[nodiscard]] std::optional<NetworkKind> parse_network_kind(std::string_view text);
[[nodiscard]] std::vector<std::string> network_kind_names();

struct ClusterSpec {
    std::string name;
    std::string gpu;                         ///< "H100-SXM5-80GB"
    std::int64_t memory_bytes = 0;           ///< usable device memory (what the driver reports as total)
    std::map<Precision, double> peak_flops;  ///< dense matrix rate per precision
    /// Fastest matrix product that anybody measured, FLOP/s per precision; empty if the architecture's own shares of the peak are known.
    std::map<Precision, double> measured_products;
    double memory_bandwidth = 0;
    std::int64_t host_memory_bytes = 0;  ///< of a node, for all its ranks together; 0: not known
    double gpu_watts = 0;                ///< power limit of a GPU; 0: not known
    int gpus_per_node = 8;
    int nvlink_domain = 8;      ///< GPUs that reach each other through NVLink (72 for an NVL72 rack; 1: none)
    LinkSpec nvlink;            ///< per GPU, to all others of its domain together
    bool direct_links = false;  ///< each pair of a domain has a link of its own (AMD's xGMI): n ranks use n-1 of a GPU's links
    LinkSpec pcie;              ///< per GPU, inside a node without NVLink
    LinkSpec host;              ///< per GPU, to the host's memory; no bandwidth: that of PCIe
    LinkSpec network;           ///< per GPU: the node's network divided by gpus_per_node
    NetworkKind network_kind = NetworkKind::infiniband;
    int nics_per_node = 8;
    bool nvls = false;                           ///< in-switch reductions (NVLink SHARP)
    int compute_capability = 90;                 ///< 80, 90, 100, 103
    int compute_units = 0;                       ///< multiprocessors of AMD's GPUs; 0: the number of the compute capability
    std::map<std::string, std::string> sources;  ///< field -> where its figure comes from
    /// Measurements of such devices; their parameters take precedence over the defaults of the architecture.
    std::optional<ClusterCalibration> calibration;

    bool operator==(const ClusterSpec&) const = default;

    /// GPUs that reach each other without the network: the NVLink domain, or the node where there is no NVLink (PCIe).
    [[nodiscard]] int fast_domain() const { return nvlink_domain > 1 ? nvlink_domain : gpus_per_node; }
    /// Bytes/s of each direction between a GPU and its host's memory.
    [[nodiscard]] double host_bandwidth() const { return host.bandwidth > 0 ? host.bandwidth : pcie.bandwidth; }
    /// True if DeepEP and HybridEP reach other nodes: both post RDMA verbs of InfiniBand or RoCE from the GPU.
    [[nodiscard]] bool gpus_post_to_network() const { return network_kind == NetworkKind::infiniband || network_kind == NetworkKind::roce; }
    /// Dense peak of a precision; 0 where the GPU has none.
    [[nodiscard]] double peak(Precision precision) const;
};

/// Checks ranges (all sizes and rates positive and finite) and throws one ConfigError with all problems.
void validate(const ClusterSpec& cluster, const std::string& where);

}  // namespace mgplan
