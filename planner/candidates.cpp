#include "planner/candidates.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/batch_sizes.hpp"
#include "planner/legal_tails.hpp"

namespace mgplan::planner {
namespace {

using Sizes = std::vector<std::int64_t>;

template <class Value>
std::vector<Value> without_repeats(const std::vector<Value>& values) {
    std::vector<Value> kept;
    for (const Value& value : values) {
        if (std::find(kept.begin(), kept.end(), value) == kept.end()) kept.push_back(value);
    }
    return kept;
}

/// The pinned values, or all possible ones if none are pinned.
template <class Default>
Sizes pinned_or(const Sizes& pinned, Default fallback) {
    return pinned.empty() ? fallback() : without_repeats(pinned);
}

/// True if a rule of the level is broken; counts that as a rejection.
bool rejected(const Workload& workload, const Layout& layout, Level level, CandidateCounts& counts) {
    const Rule* rule = first_broken(workload, layout, level);
    if (rule == nullptr) return false;
    counts.reject(rule->name, [&] { return rule->message(workload, layout); });
    return true;
}

Layout start(const Workload& workload, const SearchSpace& space) {
    Layout layout;
    layout.sizes.world = workload.world;
    layout.sizes.order = space.orders.front();
    layout.sizes.optimizer_instances = workload.training.distributed_optimizer_instances;
    layout.cuda_graphs = space.cuda_graphs;
    layout.engine = space.engine;
    return layout;
}

/// `vpp` 0: the pinned layout string determines the number of chunks.
SplitChoice split_for(const Workload& workload, const SearchSpace& space, std::int64_t pp, int vpp) {
    if (space.pipeline_layout) {
        StageSplitRequest request;
        request.layers = workload.model.layers;
        request.mtp_layers = workload.model.mtp_layers;
        request.pp = static_cast<int>(pp);
        request.vpp = vpp;
        request.pipeline_layout = space.pipeline_layout;
        try {
            auto split = std::make_shared<const StageSplit>(make_stage_split(request));
            return {split->vpp(), split, {}};
        } catch (const ConfigError& error) {
            return {std::max(vpp, 1), nullptr, error.problems().front()};
        }
    }
    auto automatic = automatic_stage_split(workload.model.layers, workload.model.mtp_layers, static_cast<int>(pp), vpp);
    if (!automatic) return {vpp, nullptr, {}};
    return {vpp, std::make_shared<const StageSplit>(std::move(*automatic)), {}};
}

/// Adds balanced versions of the splits.
void add_balanced_splits(const StageLoads& loads, std::vector<SplitChoice>& splits) {
    const std::size_t before = splits.size();
    for (std::size_t i = 0; i < before; ++i) {
        if (!splits[i].split) continue;
        auto balanced = balanced_stage_split(*splits[i].split, loads);
        if (balanced) splits.push_back({splits[i].vpp, std::make_shared<const StageSplit>(std::move(*balanced)), {}});
    }
}

std::vector<SplitChoice> automatic_splits_for(const Workload& workload, const SearchSpace& space, std::int64_t pp) {
    const Sizes vpps = pinned_or(space.vpp, [&] {
        if (space.pipeline_layout) return Sizes{0};
        Sizes usual;
        for (std::int64_t vpp = 1; vpp <= (pp == 1 ? 1 : kUsualChunks); ++vpp) usual.push_back(vpp);
        return usual;
    });
    std::vector<SplitChoice> splits;
    for (const auto vpp : vpps) splits.push_back(split_for(workload, space, pp, static_cast<int>(vpp)));
    if (!space.vpp.empty() || space.pipeline_layout || pp == 1) return splits;
    // Up to the number of layers: embedding and loss may count as one each.
    for (std::int64_t vpp = kUsualChunks + 1; vpp * pp <= workload.model.layers + 2; ++vpp) {
        SplitChoice choice = split_for(workload, space, pp, static_cast<int>(vpp));
        const auto equal = [](SplitKind kind) { return kind == SplitKind::even || kind == SplitKind::account_embedding_loss; };
        if (choice.split && (space.unequal_chunks || equal(choice.split->kind()))) splits.push_back(std::move(choice));
    }
    return splits;
}

std::shared_ptr<const std::vector<SplitChoice>> splits_for(const Workload& workload, const SearchSpace& space, std::int64_t pp) {
    std::vector<SplitChoice> splits = automatic_splits_for(workload, space, pp);
    if (space.stage_loads) add_balanced_splits(*space.stage_loads, splits);
    return std::make_shared<const std::vector<SplitChoice>>(std::move(splits));
}

/// Orders of the axes already enumerated for the same sizes. Two orders that differ only in the positions of axes of size 1 give the same
/// groups, and so the same layouts.
class OrdersSeen {
public:
    void clear() { seen_.clear(); }

