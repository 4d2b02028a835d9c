#include "planner/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <tuple>

#include "plan/layout/layout_switches.hpp"
#include "planner/branch_memory.hpp"
#include "planner/family_set.hpp"
#include "planner/legal_tails.hpp"
#include "planner/run_parallel.hpp"
#include "planner/scaling.hpp"

namespace mgplan::planner {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Fewer switches first.
auto switch_order(const Layout& l) {
    const LayoutSwitches on = l.switches ? *l.switches : LayoutSwitches{};
    return std::tuple(on.dispatcher.has_value() + on.overlap_tp + on.overlap_moe + on.bf16_gradients + on.bf16_moments, on.dispatcher,
                      on.overlap_tp, on.overlap_moe, on.bf16_gradients, on.bf16_moments);
}

/// Fewer parallel axes and less machinery first.
auto simplicity(const Layout& l) {
    const ParallelSizes& s = l.sizes;
    return std::tuple((s.tp > 1) + (s.cp > 1) + (s.ep > 1) + (s.pp > 1) + (l.vpp > 1) + (l.recompute != Recompute::none), s.pp, l.vpp, s.tp,
                      s.cp, s.ep, s.etp, l.micro_batch, l.sequence_parallel, l.cp_comm_type, l.recompute, l.recompute_modules,
                      l.sizes.order.axes(), l.recompute_method, l.recompute_num_layers, l.cuda_graphs, switch_order(l));
}

/// The best `capacity` layouts seen; most candidates fail one comparison with the last. Few are kept sorted, many are sorted in batches.
template <class Before>
class BestList {
public:
    BestList(std::size_t capacity, Before before) : capacity_(capacity), batch_(std::max<std::size_t>(1, capacity / 4)), before_(before) {}

    void offer(const Layout& layout, double seconds, std::int64_t peak) {
        if (capacity_ == 0) return;
        // A cheap look at the numbers before the layout is copied.
        RankedLayout candidate{{}, seconds, peak};
        if (sorted_ == capacity_ && before_.surely_behind(candidate, list_[sorted_ - 1])) return;
        candidate.layout = layout;
        list_.push_back(std::move(candidate));
        if (list_.size() - sorted_ >= batch_) sort();
    }

    /// Seconds that a layout must not exceed to come in, where the list is sorted by them.
    [[nodiscard]] double slowest() const {
        return capacity_ > 0 && sorted_ == capacity_ ? list_[sorted_ - 1].iteration_seconds : std::numeric_limits<double>::infinity();
    }

    /// The largest peak with which a layout may still come in, where the list is sorted by peaks.
    [[nodiscard]] std::int64_t largest_peak() const {
        if (capacity_ == 0) return 0;
        return sorted_ == capacity_ ? list_[sorted_ - 1].peak_bytes : std::numeric_limits<std::int64_t>::max();
    }

    [[nodiscard]] const std::vector<RankedLayout>& list() {
        sort();
        return list_;
    }
    std::vector<RankedLayout> take() {
        sort();
        sorted_ = 0;
        return std::move(list_);
    }

private:
    void sort() {
        const auto added = list_.begin() + static_cast<std::ptrdiff_t>(sorted_);
        std::stable_sort(added, list_.end(), before_);
        std::inplace_merge(list_.begin(), added, list_.end(), before_);
        if (list_.size() > capacity_) list_.resize(capacity_);
        sorted_ = list_.size();
    }

    std::size_t capacity_, batch_;
    Before before_;
    std::vector<RankedLayout> list_;
    std::size_t sorted_ = 0;  ///< of list_, the first
};

struct BeforeByObjective {
    Objective objective;
    bool operator()(const RankedLayout& a, const RankedLayout& b) const { return ranks_before(a, b, objective); }
    /// By the first key alone, without looking at the layouts.
    [[nodiscard]] bool surely_behind(const RankedLayout& a, const RankedLayout& b) const {
        return objective == Objective::memory ? a.peak_bytes > b.peak_bytes : a.iteration_seconds > b.iteration_seconds;
    }
};

struct SmallerPeak {
    bool operator()(const RankedLayout& a, const RankedLayout& b) const {
        return std::tuple(a.peak_bytes, simplicity(a.layout)) < std::tuple(b.peak_bytes, simplicity(b.layout));
    }
    [[nodiscard]] bool surely_behind(const RankedLayout& a, const RankedLayout& b) const { return a.peak_bytes > b.peak_bytes; }
};

/// The layouts with the smallest bounds. Sorted only now and then: what is behind the last of a full list is dropped at once.
class ContenderList {
public:
    explicit ContenderList(std::size_t capacity) : capacity_(capacity) {}

