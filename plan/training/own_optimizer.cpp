#include "plan/training/own_optimizer.hpp"

#include <map>

#include <fmt/format.h>

namespace mgplan {
namespace {

/// Number of kv heads of each way to pack queries, keys and values.
std::vector<std::int64_t> kv_heads_of(const ModelSpec& model) {
    if (model.kinds.empty()) return model.mla ? std::vector<std::int64_t>{} : std::vector{model.kv_heads};
    std::map<std::vector<std::int64_t>, std::int64_t> found;
    for (const auto& [name, layer] : model.kinds) {
        if (const auto* a = mixer_as<Attention>(layer)) found[{a->heads, a->kv_heads, a->head_dim, a->output_gate ? 1 : 0}] = a->kv_heads;
        if (mixer_as<LatentAttention>(layer) != nullptr) found[{}] = ModelLimits::heads;  // packs nothing, whatever tp is
        // Gemma's layers, and those of several branches, pack theirs with other rows.
        if (mixer_as<GemmaAttention>(layer) != nullptr || mixer_as<Gemma3nLayer>(layer) != nullptr ||
            mixer_as<AttentionBesideMamba2>(layer) != nullptr || mixer_as<SharedBlockMamba2>(layer) != nullptr)
            found[{0}] = found[{1}] = 0;
    }
    std::vector<std::int64_t> kv_heads;
    for (const auto& [heads, number] : found) kv_heads.push_back(number);
    return kv_heads;
}

}  // namespace

std::vector<std::string> own_optimizer_obstacles(const ModelSpec& model, const TrainingSpec& training, std::int64_t tp) {
    const OptimizerKind optimizer = training.megatron.optimizer;
    if (optimizer == OptimizerKind::ademamix) return {"the optimizer AdEMAMix (use adam, sgd, lion or muon)"};
    if (optimizer != OptimizerKind::muon) return {};
    const std::vector<std::int64_t> kv_heads = kv_heads_of(model);
    if (kv_heads.size() > 1) return {"Muon on layers that pack queries, keys and values in several ways (use --optimizer adam)"};
    // A rank holds a part of a kv head's group, whose queries, keys and values are orthogonalised apart.
    if (!kv_heads.empty() && tp > kv_heads.front())
        return {fmt::format("Muon with tp = {} above {} kv heads (use a smaller tp, or --optimizer adam)", tp, kv_heads.front())};
    return {};
}

}  // namespace mgplan