    /// True if an earlier order gave the same groups and was legal or broke the same rule. `broken`: the rule that this order breaks, or
    /// null. Otherwise stores this order.
    [[nodiscard]] bool repeats(const ParallelSizes& sizes, bool experts, const Rule* broken) {
        Order order{axes_of_groups(sizes, experts), broken};
        const auto before = std::find_if(seen_.begin(), seen_.end(), [&](const Order& other) {
            return other.axes == order.axes && (other.broken == nullptr || other.broken == broken);
        });
        if (before != seen_.end()) return true;
        seen_.push_back(std::move(order));
        return false;
    }

private:
    struct Order {
        std::vector<Axis> axes;
        const Rule* broken;
    };

    /// The axes with more than one rank, fastest first, of the dense grid and of the experts': with the sizes they determine every group.
    static std::vector<Axis> axes_of_groups(const ParallelSizes& sizes, bool experts) {
        std::vector<Axis> axes;
        const auto add = [&axes](const std::vector<GridAxis>& grid) {
            for (const GridAxis& axis : grid) {
                if (axis.size != 1) axes.push_back(axis.axis);
            }
        };
        add(dense_grid(sizes));
        if (experts) add(expert_grid(sizes));
        return axes;
    }

    std::vector<Order> seen_;
};

/// Enumerates the layouts for fixed tp, cp, pp, ep, etp and vpp.
class TailVisitor {
public:
    TailVisitor(const Workload& workload, const SearchSpace& space, CandidateCounts& counts, const LayoutVisitor& visitor)
        : workload_(workload), space_(space), counts_(counts), visitor_(visitor), cp_comm_types_(without_repeats(space.cp_comm_types)) {
        if (visitor.tails == nullptr) own_tails_.emplace(workload, space);
    }
    ~TailVisitor() { count_repeated(); }
    TailVisitor(const TailVisitor&) = delete;
    TailVisitor& operator=(const TailVisitor&) = delete;

    void operator()(Layout& layout) {
        blocks_ = largest_block(space_, *layout.split);
        layout.group_size = layout.vpp > 1 ? space_.group_size.value_or(layout.sizes.pp) : layout.sizes.pp;
        const Sizes micro_batches =
            pinned_or(space_.micro_batch, [&] { return searched_micro_batches(workload_.batch.global_batch, layout.dp()); });
        for (const auto micro_batch : micro_batches) {
            layout.micro_batch = micro_batch;
            layout.num_microbatches = workload_.batch.global_batch / (layout.dp() * micro_batch);
            if (rejected(workload_, layout, Level::microbatch, counts_)) continue;
            visit_sequence_parallel(layout);
        }
        layout.cuda_graphs = space_.cuda_graphs;
        layout.switches = nullptr;
    }

private:
    void visit_sequence_parallel(Layout& layout) {
        // Without tensor parallelism both settings are the same layout.
        const bool both = layout.sizes.tp > 1 && !space_.sequence_parallel;
        for (const bool on : {true, false}) {
            if (!both && on != (layout.sizes.tp > 1 && space_.sequence_parallel.value_or(false))) continue;
            layout.sequence_parallel = on;
            if (!rejected(workload_, layout, Level::sequence_parallel, counts_)) visit_context_kinds(layout);
        }
    }

