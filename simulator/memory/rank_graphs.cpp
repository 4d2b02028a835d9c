#include "simulator/memory/rank_graphs.hpp"

namespace mgplan::simulator {

GraphTerms RankGraphs::of(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held) {
    if (layout.cuda_graphs.empty()) return {};
    return terms(layout, pp_rank, costs, held);
}

GraphTerms RankGraphs::without_objects(const Layout& layout, int pp_rank, const Held& held) {
    if (layout.cuda_graphs.empty()) return {};
    GraphTerms found = terms(layout, pp_rank, LayerCosts{}, held);
    found.nodes = found.objects = 0;
    return found;
}

GraphTerms RankGraphs::terms(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held) {
    const LayerKinds& kinds = activations_.kinds();
    auto [entry, fresh] = graphed_.try_emplace(Key{shard_key(layout), layout.cuda_graphs});
    if (fresh) entry->second = graphed_layers(workload_, layout, kinds, activations_.pieces(layout));
    return graph_terms({workload_, layout, costs, kinds, entry->second, held.chunks, held.alive,
                        residency(layout, pp_rank, policy_of(layout)), calibration_.graph_node_bytes});
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
