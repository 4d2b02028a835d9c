#include "simulator/compute/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "plan/cluster/architectures.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// An empty context: 426 MiB on an RTX 6000 Ada with CUDA 13 (unsloth-zoo pull request 1053), some 400 MB by PyTorch's
// developers for CUDA 11.7 and later (pytorch issue 109888).
constexpr std::int64_t kDriverBytes = 426 * kMiB;
// Kernels are loaded at their first use (CUDA_MODULE_LOADING=LAZY); an assumption until measured on the device.
constexpr std::int64_t kModuleBytes = 274 * kMiB;
// A user's measurements with driver 470 and CUDA 11.2: 362, 395 and 458 MiB with 500, 1,000 and 2,000 empty kernels, 63 to 66 KiB
// each (forums.developer.nvidia.com, "Increasing memory footprint with large task graphs", thread 244901). An assumption for
// other drivers.
constexpr std::int64_t kGraphNodeBytes = std::int64_t{64} << 10;

Calibration ampere() {
    Calibration c;
    // SimuMax's A100 tables (183 plain, 12 grouped GEMMs; PCIe card): 0.76 at full depth and full waves; one model of depth, waves and
    // accumulation matches them within 4 % on average. In a training step at the power limit 0.75: the layer of Korthikanti et al. (arXiv
    // 2205.05198, table 4, 22B on 8 SXM cards) takes 4 to 5 % longer than that predicts, the four layers of a stage of
    // sail-sg/VocabularyParallelism (artifact/exp_one_host.csv, hidden 3,072) 4 to 5 % less.
    c.gemm_efficiency = 0.75;
    c.fp8_gemm_efficiency = 0.76;  // no fp8 units: computed in 16 bits
    c.gemm_memory_efficiency = 0.95;
    c.accumulation_share = 0.3;
    c.gemm_k_half = 78;
    c.multiprocessors = 108;
    c.grouped_rows_half = 58;
    c.grouped_weight_gradient = 0.95;
    // SimuMax's sdp tables, A100, 4 to 128 heads, halved for the causal mask: matched within 3 %.
    c.attention_forward = 0.65;
    c.attention_backward = 0.525;
    c.attention_tail = 0.77;
    c.attention_tail_backward = 1.08;
    c.attention_width_forward = 0.09;
    c.attention_width_backward = 0.23;
    // Slower than an H200 by what hopper() says of Mamba-2's training.
    c.scan_forward = 75e12 / 2.1;
    c.scan_backward = 26e12 / 2.1;
    c.memory_efficiency = 0.75;  // SimuMax A100: 1,456 GB/s of the PCIe card's 1,935
    // Korthikanti et al.: recomputing the attention core takes 1.3 ms of a layer, 32 heads of 2,048² scores on a rank.
    c.softmax_share = 0.7;
    c.permutation_share = 0.2;     // SimuMax A100, permute: 300 GB/s
    c.cross_entropy_share = 0.85;  // SimuMax A100, ce: 1,290 GB/s
    c.kernel_seconds = 3e-6;
    // vTrain's runs at hidden 1024 take 3.3 to 3.7 ms per layer at any tensor parallel size: the host is the limit. Each of the some 60
    // kernels counted here with recompute represents the two or three that an eager framework launches.
    c.host_kernel_seconds = 31e-6;
    c.checkpoint_host_seconds = 1.5e-3;
    // All-reduces of 2, 4 and 8 by size: nccl-tests (8), Galvatron (2, 4) and vTrain's tables for its own simulator (2 to 8): 235 GB/s of
    // bus bandwidth out of 300 at gigabytes, 170 to 200 at 64 to 128 MiB, 2 members an eighth below 8. These six numbers are the best of a
    // grid by the mean error over the three sources, 7.6 % (tests/simulator/collective_curves_test.cpp).
    c.nvlink_efficiency = 0.77;
    c.small_group_loss = 0.2;
    c.bandwidth_growth = 0.06;
    c.all_to_all_efficiency = 0.66;
    c.collective_seconds = 35e-6;
    c.low_latency_seconds = 14e-6;
    c.low_latency_bandwidth = 0.15;
    c.pcie_efficiency = 0.75;
    c.network_efficiency = 0.80;
    // nccl-tests' all-to-all over EFA, 32 MiB to 2 GiB of 16 to 256 H100 (crazyguitar/aws-gpu-communication-benchmark,
    // data/nccl_alltoall.csv) and 56 to 64 MiB of 16 to 256 H100 and B300 (awslabs/awsome-distributed-ai, ep-backend-comparison): a rank's
    // network reaches its full rate with some 8 MiB for each peer, and less with less, whatever the number of nodes. InfiniBand is alike:
    // 64 H800 with 128 KiB a peer (NVIDIA/nccl, issue 1531). The exponent has the least mean error over the first two sources: 8.8 %, where
    // a constant rate has 18 %.
    c.message_growth = 0.12;
    c.overlap_cost = 0.25;  // assumed: a collective takes multiprocessors and memory bandwidth from a concurrent GEMM
    // Megatron-MoE-ModelZoo, Qwen3-235B on H100 over four nodes without and with overlap: 19.7 and 17.6 s. Simulated in Megatron-LM's
    // order, this share saves the same 2.1 s.
    c.expert_overlap_cost = 0.55;
    c.driver_bytes = kDriverBytes;
    c.module_bytes = kModuleBytes;
    c.graph_node_bytes = kGraphNodeBytes;
    c.gemm_workspace_bytes = 8 * kMiB + kMiB / 8;  // PyTorch's default before Hopper, :4096:2:16:8
    c.engine_workspace_bytes = 4 * kMiB;           // Transformer Engine, get_cublas_workspace_size_bytes
    // vTrain's smallest runs: 2 to 4 ms an iteration on top of their layers, ends and optimizer traffic.
    c.optimizer_fixed_seconds = 1e-3;
    c.iteration_fixed_seconds = 2e-3;
    // Uncertainty. Two measurements of the same layout differ by 1 to 3 % (nvidia-dgxc by container, nemo-perf by page); the GEMM tables
    // are matched within 4 % (A100) and 12 % (B200) per GEMM, less in sums; the host times of the functional tests scatter by 15 % from run
    // to run; the collective tables are matched within 10 to 25 %. fp8 and experts: assumed, no table.
    c.faster = {.run = 0.03, .products = 0.06, .fp8 = 0.06, .experts = 0.06, .host = 0.15, .communication = 0.25};
    // Runs of others are slower more often than faster: software without a kernel that is counted here, hosts without bound cores, networks
    // with other traffic. These four follow from the errors of the runs in tests/accuracy/blind (docs/time.md, Interval).
    c.slower = {.run = 0.15, .products = 0.06, .fp8 = 0.06, .experts = 0.12, .host = 0.5, .communication = 1.2};
    return c;
}

