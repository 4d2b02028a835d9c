#include "simulator/price/recorded_costs.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "plan/parameters/model_adapter.hpp"
#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/shared_memo.hpp"
#include "simulator/piece/step_edits.hpp"
#include "simulator/piece/time_policies.hpp"
#include "simulator/price/module_costs.hpp"
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

/// Share of the copies that travel if a token is sent once to each destination that holds any of its experts: each rank inside a node,
/// otherwise each node.
double sent_once(std::int64_t copies, const GroupPath& path) {
    return share_of_different(copies, path.crosses_network() ? path.domains() : static_cast<double>(path.ranks));
}

/// The path of DeepEP's and HybridEP's kernels, which use one plane of an adapter: of a ConnectX-8, 800 Gb/s in two planes, 400 Gb/s.
/// DeepEP's queues all lie on the first plane (deepseek-ai/DeepEP, pull request 650, two nodes of B300); HybridEP reached 44 GB/s a GPU
/// there (issue 590). Their kernels gather a rank's rows for a node into large messages.
GroupPath one_plane(GroupPath path, const Calibration& calibration) {
    constexpr double kPlane = 50e9;
    path.network = std::min(path.network, kPlane * calibration.network_efficiency);
    path.message_growth = 0;
    return path;
}

/// A rank's share of the model's FLOPs: experts count evenly, although the time is that of the busiest rank.
double even_flops(const PieceStep& step, const Shard& shard) {
    const double flops = model_flops_of(step, shard.packed.share);
    return step.op.grouped.groups > 0 ? flops / shard.busiest_experts : flops;
}

template <class Value, class Add>
void sum_passes(const std::array<Value, kStepPasses>& by_pass, Add add) {
    for (int pass = 0; pass < kStepPasses; ++pass) add(static_cast<StepPass>(pass), by_pass[static_cast<std::size_t>(pass)]);
}

/// Steps of a MoE layer's norm and router, and of the residual stream around them.
PieceSteps router_steps(const PieceSteps& steps) {
    PieceSteps part;
    for (const PieceStep& step : steps) {
        const std::string_view name = step.op.name;
        const bool of_norm = step.kind == StepKind::op && (name.ends_with("_norm") || name.ends_with("_norm_backward"));
        if (step.router || of_norm || name == "dropout_add") part.push_back(step);
    }
    return part;
}

/// Functions that return the seconds and the overlap cost of a shard's steps.
struct StepPrices {
    StepPrice seconds, taken;
    explicit StepPrices(const Shard& shard)
        : seconds([shard](const PieceStep& step) {
              return step.kind == StepKind::op ? step_seconds(step, shard.rates)
                                               : collective_seconds(step, *shard.paths, *shard.calibration);
          }),
          taken([calibration = shard.calibration](const PieceStep& start) { return overlap_cost(start, *calibration); }) {}
};

PieceCost both(PieceCost one, const PieceCost& other) {
    one += other;
    return one;
}

/// Share of a hidden exchange's time by which it slows down concurrent GEMMs. Inside a domain kernels of DeepEP and HybridEP occupy
/// multiprocessors, which GEMMs then lack. Across domains, and for NCCL's kernels, the value is calibrated.
double exchange_overlap_cost(const Shard& shard) {
    const TokenDispatcher dispatcher = shard.switches.dispatcher;
    const bool own_kernels = dispatcher == TokenDispatcher::deep_ep || dispatcher == TokenDispatcher::hybrid_ep;
    if (!own_kernels || shard.megatron() == nullptr || shard.paths->ep.crosses_network()) return shard.calibration->expert_overlap_cost;
    const auto occupied = static_cast<double>(timed::dispatcher_multiprocessors(dispatcher, *shard.megatron()));
    return std::min(1.0, occupied / static_cast<double>(shard.calibration->multiprocessors));
}