    void visit_context_kinds(Layout& layout) {
        for (const auto kind : cp_comm_types_) {
            layout.cp_comm_type = layout.sizes.cp > 1 ? kind : CpCommType::p2p;
            if (!rejected(workload_, layout, Level::context_kind, counts_)) visit_tails(layout);
            if (layout.sizes.cp == 1) break;  // no exchange, one layout
        }
    }

    void visit_tails(Layout& layout) {
        const LegalTails::Tails& tails = (own_tails_ ? *own_tails_ : *visitor_.tails).of(layout, blocks_);
        reject(tails, layout);
        const std::vector<LayoutTail>& legal = tails.legal;
        const auto layouts = static_cast<std::int64_t>(legal.size());
        counts_.legal += layouts;
        if (layouts == 0) return;
        legal.front().write(layout);
        if (visitor_.enter && !visitor_.enter(layout, layouts)) return;
        for (auto first = legal.begin(); first != legal.end();) {
            const auto end = std::find_if(first, legal.end(), [&](const LayoutTail& tail) { return tail.switches != first->switches; });
            first->write(layout);
            if (!visitor_.enter_switched || visitor_.enter_switched(layout, end - first)) {
                for (; first != end; ++first) {
                    first->write(layout);
                    visitor_.visit(layout);
                }
            }
            first = end;
        }
    }

    /// Counts the tails rejected for `layout`. If they equal those of the previous layout, their rules already have examples.
    void reject(const LegalTails::Tails& tails, const Layout& layout) {
        if (&tails == rejecting_) {
            ++repeated_;
            return;
        }
        count_repeated();
        rejecting_ = &tails;
        for (const LegalTails::Rejected& one : tails.rejected) {
            counts_.reject(one.rule->name, one.count, [&] {
                Layout example = layout;
                one.first.write(example);
                return one.rule->message(workload_, example);
            });
        }
    }

    void count_repeated() {
        if (rejecting_ == nullptr || repeated_ == 0) return;
        for (const LegalTails::Rejected& one : rejecting_->rejected) counts_.add(one.rule->name, repeated_ * one.count);
        repeated_ = 0;
    }

    const Workload& workload_;
    const SearchSpace& space_;
    CandidateCounts& counts_;
    const LayoutVisitor& visitor_;
    const LegalTails::Tails* rejecting_ = nullptr;  ///< rejected tails of the previous layout
    std::int64_t repeated_ = 0;                     ///< number of later layouts with the same, not counted yet
    std::vector<CpCommType> cp_comm_types_;
    std::int64_t blocks_ = 0;  ///< largest block of the current layouts
    std::optional<LegalTails> own_tails_;
};

}  // namespace

std::string_view to_string(FillingTerm term) {
    constexpr std::array<std::string_view, kFillingTerms> kNames{"parameters", "gradients", "optimizer", "activations", "other", "host"};
    return kNames[static_cast<std::size_t>(term)];
}

std::string_view reason_of(std::string_view rule) {
    if (rule == kFits) return "does not fit in memory";
    if (rule == kFitsAtP99) return "fits with even routing, not at p99 of the routing skew";
    if (rule == kFitsInHost) return "what waits on the host does not fit its memory";
    if (rule == kFitsReplayed) return "fits with fragmentation assumed, not with the allocator replayed";
    if (rule == kLayoutSuits) return "the pipeline layout does not suit";
    const auto found = std::find_if(rules().begin(), rules().end(), [&](const Rule& known) { return known.name == rule; });
    MGPLAN_ASSERT(found != rules().end(), "only rules are counted");
    return found->reason;
}

std::int64_t CandidateCounts::candidates() const {
    std::int64_t total = legal;
    for (const auto& [rule, found] : rejected) total += found.count;
    return total;
}

void CandidateCounts::merge(const CandidateCounts& other) {
    legal += other.legal;
    for (const auto& [rule, found] : other.rejected) {
        auto& mine = rejected[rule];
        // The first example in the order of enumeration, so that the result does not depend on threads.
        if (mine.count == 0 || found.part < mine.part) {
            mine.example = found.example;
            mine.part = found.part;
        }
        mine.count += found.count;
    }
}

std::vector<Prefix> prefixes(const Workload& workload, const SearchSpace& space, CandidateCounts& counts) {
    std::vector<Prefix> found;
    std::map<std::int64_t, std::shared_ptr<const std::vector<SplitChoice>>> splits;
    Layout layout = start(workload, space);
    for (const auto tp : pinned_or(space.tp, [&] { return divisors(workload.world); })) {
        layout.sizes.tp = tp;
        layout.sizes.cp = 1;
        layout.sizes.pp = 1;
        if (rejected(workload, layout, Level::tensor, counts)) continue;
        for (const auto cp : pinned_or(space.cp, [&] { return divisors(workload.world / tp); })) {
            layout.sizes.cp = cp;
            layout.sizes.pp = 1;
            if (rejected(workload, layout, Level::context, counts)) continue;
            for (const auto pp : pinned_or(space.pp, [&] { return divisors(workload.world / (tp * cp)); })) {
                layout.sizes.pp = pp;
                if (rejected(workload, layout, Level::pipeline, counts)) continue;
                auto& shared = splits[pp];
                if (!shared) shared = splits_for(workload, space, pp);
                found.push_back({tp, cp, pp, shared, found.size()});
            }
        }
    }
    return found;
}

void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const std::function<void(const Layout&)>& visit) {
    visit_layouts(workload, space, prefix, counts, LayoutVisitor{visit});
}

