#include "simulator/price/recorded_costs.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/memory/engine_policies.hpp"
#include "simulator/memory/time_policies.hpp"
#include "simulator/piece/layer_editor.hpp"
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

/// All of a pass's kinds of work that are not recompute, or that alone.
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
}

class Pricer {
public:
    Pricer(const Shard& shard, const PieceSizes& sizes) : shard_(shard), sizes_(sizes) {}

    [[nodiscard]] PieceTrace edited(PieceTrace trace) const {
        if (shard_.engine == Engine::megatron) apply_megatron_policies(trace, {shard_.model(), shard_.workload->training, sizes_});
        return trace;
    }

    [[nodiscard]] PieceCost price(const PieceTrace& trace, Piece piece) const {
        return price_piece(trace.range(piece, false).steps, trace.range(piece, true).steps, shard_);
    }

    [[nodiscard]] PieceTrace dense(std::int64_t window) const {
        ModelSpec model = shard_.model();
        model.sliding_window = window;
        model.full_attention_every = 0;
        PieceSizes sizes = sizes_;
        sizes.fuses_windows = false;
        return edited(trace_dense_pieces(model, sizes));
    }

private:
    const Shard& shard_;
    const PieceSizes& sizes_;
};

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
        cost.forward_flops += model_flops_of(step);
    }
    for (const PieceStep& step : backward) {
        if (step.kind != StepKind::op) continue;
        if (step.pass != StepPass::recompute) cost.kernels_backward += op_kernels(step.op);
        if (step.pass == StepPass::recompute) cost.recompute_flops += model_flops_of(step);
    }
    return cost;
}

LayerCosts recorded_costs(const Shard& shard, const PieceSizes& sizes) {
    const ModelSpec& model = shard.model();
    const Pricer pricer(shard, sizes);
    LayerCosts costs;
    const PieceTrace dense = pricer.dense(0);
    costs.attention = pricer.price(dense, Piece::attention);
    const PieceCost windowed =
        model.sliding_window > 0 ? pricer.price(pricer.dense(model.sliding_window), Piece::attention) : costs.attention;
    if (!model.moe || std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end()) {
        costs.dense_mlp = pricer.price(dense, Piece::dense);
        costs.dense = both(costs.attention, costs.dense_mlp);
        costs.windowed_dense = both(windowed, costs.dense_mlp);
    }
    if (model.moe) {
        const PieceTrace mixture = pricer.edited(trace_mixture(model, sizes, shard.busiest_experts));
        costs.experts = pricer.price(mixture, Piece::mixture);
        if (shard.workload->training.overlap_moe) hide_exchanges(costs.experts, shard);
        costs.router = price_piece(router_steps(mixture.range(Piece::mixture, false).steps),
                                   router_steps(mixture.range(Piece::mixture, true).steps), shard);
        costs.mixture = both(costs.attention, costs.experts);
        costs.windowed_mixture = both(windowed, costs.experts);
    }
    costs.embedding = pricer.price(dense, Piece::embedding);
    costs.head = both(pricer.price(dense, Piece::norm), pricer.price(dense, Piece::loss));
    costs.boundary = shard.tokens_outside * model.hidden * shard.element;
    if (model.mtp_layers > 0) {
        const bool ends_with_mixture = model.moe && model.moe_layers.back();
        if (model.window_of_layer(model.layers) > 0)
            costs.mtp = ends_with_mixture ? costs.windowed_mixture : costs.windowed_dense;
        else
            costs.mtp = ends_with_mixture ? costs.mixture : costs.dense;
        const PieceTrace prediction = pricer.edited(trace_prediction(model, sizes, false));
        PieceSteps front = prediction.range(Piece::mtp_front, false).steps, back = prediction.range(Piece::mtp_front, true).steps;
        costs.mtp += price_piece(front, back, shard);
        costs.mtp += pricer.price(prediction, Piece::mtp_end);
    }
    return costs;
}

}  // namespace mgplan::simulator
