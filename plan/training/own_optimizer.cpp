#include "plan/training/own_optimizer.hpp"

#include <map>
#include <string_view>

#include <fmt/format.h>

#include "plan/model/layer_parts.hpp"

namespace mgplan {
namespace {

/// Number of kv heads of each way to pack queries, keys and values.
std::vector<std::int64_t> kv_heads_of(const ModelSpec& model) {
    if (model.compositions.empty()) return model.mla ? std::vector<std::int64_t>{} : std::vector{model.kv_heads};
    std::map<std::vector<std::int64_t>, std::int64_t> found;
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            if (part.kind == Attention::kKind)
                found[{part_size(part, "heads"), part_size(part, "kv_heads"), part_size(part, "head_dim"),
                       part_size(part, "output_gate")}] = part_size(part, "kv_heads");
            if (part.kind == LatentAttention::kKind) found[{}] = ModelLimits::heads;  // packs nothing, whatever tp is
            // Gemma's layers, and those of several branches, pack theirs with other rows.
            for (const std::string_view kind :
                 {GemmaAttention::kKind, Gemma3nLayer::kKind, AttentionBesideMamba2::kKind, SharedBlockMamba2::kKind}) {
                if (part.kind == kind) found[{0}] = found[{1}] = 0;
            }
        }
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