/// Seconds of an exchange that sends a token once to each destination with any of its experts. DeepEP moves rows, a rank's own rows too, by
/// the multiprocessors that its kernels occupy: on B200 and GB200, ep 8, 24 of them dispatch 494 and combine 420 GB/s, 28 of them 560 and
/// 477 (deepseek-ai/DeepEP, docs/README_Hybrid-EP.md, bf16). Between two nodes 24 forward 141 to 147 GB/s over NVLink, whether that has 200
/// GB/s (H800, docs/legacy.md: 43 GB/s over the network) or 450 (H20, issue 137; H200, issue 493). The rate per multiprocessor is assumed
/// to be the same for other numbers of them. It is built for eight ranks of a domain: a patch for 32 of GB200 dispatches 400 and combines
/// 190 GB/s with 24 multiprocessors (NVIDIA/Megatron-LM, docs/discussions/deepseek-v3-gb200-optimization, section 2.2.1); a pass has one of
/// each.
double sent_once_seconds(const PieceStep& start, double bytes, const GroupPath& path, const Calibration& calibration) {
    constexpr int kDomain = 8;
    constexpr double kInside = (494e9 + 420e9) / 2 / 24, kAcross = 144e9 / 24;  // bytes/s of a multiprocessor
    constexpr double kWide = 2 / (1 / 400e9 + 1 / 190e9) / 24;
    const double wire = all_to_all_seconds(bytes * sent_once(start.copies, path), one_plane(path, calibration), calibration);
    if (start.multiprocessors <= 0) return wire;
    const double rows = bytes * share_of_different(start.copies, static_cast<double>(path.ranks));
    const double each = path.crosses_network() ? kAcross : path.ranks > kDomain ? kWide : kInside;
    return std::max(wire, rows / (static_cast<double>(start.multiprocessors) * each));
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
            if (start.copies > 0) return sent_once_seconds(start, bytes, path, calibration);
            return all_to_all_seconds(bytes, path, calibration);
        case model::CollectiveKind::send:
        case model::CollectiveKind::receive:
            return send_receive_seconds(bytes, path, calibration);
        case model::CollectiveKind::broadcast:
        case model::CollectiveKind::barrier:
            break;
    }
    return 0;
}

double overlap_cost(const PieceStep& start, const Calibration& calibration) {
    if (start.multiprocessors < 0) return calibration.overlap_cost;
    return std::min(1.0, static_cast<double>(start.multiprocessors) / static_cast<double>(calibration.multiprocessors));
}

void hide_exchanges(LayerCosts::Layer& layer, const PieceCost& mixer, const MixtureNodes& mixture, const Shard& shard) {
    ExchangeNodes forward = mixture.forward, backward = mixture.backward;
    forward.outside += mixer.forward + mixer.exposed_forward.total();
    backward.outside +=
        mixer.backward - mixer.weight_gradient + mixer.exposed_backward.total() + mixer.recompute + mixer.exposed_recompute.total();
    backward.outside_weights += mixer.weight_gradient;
    const bool puts_off = shard.megatron() != nullptr && shard.megatron()->delay_wgrad;
    PieceCost& cost = layer.cost;
    const double alone = cost.exposed_forward.ep + cost.exposed_backward.ep;
    if (alone > 0) {
        // The pair has one time: each pass gets its proportional share.
        const double shown = shown_exchanges(forward, backward, puts_off, exchange_overlap_cost(shard)) / alone;
        const auto hide = [shown](double& exposed, double& hidden) {
            hidden = exposed * (1 - std::min(1.0, shown));
            exposed -= hidden;
        };
        hide(cost.exposed_forward.ep, layer.hidden.forward);
        hide(cost.exposed_backward.ep, layer.hidden.backward);
    }
    if (shard.megatron() == nullptr) return;
    // Attention with router, dispatch, experts and combine are nodes, each with a stream, events and a call of autograd; delayed weight
    // gradients add one call each for attention and for experts.
    constexpr int kNodes = 4, kPutOff = 2;
    cost.kernels_forward += kNodes;
    cost.kernels_backward += kNodes + (puts_off ? kPutOff : 0);
}

double division_seconds(const PieceSteps& backward, const Shard& shard) {
    const StepPrices prices(shard);
    PieceSteps put_off = backward;
    timed::start_where_waited_for(put_off);
    return replay(put_off, prices.seconds, prices.taken).total - replay(backward, prices.seconds, prices.taken).total;
}

MixtureNodes mixture_nodes(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
    const StepPrices prices(shard);
    return {cut_at_exchanges(forward, prices.seconds, prices.taken), cut_at_exchanges(backward, prices.seconds, prices.taken)};
}

namespace {

KernelCounts kernels_of(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
    const Engine engine = shard.megatron() == nullptr ? Engine::mgplan : Engine::megatron;
    KernelCounts kernels;
    for (const PieceStep& step : forward) kernels.forward += step_kernels(step, engine);
    for (const PieceStep& step : backward) {
        if (step.pass != StepPass::recompute) kernels.backward += step_kernels(step, engine);
    }
    return kernels;
}

}  // namespace

PieceCost price_piece(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
    const StepPrices prices(shard);
    const PassSeconds ahead = replay(forward, prices.seconds, prices.taken);
    const PassSeconds back = replay(backward, prices.seconds, prices.taken);
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
    const KernelCounts kernels = kernels_of(forward, backward, shard);
    cost.kernels_forward = kernels.forward;
    cost.kernels_backward = kernels.backward;
    for (const PieceStep& step : forward) cost.forward_flops += even_flops(step, shard);
    for (const PieceStep& step : backward) {
        if (step.pass == StepPass::recompute) cost.recompute_flops += even_flops(step, shard);
    }
    return cost;
}

