#include "plan/training/own_optimizer.hpp"

#include <fmt/format.h>

namespace mgplan {

std::vector<std::string> own_optimizer_obstacles(const ModelSpec& model, const TrainingSpec& training, std::int64_t tp) {
    const OptimizerKind optimizer = training.megatron.optimizer;
    if (optimizer == OptimizerKind::ademamix) return {"the optimizer AdEMAMix (use adam, sgd, lion or muon)"};
    if (optimizer != OptimizerKind::muon) return {};
    if (!model.compositions.empty()) return {"Muon on layers that are described by parts (use --optimizer adam)"};
    // A rank holds a part of a kv head's group, whose queries, keys and values are orthogonalised apart.
    if (!model.mla && tp > model.kv_heads)
        return {fmt::format("Muon with tp = {} above {} kv heads (use a smaller tp, or --optimizer adam)", tp, model.kv_heads)};
    return {};
}

}  // namespace mgplan
