#include "plan/training/own_sharding.hpp"

#include <string_view>

#include <fmt/format.h>

#include "plan/training/data_sharding.hpp"

namespace mgplan {
namespace {

/// Megatron-FSDP's switches that change what is held.
void add_switches(std::vector<std::string>& obstacles, const TrainingSpec& training) {
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    if (spec.outer_optimizer && training.distributed_optimizer_instances > 1)
        obstacles.emplace_back("optimizer state divided over the replicas too (leave out --outer-dp-sharding-strategy)");
    if (spec.double_buffer) obstacles.emplace_back("Megatron-FSDP's double buffers (leave out --fsdp-double-buffer and --nccl-ub)");
    if (spec.communication_unit > 0)
        obstacles.emplace_back("a size of Megatron-FSDP's communication units (leave out --suggested-communication-unit-size)");
    if (training.precision == Precision::fp64) return;  // all state is
    if (spec.main_params != Dtype::fp32)
        obstacles.emplace_back("Megatron-FSDP's main parameters in another type than fp32 (leave out --megatron-fsdp-main-params-dtype)");
    for (const auto& type : {spec.main_grads, spec.communicated_grads}) {
        if (!type || *type == training.grad_dtype) continue;
        obstacles.push_back(fmt::format("Megatron-FSDP's gradients in {} where the gradients' type is {} (use one type for both)",
                                        to_string(*type), to_string(training.grad_dtype)));
        return;
    }
}

}  // namespace

std::vector<std::string> own_sharding_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs) {
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    if (!spec.active()) {
        if (training.distributed_optimizer_instances == 1) return {};
        return {"several distributed-optimizer instances (use --sharding hybrid:N, or one)"};
    }
    if (spec.kind == FullyShardedKind::torch_fsdp2) return {"PyTorch FSDP2 (use --sharding full)"};
    if (!spec.shards_gradients()) return {"Megatron-FSDP that divides no gradients (use --sharding none or optimizer)"};
    std::vector<std::string> obstacles;
    add_switches(obstacles, training);
    const auto refuse = [&](bool here, std::string_view what) {
        if (here) obstacles.push_back(fmt::format("--sharding {} with {}", to_string(data_sharding(training)), what));
    };
    refuse(cuda_graphs, "CUDA graphs (use --cuda-graphs none, or --sharding optimizer)");
    refuse(training.megatron.optimizer != OptimizerKind::adam,
           "another optimizer than Adam (use --optimizer adam, or --sharding optimizer)");
    refuse(model.mtp_layers > 0, "multi-token prediction (use --sharding optimizer)");
    refuse(model.tied_embeddings, "tied embeddings, whose table two units would need (use --sharding optimizer)");
    return obstacles;
}

}  // namespace mgplan
