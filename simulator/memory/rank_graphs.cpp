#include "simulator/memory/rank_graphs.hpp"

namespace mgplan::simulator {

GraphTerms RankGraphs::of(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held) {
    if (layout.cuda_graphs.empty()) return {};
    return terms(layout, pp_rank, costs, held, graphed_[shard_key(layout)]);
}

GraphTerms RankGraphs::without_objects(const Layout& layout, int pp_rank, const Held& held) {
    if (layout.cuda_graphs.empty()) return {};
    GraphTerms found = terms(layout, pp_rank, LayerCosts{}, held, graphed_[shard_key(layout)]);
    found.nodes = found.objects = 0;
    return found;
}

GraphTerms RankGraphs::terms(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held, GraphedLayers& kinds) {
    const GraphPolicy policy = policy_of(layout);
    if (kinds.scopes != layout.cuda_graphs) {
        kinds.scopes = layout.cuda_graphs;
        kinds.bytes = activations_.pieces(layout);
        kinds.kinds.clear();
        for (std::size_t kind = 0; kind < activations_.kinds().size(); ++kind) {
            GraphedLayer& layer = kinds.kinds.emplace_back(graphed_layer(workload_, layout, activations_.kinds(), kind, policy));
            take_bytes(layer, kinds.bytes, activations_.kinds().kinds[kind]);
        }
    }
    return graph_terms({workload_, layout, costs, activations_.kinds(), kinds, held.chunks, held.alive, residency(layout, pp_rank, policy),
                        calibration_.graph_node_bytes});
}

const GraphResidency& RankGraphs::residency(const Layout& layout, int pp_rank, GraphPolicy policy) {
    const int pp = static_cast<int>(layout.sizes.pp);
    const MemoKey<6> key{{pp, layout.vpp, layout.num_microbatches, layout.group_size, pp_rank, static_cast<std::int64_t>(policy)}};
    auto [entry, fresh] = residencies_.try_emplace(key);
    if (fresh) {
        ScheduleRequest request{pp, layout.vpp, layout.num_microbatches, {}, {}, false};
        if (layout.vpp > 1) request.group_size = layout.group_size;
        entry->second = &schedules_.residency(request, pp_rank, policy);
    }
    return *entry->second;
}

}  // namespace mgplan::simulator
