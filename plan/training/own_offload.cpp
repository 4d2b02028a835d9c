#include "plan/training/own_offload.hpp"

#include <string_view>

#include <fmt/format.h>

namespace mgplan {

std::vector<std::string> own_offload_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs,
                                               bool full_recompute) {
    const OffloadSpec& offload = training.offload;
    std::vector<std::string> obstacles;
    if (!offload.active()) return obstacles;
    const std::string asked = fmt::format("--offload {}", fmt::join(offload_words(offload), ","));
    const auto refuse = [&](bool here, std::string_view what) {
        if (here) obstacles.push_back(fmt::format("{} with {}", asked, what));
    };
    refuse(cuda_graphs, "CUDA graphs, which hold no copies to the host (use --cuda-graphs none)");
    // A matrix is orthogonalised whole, whatever slices its state travels in.
    refuse(offload.waiting() > 0 && training.megatron.optimizer == OptimizerKind::muon,
           "Muon (leave the optimizer on the device, or use --optimizer adam, sgd or lion)");
    if (offload.modules.empty()) return obstacles;
    refuse(full_recompute, "full recompute, which keeps no input of a module (use --recompute none or selective)");
    refuse(model.order != LayerOrder::sequential,
           "halves of a layer beside each other, which read one input (use --offload optimizer alone)");
    const bool of_experts = offload.modules.contains(OffloadModule::expert_fc1) || offload.modules.contains(OffloadModule::moe_act);
    refuse(of_experts && !model.moe, "a model without experts (leave out expert_fc1 and moe_act)");
    return obstacles;
}

}  // namespace mgplan
