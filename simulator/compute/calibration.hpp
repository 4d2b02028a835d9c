#pragma once
// Efficiencies of a GPU relative to its data sheet. Defaults per architecture; values in a cluster file of `mgplan calibrate` replace them
// (cluster_parameters.hpp).

#include <limits>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layout/layout.hpp"

namespace mgplan::simulator {

/// Standard deviations, relative to the part of an iteration that they describe (simulator/uncertainty.hpp).
struct Deviations {
    double run = 0, products = 0, fp8 = 0, experts = 0, host = 0, communication = 0;
};

/// Efficiencies are fractions of the data sheet's figure, latencies are seconds.
struct Calibration {
    // GEMMs.
    double gemm_efficiency = 0;      ///< share of the dense peak that large GEMMs reach under sustained load
    double fp8_gemm_efficiency = 0;  ///< share of the fp8 peak, operands with one scale per tensor
    double mxfp8_rate = 1;           ///< rate of GEMMs in mxfp8, or in blocks that run as mxfp8, relative to fp8_gemm_efficiency
    double nvfp4_gemm_efficiency = 0;
    bool producers_find_amax = true;    ///< norms and activations compute the amax of their output
    int nvfp4_casts = 1;                ///< kernels that read a tensor to cast it to nvfp4 along rows and columns
    double gemm_memory_efficiency = 1;  ///< share of the memory bandwidth that memory-bound GEMMs reach
    double accumulation_share = 0;      ///< exposed share of a weight gradient's read and write of the gradient buffer
    double gemm_k_half = 0;             ///< depth k at which the main loop reaches half its rate: k / (k + k_half)
    int multiprocessors = 0;            ///< SMs; GEMMs run in whole waves of tiles
    int tile_m = 128;
    int tile_n = 128;
    double grouped_rows_half = 0;        ///< rows of an expert at which a grouped GEMM reaches half the rate of a plain one
    double grouped_weight_gradient = 1;  ///< rate of a grouped weight gradient relative to a plain GEMM of that depth
    // Fused attention; FLOPs counted causally.
    double attention_forward = 0;  ///< share of the dense 16-bit peak at long sequences
    double attention_backward = 0;
    double attention_tail = 0;           ///< idle share after the longest query tile, forward, see KernelTimes
    double attention_tail_backward = 0;  ///< idle share after the longest tile of keys, backward
    double attention_critical = 0;  ///< lower bound of a forward in longest query tiles, each of which visits its key blocks in sequence
    double attention_width_forward = 0;  ///< loss of rate per 64 of head width above 128
    double attention_width_backward = 0;
    double attention_exponentials_forward = 0;  ///< share of the time at heads of 128 that stays constant with narrower heads
    double attention_exponentials_backward = 0;
    double attention_fp8_forward = 1;  ///< rate of attention over fp8 copies relative to 16 bits
    double attention_fp8_backward = 1;
    double scan_forward = 0;  ///< FLOP/s of Triton kernels that run a recurrence by chunks; 0: as GEMMs
    double scan_backward = 0;
    // Memory-bound kernels.
    double memory_efficiency = 0;
    double softmax_share = 1;            ///< share of the streaming bandwidth that unfused softmax and dropout of scores reach
    double permutation_share = 1;        ///< share of the streaming bandwidth reached by moves of token rows to experts and back
    double cross_entropy_share = 1;      ///< share of the streaming bandwidth reached by the loss over the vocabulary
    double atomic_adds = 0;              ///< values a second that a kernel adds to scattered rows; 0: as fast as it reads them
    double kernel_seconds = 0;           ///< start-up and end of one kernel on the device
    double checkpoint_host_seconds = 0;  ///< host time per layer that full recompute adds (saves and restores generator states)
    double host_kernel_seconds = 0;      ///< host time to launch one kernel from an eager framework
    double synchronised_host = 1;        ///< factor of it where the host waits for the device in every layer or stage
    double issue_seconds = 0;            ///< host time to launch one kernel of mgplan's own engine
    // Links: share of the hardware's bandwidth.
    double nvlink_efficiency = 0;
    double small_group_loss = 0;  ///< a group of n loses this / n of NVLink's bandwidth, relative to a group of eight
    double bandwidth_growth = 0;  ///< exponent with which NVLink's bandwidth grows with the bytes, up to kFullBandwidthBytes
    double nvls_efficiency = 0;   ///< all-reduce through the switch: bytes of the array per second over NVLink bandwidth
    double nvls_seconds = 0;      ///< fixed cost of an all-reduce through the switch
    double all_to_all_efficiency = 0;
    double pcie_efficiency = 0;
    double network_efficiency = 0;
    double message_growth = 0;         ///< exponent with which an all-to-all's network bandwidth grows with the bytes for a peer
    double exchange_stage = 0;         ///< bytes/s of a stage that an all-to-all passes after the network; 0: none
    double collective_seconds = 0;     ///< fixed cost of one collective call under NCCL's Simple protocol
    double low_latency_seconds = 0;    ///< fixed cost under the LL and LL128 protocols
    double low_latency_bandwidth = 0;  ///< share of the bandwidth under LL and LL128; 0: not modelled
    double overlap_cost = 0;           ///< share of a hidden collective's time by which it slows down the concurrent kernel
    double expert_overlap_cost = 0;    ///< share of a hidden expert exchange's time by which it slows down the other microbatch
    // Memory outside the tensor allocator.
    std::int64_t driver_bytes = 0;            ///< an empty CUDA context
    std::int64_t module_bytes = 0;            ///< kernels of the libraries and the framework, loaded at their first use
    std::int64_t graph_node_bytes = 0;        ///< one kernel node of an instantiated CUDA graph
    std::int64_t gemm_workspace_bytes = 0;    ///< cuBLAS, one handle
    std::int64_t engine_workspace_bytes = 0;  ///< Transformer Engine's own, for GEMMs
    // Optimizer step.
    double optimizer_fixed_seconds = 0;  ///< launches, norm read-back and host work of one step
    /// Parameters a second that a process updates by Adam in host memory; infinite: in no time.
    double host_updates = std::numeric_limits<double>::infinity();
    double iteration_fixed_seconds = 0;  ///< data loading, scheduler, logging
    Deviations faster, slower;           ///< of runs that are faster than predicted, and slower
};

/// Host time in a step by engine, in seconds; the device waits for it if its kernels are shorter.
struct HostSeconds {
    double kernel = 0;      ///< to launch one kernel while it runs ahead of the device
    double waiting = 0;     ///< to launch one where it waits for the device in every layer or stage
    double checkpoint = 0;  ///< per layer that full recompute repeats
    double update = 0;      ///< optimizer step, independent of its size
    double iteration = 0;   ///< between iterations
};

/// Engine megatron: host times of a Python framework. Engine mgplan: only `issue_seconds` per kernel; it saves no generator states for
/// recompute, and its trainer's time between ops is not measured on a GPU and counts as 0 (docs/time.md).
[[nodiscard]] HostSeconds host_seconds(const Calibration& calibration, Engine engine);

/// Defaults for the cluster's architecture (compute capability 8.0, 9.0, 10.x). The code names the source of each figure.
[[nodiscard]] Calibration default_calibration(const ClusterSpec& cluster);

}  // namespace mgplan::simulator