    void offer(const Layout& layout, const TimeEstimate& time, std::int64_t peak) {
        if (time.at_least >= others_) return;
        if (capacity_ == 0) {
            others_ = time.at_least;
            return;
        }
        list_.push_back({layout, time.at_least, time.seconds, peak});
        if (list_.size() >= 2 * capacity_) shrink();
    }
    void absorb(ContenderList&& other) {
        others_ = std::min(others_, other.others_);
        for (Contender& each : other.list_) list_.push_back(std::move(each));
        if (list_.size() >= 2 * capacity_) shrink();
    }
    /// Sorted. Bounds that are equal are all left out or none, so that the result does not depend on the order of the offers.
    std::vector<Contender> take() {
        shrink();
        std::erase_if(list_, [this](const Contender& each) { return each.at_least >= others_; });
        return std::move(list_);
    }
    /// The least bound of what is not in the list.
    [[nodiscard]] double others() const { return others_; }

private:
    void shrink() {
        const auto before = [](const Contender& a, const Contender& b) {
            return std::tuple(a.at_least, a.peak_bytes, simplicity(a.layout)) < std::tuple(b.at_least, b.peak_bytes, simplicity(b.layout));
        };
        std::sort(list_.begin(), list_.end(), before);
        if (list_.size() <= capacity_) return;
        others_ = std::min(others_, list_[capacity_].at_least);
        list_.resize(capacity_);
    }

    std::size_t capacity_;
    double others_ = std::numeric_limits<double>::infinity();
    std::vector<Contender> list_;
};

/// Most layouts are farther away, which their bytes alone tell.
void keep_nearer(TooLarge& alike, const Layout& layout, std::int64_t peak) {
    if (alike.nearest && peak > alike.nearest->peak_bytes) return;
    RankedLayout candidate{layout, 0, peak};
    if (!alike.nearest || SmallerPeak{}(candidate, *alike.nearest)) alike.nearest = std::move(candidate);
}

/// One thread's share of the result.
struct Share {
    BestList<BeforeByObjective> best;
    BestList<SmallerPeak> nearest;
    ContenderList contenders;
    ParetoSet pareto;
    FamilySet families;
    CandidateCounts counts;
    std::int64_t evaluated = 0, feasible = 0, before_compared = 0, bounded = 0;
    double cut_at_least = std::numeric_limits<double>::infinity(), never_below = 0, near = 1;
    std::array<TooLarge, kFillingTerms> too_large;
    TooLarge too_large_uneven;

    explicit Share(const SearchOptions& options)
        : best(options.keep, BeforeByObjective{options.objective}),
          nearest(options.keep_nearest, SmallerPeak{}),
          contenders(options.keep_contenders),
          never_below(options.never_below),
          near(1 + options.pareto_within) {}

    /// Adds what another share found.
    void absorb(Share&& other) {
        contenders.absorb(std::move(other.contenders));
        for (const auto& ranked : other.pareto.layouts()) pareto.offer(ranked);
        families.absorb(std::move(other.families));
        for (const auto& ranked : other.best.take()) best.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
        for (const auto& ranked : other.nearest.take()) nearest.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
        counts.merge(other.counts);
        evaluated += other.evaluated;
        feasible += other.feasible;
        before_compared += other.before_compared;
        bounded += other.bounded;
        cut_at_least = std::min(cut_at_least, other.cut_at_least);
        const auto add = [](TooLarge& all, const TooLarge& found) {
            all.count += found.count;
            if (found.nearest) keep_nearer(all, found.nearest->layout, found.nearest->peak_bytes);
        };
        for (std::size_t term = 0; term < kFillingTerms; ++term) add(too_large[term], other.too_large[term]);
        add(too_large_uneven, other.too_large_uneven);
    }