Calibration hopper() {
    Calibration c = ampere();
    // MAMF 794 of 989 TFLOP/s in short bursts; under the power limit of a training step 0.65-0.70 remain.
    c.gemm_efficiency = 0.65;
    // MAMF again: 1,403 of 1,979 TFLOP/s in fp8, of which the same share remains. Casts are counted separately
    // (simulator/piece/fp8_time_policies.cpp). XLA's tables of 4,096 by 4,096, four at once: half the rate at a depth of 165 in 16 bits, of
    // 306 to 320 in fp8.
    c.fp8_gemm_efficiency = 0.57;
    c.gemm_k_half = 160;
    c.multiprocessors = 132;
    c.tile_n = 256;
    c.grouped_rows_half = 120;  // no table available: between A100 and B200
    c.grouped_weight_gradient = 0.9;
    c.attention_forward = 0.66;  // cuDNN 9.19 on H200, causal: 591-688 TFLOP/s forward, 474-581 backward
    c.attention_backward = 0.55;
    // Per tile 2,048 cycles of GEMMs and 1,024 of exponentials (see Blackwell below); backward: 5,120 and 1,024 of 9,309.
    c.attention_exponentials_forward = 1024.0 / 3072;
    c.attention_exponentials_backward = 1024.0 / (5120 / 0.55);
    c.attention_fp8_forward = 3072.0 / 2048;
    c.attention_fp8_backward = (5120 / 0.55) / (5120 / 0.55 - 2560);
    c.attention_tail = 1.3;
    c.attention_tail_backward = 1.3;
    c.attention_width_forward = 0.05;  // no table available: between A100 and B200
    c.attention_width_backward = 0.25;
    // mamba_ssm's forward on H100, 128 heads of 64, states of 128, one group, chunks of 256: 12.1 to 12.9 million tokens/s at 4,096 to
    // 16,384 tokens, 10.7 to 11.1 million at 65,536 and more (vllm-project/vllm, pull request 27299, five kernels), 68 to 82 TFLOP/s of the
    // algorithm. The backward follows from training: Mamba-2 of 1.34 billion parameters, 48 layers of 64 heads, 4 sequences of 4,096,
    // reaches 102.5 TFLOP/s on A100, 239.2 on H200 and 360.4 on GB200 (state-spaces/mamba, issue 904; taken as six for each parameter and
    // token). Less GEMMs at the rates of this file a layer takes 7.2 ms on H200, 2.1 times as long on A100, 1 / 1.32 of it on GB200.
    // Less 1.2 ms of traffic (convolution, norms, loss, optimizer) and the forward's 0.7, 5.3 ms are left for 139 GFLOP.
    c.scan_forward = 75e12;
    c.scan_backward = 26e12;
    c.memory_efficiency = 0.82;
    c.permutation_share = 0.6;    // no table available: between A100 and B200
    c.cross_entropy_share = 0.6;  // no table available: between A100 and B200
    c.kernel_seconds = 2.5e-6;
    // Megatron-LM's functional tests at hidden 512 (commit d98e8a64dd, gpt3_mcore_te_tp2_pp2_* and tp4_pp2_*: 6 layers a stage) take 0.118
    // and 0.195 s on DGX-H100 with 4 and 8 microbatches: 4 more passes of a stage add 3.2 ms a layer, forward and backward, of 36 kernels
    // counted here. Transformer Engine's modules cost the host more than those of 2022.
    c.host_kernel_seconds = 88e-6;
    c.checkpoint_host_seconds = 0.5e-3;
    // XLA's tables of rings among 2, 4 and 8: all-gathers and reduce-scatters of 8 reach 325 to 360 of 450 GB/s, all kinds among 2 a fifth
    // less; matched within 8 % on average from 4 MiB on. nccl-tests on 8 H100 and H200: 361 GB/s, and for the NVLS all-reduce of 17 GB 480
    // GB/s of bus bandwidth, that is 274 of the array (tests/simulator/collective_curves_test.cpp).
    c.nvlink_efficiency = 0.77;
    c.small_group_loss = 0.6;
    c.bandwidth_growth = 0.06;
    c.nvls_efficiency = 0.60;
    c.nvls_seconds = 40e-6;
    c.all_to_all_efficiency = 0.75;
    c.collective_seconds = 25e-6;
    c.low_latency_seconds = 17e-6;
    c.low_latency_bandwidth = 0.7;
    c.network_efficiency = 0.85;
    c.gemm_workspace_bytes = 32 * kMiB;  // PyTorch from Hopper on, :4096:8
    c.engine_workspace_bytes = 32 * kMiB;
    return c;
}

