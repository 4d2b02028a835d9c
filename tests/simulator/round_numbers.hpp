#pragma once
// A workload whose figures are round, so that expected values fit into the head: every kernel and link reaches its data
// sheet, nothing has a fixed cost, and one device computes 1e12 FLOP/s.

#include "plan/workload.hpp"
#include "planner/constraints.hpp"
#include "simulator/compute/calibration.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::simulator {

inline ClusterSpec round_cluster() {
    ClusterSpec cluster;
    cluster.name = "round";
    cluster.memory_bytes = std::int64_t{1} << 40;
    cluster.peak_flops = {{Precision::bf16, 1e12}, {Precision::fp16, 1e12}, {Precision::fp32, 0.5e12}, {Precision::fp8, 2e12}};
    cluster.memory_bandwidth = 1e12;
    cluster.gpus_per_node = 8;
    cluster.nvlink_domain = 8;
    cluster.nvlink = {100e9, 0};
    cluster.pcie = {20e9, 0};
    cluster.network = {10e9, 0};
    return cluster;
}

inline Calibration ideal_calibration() {
    Calibration c;
    c.gemm_efficiency = c.fp8_gemm_efficiency = 1;
    c.multiprocessors = c.tile_m = c.tile_n = 1;
    c.attention_forward = c.attention_backward = 1;
    c.memory_efficiency = 1;
    c.graph_node_bytes = 1000;
    c.nvlink_efficiency = c.nvls_efficiency = c.all_to_all_efficiency = c.pcie_efficiency = c.network_efficiency = 1;
    return c;
}

/// GPT-2's layer: LayerNorm, GELU, learned positions, dropout everywhere.
inline ModelSpec gpt(std::int64_t layers) {
    ModelSpec model = tests::gpt_of(
        "gpt", {.layers = layers, .hidden = 1024, .ffn = 4096, .heads = 16, .head_dim = 64, .vocab = 1024, .max_positions = 512});
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    model.attention_dropout = model.hidden_dropout = 0.1;
    return model;
}

/// A small mixture of experts: 8 experts, 2 of them per token, the first layer dense.
inline ModelSpec mixture(std::int64_t layers) {
    ModelSpec model = gpt(layers);
    model.gated_mlp = true;
    model.attention_dropout = model.hidden_dropout = 0;
    model.position = PositionEmbedding::rope;
    model.moe.emplace();
    model.moe->experts = 8;
    model.moe->top_k = 2;
    model.moe->expert_ffn = 512;
    model.moe_layers.assign(static_cast<std::size_t>(layers), true);
    model.moe_layers.front() = false;
    return model;
}

inline Workload workload_of(const ModelSpec& model, std::int64_t world, std::int64_t global_batch, std::int64_t sequence = 512) {
    Workload workload;
    workload.model = model;
    workload.cluster = round_cluster();
    workload.batch = {.global_batch = global_batch, .sequence = sequence};
    workload.world = world;
    workload.memory_limit = workload.cluster.memory_bytes;
    return workload;
}

}  // namespace mgplan::simulator
