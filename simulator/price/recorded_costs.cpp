#include "simulator/price/recorded_costs.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/price/pass_replay.hpp"
#include "simulator/price/recorded_flops.hpp"

namespace mgplan::simulator {
namespace {

const GroupPath& path_of_group(LayerGroup group, const LayoutPaths& paths) {
    switch (group) {
        case LayerGroup::cp:
            return paths.cp;
        case LayerGroup::ep:
            return paths.ep;
        case LayerGroup::etp:
            return paths.etp;
        case LayerGroup::tp:
        case LayerGroup::tp_cp:
            break;
    }
    return paths.tp;
}

/// Share of the copies that travel where a token goes once to each place that holds any of its experts: inside one node each rank is a
/// place, else each node. Of n places, k balanced draws hit n (1 - (1 - 1/n)^k) different ones.
double sent_once(std::int64_t copies, const GroupPath& path) {
    if (copies == 0) return 1;
    const double places = path.crosses_network() ? path.domains() : static_cast<double>(path.ranks);
    const double k = static_cast<double>(copies);
    return std::min(1.0, places * (1 - std::pow(1 - 1 / places, k)) / k);
}

/// A rank's share of the model's FLOPs: experts count as if they were alike, though the busiest rank's are priced.
double even_flops(const PieceStep& step, const Shard& shard) {
    const double flops = model_flops_of(step);
    return step.op.grouped.groups > 0 ? flops / shard.busiest_experts : flops;
}

template <class Value, class Add>
void sum_passes(const std::array<Value, kStepPasses>& by_pass, Add add) {
    for (int pass = 0; pass < kStepPasses; ++pass) add(static_cast<StepPass>(pass), by_pass[static_cast<std::size_t>(pass)]);
}

/// Steps of a mixture's norm and router, and of the residual stream around them.
PieceSteps router_steps(const PieceSteps& steps) {
    PieceSteps part;
    for (const PieceStep& step : steps) {
        const std::string_view name = step.op.name;
        const bool of_norm = step.kind == StepKind::op && (name.ends_with("_norm") || name.ends_with("_norm_backward"));
        if (step.router || of_norm || name == "dropout_add") part.push_back(step);
    }
    return part;
}

PieceCost both(PieceCost one, const PieceCost& other) {
    one += other;
    return one;
}

/// Another microbatch's computation hides dispatch and combine (Megatron-LM --overlap-moe-expert-parallel-comm): the forward's beside its
/// backward, the backward's beside its forward.
void hide_exchanges(PieceCost& cost, const Shard& shard) {
    const auto exposed = [&](double exchange, double compute) {
        return std::max(shard.calibration->expert_overlap_cost * exchange, exchange - compute);
    };
    cost.exposed_forward.ep = exposed(cost.exposed_forward.ep, cost.backward);
    cost.exposed_backward.ep = exposed(cost.exposed_backward.ep, cost.forward);
    cost.exposed_recompute.ep = exposed(cost.exposed_recompute.ep, cost.backward);
}

}  // namespace

double collective_seconds(const PieceStep& start, const LayoutPaths& paths, const Calibration& calibration) {
    const GroupPath& path = path_of_group(start.group, paths);
    const double bytes = static_cast<double>(std::max(start.sent, start.received));
    switch (start.collective) {
        case model::CollectiveKind::all_reduce: {
            const double seconds = all_reduce_seconds(bytes, path, calibration);
            return start.group == LayerGroup::tp_cp ? seconds + all_reduce_seconds(bytes, paths.cp, calibration) : seconds;
        }
        case model::CollectiveKind::all_gather:
            return all_gather_seconds(bytes, path, calibration);
        case model::CollectiveKind::reduce_scatter:
            return reduce_scatter_seconds(bytes, path, calibration);
        case model::CollectiveKind::all_to_all:
            return all_to_all_seconds(bytes * sent_once(start.copies, path), path, calibration);
        case model::CollectiveKind::send:
        case model::CollectiveKind::receive:
            return send_receive_seconds(bytes, path, calibration);
        case model::CollectiveKind::broadcast:
        case model::CollectiveKind::barrier:
            break;
    }
    return 0;
}

PieceCost price_piece(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
    const OpRates rates{shard.kernels, shard.storage_kernels};
    const StepPrice price = [&](const PieceStep& step) {
        return step.kind == StepKind::op ? op_seconds(step.op, rates) : collective_seconds(step, *shard.paths, *shard.calibration);
    };
    const PassSeconds ahead = replay(forward, price, shard.calibration->overlap_cost);
    const PassSeconds back = replay(backward, price, shard.calibration->overlap_cost);
    PieceCost cost;
    for (const double seconds : ahead.compute) cost.forward += seconds;
    for (const GroupSeconds& seconds : ahead.exposed) cost.exposed_forward += seconds;
    sum_passes(back.compute, [&](StepPass pass, double seconds) {
        (pass == StepPass::recompute ? cost.recompute : cost.backward) += seconds;
        if (pass == StepPass::weight_gradient) cost.weight_gradient += seconds;
    });
    sum_passes(back.exposed, [&](StepPass pass, const GroupSeconds& seconds) {
        (pass == StepPass::recompute ? cost.exposed_recompute : cost.exposed_backward) += seconds;
    });
    for (const PieceStep& step : forward) {
        if (step.kind != StepKind::op) continue;
        cost.kernels_forward += op_kernels(step.op);
        cost.forward_flops += even_flops(step, shard);
    }
    for (const PieceStep& step : backward) {
        if (step.kind != StepKind::op) continue;
        if (step.pass != StepPass::recompute) cost.kernels_backward += op_kernels(step.op);
        if (step.pass == StepPass::recompute) cost.recompute_flops += even_flops(step, shard);
    }
    return cost;
}

namespace {

/// What does not see experts.
struct DenseCosts {
    PieceCost attention, windowed, mlp, embedding, head;
    PieceCost prediction;  ///< one depth of multi-token prediction without its layer, embedding and loss
};

struct MixtureCosts {
    PieceCost all, router;
};

/// The costs of a shard's pieces over the links of a layout.
struct PricedKey {
    ShardKey shard;
    std::int64_t rows = 0;  ///< of a mixture
    LinksKey links;
    bool operator==(const PricedKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [shard_, rows_, links_] = *this;
        return hash_of(shard_, rows_, links_);
    }
};

}  // namespace

struct RecordedCosts::State {
    const Workload& workload;
    std::unordered_map<PricedKey, DenseCosts, MemoKeyHash> dense;
    std::unordered_map<PricedKey, MixtureCosts, MemoKeyHash> mixtures;