    /// Whether layouts that take `at_least` seconds cannot come in, where `slowest` may: these are counted.
    bool cut(std::int64_t layouts, double at_least, double slowest) {
        if (at_least <= to_beat(slowest)) return false;
        bounded += layouts;
        cut_at_least = std::min(cut_at_least, at_least);
        return true;
    }

    /// What a layout has to beat: `slowest`, and what this share has; or it may be nearly as fast and come into the Pareto set.
    [[nodiscard]] double to_beat(double slowest) const { return std::max(never_below, near * std::min(slowest, best.slowest())); }

    /// Whether layouts that differ from `first` in what comes last alone may come in; those that may not are counted.
    bool enter(const Layout& first, std::int64_t layouts, const LayoutCost& cost, const SearchSpace& space, std::int64_t limit,
               double slowest) {
        if (cost.least_bytes(first, space) > limit) {
            bounded += layouts;
            return false;
        }
        if (!std::isfinite(to_beat(slowest))) return true;
        return !cut(layouts, cost.least_seconds(first, space, to_beat(slowest)), slowest);
    }

    /// price() of a layout that is only looked at where it is fast enough.
    void price_bounded(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, double slowest) {
        const TimeEstimate time = cost.iteration_seconds(layout);
        if (cut(1, std::min(time.seconds, time.at_least), slowest)) return;
        price(layout, cost, limit, options, nullptr, &time);
    }

    /// Most layouts are told apart by one figure, without a copy.
    void hold_against(const RankedLayout& compared, const Layout& layout, double seconds, std::int64_t peak, Objective objective) {
        const BeforeByObjective before{objective};
        RankedLayout candidate{{}, seconds, peak};
        if (before.surely_behind(candidate, compared)) return;
        if (!before.surely_behind(compared, candidate)) {
            candidate.layout = layout;
            if (!before(candidate, compared)) return;
        }
        ++before_compared;
    }

    void price(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, const RankedLayout* compared,
               const TimeEstimate* known = nullptr) {
        const MemoryNeed need = cost.memory(layout, limit);
        const bool fits = need.bytes <= limit;
        if (!fits) {
            const bool uneven = need.even <= limit;
            TooLarge& alike = uneven ? too_large_uneven : too_large[static_cast<std::size_t>(need.largest)];
            ++alike.count;
            // Where the even peak is too much, it was not asked for exactly: how much too much interests the lists alone, and
            // so only a layout that may still come into one is asked for again. What it counts as stays as it was: that must
            // not depend on what a thread has seen before.
            const std::int64_t farthest =
                std::max(nearest.largest_peak(), alike.nearest ? alike.nearest->peak_bytes : std::numeric_limits<std::int64_t>::max());
            if (need.bytes <= farthest) {
                const std::int64_t peak = uneven ? need.bytes : cost.memory(layout, farthest).bytes;
                nearest.offer(layout, 0, peak);
                keep_nearer(alike, layout, peak);
            }
            if (options.prune) return;
        }
        const TimeEstimate time = known != nullptr ? *known : cost.iteration_seconds(layout);
        ++evaluated;
        if (!fits) return;
        ++feasible;
        best.offer(layout, time.seconds, need.bytes);
        contenders.offer(layout, time, need.bytes);
        if (options.pareto || options.pareto_within > 0) pareto.offer(layout, time.seconds, need.bytes);
        if (options.families) families.offer(layout, time.seconds, need.bytes);
        if (compared != nullptr) hold_against(*compared, layout, time.seconds, need.bytes, options.objective);
    }
};

/// Those parts first that are likely to hold the fastest layouts: little tensor and context parallelism.
std::vector<std::size_t> promising_first(const std::vector<Prefix>& parts) {
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto key = [&](std::size_t part) {
            const Prefix& p = parts[part];
            return std::tuple(p.cp, p.tp, p.pp);
        };
        return key(a) < key(b);
    });
    return order;
}

