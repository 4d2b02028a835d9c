#include "planner/bounded_search.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/layout/layout_switches.hpp"
#include "planner/branch_tails.hpp"
#include "planner/legal_tails.hpp"
#include "planner/run_parallel.hpp"
#include "planner/unsplit_bounds.hpp"

namespace mgplan::planner {
namespace {

/// The part of a space that contains most good layouts: small micro-batches, etp 1, no recompute in blocks, only the first set of graph
/// scopes, full or no recompute or the largest module set, tp overlap on and the narrowest dtypes.
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

/// A part of the space, restricted to layouts near a good one.
struct Neighbourhood {
    std::size_t part;
    SearchSpace space;
};

/// Layouts to evaluate next: those that agree with one of the first of `best` in all sizes and in the micro-batch.
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

/// Evaluates layouts that may enter the best list. The parts run in rounds: the bounds are the best of all earlier rounds and of the same
/// part, so that the result does not depend on threads.
class BoundedSearch {
public:
    BoundedSearch(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                  const std::vector<LayoutCost>& pricers, const SearchOptions& options, const RankedLayout* compared)
        : workload_(workload),
          space_(space),
          parts_(parts),
          pricers_(pricers),
          options_(options),
          compared_(compared),
          order_(options.nearest_alone ? most_divided_first(parts) : promising_first(parts)),
          tails_(pricers.size(), LegalTails(workload, space)),
          slowest_(options.slowest_known) {}

    void run(SearchShare& all) {
        if (options_.nearest_alone) return look_for_misses(all);
        double interest = 0;  // as a multiple of the fastest's seconds
        double fastest = std::numeric_limits<double>::infinity();
        if (!std::isfinite(slowest_)) {
            const std::vector<RankedLayout> likely = look_at_likely_ones();
            if (!likely.empty() && options_.of_interest) {
                fastest = likely.front().iteration_seconds;
                interest = options_.of_interest(likely) / fastest;
            }
        }
        std::vector<SearchShare> found(parts_.size(), SearchShare(options_));
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
            (void)best.list();  // sorts the whole list
            done += count;
        }
        for (SearchShare& share : found) all.absorb(std::move(share));
    }

private:
    static constexpr std::size_t kFirstRound = 8;  ///< number of parts

    [[nodiscard]] BestList<BeforeByObjective> none_yet() const { return {options_.keep, BeforeByObjective{options_.objective}}; }

    static void offer_all(SearchShare& share, BestList<BeforeByObjective>& best) {
        for (const RankedLayout& ranked : share.best.list()) best.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
    }

    /// Finds the nearest misses if nothing fits: first among a few likely layouts, to get a bound for the others.
    void look_for_misses(SearchShare& all) {
        const SearchSpace few = likely_space(space_);
        std::vector<LegalTails> tails(pricers_.size(), LegalTails(workload_, few));
        std::int64_t farthest = std::numeric_limits<std::int64_t>::max();
        (void)misses_in_rounds(few, tails, farthest);
        for (SearchShare& share : misses_in_rounds(space_, tails_, farthest)) all.absorb(std::move(share));
    }

    /// Nearest misses in the subspace `some`, by part. `farthest`: the peak of the last of the nearest misses known so far; updated.
    std::vector<SearchShare> misses_in_rounds(const SearchSpace& some, std::vector<LegalTails>& tails, std::int64_t& farthest) {
        std::vector<SearchShare> found(parts_.size(), SearchShare(options_));
        NearestMisses nearest(options_.keep_nearest);
        std::size_t done = 0;
        for (std::size_t round = kFirstRound; done < parts_.size(); round *= 2) {
            const std::size_t count = std::min(round, parts_.size() - done);
            run_parallel(
                count, pricers_.size(),
                [&](std::size_t place, std::size_t thread) {
                    const std::size_t part = order_[done + place];
                    found[part].farthest_known = farthest;
                    price(some, tails[thread], part, found[part], thread);
                },
                [&](std::size_t of_round, std::size_t) {
                    if (options_.progress) options_.progress(done + of_round, parts_.size());
                });
            for (std::size_t place = done; place < done + count; ++place) {
                for (const RankedLayout& miss : found[order_[place]].nearest.list()) nearest.offer(miss.layout, miss.peak_bytes);
            }
            farthest = std::min(farthest, nearest.largest_peak());
            done += count;
        }
        return found;
    }