namespace {

/// Costs of a mixer. `windowed`: with the model's window.
struct MixerCosts {
    PieceCost whole, windowed;
};

/// Costs that do not depend on experts.
struct DenseCosts {
    std::vector<MixerCosts> mixers;        ///< by LayerKinds::mixers
    std::vector<PieceCost> feed_forwards;  ///< by LayerKinds::feed_forwards; 0 for those of experts
    PieceCost embedding, head;
    PieceCost prediction;  ///< one depth of multi-token prediction without its layer, embedding and loss
};

struct MixtureCosts {
    PieceCost all;
    KernelCounts router;
    MixtureNodes nodes;  ///< used if another microbatch hides exchanges
};

/// Cost of a ring over `ranks`, extrapolated from rings of two and of four: each further rank adds half of the difference.
PieceCost further_parts(PieceCost two, const PieceCost& four, std::int64_t ranks) {
    const double times = static_cast<double>(ranks - 4) / 2;
    two.each(four, [times]<class Term>(Term& own, Term of_four) {
        const double grown = of_four + times * (of_four - own);
        if constexpr (std::is_same_v<Term, double>)
            own = grown;
        else
            own = static_cast<Term>(std::lround(grown));
    });
    return two;
}

/// Sets the bytes of the collectives in passes over two and four ranks of a ring to those over `ranks`: they grow linearly with the ranks.
/// Returns false if the two passes communicate differently.
bool grow_collectives(PieceSteps& two, PieceSteps& four, std::int64_t ranks) {
    const auto next_start = [](PieceSteps& steps, PieceSteps::iterator from) {
        return std::find_if(from, steps.end(), [](const PieceStep& step) { return step.kind == StepKind::start; });
    };
    auto of_two = next_start(two, two.begin()), of_four = next_start(four, four.begin());
    for (; of_two != two.end() && of_four != four.end(); of_two = next_start(two, ++of_two), of_four = next_start(four, ++of_four)) {
        if (of_two->collective != of_four->collective || of_two->group != of_four->group) return false;
        const auto grown = [ranks](std::int64_t from, std::int64_t to) { return to + (to - from) / 2 * (ranks - 4); };
        of_two->sent = of_four->sent = grown(of_two->sent, of_four->sent);
        of_two->received = of_four->received = grown(of_two->received, of_four->received);
    }
    return of_two == two.end() && of_four == four.end();
}

}  // namespace

struct RecordedCosts::Priced {
    SharedMemo<CostKey, DenseCosts> dense;
    SharedMemo<CostKey, MixtureCosts> mixtures;  ///< without hidden exchanges
};

struct RecordedCosts::State {
    const Workload& workload;
    const LayerKinds& kinds;
    ShardLayers& records;
    std::shared_ptr<Priced> priced;

    [[nodiscard]] const ModelSpec& model() const { return workload.model; }

    static PieceCost price(Piece piece, const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
        if (shard.of_division) return {.exposed_backward = {.tp = division_seconds(backward, shard)}};
        PieceCost cost = price_piece(forward, backward, shard);
        if (shard.by_module) cost.modules = module_costs(piece, forward, backward, shard.rates);
        return cost;
    }
    static PieceCost price(const PieceTrace& trace, Piece piece, const Shard& shard) {
        return price(piece, trace.range(piece, false).steps, trace.range(piece, true).steps, shard);
    }

    /// Attention, recorded for exactly these sizes with the given window.
    [[nodiscard]] PieceCost recorded_attention(const Shard& shard, const PieceSizes& sizes, std::int64_t window, LayerHalf mixer) const {
        mixer.layer.window = window;
        PieceSizes whole = sizes;
        whole.fuses_windows = false;
        whole.keep_steps = whole.whole_ring = true;
        PieceTrace trace = trace_half(workload.model, mixer, whole);
        const PolicyContext context{workload.model, mixer.layer, workload.training, whole};
        if (sizes.engine == Engine::megatron)
            apply_megatron_policies(trace, context);
        else
            apply_fp8_rates(trace, context);
        return price(trace, Piece::attention, shard);
    }

