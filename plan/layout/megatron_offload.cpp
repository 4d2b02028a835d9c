#include "plan/layout/megatron_offload.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace mgplan {
namespace {

constexpr std::string_view kOptimizer = "the optimizer on the host (--optimizer-cpu-offload)";
constexpr std::string_view kWaitingStates = "optimizer state on the host between updates (--chunked-optimizer-state-offload)";
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

/// True if a graph captures a module whose inputs are offloaded, or makes Megatron-LM keep them (transformer_layer.py,
/// _set_offload_modules).
bool graphs_hold(EnumSet<OffloadModule> modules, EnumSet<CudaGraphScope> graphs) {
    using enum OffloadModule;
    if (holds_any(graphs, {CudaGraphScope::layer, CudaGraphScope::full_iteration})) return true;
    if (graphs.contains(CudaGraphScope::attn) && holds_any(modules, {attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm})) return true;
    return holds_any(graphs, {CudaGraphScope::mlp, CudaGraphScope::moe_router}) && modules.contains(mlp_norm);
}

/// Rules of optimizer state that waits on the host: core/optimizer/optimizer_config.py, __post_init__; training/arguments.py,
/// validate_args; core/optimizer/layer_wise_optimizer.py. Of branch dev at d48bd6be, where it is since 6b157e00 and by its present name
/// and with its settings since 9050d4c5; neither d98e8a64 nor a release up to 0.19 has it.
std::vector<std::string> obstacles_of_states(const TrainingSpec& training, EnumSet<CudaGraphScope> graphs) {
    std::vector<std::string> obstacles;
    const MegatronSwitches& megatron = training.megatron;
    const auto refuse = [&](bool here, std::string_view what) {
        if (here) obstacles.push_back(fmt::format("{} {}", kWaitingStates, what));
    };
    refuse(training.offload.optimizer > 0, "excludes the optimizer on the host (--optimizer-cpu-offload); keep one");
    const bool muon = megatron.optimizer == OptimizerKind::muon;
    refuse(megatron.optimizer != OptimizerKind::adam && !muon,
           fmt::format("is Adam's or Muon's, and here it is {}; use --optimizer adam or muon, or keep it on the device",
                       to_string(megatron.optimizer)));
    refuse(muon && training.compute_dtype() != Dtype::bf16,
           fmt::format("needs bf16 with Muon, not {}; use --precision bf16 or --optimizer adam", to_string(training.compute_dtype())));
    refuse(megatron.fully_sharded.active(), "does not go with FSDP; use --sharding optimizer");
    refuse(!training.distributed_optimizer && !megatron.fully_sharded.active(),
           "needs the distributed optimizer; add --use-distributed-optimizer (--sharding optimizer)");
    refuse(graphs.contains(CudaGraphScope::full_iteration),
           "does not go with a CUDA graph of the whole iteration; use other graphs or none");
    if (!megatron.precision_aware_optimizer) return obstacles;
    refuse(training.main_param_dtype != Dtype::fp32, "needs main parameters in fp32; leave --main-params-dtype out");
    const auto narrow = [](Dtype dtype) { return dtype != Dtype::fp32 && dtype != Dtype::bf16; };
    refuse(narrow(training.exp_avg_dtype) || narrow(training.exp_avg_sq_dtype),
           "takes moments in fp32 and bf16; use one of them for --exp-avg-dtype and --exp-avg-sq-dtype");
    return obstacles;
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
    if (offload.states > 0) obstacles = obstacles_of_states(training, beside.graphs);
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
    add(model.order != LayerOrder::sequential, "where halves of a layer stand beside each other; offload the optimizer alone");
    add(beside.full_recompute, "under full recompute; use --recompute none or selective");
    add(graphs_hold(training.offload.modules, beside.graphs), "where CUDA graphs hold the modules; use graphs of other modules or none");
    return missing;
}

}  // namespace mgplan
