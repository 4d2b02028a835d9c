#include "planner/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <tuple>

#include "plan/layout/layout_switches.hpp"
#include "planner/branch_tails.hpp"
#include "planner/family_set.hpp"
#include "planner/legal_tails.hpp"
#include "planner/run_parallel.hpp"
#include "planner/scaling.hpp"
#include "planner/unsplit_bounds.hpp"

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

/// By their figures and, where these are equal, which they seldom are, by what is simpler.
template <class Figures>
bool comes_before(const Figures& a, const Layout& a_layout, const Figures& b, const Layout& b_layout) {
    return a == b ? simplicity(a_layout) < simplicity(b_layout) : a < b;
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
        return comes_before(std::tuple(a.peak_bytes), a.layout, std::tuple(b.peak_bytes), b.layout);
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
        std::sort(list_.begin(), list_.end(), before);
        return std::move(list_);
    }
    /// The least bound of what is not in the list.
    [[nodiscard]] double others() const { return others_; }

private:
    static bool before(const Contender& a, const Contender& b) {
        return comes_before(std::tuple(a.at_least, a.peak_bytes), a.layout, std::tuple(b.at_least, b.peak_bytes), b.layout);
    }
    /// Keeps the first, in no order.
    void shrink() {
        if (list_.size() <= capacity_) return;
        const auto behind = list_.begin() + static_cast<std::ptrdiff_t>(capacity_);
        std::nth_element(list_.begin(), behind, list_.end(), before);
        others_ = std::min(others_, behind->at_least);
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
    bool enter(const Layout& first, std::int64_t layouts, const LayoutCost& cost, UnsplitBounds& unsplit, const SearchSpace& space,
               std::int64_t limit, double slowest) {
        const double enough = to_beat(slowest);
        if (std::isfinite(enough) && cut(layouts, unsplit.of(first, enough), slowest)) return false;
        if (cost.least_bytes(first, space) > limit) {
            bounded += layouts;
            return false;
        }
        return !std::isfinite(enough) || !cut(layouts, cost.least_seconds(first, space, enough), slowest);
    }

    /// Whether a layout takes so long, by the bound of all splits, that its time is of no interest. Times are cheap beside a search that
    /// runs again, and closer looks find some longer than bounds: what is far from the slowest alone is left out.
    bool takes_too_long(const Layout& layout, UnsplitBounds& unsplit) {
        constexpr double kFarFromSlowest = 1.25;
        const double enough = std::max(never_below, kFarFromSlowest * best.slowest());
        if (!std::isfinite(enough)) return false;
        const double at_least = unsplit.of(layout, enough);
        if (at_least <= enough) return false;
        cut_at_least = std::min(cut_at_least, at_least);
        return true;
    }

    /// price() of a layout that is only looked at where it is fast enough.
    void price_bounded(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, double slowest) {
        const TimeEstimate time = cost.iteration_seconds(layout);
        if (cut(1, std::min(time.seconds, time.at_least), slowest)) return;
        price(layout, cost, limit, options, {.time = &time});
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

    /// What helps to price layouts; each may be missing.
    struct Beside {
        const TimeEstimate* time = nullptr;  ///< the layout's own
        UnsplitBounds* unsplit = nullptr;
        const RankedLayout* compared = nullptr;
    };

    void price(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, const Beside& beside) {
        const MemoryNeed need = cost.memory(layout, limit);
        const bool by_host = need.bytes <= limit && need.host_missing > 0;
        const bool fits = need.bytes <= limit && !by_host;
        if (!fits) {
            const bool uneven = !by_host && need.even <= limit;
            TooLarge& alike = uneven ? too_large_uneven : too_large[static_cast<std::size_t>(by_host ? FillingTerm::host : need.largest)];
            ++alike.count;
            // Where the even peak is too much, it was not asked for exactly: how much too much interests the lists alone, and
            // so only a layout that may still come into one is asked for again. What it counts as stays as it was: that must
            // not depend on what a thread has seen before.
            const std::int64_t farthest =
                std::max(nearest.largest_peak(), alike.nearest ? alike.nearest->peak_bytes : std::numeric_limits<std::int64_t>::max());
            const std::int64_t known = by_host ? limit + need.host_missing : need.bytes;
            if (known <= farthest) {
                const std::int64_t peak = uneven || by_host ? known : cost.memory(layout, farthest).bytes;
                nearest.offer(layout, 0, peak);
                keep_nearer(alike, layout, peak);
            }
            if (options.prune) return;
        }
        ++evaluated;
        if (fits && beside.unsplit != nullptr && takes_too_long(layout, *beside.unsplit)) {
            ++feasible;
            return;
        }
        const TimeEstimate time = beside.time != nullptr ? *beside.time : cost.iteration_seconds(layout);
        if (!fits) return;
        ++feasible;
        best.offer(layout, time.seconds, need.bytes);
        contenders.offer(layout, time, need.bytes);
        if (options.pareto || options.pareto_within > 0) pareto.offer(layout, time.seconds, need.bytes);
        if (options.families) families.offer(layout, time.seconds, need.bytes);
        if (beside.compared != nullptr) hold_against(*beside.compared, layout, time.seconds, need.bytes, options.objective);
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
/// beside the first, recompute of all, nothing, or as many modules as a set has, tp overlap on and the narrowest types.
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
    for (bool LayoutSwitches::*which : {&LayoutSwitches::overlap_tp, &LayoutSwitches::bf16_gradients, &LayoutSwitches::bf16_moments}) {
        const auto has = [which](const auto& switches) { return switches && (*switches).*which; };
        if (std::any_of(few.switches.begin(), few.switches.end(), has)) std::erase_if(few.switches, std::not_fn(has));
    }
    return few;
}

/// A part of the space and what of it is near a good layout.
struct Neighbourhood {
    std::size_t part;
    SearchSpace space;
};

/// Where to look next: layouts that agree with one of the first of `best` in all sizes and in the micro-batch.
std::vector<Neighbourhood> neighbourhoods(const SearchSpace& space, const std::vector<Prefix>& parts,
                                          const std::vector<RankedLayout>& best) {
    constexpr std::size_t kMost = 8;
    std::vector<Neighbourhood> found;
    for (const RankedLayout& ranked : best) {
        if (found.size() == kMost) break;
        const ParallelSizes& sizes = ranked.layout.sizes;
        const auto part = std::find_if(parts.begin(), parts.end(),
                                       [&](const Prefix& p) { return p.tp == sizes.tp && p.cp == sizes.cp && p.pp == sizes.pp; });
        Neighbourhood near{static_cast<std::size_t>(part - parts.begin()), space};
        near.space.ep = {sizes.ep};
        near.space.etp = {sizes.etp};
        near.space.micro_batch = {ranked.layout.micro_batch};
        const auto same = [&](const Neighbourhood& other) {
            return other.part == near.part && other.space.ep == near.space.ep && other.space.etp == near.space.etp &&
                   other.space.micro_batch == near.space.micro_batch;
        };
        if (std::none_of(found.begin(), found.end(), same)) found.push_back(std::move(near));
    }
    return found;
}

/// Prices what may come into the best. The parts go in rounds: the best of all rounds before say what a layout has to beat, and those of
/// its own part, so that the outcome depends on no thread.
class BoundedSearch {
public:
    BoundedSearch(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                  const std::vector<LayoutCost>& pricers, const SearchOptions& options)
        : workload_(workload),
          space_(space),
          parts_(parts),
          pricers_(pricers),
          options_(options),
          order_(promising_first(parts)),
          tails_(pricers.size(), LegalTails(workload, space)),
          slowest_(options.slowest_known) {}

    void run(Share& all) {
        double interest = 0;  // over the seconds of the fastest
        double fastest = std::numeric_limits<double>::infinity();
        if (!std::isfinite(slowest_)) {
            const std::vector<RankedLayout> likely = look_at_likely_ones();
            if (!likely.empty() && options_.of_interest) {
                fastest = likely.front().iteration_seconds;
                interest = options_.of_interest(likely) / fastest;
            }
        }
        constexpr std::size_t kFirstRound = 8;
        std::vector<Share> found(parts_.size(), Share(options_));
        BestList<BeforeByObjective> best = none_yet();
        std::size_t done = 0;
        for (std::size_t round = kFirstRound; done < parts_.size(); round *= 2) {
            const std::size_t count = std::min(round, parts_.size() - done);
            slowest_ = std::min(slowest_, best.slowest());
            if (!best.list().empty()) fastest = std::min(fastest, best.list().front().iteration_seconds);
            if (interest > 0) {
                for (std::size_t place = done; place < done + count; ++place)
                    found[order_[place]].never_below = std::max(options_.never_below, interest * fastest);
            }
            run_parallel(
                count, pricers_.size(),
                [&](std::size_t place, std::size_t thread) {
                    const std::size_t part = order_[done + place];
                    price(space_, tails_[thread], part, found[part], thread);
                },
                [&](std::size_t of_round, std::size_t) {
                    if (options_.progress) options_.progress(done + of_round, parts_.size());
                });
            for (std::size_t place = done; place < done + count; ++place) offer_all(found[order_[place]], best);
            (void)best.list();  // sorted to the last
            done += count;
        }
        for (Share& share : found) all.absorb(std::move(share));
    }

private:
    [[nodiscard]] BestList<BeforeByObjective> none_yet() const { return {options_.keep, BeforeByObjective{options_.objective}}; }

    static void offer_all(Share& share, BestList<BeforeByObjective>& best) {
        for (const RankedLayout& ranked : share.best.list()) best.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
    }

    /// Prices what of a part lies in `some` of the space. The bounds are those of the whole space in any case.
    void price(const SearchSpace& some, LegalTails& tails_of_some, std::size_t part, Share& share, std::size_t thread) const {
        const LayoutCost& cost = pricers_[thread];
        LayoutVisitor visitor;
        visitor.tails = &tails_of_some;
        BranchTails tails(cost, space_, workload_.memory_limit);
        UnsplitBounds unsplit(cost, space_);
        visitor.visit = [&](const Layout& layout) {
            if (tails.may_come_in(layout, share.to_beat(slowest_), share.cut_at_least))
                share.price_bounded(layout, cost, workload_.memory_limit, options_, slowest_);
            else
                ++share.bounded;
        };
        visitor.enter = [&](const Layout& first, std::int64_t layouts) {
            tails.begin_branch();
            return share.enter(first, layouts, cost, unsplit, space_, workload_.memory_limit, slowest_);
        };
        visitor.enter_switched = [&](const Layout& first, std::int64_t layouts) {
            const double enough = share.to_beat(slowest_);
            return !std::isfinite(enough) || !share.cut(layouts, cost.least_seconds_switched(first, space_, enough), slowest_);
        };
        visit_layouts(workload_, some, parts_[part], share.counts, visitor);
    }

    /// The layouts found, best first; the slowest of them says what the rest has to beat.
    std::vector<RankedLayout> best_of(std::vector<Share>& found) {
        BestList<BeforeByObjective> best = none_yet();
        for (Share& share : found) offer_all(share, best);
        std::vector<RankedLayout> list = best.list();
        slowest_ = std::min(slowest_, best.slowest());
        return list;
    }

    /// A few layouts of the space that are likely to be good, and then all that are like the best of these, for something to beat from the
    /// first part on: the best of them.
    std::vector<RankedLayout> look_at_likely_ones() {
        const SearchSpace few = likely_space(space_);
        std::vector<LegalTails> tails(pricers_.size(), LegalTails(workload_, few));
        std::vector<std::size_t> likely;
        for (const std::size_t part : order_) {
            if (parts_[part].cp == parts_[order_.front()].cp) likely.push_back(part);
        }
        std::vector<Share> of_few(likely.size(), Share(options_));
        run_parallel(
            likely.size(), pricers_.size(),
            [&](std::size_t place, std::size_t thread) { price(few, tails[thread], likely[place], of_few[place], thread); },
            options_.progress);
        const std::vector<Neighbourhood> near = neighbourhoods(space_, parts_, best_of(of_few));
        std::vector<Share> of_near(near.size(), Share(options_));
        run_parallel(
            near.size(), pricers_.size(),
            [&](std::size_t place, std::size_t thread) {
                price(near[place].space, tails_[thread], near[place].part, of_near[place], thread);
            },
            options_.progress);
        return best_of(of_near);
    }

    const Workload& workload_;
    const SearchSpace& space_;
    const std::vector<Prefix>& parts_;
    const std::vector<LayoutCost>& pricers_;
    const SearchOptions& options_;
    std::vector<std::size_t> order_;  ///< of the parts
    std::vector<LegalTails> tails_;   ///< by thread
    double slowest_;                  ///< seconds that a layout must not exceed by what was found before
};

}  // namespace

bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective) {
    if (objective == Objective::memory)
        return comes_before(std::tuple(a.peak_bytes, a.iteration_seconds), a.layout, std::tuple(b.peak_bytes, b.iteration_seconds),
                            b.layout);
    return comes_before(std::tuple(a.iteration_seconds, a.peak_bytes), a.layout, std::tuple(b.iteration_seconds, b.peak_bytes), b.layout);
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
    const bool boundable = options.objective == Objective::throughput && !options.pareto && !options.families && !options.compared;
    if (boundable && options.bounded && pricers.front().least_seconds) {
        BoundedSearch(workload, space, parts, pricers, options).run(shares.front());
    } else {
        const bool times_bounded = boundable && options.times_bounded && options.prune && pricers.front().least_seconds_unsplit;
        const std::vector<std::size_t> order = promising_first(parts);
        run_parallel(
            parts.size(), shares.size(),
            [&](std::size_t place, std::size_t thread) {
                const LayoutCost& cost = pricers[thread];
                Share& share = shares[thread];
                UnsplitBounds unsplit(cost, space);
                const Share::Beside beside{.unsplit = times_bounded ? &unsplit : nullptr, .compared = compared ? &*compared : nullptr};
                visit_layouts(workload, space, parts[order[place]], share.counts,
                              [&](const Layout& layout) { share.price(layout, cost, workload.memory_limit, options, beside); });
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
    if (options.objective == Objective::throughput && options.keep > 0 && result.best.size() == options.keep)
        result.slowest_kept = result.best.back().iteration_seconds;
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