    /// Attention over a larger ring, extrapolated from the recording of `four` parts; nothing if the steps do not allow it.
    [[nodiscard]] std::optional<PieceCost> ring_attention(const Shard& shard, const PieceSizes& sizes, const PieceTrace& four,
                                                          std::size_t mixer) const {
        PieceSizes of_two = sizes;
        of_two.sequence = sizes.sequence / sizes.cp * 2;
        of_two.cp = 2;
        const TracePointer record = records.record(of_two, {Part::Of::mixer, mixer});
        const PieceTrace& two = *record;
        if (sizes.cp_comm_type != CpCommType::all_gather)
            return further_parts(price(two, Piece::attention, shard), price(four, Piece::attention, shard), sizes.cp);
        PieceSteps forward = two.range(Piece::attention, false).steps, backward = two.range(Piece::attention, true).steps;
        PieceSteps forward_of_four = four.range(Piece::attention, false).steps, backward_of_four = four.range(Piece::attention, true).steps;
        // Either one call over all gathered keys, with gathers of more bytes, or a call for each rank's keys.
        if (forward.size() == forward_of_four.size()) {
            if (!grow_steps(forward, forward_of_four, sizes.cp, 2) || !grow_steps(backward, backward_of_four, sizes.cp, 2))
                return std::nullopt;
            return price(Piece::attention, forward, backward, shard);
        }
        if (!grow_collectives(forward, forward_of_four, sizes.cp) || !grow_collectives(backward, backward_of_four, sizes.cp))
            return std::nullopt;
        return further_parts(price(Piece::attention, forward, backward, shard),
                             price(Piece::attention, forward_of_four, backward_of_four, shard), sizes.cp);
    }

    [[nodiscard]] MixerCosts price_mixer(const Shard& shard, const PieceSizes& sizes, std::size_t index) const {
        const LayerHalf& mixer = kinds.mixers[index];
        const TracePointer record = records.record(sizes, {Part::Of::mixer, index});
        const PieceTrace& trace = *record;
        if (mixer.carries_state) {
            MixerCosts costs{price(trace, Piece::recurrent, shard), {}};
            // tp divides its heads.
            costs.whole.forward_flops +=
                model_flops_of_state(*mixer.layer.mixer, static_cast<double>(sizes.rows()) / static_cast<double>(sizes.tp));
            return costs;
        }
        const std::int64_t window = model().sliding_window;
        const bool ring = sizes.cp > kRingParts && sizes.cp_comm_type != CpCommType::a2a;
        std::optional<PieceCost> attention;
        if (window == 0 || sizes.fuses_windows) {
            const bool whole = !ring || sizes.cp % kRingParts != 0;
            attention = whole ? price(trace, Piece::attention, shard) : ring_attention(shard, sizes, trace, index);
        }
        const PieceCost whole = attention ? *attention : recorded_attention(shard, sizes, 0, mixer);
        return {whole, window > 0 ? recorded_attention(shard, sizes, window, mixer) : whole};
    }

    /// The shard with the rates of the layer's precision.
    static Shard at_precision_of(const Layer& layer, Shard shard) {
        if (layer.precision == LayerPrecision::bf16) shard.rates.products = shard.rates.storage;
        return shard;
    }

    [[nodiscard]] DenseCosts price_dense(const Shard& shard, const PieceSizes& sizes) const {
        DenseCosts costs;
        for (std::size_t i = 0; i < kinds.mixers.size(); ++i)
            costs.mixers.push_back(price_mixer(at_precision_of(kinds.mixers[i].layer, shard), sizes, i));
        for (std::size_t i = 0; i < kinds.feed_forwards.size(); ++i) {
            const LayerHalf& half = kinds.feed_forwards[i];
            PieceCost& cost = costs.feed_forwards.emplace_back();
            if (!half.mixture)
                cost = price(*records.record(sizes, {Part::Of::feed_forward, i}), Piece::dense, at_precision_of(half.layer, shard));
        }
        const TracePointer ends = records.record(sizes, {Part::Of::ends});
        costs.embedding = price(*ends, Piece::embedding, shard);
        costs.head = both(price(*ends, Piece::norm, shard), price(*ends, Piece::loss, shard));
        if (model().mtp_layers > 0) {
            const TracePointer prediction = records.record(sizes, {Part::Of::prediction});
            costs.prediction = both(price(*prediction, Piece::mtp_front, shard), price(*prediction, Piece::mtp_end, shard));
        }
        return costs;
    }

    const DenseCosts& dense_costs(const Shard& shard, const PieceSizes& sizes, const LinksKey& links) {
        return priced->dense.of({without_experts(sizes), links, false, shard.of_division}, [&] { return price_dense(shard, sizes); });
    }

