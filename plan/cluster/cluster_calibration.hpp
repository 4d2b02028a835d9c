#pragma once
// Measurements of a cluster's devices and the parameters of the time model that follow from them: the `calibration` part of a cluster file.
// docs/calibration.md describes the format; `mgplan calibrate` and `mgplan verify --refit` write it.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/numeric_types.hpp"

namespace mgplan {

/// Version of this part of the file; a reader refuses any other.
inline constexpr int kCalibrationVersion = 1;

/// A measured time: the median of the repetitions, and the distance of their quartiles over the median.
struct Timing {
    double seconds = 0;
    double spread = 0;
    std::int64_t repetitions = 0;
    bool operator==(const Timing&) const = default;
};

/// C (m, n) = or += op(A) (m, k) · op(B) (k, n); accumulate: into fp32, with 16-bit operands.
struct ProductTime {
    std::int64_t m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false, accumulate = false;
    Dtype dtype = Dtype::bf16;
    Timing time;
    bool operator==(const ProductTime&) const = default;
};

/// `groups` GEMMs as above in one call, each with its own operands: the experts of an MoE layer, equally full.
struct GroupedProductTime {
    std::int64_t groups = 0;
    std::int64_t m = 0, n = 0, k = 0;  ///< of each
    bool transpose_b = false, accumulate = false;
    Dtype dtype = Dtype::bf16;
    Timing time;
    bool operator==(const GroupedProductTime&) const = default;
};

/// Causal attention of whole sequences. `flops`: of the visible half alone, 4 (forward) or 10 (backward) for each pair and
/// value where both widths are equal.
struct AttentionTime {
    std::int64_t sequence = 0, batch = 0, heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
    bool backward = false;
    Dtype dtype = Dtype::bf16;
    double flops = 0;
    Timing time;
    bool operator==(const AttentionTime&) const = default;
};

/// A kernel bound by memory: an op by its name in traces, and the bytes that it reads and writes.
struct KernelTime {
    std::string op;
    std::int64_t bytes = 0;
    Timing time;
    bool operator==(const KernelTime&) const = default;
};

/// A copy; `way`: host_to_device, device_to_host or device_to_device (which reads and writes each of `bytes`).
struct CopyTime {
    std::string way;
    std::int64_t bytes = 0;
    Timing time;
    bool operator==(const CopyTime&) const = default;
};

/// One operation of a group, ranks averaged, as nccl-tests measure. `bytes` in their sense: of all-gather and
/// reduce-scatter the whole array, of all-to-all what a rank sends, its own part included.
struct CollectiveTime {
    std::string group;  ///< name of the plan's group, or "world"
    std::string op;     ///< all_reduce, all_gather, reduce_scatter, all_to_all or send_receive
    std::int64_t ranks = 0;
    std::int64_t bytes = 0;
    Timing time;
    std::int64_t nodes = 1;  ///< machines that the ranks of one group are on
    bool operator==(const CollectiveTime&) const = default;

    [[nodiscard]] double algorithm_bandwidth() const { return static_cast<double>(bytes) / time.seconds; }
    /// By the factors of nccl-tests, doc/PERFORMANCE.md: all-reduce 2(n-1)/n; all-gather, reduce-scatter and all-to-all
    /// (n-1)/n; send and receive 1.
    [[nodiscard]] double bus_bandwidth() const;
};

/// Device memory that instantiating `graphs` CUDA graphs of `kernels` kernels each takes: free memory before minus free memory after, with
/// all graphs held. Several graphs are measured at a time because a driver takes memory in pieces larger than a graph.
struct GraphMemory {
    std::int64_t kernels = 0;  ///< of each graph
    std::int64_t graphs = 0;
    std::int64_t bytes = 0;        ///< of all of them, median of the repetitions; may be 0
    double spread = 0;             ///< distance of the quartiles over the median; 0 where that is 0
    std::int64_t repetitions = 0;  ///< each with further graphs
    bool operator==(const GraphMemory&) const = default;

    [[nodiscard]] double bytes_of_a_kernel() const { return static_cast<double>(bytes) / static_cast<double>(graphs * kernels); }
};

/// A parameter of the time model and how it came about.
struct CalibratedValue {
    double value = 0;
    std::string source;
    bool operator==(const CalibratedValue&) const = default;
};

/// A correction from a job that ran (`mgplan verify --megatron-log --refit`).
struct Refit {
    std::string log;
    std::int64_t iterations = 0;   ///< the median of these was taken
    double measured_seconds = 0;   ///< of one iteration
    double predicted_seconds = 0;  ///< before
    double compute_factor = 1;     ///< on the efficiencies of products, attention and memory-bound kernels
    double communication_factor = 1;
    bool operator==(const Refit&) const = default;
};

struct ClusterCalibration {
    std::string device;    ///< "cpu" or "cuda": what computed; empty: nothing was measured (a refit alone)
    std::string hardware;  ///< as the device calls itself: "NVIDIA H200", a processor's name
    std::string date;      ///< UTC, 2026-11-21
    std::map<std::string, std::string> versions;
    std::string transport;  ///< carrier of the collectives' data; empty without any
    bool complete = false;  ///< false: measuring stopped on the way, and `parameters` are not there yet
    std::vector<ProductTime> products;
    std::vector<GroupedProductTime> grouped_products;
    std::vector<AttentionTime> attention;
    std::vector<KernelTime> kernels;
    std::vector<CopyTime> copies;
    std::vector<CollectiveTime> collectives;
    std::vector<GraphMemory> graphs;
    Timing launch;  ///< of one op without work: what the host needs to issue it; no repetitions: not measured
    std::map<std::string, CalibratedValue> parameters;
    std::vector<Refit> refits;
    bool operator==(const ClusterCalibration&) const = default;
};

/// A parameter that a calibration may set, by the name of the field of simulator::Calibration, with the values it may have.
struct CalibrationParameter {
    std::string_view name;
    double low;
    double high;
    bool whole = false;
};
[[nodiscard]] std::span<const CalibrationParameter> calibration_parameters();

[[nodiscard]] nlohmann::ordered_json calibration_to_json(const ClusterCalibration& calibration);

/// Throws ConfigError naming `where` and each field that is missing, unknown, ill-typed or out of range (zero, negative,
/// not finite), but of the entries of each list no more than the first few that are wrong.
[[nodiscard]] ClusterCalibration calibration_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