/// Power limit of the GPU on which sustained GEMMs were measured.
constexpr double kB200Watts = 1000;
constexpr double kPowerGrowth = 1.0305;  ///< ln(0.505 · 2,500 / (0.465 · 2,250)) / ln 1.2

Calibration blackwell(const ClusterSpec& cluster) {
    Calibration c = hopper();
    // SimuMax's B200 tables (514 plain, 108 grouped GEMMs): 0.45 to 0.50 for large GEMMs under sustained load, 0.46 to 0.48 for the
    // largest, 0.65 for short ones. The liquid-cooled racks may draw a fifth more power (1,200 W against 1,000 W in NVIDIA's data sheets).
    // Both together show that the board's power limits GEMMs under sustained load: 1,046 TFLOP/s in 16 bits at 1,000 W (0.465 of the peak)
    // and 1,262 at a rack's 1,200 W (0.505), that is, they grow with the power to the 1.03. Bursts reach 0.776 (MAMF), nothing more.
    const double watts = cluster.gpu_watts > 0 ? cluster.gpu_watts : cluster.nvlink_domain > 8 ? 1200 : kB200Watts;
    const auto sustained = [&](double at_b200, Precision precision, double b200_peak, double burst) {
        const double peak = cluster.peak(precision);
        return peak > 0 ? std::min(burst, at_b200 * b200_peak / peak * std::pow(watts / kB200Watts, kPowerGrowth)) : at_b200;
    };
    c.gemm_efficiency = sustained(0.465, Precision::bf16, 2.25e15, 0.776);
    // fp8 loses less to the power limit than 16 bits: an H200 NVL at 600 W takes 32.0 ms in 16 bits and 16.8 ms with fp8 operands with a
    // scale per tensor (Transformer Engine, docs/examples/gemm_profiling), a ratio of 1.94 once depth is taken out, where bursts of an H200
    // in fp8 are 1.83 times as fast as those of an H100 in 16 bits (MAMF, 1,453 and 794). Bursts of a B200 are 1.97 times as fast (3,432
    // and 1,745), so that 1.97 * 1.94 / 1.83 = 2.09 times the rate in 16 bits is left under load.
    c.fp8_gemm_efficiency = sustained(0.486, Precision::fp8, 4.5e15, 0.763);
    // The same document, B300, operands quantised before: 6.81 ms with a scale per tensor, 7.16 in mxfp8, 3.76 in nvfp4, depths of 4,096
    // and more. Blocks of fp8 run as mxfp8 on Blackwell. Once depth is taken out, which costs nvfp4 more, nvfp4 is 1.88 times as fast as
    // fp8.
    c.mxfp8_rate = 6.812 / 7.161;
    const double fp4_peak = cluster.peak(Precision::nvfp4);
    c.nvfp4_gemm_efficiency = c.fp8_gemm_efficiency * (fp4_peak > 0 ? std::min(1.0, 1.88 * cluster.peak(Precision::fp8) / fp4_peak) : 1);
    c.gemm_k_half = 100;
    c.multiprocessors = 148;
    c.grouped_rows_half = 170;
    c.grouped_weight_gradient = 0.87;
    // SimuMax's sdp tables, B200, 4 to 128 heads, 4,096 to 131,072 keys, halved for the causal mask: matched within 8 % forward and 3 %
    // backward.
    c.attention_forward = 0.51;
    c.attention_backward = 0.42;
    c.attention_tail = 1.3;
    c.attention_tail_backward = 0.6;
    c.attention_critical = 2.75;
    c.attention_width_forward = 0;
    c.attention_width_backward = 0.28;
    // The forward takes about the sum of its GEMMs and its exponentials: a tile of 128 queries by 128 keys, 128 wide, has 1,024 cycles of
    // GEMMs and 1,024 of exponentials on B200, 16 a cycle and multiprocessor (FlashAttention-4, arXiv 2603.05451, section 3), 0.50 of the
    // peak; 2,048 and 1,024 on H100, 0.67, against 0.66 measured. fp8 halves the GEMMs, Blackwell Ultra the exponentials (NVIDIA technical
    // blog, Inside NVIDIA Blackwell Ultra). The backward has 2,560 cycles of GEMMs, 1,024 of exponentials and the rest; the rest and the
    // sum follow from the rate above.
    constexpr double kProducts = 1024, kBackwardProducts = 2560;
    const bool ultra = cluster.compute_capability >= architectures::kBlackwellUltra;
    const double exponentials = ultra ? 512 : 1024, behind = kBackwardProducts / 0.42 - 1024 + exponentials;
    // The board's power limits attention as it limits GEMMs. Bursts of cuDNN 9.19 to 9.22 reach 1,708 TFLOP/s forward and 1,473 backward on
    // GB200, 2,031 and 1,552 on GB300 (cudnn-frontend, benchmark/sdpa_benchmark_training/results, Llama 3.1, causal, up to 32,768 keys).
    constexpr double kRack = 2.5e15;  // dense 16-bit peak of both
    const auto at_most = [&](double b200, double faster, double burst) {
        return std::min(burst / kRack, faster * sustained(b200, Precision::bf16, 2.25e15, 1));
    };
    c.attention_forward = at_most(0.51, (kProducts + 1024) / (kProducts + exponentials), ultra ? 2.031e15 : 1.708e15);
    c.attention_backward = at_most(0.42, kBackwardProducts / 0.42 / behind, ultra ? 1.552e15 : 1.473e15);
    c.attention_exponentials_forward = exponentials / (kProducts + exponentials);
    c.attention_exponentials_backward = exponentials / behind;
    c.attention_fp8_forward = (kProducts + exponentials) / (kProducts / 2 + exponentials);
    c.attention_fp8_backward = behind / (behind - kBackwardProducts / 2);
    c.scan_forward = 75e12 * 1.32;  // see Hopper
    c.scan_backward = 26e12 * 1.32;
    c.memory_efficiency = 0.67;    // SimuMax B200: 0.666
    c.permutation_share = 0.75;    // SimuMax B200, permute: 4,000 GB/s against 5,330 of a plain stream
    c.cross_entropy_share = 0.45;  // SimuMax B200, ce: 2,560 GB/s, fused 2,240
    // SimuMax, 70B over 8 ranks of a B200: 5.5 ms a layer, of which kernels and links take 3.5. On GB200, whose Grace CPUs run Python
    // slower, functional tests of one stage (gpt3_mcore_te_tp1_pp1_*) take 1.1 to 1.3 times what follows. Those of two (tp2_pp2_*,
    // tp4_pp2_*), where the host waits, take 5.0 to 5.6 ms a layer of 37.5 kernels: 133 to 149 us each.
    c.host_kernel_seconds = 111e-6;
    if (cluster.nvlink_domain > 8) c.synchronised_host = 141.0 / 111;
    // XLA's tables of rings, 8 B200 and racks of GB200: 616 to 690 GB/s of 900 at gigabytes; matched within 7 % on average from 4 MiB on.
    c.nvlink_efficiency = cluster.nvlink_domain > 8 ? 0.75 : 0.71;
    c.bandwidth_growth = cluster.nvlink_domain > 8 ? 0.03 : 0.07;
    c.nvls_efficiency = 0.52;  // 838 GB/s of bus bandwidth over 8 ranks, 848 over 64: 430-480 GB/s of the array
    c.nvls_seconds = 80e-6;
    c.all_to_all_efficiency = 0.66;
    c.expert_overlap_cost = c.overlap_cost;  // no measured pair of runs available: as for other collectives
    c.collective_seconds = 30e-6;
    c.low_latency_seconds = 20e-6;
    c.low_latency_bandwidth = 0.5;
    return c;
}

}  // namespace