    [[nodiscard]] MixtureCosts price_mixture(const Shard& of_training, const PieceSizes& sizes, std::size_t feed_forward) const {
        const Shard shard = at_precision_of(kinds.feed_forwards[feed_forward].layer, of_training);
        const TracePointer trace = records.record(sizes, {Part::Of::feed_forward, feed_forward}, shard.busiest_experts);
        const PieceSteps &forward = trace->range(Piece::mixture, false).steps, &backward = trace->range(Piece::mixture, true).steps;
        if (shard.of_division) return {price(Piece::mixture, forward, backward, shard), {}, {}};
        return {price(Piece::mixture, forward, backward, shard), kernels_of(router_steps(forward), router_steps(backward), shard),
                mixture_nodes(forward, backward, shard)};
    }

    /// A feed-forward of experts without hidden exchanges.
    const MixtureCosts& mixture_costs(const Shard& shard, const PieceSizes& sizes, const LinksKey& links, std::size_t feed_forward) {
        ShardKey half = feed_forward_alone(sizes, true);
        // The sums of the load-balancing loss run over tp and cp, whatever the number of rows.
        if (model().moe->auxiliary_loss > 0) half.cp = sizes.cp;
        return priced->mixtures.of({half, links, false, shard.of_division, sizes.rows(), feed_forward},
                                   [&] { return price_mixture(shard, sizes, feed_forward); });
    }

    LayerCosts costs(const CostKey& key, const Shard& shard, const PieceSizes& sizes, bool with_mixtures) {
        LayerCosts costs = undivided_costs(key, shard, sizes, with_mixtures);
        if (!key.divided || shard.engine != Engine::mgplan) return costs;
        Shard of_division = shard;
        of_division.of_division = true;
        costs.each(undivided_costs(key, of_division, sizes, with_mixtures),
                   [](PieceCost& own, const PieceCost& more) { own.exposed_backward.tp += more.exposed_backward.tp; });
        return costs;
    }

    /// Costs with undivided backwards, or Shard::of_division.
    LayerCosts undivided_costs(const CostKey& key, const Shard& shard, PieceSizes sizes, bool with_mixtures) {
        sizes.switches = key.shard.switches;
        const DenseCosts& pieces = dense_costs(shard, sizes, key.links);
        LayerCosts costs;
        const auto mixture_of = [&](int feed_forward) -> const MixtureCosts& {
            return mixture_costs(shard, sizes, key.links, static_cast<std::size_t>(feed_forward));
        };
        costs.layers.reserve(kinds.size());
        for (const LayerKindHalves& kind : kinds.kinds) {
            LayerCosts::Layer& layer = costs.layers.emplace_back();
            layer.mixture = kind.mixture;
            if (kind.mixer != LayerKindHalves::kNone) {
                const MixerCosts& mixer = pieces.mixers[static_cast<std::size_t>(kind.mixer)];
                layer.cost = kind.windowed ? mixer.windowed : mixer.whole;
                layer.mixer = KernelCounts(layer.cost);
            }
            if (kind.mixture) {
                if (!with_mixtures) continue;
                const MixtureCosts& mixture = mixture_of(kind.feed_forward);
                const PieceCost mixer = layer.cost;
                layer.cost += mixture.all;
                layer.feed_forward = KernelCounts(mixture.all);
                layer.router = mixture.router;
                if (key.paired && !shard.of_division) hide_exchanges(layer, mixer, mixture.nodes, shard);
            } else if (kind.feed_forward != LayerKindHalves::kNone) {
                const PieceCost& feed_forward = pieces.feed_forwards[static_cast<std::size_t>(kind.feed_forward)];
                layer.cost += feed_forward;
                layer.feed_forward = KernelCounts(feed_forward);
            }
        }
        costs.embedding = pieces.embedding;
        costs.head = pieces.head;
        costs.boundary = shard.tokens_outside * model().stream_width() * shard.element;
        if (model().mtp_layers > 0) {
            costs.mtp = costs.layers[kinds.of_prediction];
            costs.mtp.cost += pieces.prediction;
        }
        return costs;
    }
};

RecordedCosts::RecordedCosts(const Workload& workload, ShardLayers& records, const RecordedCosts* others)
    : state_(std::make_unique<State>(
          State{workload, records.kinds(), records, others != nullptr ? others->state_->priced : std::make_shared<Priced>()})) {}
RecordedCosts::~RecordedCosts() = default;

LayerCosts RecordedCosts::of(const CostKey& key, const Shard& shard, const PieceSizes& sizes) {
    return state_->costs(key, shard, sizes, true);
}

LayerCosts RecordedCosts::without_mixtures(const CostKey& key, const Shard& shard, const PieceSizes& sizes) {
    return state_->costs(key, shard, sizes, false);
}

}  // namespace mgplan::simulator
