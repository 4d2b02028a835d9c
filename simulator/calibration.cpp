#include "simulator/calibration.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// An empty context: 426 MiB on an RTX 6000 Ada with CUDA 13 (unsloth-zoo pull request 1053), some 400 MB by PyTorch's
// developers for CUDA 11.7 and later (pytorch issue 109888).
constexpr std::int64_t kDriverBytes = 426 * kMiB;
// Kernels are loaded as they are used (CUDA_MODULE_LOADING=LAZY); an assumption until measured on the device.
constexpr std::int64_t kModuleBytes = 274 * kMiB;

Calibration ampere() {
    Calibration c;
    // stas00/ml-engineering MAMF table: 271 of 312 TFLOP/s at best; products of training shapes reach 0.71-0.79 (SimuMax
    // A100 matmul table) and a little less when a step runs at the power limit.
    c.gemm_efficiency = 0.72;
    c.fp8_gemm_efficiency = 0.72;  // no fp8 units: computed in 16 bits
    c.gemm_k_half = 110;
    c.multiprocessors = 108;
    c.grouped_rows_half = 110;   // SimuMax A100 grouped table: 0.63 at 616 rows, 0.85 of the plain products
    c.attention_forward = 0.60;  // SimuMax sdp tables, A100: 1.07-1.19 of peak counted without the causal mask
    c.attention_backward = 0.48;
    c.attention_tail = 0.6;
    c.memory_efficiency = 0.85;
    c.kernel_seconds = 3e-6;
    // vTrain's runs at hidden 1024 take 3.3 to 3.7 ms per layer whatever the tensor parallel size: the host is the limit. Each
    // kernel priced here stands for the two or three that an eager framework launches.
    c.host_kernel_seconds = 29e-6;
    c.checkpoint_host_seconds = 1.5e-3;
    c.nvlink_efficiency = 0.77;  // nccl-tests, 8 A100: 235 GB/s of bus bandwidth out of 300
    c.nvls_efficiency = 0.77;
    c.all_to_all_efficiency = 0.70;
    c.pcie_efficiency = 0.75;
    c.network_efficiency = 0.80;
    c.collective_seconds = 50e-6;
    c.overlap_cost = 0.25;        // assumed: a collective beside a product takes multiprocessors and memory bandwidth from it
    c.expert_overlap_cost = 0.5;  // Megatron-MoE-ModelZoo, Qwen3-235B with and without: a third to a half of the exchange is saved
    c.driver_bytes = kDriverBytes;
    c.module_bytes = kModuleBytes;
    c.gemm_workspace_bytes = 8 * kMiB + kMiB / 8;  // PyTorch's default before Hopper, :4096:2:16:8
    c.engine_workspace_bytes = 4 * kMiB;           // Transformer Engine, get_cublas_workspace_size_bytes
    c.optimizer_fixed_seconds = 3e-3;
    c.iteration_fixed_seconds = 5e-3;
    return c;
}

Calibration hopper() {
    Calibration c = ampere();
    // MAMF 794 of 989 TFLOP/s in short bursts; under the power limit of a training step 0.65-0.70 remain.
    c.gemm_efficiency = 0.65;
    c.fp8_gemm_efficiency = 0.55;
    c.gemm_k_half = 160;
    c.multiprocessors = 132;
    c.tile_n = 256;
    c.grouped_rows_half = 180;   // no table at hand: between A100 and B200
    c.attention_forward = 0.66;  // cuDNN 9.19 on H200, causal: 591-688 TFLOP/s forward, 474-581 backward
    c.attention_backward = 0.55;
    c.attention_tail = 1.3;
    c.memory_efficiency = 0.82;
    c.kernel_seconds = 2.5e-6;
    c.host_kernel_seconds = 18e-6;
    c.checkpoint_host_seconds = 0.5e-3;
    c.nvlink_efficiency = 0.80;      // nccl-tests, 8 H200: ring all-gather and reduce-scatter 361 of 450 GB/s
    c.nvls_efficiency = 1.06;        // NVLS all-reduce 480 GB/s of bus bandwidth
    c.all_to_all_efficiency = 0.75;  // 340 of 450 GB/s
    c.network_efficiency = 0.85;
    c.gemm_workspace_bytes = 32 * kMiB;  // PyTorch from Hopper on, :4096:8
    c.engine_workspace_bytes = 32 * kMiB;
    c.collective_seconds = 35e-6;  // XLA's tables, H100: 33 MB take 45 us longer than at full bandwidth
    return c;
}

Calibration blackwell(const ClusterSpec& cluster) {
    Calibration c = hopper();
    // SimuMax B200 matmul table: 0.46 to 0.50 for large products under sustained load, 0.65 for short ones. The liquid-cooled
    // racks may draw a fifth more power (1,200 W against 1,000 W in NVIDIA's data sheets).
    c.gemm_efficiency = cluster.nvlink_domain > 8 ? 0.52 : 0.48;
    c.fp8_gemm_efficiency = 0.45;
    c.gemm_k_half = 200;
    c.multiprocessors = 148;
    // SimuMax B200 grouped table: 0.16, 0.25, 0.33, 0.40 and 0.46 at 128, 256, 512, 1,232 and 2,460 rows, 0.50 plain.
    c.grouped_rows_half = 250;
    c.attention_forward = 0.50;  // SimuMax B200 sdp tables, halved for the causal mask
    c.attention_backward = 0.38;
    c.attention_tail = 1.7;
    c.memory_efficiency = 0.67;  // SimuMax B200: 0.666
    c.host_kernel_seconds = 15e-6;
    c.nvlink_efficiency = 0.72;  // 616-682 GB/s of 900
    c.nvls_efficiency = 0.93;    // 838 GB/s
    c.all_to_all_efficiency = 0.66;
    c.collective_seconds = 50e-6;  // XLA's tables, B200: 33 to 134 MB take 36 to 65 us longer than at full bandwidth
    return c;
}

}  // namespace

Calibration default_calibration(const ClusterSpec& cluster) {
    if (cluster.compute_capability >= 100) return blackwell(cluster);
    if (cluster.compute_capability >= 90) return hopper();
    return ampere();
}

}  // namespace mgplan::simulator
