#include "plan/layout/megatron_offload.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace mgplan {
namespace {

constexpr std::string_view kOptimizer = "the optimizer on the host (--optimizer-cpu-offload)";
constexpr std::string_view kModules = "inputs of modules on the host (--fine-grained-activation-offloading)";

bool holds_any(EnumSet<OffloadModule> modules, std::initializer_list<OffloadModule> some) {
    for (const OffloadModule module : some) {
        if (modules.contains(module)) return true;
    }
    return false;
}

bool holds_any(EnumSet<CudaGraphScope> graphs, std::initializer_list<CudaGraphScope> some) {
    for (const CudaGraphScope scope : some) {
        if (graphs.contains(scope)) return true;
    }
    return false;
}

/// Whether a graph captures a module whose inputs are to leave, or makes Megatron-LM keep them (transformer_layer.py,
/// _set_offload_modules).
bool graphs_hold(EnumSet<OffloadModule> modules, EnumSet<CudaGraphScope> graphs) {
    using enum OffloadModule;
    if (holds_any(graphs, {CudaGraphScope::layer, CudaGraphScope::full_iteration})) return true;
    if (graphs.contains(CudaGraphScope::attn) && holds_any(modules, {attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm})) return true;
    return holds_any(graphs, {CudaGraphScope::mlp, CudaGraphScope::moe_router}) && modules.contains(mlp_norm);
}

}  // namespace

BesideOffload beside_offload(const Layout& layout) {
    return {.full_recompute = layout.recompute == Recompute::full,
            .recomputed = layout.recompute == Recompute::selective ? layout.recompute_modules : EnumSet<RecomputeModule>{},
            .graphs = layout.cuda_graphs};
}

std::vector<std::string> megatron_offload_obstacles(const TrainingSpec& training, const BesideOffload& beside) {
    std::vector<std::string> obstacles;
    const OffloadSpec& offload = training.offload;
    const auto refuse = [&](bool here, std::string what) {
        if (here) obstacles.push_back(std::move(what));
    };
    if (offload.optimizer > 0) {
        // The hybrid optimizer goes by the path of the precision-aware one, which is Adam. It is sharded too, and trainers on top of
        // Megatron-LM see to that themselves.
        refuse(training.megatron.optimizer != OptimizerKind::adam,
               fmt::format("{} is Adam, and here it is {}; use --optimizer adam, or keep it on the device", kOptimizer,
                           to_string(training.megatron.optimizer)));
        refuse(training.fp8_parameters && training.format() != QuantisedFormat::delayed,
               fmt::format("{} takes fp8 parameters under delayed scaling alone; use --fp8-recipe delayed, or leave --fp8-param-gather out",
                           kOptimizer));
    }
    if (offload.modules.empty()) return obstacles;
    using enum OffloadModule;
    refuse(offload.modules.contains(attn_proj) && !offload.modules.contains(core_attn),
           fmt::format("{}: attn_proj reads what the backward of core_attn needs; add core_attn, or leave attn_proj out", kModules));
    refuse(!training.megatron.transformer_engine, fmt::format("{} need Transformer Engine; leave --transformer-impl local out", kModules));
    refuse(training.megatron.offloaded_layers > 0,
           fmt::format("{} and layers on the host (--cpu-offloading-num-layers) exclude each other; keep one", kModules));
    refuse(beside.recomputed.contains(RecomputeModule::moe) && holds_any(offload.modules, {expert_fc1, moe_act}),
           fmt::format("{}: experts that are recomputed whole (moe) keep nothing; leave expert_fc1 and moe_act out, or moe of the "
                       "recomputed modules",
                       kModules));
    refuse(beside.graphs.contains(CudaGraphScope::moe),
           fmt::format("{} stand beside no CUDA graph of whole mixtures; leave moe out of the graphs", kModules));
    return obstacles;
}

UnpredictedOffload unpredicted_megatron_offload(const ModelSpec& model, const TrainingSpec& training, const BesideOffload& beside) {
    UnpredictedOffload missing;
    if (training.offload.optimizer > 0 && training.megatron.fully_sharded.active())
        missing.optimizer.push_back(fmt::format("{} with FSDP; use --sharding optimizer", kOptimizer));
    if (training.offload.modules.empty()) return missing;
    const auto add = [&](bool here, std::string_view where) {
        if (here) missing.modules.push_back(fmt::format("{} {}", kModules, where));
    };
    add(!model.compositions.empty(), "in layers that are described by parts; offload the optimizer alone");
    add(model.order != LayerOrder::sequential, "where halves of a layer stand beside each other; offload the optimizer alone");
    add(beside.full_recompute, "under full recompute; use --recompute none or selective");
    add(graphs_hold(training.offload.modules, beside.graphs), "where CUDA graphs hold the modules; use graphs of other modules or none");
    return missing;
}

}  // namespace mgplan