    /// Evaluates the layouts of a part in the subspace `some`. Bounds are always those of the whole space.
    void price(const SearchSpace& some, LegalTails& tails_of_some, std::size_t part, SearchShare& share, std::size_t thread) const {
        const LayoutCost& cost = pricers_[thread];
        LayoutVisitor visitor;
        visitor.tails = &tails_of_some;
        BranchTails tails(cost, space_, options_.nearest_alone);
        UnsplitBounds unsplit(cost, space_);
        const auto most = [&] { return share.bytes_of_interest(workload_.memory_limit, options_.nearest_alone); };
        visitor.visit = [&](const Layout& layout) {
            if (!tails.may_come_in(layout, most(), share.to_beat(slowest_), share.cut_at_least))
                ++share.bounded;
            else if (options_.nearest_alone)
                share.price_miss(layout, cost, workload_.memory_limit);
            else
                share.price_bounded(layout, cost, workload_.memory_limit, options_, slowest_, compared_);
        };
        visitor.enter = [&](const Layout& first, std::int64_t layouts) {
            tails.begin_branch();
            return share.enter(first, layouts, cost, unsplit, space_, most(), slowest_);
        };
        visitor.enter_switched = [&](const Layout& first, std::int64_t layouts) {
            if (options_.nearest_alone && cost.least_bytes_switched && cost.least_bytes_switched(first) > most()) {
                share.bounded += layouts;
                return false;
            }
            const double enough = share.to_beat(slowest_);
            return !std::isfinite(enough) || !share.cut(layouts, cost.least_seconds_switched(first, space_, enough), slowest_);
        };
        visit_layouts(workload_, some, parts_[part], share.counts, visitor);
    }

    /// The layouts found, best first; sets slowest_ to the time of the last one.
    std::vector<RankedLayout> best_of(std::vector<SearchShare>& found) {
        BestList<BeforeByObjective> best = none_yet();
        for (SearchShare& share : found) offer_all(share, best);
        std::vector<RankedLayout> list = best.list();
        slowest_ = std::min(slowest_, best.slowest());
        return list;
    }

    /// Evaluates a few layouts that are likely to be good, then all similar to the best of them, to have bounds from the first part on.
    /// Returns the best.
    std::vector<RankedLayout> look_at_likely_ones() {
        const SearchSpace few = likely_space(space_);
        std::vector<LegalTails> tails(pricers_.size(), LegalTails(workload_, few));
        std::vector<std::size_t> likely;
        for (const std::size_t part : order_) {
            if (parts_[part].cp == parts_[order_.front()].cp) likely.push_back(part);
        }
        std::vector<SearchShare> of_few(likely.size(), SearchShare(options_));
        run_parallel(
            likely.size(), pricers_.size(),
            [&](std::size_t place, std::size_t thread) { price(few, tails[thread], likely[place], of_few[place], thread); },
            options_.progress);
        const std::vector<Neighbourhood> near = neighbourhoods(space_, parts_, best_of(of_few));
        std::vector<SearchShare> of_near(near.size(), SearchShare(options_));
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
    const RankedLayout* compared_;
    std::vector<std::size_t> order_;  ///< order of the parts
    std::vector<LegalTails> tails_;   ///< by thread
    double slowest_;                  ///< seconds that a layout must not exceed, from earlier results
};

}  // namespace

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

std::vector<std::size_t> most_divided_first(const std::vector<Prefix>& parts) {
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto key = [&](std::size_t part) {
            const Prefix& p = parts[part];
            return std::tuple(-p.tp * p.cp * p.pp, -p.pp);
        };
        return key(a) < key(b);
    });
    return order;
}

void search_bounded(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                    const std::vector<LayoutCost>& pricers, const SearchOptions& options, const RankedLayout* compared, SearchShare& all) {
    BoundedSearch(workload, space, parts, pricers, options, compared).run(all);
}

}  // namespace mgplan::planner
