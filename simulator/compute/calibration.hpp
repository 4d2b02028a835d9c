#pragma once
// What a GPU reaches of its data sheet. Defaults per architecture; what a cluster file of `mgplan calibrate` says replaces them
// (cluster_parameters.hpp).

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layout/layout.hpp"

namespace mgplan::simulator {

/// Efficiencies are fractions of the data sheet's figure, latencies are seconds.
struct Calibration {
    // Matrix products.
    double gemm_efficiency = 0;      ///< of the dense peak, for large products under sustained load
    double fp8_gemm_efficiency = 0;  ///< of operands with one scale each
    double mxfp8_rate = 1;           ///< rate of products in mxfp8, or in blocks that run as such, over that
    double nvfp4_gemm_efficiency = 0;
    bool producers_find_amax = true;    ///< norms and activations find the largest magnitude of what they write
    int nvfp4_casts = 1;                ///< kernels that read a tensor to cast it to nvfp4 along rows and along columns
    double gemm_memory_efficiency = 1;  ///< of the memory bandwidth, for products that wait for it
    double accumulation_share = 0;      ///< part of a weight gradient's read and write of the gradient buffer that nothing hides
    double gemm_k_half = 0;             ///< depth k at which the main loop reaches half its rate: k / (k + k_half)
    int multiprocessors = 0;            ///< SMs; whole waves of tiles are priced
    int tile_m = 128;
    int tile_n = 128;
    double grouped_rows_half = 0;        ///< rows of an expert at which a grouped product reaches half the rate of a plain one
    double grouped_weight_gradient = 1;  ///< rate of a grouped weight gradient over a plain product's of that depth
    // Fused attention; FLOPs counted causally.
    double attention_forward = 0;  ///< of the dense 16-bit peak at long sequences
    double attention_backward = 0;
    double attention_tail = 0;           ///< idle share behind the longest query tile, forward, see KernelTimes
    double attention_tail_backward = 0;  ///< the same of the backward, whose tiles are rows of keys
    double attention_critical = 0;       ///< lower bound of a forward in longest query tiles: they are walked one key block after the other
    double attention_width_forward = 0;  ///< loss of rate per 64 of head width beyond 128
    double attention_width_backward = 0;
    double attention_exponentials_forward = 0;  ///< share of the time at heads of 128 that does not get less with narrower ones
    double attention_exponentials_backward = 0;
    double attention_fp8_forward = 1;  ///< rate of attention over fp8 copies, over that in 16 bits
    double attention_fp8_backward = 1;
    // Everything bound by memory bandwidth.
    double memory_efficiency = 0;
    double softmax_share = 1;            ///< of the plain stream's bandwidth that unfused softmax and dropout of scores reach
    double permutation_share = 1;        ///< the same of moving rows of tokens to experts and back
    double cross_entropy_share = 1;      ///< the same of the loss over the vocabulary
    double kernel_seconds = 0;           ///< start-up and tail of one kernel on the device
    double checkpoint_host_seconds = 0;  ///< host time per layer that full recompute adds (saving and restoring generator states)
    double host_kernel_seconds = 0;      ///< host time to issue one kernel from an eager framework
    double issue_seconds = 0;            ///< the same for a kernel of mgplan's own engine
    // Links: reached fraction of the hardware's bandwidth.
    double nvlink_efficiency = 0;
    double small_group_loss = 0;  ///< share of NVLink's bandwidth that a group of n misses: this / n, set off against eight
    double bandwidth_growth = 0;  ///< power of the bytes with which NVLink's bandwidth grows up to kFullBandwidthBytes
    double nvls_efficiency = 0;   ///< all-reduce through the switch: bytes of the array per second over NVLink bandwidth
    double nvls_seconds = 0;      ///< its fixed cost
    double all_to_all_efficiency = 0;
    double pcie_efficiency = 0;
    double network_efficiency = 0;
    double collective_seconds = 0;     ///< fixed cost of one collective call under NCCL's Simple protocol
    double low_latency_seconds = 0;    ///< the same under LL and LL128 …
    double low_latency_bandwidth = 0;  ///< … and the share of the bandwidth that these reach; 0: not modelled
    double overlap_cost = 0;           ///< share of a hidden collective's time that it takes from the kernel beside it
    double expert_overlap_cost = 0;    ///< the same of an expert exchange behind another microbatch
    // Memory outside the tensor allocator.
    std::int64_t driver_bytes = 0;            ///< an empty CUDA context
    std::int64_t module_bytes = 0;            ///< kernels of the libraries and the framework, loaded at their first use
    std::int64_t graph_node_bytes = 0;        ///< one kernel node of an instantiated CUDA graph
    std::int64_t gemm_workspace_bytes = 0;    ///< cuBLAS, one handle
    std::int64_t engine_workspace_bytes = 0;  ///< Transformer Engine's own for products
    // Optimizer step.
    double optimizer_fixed_seconds = 0;  ///< launches, norm read-back and host work of one step
    double iteration_fixed_seconds = 0;  ///< data loading, scheduler, logging
    // Standard deviations, relative to the part of an iteration that they are about (simulator/uncertainty.hpp).
    double run_deviation = 0;
    double product_deviation = 0;
    double fp8_deviation = 0;
    double expert_deviation = 0;
    double host_deviation = 0;
    double communication_deviation = 0;
};

/// What the host of an engine takes of a step, seconds; the device waits for it where its kernels are shorter.
struct HostSeconds {
    double kernel = 0;      ///< to issue one kernel
    double checkpoint = 0;  ///< per layer that full recompute runs again
    double update = 0;      ///< of the optimizer, whatever its size
    double iteration = 0;   ///< between iterations
};

/// Engine megatron: a Python framework's. Engine mgplan: `issue_seconds` for each; it keeps no states of random generators for
/// recompute, and what its trainer takes beside its ops is not measured on a GPU and counts as nothing (docs/time.md).
[[nodiscard]] HostSeconds host_seconds(const Calibration& calibration, Engine engine);

/// Defaults for the cluster's architecture (compute capability 8.0, 9.0, 10.x). Each figure's source stands beside it.
[[nodiscard]] Calibration default_calibration(const ClusterSpec& cluster);

}  // namespace mgplan::simulator