    [[nodiscard]] const ModelSpec& model() const { return workload.model; }

    [[nodiscard]] PieceTrace edited(PieceTrace trace, const PieceSizes& sizes) const {
        if (sizes.engine == Engine::megatron) apply_megatron_policies(trace, {model(), workload.training, sizes});
        return trace;
    }

    /// Embedding, attention and so on of a layer with this window.
    [[nodiscard]] PieceTrace traced(const PieceSizes& sizes, std::int64_t window) const {
        ModelSpec windowed = model();
        windowed.sliding_window = window;
        windowed.full_attention_every = 0;
        PieceSizes all = sizes;
        all.fuses_windows = false;
        return edited(trace_dense_pieces(windowed, all), sizes);
    }

    static PieceCost price(const PieceTrace& trace, Piece piece, const Shard& shard) {
        return price_piece(trace.range(piece, false).steps, trace.range(piece, true).steps, shard);
    }

    const DenseCosts& dense_costs(const Shard& shard, const PieceSizes& sizes, const LinksKey& links) {
        auto [entry, fresh] = dense.try_emplace({without_experts(sizes), 0, links});
        DenseCosts& costs = entry->second;
        if (!fresh) return costs;
        const PieceTrace trace = traced(sizes, 0);
        costs.attention = costs.windowed = price(trace, Piece::attention, shard);
        if (model().sliding_window > 0) costs.windowed = price(traced(sizes, model().sliding_window), Piece::attention, shard);
        costs.mlp = price(trace, Piece::dense, shard);
        costs.embedding = price(trace, Piece::embedding, shard);
        costs.head = both(price(trace, Piece::norm, shard), price(trace, Piece::loss, shard));
        if (model().mtp_layers > 0) {
            const PieceTrace prediction = edited(trace_prediction(model(), sizes, false), sizes);
            costs.prediction = both(price(prediction, Piece::mtp_front, shard), price(prediction, Piece::mtp_end, shard));
        }
        return costs;
    }

    const MixtureCosts& mixture_costs(const Shard& shard, const PieceSizes& sizes, const LinksKey& links) {
        auto [entry, fresh] = mixtures.try_emplace({mixture_alone(sizes), sizes.rows(), links});
        MixtureCosts& costs = entry->second;
        if (!fresh) return costs;
        const PieceTrace trace = edited(trace_mixture(model(), sizes, shard.busiest_experts), sizes);
        const PieceSteps &forward = trace.range(Piece::mixture, false).steps, &backward = trace.range(Piece::mixture, true).steps;
        costs.all = price_piece(forward, backward, shard);
        if (workload.training.overlap_moe) hide_exchanges(costs.all, shard);
        costs.router = price_piece(router_steps(forward), router_steps(backward), shard);
        return costs;
    }

    LayerCosts costs(const Shard& shard, const PieceSizes& sizes, const LinksKey& links) {
        const DenseCosts& pieces = dense_costs(shard, sizes, links);
        LayerCosts costs;
        costs.attention = pieces.attention;
        if (!model().moe || std::find(model().moe_layers.begin(), model().moe_layers.end(), false) != model().moe_layers.end()) {
            costs.dense_mlp = pieces.mlp;
            costs.dense = both(pieces.attention, pieces.mlp);
            costs.windowed_dense = both(pieces.windowed, pieces.mlp);
        }
        if (model().moe) {
            const MixtureCosts& mixture = mixture_costs(shard, sizes, links);
            costs.experts = mixture.all;
            costs.router = mixture.router;
            costs.mixture = both(pieces.attention, mixture.all);
            costs.windowed_mixture = both(pieces.windowed, mixture.all);
        }
        costs.embedding = pieces.embedding;
        costs.head = pieces.head;
        costs.boundary = shard.tokens_outside * model().hidden * shard.element;
        if (model().mtp_layers > 0) {
            const bool mixture = model().moe && model().moe_layers.back();
            const bool windowed = model().window_of_layer(model().layers) > 0;
            const PieceCost& layer =
                mixture ? (windowed ? costs.windowed_mixture : costs.mixture) : (windowed ? costs.windowed_dense : costs.dense);
            costs.mtp = both(layer, pieces.prediction);
        }
        return costs;
    }
};

RecordedCosts::RecordedCosts(const Workload& workload) : state_(std::make_unique<State>(State{workload, {}, {}})) {}
RecordedCosts::~RecordedCosts() = default;

LayerCosts RecordedCosts::of(const Shard& shard, const PieceSizes& sizes, const LinksKey& links) {
    PieceSizes whole = sizes;
    whole.keep_steps = true;
    return state_->costs(shard, whole, links);
}

}  // namespace mgplan::simulator
