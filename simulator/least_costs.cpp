#include "simulator/least_costs.hpp"

#include <algorithm>
#include <cstdint>

namespace mgplan::simulator {

void take_least(LayerCosts& least, const LayerCosts& other) {
    if (least.layers.empty()) least = other;
    least.each(other, [](PieceCost& own, const PieceCost& others) {
        own.each(others, [](auto& term, auto of_others) { term = std::min(term, of_others); });
    });
    const auto take = [](LayerCosts::Layer& own, const LayerCosts::Layer& others) {
        own.hidden = {};
        for (KernelCounts LayerCosts::Layer::*half :
             {&LayerCosts::Layer::mixer, &LayerCosts::Layer::feed_forward, &LayerCosts::Layer::router}) {
            (own.*half).forward = std::min((own.*half).forward, (others.*half).forward);
            (own.*half).backward = std::min((own.*half).backward, (others.*half).backward);
        }
    };
    for (std::size_t kind = 0; kind < least.layers.size(); ++kind) take(least.layers[kind], other.layers[kind]);
    take(least.mtp, other.mtp);
}

PassPair expert_products(const Layout& layout, const Workload& workload, const KernelTimes& kernels) {
    const MoeSpec& moe = *workload.model.moe;
    const ParallelSizes& sizes = layout.sizes;
    const std::int64_t rows = layout.micro_batch * workload.batch.sequence / sizes.cp / (layout.sequence_parallel ? sizes.tp : 1);
    const std::int64_t of_expert = rows * sizes.ep * sizes.etp * moe.top_k / moe.experts, experts = moe.experts / sizes.ep;
    const std::int64_t width = moe.expert_ffn / sizes.etp, hidden = workload.model.routed_width();
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        const double apart = static_cast<double>(experts) * kernels.gemm(m, n, k);
        return std::min(apart, kernels.grouped_gemm(m, n, k, experts));
    };
    PassPair seconds;
    seconds.forward = product(of_expert, width, hidden) + product(of_expert, hidden, width);
    seconds.backward = product(of_expert, hidden, width) + product(of_expert, width, hidden) +
                       2 * std::min(product(width, hidden, of_expert), kernels.grouped_weight_gradient(width, hidden, of_expert, experts));
    return seconds;
}

void add_to_mixtures(LayerCosts& costs, const PassPair& seconds) {
    const auto add = [&](PieceCost& piece) {
        piece.forward += seconds.forward;
        piece.backward += seconds.backward;
    };
    for (LayerCosts::Layer& layer : costs.layers) {
        if (layer.mixture) add(layer.cost);
    }
    if (costs.mtp.mixture) add(costs.mtp.cost);
}

double seconds_of_model(const LayerCosts& costs, const LayerKinds& kinds, std::int64_t mtp_layers) {
    const auto seconds = [](const PieceCost& piece) {
        return piece.forward + piece.backward + piece.exposed_forward.total() + piece.exposed_backward.total();
    };
    double all = 0;
    for (const std::uint16_t kind : kinds.of_layer) all += seconds(costs.layers[kind].cost);
    // Each depth of multi-token prediction looks its tokens up again and passes through the head.
    const auto depths = static_cast<double>(mtp_layers);
    if (mtp_layers > 0) all += depths * seconds(costs.mtp.cost);
    return all + (1 + depths) * (seconds(costs.embedding) + seconds(costs.head));
}

PieceSeconds seconds_of_pieces(const LayerCosts& costs) {
    const auto seconds = [](const PieceCost& piece) {
        const double again = piece.forward + piece.exposed_forward.total();
        return PieceSeconds::Piece{again + piece.backward + piece.exposed_backward.total(), again};
    };
    PieceSeconds pieces;
    pieces.layers.reserve(costs.layers.size());
    for (const LayerCosts::Layer& layer : costs.layers) pieces.layers.push_back(seconds(layer.cost));
    pieces.mtp = seconds(costs.mtp.cost);
    pieces.embedding = seconds(costs.embedding);
    pieces.head = seconds(costs.head);
    return pieces;
}

double seconds_of_stages(const Layout& layout, bool repeats, const SplitCensus& split, const PieceSeconds& pieces, std::int64_t mtp_layers,
                         bool divided) {
    const bool full = repeats && layout.recompute == Recompute::full;
    const bool block = full && layout.recompute_method == RecomputeMethod::block;
    const auto seconds = [&](const ChunkCensus& held, double repeated) {
        double all = 0;
        for (std::size_t kind = 0; kind < held.kinds.size(); ++kind)
            all += held.kinds[kind] * (pieces.layers[kind].once + repeated * pieces.layers[kind].again);
        const auto depths = static_cast<double>(held.mtp);
        all += depths * (pieces.mtp.once + (full ? pieces.mtp.again : 0));
        all += (depths + (held.embedding ? 1 : 0)) * pieces.embedding.once;
        return held.loss ? all + static_cast<double>(1 + mtp_layers) * pieces.head.once : all;
    };
    const auto vpp = static_cast<std::size_t>(layout.vpp);
    const auto repeated_of = [&](std::size_t rank) {
        const std::int64_t layers = split.stages[rank].layers();
        if (!block || layers == 0) return full ? 1.0 : 0.0;
        std::int64_t repeated = 0;
        for (std::size_t c = rank * vpp; c < (rank + 1) * vpp; ++c)
            repeated += std::min(layout.recompute_num_layers, split.chunks[c].layers());
        return static_cast<double>(repeated) / static_cast<double>(layers);
    };
    // With the block method a chunk may recompute fewer layers than its stage does on average.
    const bool first_counts = !divided && !block;
    double longest = 0, in_front = 0, stage = 0, first = 0;
    for (std::size_t rank = 0; rank < split.stages.size(); ++rank) {
        if (rank == 0 || split.alike[rank] != split.alike[rank - 1]) {
            stage = seconds(split.stages[rank], repeated_of(rank));
            first = !first_counts ? 0 : vpp == 1 ? stage : seconds(split.chunks[rank * vpp], full ? 1 : 0);
        }
        longest = std::max(longest, in_front + static_cast<double>(layout.num_microbatches) * stage);
        in_front += first;
    }
    // Slightly less, because the closed form adds in another order.
    return longest * (1 - 1e-9);
}

}  // namespace mgplan::simulator