/// The part of a space in which most good layouts lie: small micro-batches, no tensor parallelism of experts, no blocks and no graphs
/// beside the first, recompute of all, nothing, or as many modules as a set has, and every overlap on.
SearchSpace likely_space(const SearchSpace& space) {
    SearchSpace few = space;
    if (few.micro_batch.empty()) few.micro_batch = {1, 2};
    if (few.etp.empty()) few.etp = {1};
    few.recompute_blocks = false;
    few.more_cuda_graphs.clear();
    for (const auto& modules : space.more_recompute_modules) {
        if (names_in(modules).size() > names_in(few.recompute_modules).size()) few.recompute_modules = modules;
    }
    few.more_recompute_modules.clear();
    const auto has = [](const auto& switches, bool LayoutSwitches::*which) { return switches && (*switches).*which; };
    const bool tp =
        std::any_of(space.switches.begin(), space.switches.end(), [&](const auto& one) { return has(one, &LayoutSwitches::overlap_tp); });
    std::erase_if(few.switches, [&](const auto& one) {
        return has(one, &LayoutSwitches::bf16_gradients) || has(one, &LayoutSwitches::bf16_moments) ||
               (tp && one != nullptr && !has(one, &LayoutSwitches::overlap_tp));
    });
    if (few.switches.empty()) few.switches = space.switches;
    return few;
}

/// Prices what may come into the best. The parts go in rounds: the best of all rounds before say what a layout has to beat, and those of
/// its own part, so that the outcome depends on no thread.
void search_bounded(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                    const std::vector<LayoutCost>& pricers, std::vector<Share>& shares, const SearchOptions& options) {
    constexpr std::size_t kFirstRound = 8;
    const std::vector<std::size_t> order = promising_first(parts);
    const SearchSpace few = likely_space(space);
    std::vector<LegalTails> tails(shares.size(), LegalTails(workload, space)), few_tails(shares.size(), LegalTails(workload, few));
    const auto price_part = [&](bool likely, std::size_t part, Share& share, std::size_t thread, double slowest) {
        const LayoutCost& cost = pricers[thread];
        LayoutVisitor visitor;
        visitor.tails = likely ? &few_tails[thread] : &tails[thread];
        BranchMemory memory(cost, space, workload.memory_limit);
        visitor.visit = [&](const Layout& layout) {
            if (memory.may_fit(layout))
                share.price_bounded(layout, cost, workload.memory_limit, options, slowest);
            else
                ++share.bounded;
        };
        // The bounds are those of the whole space in any case.
        visitor.enter = [&](const Layout& first, std::int64_t layouts) {
            memory.begin_branch();
            return share.enter(first, layouts, cost, space, workload.memory_limit, slowest);
        };
        visitor.enter_switched = [&](const Layout& first, std::int64_t layouts) {
            return !std::isfinite(share.to_beat(slowest)) || !share.cut(layouts, cost.least_seconds_switched(first, space), slowest);
        };
        visit_layouts(workload, likely ? few : space, parts[part], share.counts, visitor);
    };
    BestList best(options.keep, BeforeByObjective{options.objective});
    const auto offer_all = [&best](Share& share) {
        for (const RankedLayout& ranked : share.best.list()) best.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
    };
    double slowest = std::numeric_limits<double>::infinity();
    {
        // A few layouts of the space that are likely to be good, for something to beat from the first part on.
        std::vector<std::size_t> likely;
        for (const std::size_t part : order) {
            if (parts[part].cp == parts[order.front()].cp) likely.push_back(part);
        }
        std::vector<Share> found(likely.size(), Share(options));
        run_parallel(
            likely.size(), shares.size(),
            [&](std::size_t place, std::size_t thread) {
                price_part(true, likely[place], found[place], thread, std::numeric_limits<double>::infinity());
            },
            options.progress);
        for (Share& share : found) offer_all(share);
        (void)best.list();  // sorted to the last
        slowest = best.slowest();
        best = BestList(options.keep, BeforeByObjective{options.objective});
    }
    std::vector<Share> found(parts.size(), Share(options));
    std::size_t done = 0;
    for (std::size_t round = kFirstRound; done < parts.size(); round *= 2) {
        const std::size_t count = std::min(round, parts.size() - done);
        slowest = std::min(slowest, best.slowest());
        run_parallel(
            count, shares.size(),
            [&](std::size_t place, std::size_t thread) {
                const std::size_t part = order[done + place];
                price_part(false, part, found[part], thread, slowest);
            },
            [&](std::size_t of_round, std::size_t) {
                if (options.progress) options.progress(done + of_round, parts.size());
            });
        for (std::size_t place = done; place < done + count; ++place) offer_all(found[order[place]]);
        (void)best.list();
        done += count;
    }
    for (Share& share : found) shares.front().absorb(std::move(share));
}

}  // namespace

bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective) {
    if (objective == Objective::memory) {
        return std::tuple(a.peak_bytes, a.iteration_seconds, simplicity(a.layout)) <
               std::tuple(b.peak_bytes, b.iteration_seconds, simplicity(b.layout));
    }
    return std::tuple(a.iteration_seconds, a.peak_bytes, simplicity(a.layout)) <
           std::tuple(b.iteration_seconds, b.peak_bytes, simplicity(b.layout));
}

SearchResult search(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model, const SearchOptions& options) {
    const auto begin = Clock::now();
    SearchResult result;
    result.limit_bytes = workload.memory_limit;
    const auto parts = prefixes(workload, space, result.counts);
    const std::size_t wanted =
        options.threads > 0 ? static_cast<std::size_t>(options.threads) : std::max(1U, std::thread::hardware_concurrency());
    const std::size_t threads = std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, parts.size()));
    std::vector<Share> shares(threads, Share(options));
    std::vector<LayoutCost> pricers;
    for (std::size_t t = 0; t < threads; ++t) pricers.push_back(cost_model(workload));
    std::optional<RankedLayout> compared;
    if (options.compared) {
        const LayoutCost& cost = pricers.front();
        compared = RankedLayout{*options.compared, cost.iteration_seconds(*options.compared).seconds,
                                cost.memory(*options.compared, std::numeric_limits<std::int64_t>::max()).bytes};
    }
    const auto evaluation = Clock::now();
    const bool bounded = options.bounded && options.objective == Objective::throughput && !options.pareto && !options.families &&
                         !options.compared && pricers.front().least_seconds;
    if (bounded) {
        search_bounded(workload, space, parts, pricers, shares, options);
    } else {
        run_parallel(
            parts.size(), shares.size(),
            [&](std::size_t part, std::size_t thread) {
                const LayoutCost& cost = pricers[thread];
                Share& share = shares[thread];
                visit_layouts(workload, space, parts[part], share.counts, [&](const Layout& layout) {
                    share.price(layout, cost, workload.memory_limit, options, compared ? &*compared : nullptr);
                });
            },
            options.progress);
    }
    result.evaluate_seconds = seconds_since(evaluation);

    Share all(options);
    all.counts = std::move(result.counts);
    for (auto& share : shares) all.absorb(std::move(share));
    result.counts = std::move(all.counts);
    result.evaluated = all.evaluated;
    result.feasible = all.feasible;
    result.before_compared = all.before_compared;
    result.bounded = all.bounded;
    result.cut_at_least = all.cut_at_least;
    for (const TooLarge& found : all.too_large) result.too_large += found.count;
    result.too_large += all.too_large_uneven.count;
    result.too_large_by_term = std::move(all.too_large);
    result.too_large_uneven = std::move(all.too_large_uneven);
    result.best = all.best.take();
    result.contenders = all.contenders.take();
    result.others_at_least = std::min(all.contenders.others(), all.cut_at_least);
    result.nearest = all.nearest.take();
    result.pareto = all.pareto.layouts();
    result.families = all.families.take();
    result.threads = static_cast<int>(threads);
    result.seconds = seconds_since(begin);
    return result;
}

}  // namespace mgplan::planner