namespace {

/// Fastest products that were measured on H100 (MAMF): short bursts, FLOP/s.
constexpr double kH100Product = 794e12, kH100Fp8Product = 1403e12, kH100Peak = 989e12, kH100Fp8Peak = 1979e12;

/// Sets the rates of GEMMs and attention of a GPU whose fastest products are known, whatever its architecture: a step sustains the share of
/// these that it sustains of H100's own. Attention follows the 16-bit products.
void follow_measured_products(Calibration& c, const ClusterSpec& cluster) {
    if (cluster.measured_products.empty()) return;
    const Calibration h100 = hopper();
    const auto share = [&](Precision precision, double product, double peak, double otherwise) {
        const auto found = cluster.measured_products.find(precision);
        return found == cluster.measured_products.end() ? otherwise : found->second / cluster.peak(precision) / (product / peak);
    };
    const double bf16 = share(Precision::bf16, kH100Product, kH100Peak, 1);
    c.gemm_efficiency = h100.gemm_efficiency * bf16;
    c.attention_forward = h100.attention_forward * bf16;
    c.attention_backward = h100.attention_backward * bf16;
    c.fp8_gemm_efficiency = h100.fp8_gemm_efficiency *
                            share(Precision::fp8, kH100Fp8Product, kH100Fp8Peak, bf16);  // the 16-bit one where no fp8 one is published
    if (cluster.compute_units == 0) return;
    // hipBLASLt's fastest kernels on CDNA 3 and 4 compute tiles of 256 by 256 (MT256x256x64 in their names, ROCm/rocm-libraries, pull
    // request 3230). With waves of such tiles four published products of MI300X and MI355X (docs/decisions/0031) are matched within 6 % on
    // average, with H100's tiles and multiprocessors within 31 %.
    c.multiprocessors = cluster.compute_units;
    c.tile_m = c.tile_n = 256;
    // The tails of attention count compute units. aiter's own kernels, causal, heads of 128, 1,024 to 16,384 keys (ROCm/aiter,
    // op_tests/cpp/mha/README.md at 0403bcd, 47 shapes each on MI300X and MI355X): forwards are matched within 13 % on average, 9 % from
    // 2,048 keys on. Backwards with the sums that images use, fp32 on MI300X and 16 bits on MI355X, within 16 and 11 %; 2.7 has the least
    // error from 2,048 keys on.
    c.attention_tail_backward = 2.7;
    // Experts of DeepSeek-V3 on MI355X, 2,048 and 4,096 rows each, by the library grouped_gemm (AMD-AGI/Primus-Turbo, pull request 284,
    // column GMM): eight forwards and gradients of inputs are matched within 7 % on average, with H100's 120 within 16 %.
    c.grouped_rows_half = 570;
    // PyTorch's index_add_ of 5,079,670 rows of 128 values at random places takes 2.675 ms (pytorch/pytorch, pull request 159430, which
    // names no GPU; its predecessor, 146264, names MI300X). The rate of NVIDIA's GPUs was not looked for: their runs fuse the permutation.
    c.atomic_adds = 5'079'670.0 * 128 / 2.675e-3;
}

}  // namespace