void visit_layouts(const Workload& workload, const SearchSpace& space, const Prefix& prefix, CandidateCounts& counts,
                   const LayoutVisitor& visitor) {
    const bool moe = workload.model.moe.has_value();
    Layout layout = start(workload, space);
    layout.sizes.tp = prefix.tp;
    layout.sizes.cp = prefix.cp;
    layout.sizes.pp = prefix.pp;
    const std::int64_t rest = workload.world / prefix.pp;
    counts.part = prefix.part;
    // Dense models have one expert grid, whatever is pinned: ep and etp are accepted and have no effect.
    const Sizes eps = !moe ? Sizes{1} : pinned_or(space.ep, [&] { return divisors(rest); });
    const Sizes etps = !moe ? Sizes{1} : pinned_or(space.etp, [&] { return divisors(rest); });
    TailVisitor tail(workload, space, counts, visitor);
    OrdersSeen orders_seen;
    const auto visit_grids = [&](std::int64_t ep, std::int64_t etp, const AxisOrder& order) {
        layout.sizes.order = order;
        layout.sizes.ep = ep;
        layout.sizes.etp = moe ? etp : etp_without_experts(layout.sizes);
        const Rule* broken = nullptr;
        // The prefix satisfies the rules of its levels in the first order; one of them depends on the order.
        if (&order != &space.orders.front()) broken = first_broken(workload, layout, Level::tensor);
        if (broken == nullptr) broken = first_broken(workload, layout, Level::expert);
        if (space.orders.size() > 1 && orders_seen.repeats(layout.sizes, moe, broken)) return;
        if (broken != nullptr) {
            counts.reject(broken->name, [&] { return broken->message(workload, layout); });
            return;
        }
        for (const SplitChoice& choice : *prefix.splits) {
            layout.split = choice.split;
            layout.vpp = choice.vpp;
            if (!choice.refusal.empty()) {
                counts.reject(kLayoutSuits, [&] { return choice.refusal; });
                continue;
            }
            if (!rejected(workload, layout, Level::chunks, counts)) tail(layout);
        }
    };
    for (const auto ep : eps) {
        for (const auto etp : etps) {
            orders_seen.clear();
            for (const AxisOrder& order : space.orders) visit_grids(ep, etp, order);
        }
    }
}

}  // namespace mgplan::planner