Calibration default_calibration(const ClusterSpec& cluster) {
    Calibration c = cluster.compute_capability >= architectures::kBlackwell ? blackwell(cluster)
                    : cluster.compute_capability >= architectures::kHopper  ? hopper()
                                                                            : ampere();
    follow_measured_products(c, cluster);
    // AWS's benchmark of Qwen3-30B-A3B on 64 H100 (awslabs/awsome-distributed-ai, RESULTS.md) without overlap, micro-batch 4, ep 16 and 32:
    // in addition to nccl-tests' rates of EFA each exchange takes 1 / 41 s a gigabyte. Which layer takes it is not published. The form, in
    // place of a share of the line rate, follows from Kimi-K2 on B300, whose line is twice as fast (docs/decisions/0030).
    if (cluster.network_kind == NetworkKind::efa) c.exchange_stage = 41e9;
    // Hopper over EFA is AWS's p5, where no script binds a process to the cores next to its GPU, as NVIDIA's recipes do. Megatron-LM's
    // functional tests take 1.4 times the host time of these recipes (docs/decisions/0028 and 0034).
    constexpr double kUnbound = 1.4;
    const bool hopper_gpu = cluster.compute_capability >= architectures::kHopper && cluster.compute_capability < architectures::kBlackwell;
    if (cluster.network_kind == NetworkKind::efa && hopper_gpu) c.host_kernel_seconds *= kUnbound;
    // NVIDIA-NeMo/RL, pull request 3628: Qwen3-0.6B on one H100 takes 0.752 s a step, with half of its 596 million parameters updated on
    // the host 1.187 and 1.216 s (without and with overlapped copies), with all of them 1.678 s. Without the copies, which are
    // predicted, the rest is 1.74 s for twice the parameters. On eight processes that share two cores an update takes ten times as long as
    // on one (ISEEKYAN/Megatron-LM, issue 188).
    c.host_updates = 2 * 596.05e6 / 1.74;
    // NVIDIA, "Getting Started with CUDA Graphs" (developer.nvidia.com/blog/cuda-graphs, 2019): 3.8 us a kernel that a C++ program on a
    // V100 launches without waiting. mgplan's trainer takes 0.2 us between two ops, measured on a CPU, on no GPU yet.
    c.issue_seconds = 4e-6;
    return c;
}

HostSeconds host_seconds(const Calibration& calibration, Engine engine) {
    if (engine == Engine::mgplan) return {.kernel = calibration.issue_seconds, .waiting = calibration.issue_seconds};
    return {.kernel = calibration.host_kernel_seconds,
            .waiting = calibration.host_kernel_seconds * calibration.synchronised_host,
            .checkpoint = calibration.checkpoint_host_seconds,
            .update = calibration.optimizer_fixed_seconds,
            .iteration = calibration.iteration_fixed_seconds};
}

}  // namespace mgplan::simulator
