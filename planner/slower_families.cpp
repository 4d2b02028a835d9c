#include "planner/slower_families.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan/allowed_processors.hpp"
#include "planner/bounded_search.hpp"
#include "planner/family_set.hpp"
#include "planner/legal_tails.hpp"
#include "planner/plan_families.hpp"
#include "planner/run_parallel.hpp"
#include "planner/scaling.hpp"
#include "planner/search_axes.hpp"
#include "planner/unsplit_bounds.hpp"

namespace mgplan::planner {
namespace {

/// Families and Pareto set of one part of a space.
class PartPicture {
public:
    /// `known`: the families so far. All arguments but `pareto`, the Pareto set so far, must outlive it.
    PartPicture(const Workload& workload, const SearchSpace& space, const SearchOptions& options, const std::vector<FamilyPoint>& known,
                const ParetoSet& pareto)
        : workload_(workload), space_(space), options_(options), known_(known), pareto_(pareto) {}

    /// Evaluates the layouts of a part that may matter.
    void fill(const Prefix& part, const LayoutCost& cost, LegalTails& tails) {
        CandidateCounts counts;
        UnsplitBounds unsplit(cost, space_);
        LayoutVisitor visitor;
        visitor.tails = &tails;
        visitor.enter = [&](const Layout& first, std::int64_t) {
            if (sizes_ != first.sizes) {
                sizes_ = first.sizes;
                of_sizes_.clear();
            }
            if (!bounds(cost)) return true;
            least_bytes_ = cost.least_bytes(first, space_);
            if (least_bytes_ > workload_.memory_limit) return false;
            least_seconds_ = unsplit.of(first, kEverything);
            return true;
        };
        visitor.visit = [&](const Layout& layout) { look_at(layout, cost); };
        // Many chunks are mostly faster: the bounds of the others are then good from the start.
        Prefix turned = part;
        turned.splits = std::make_shared<const std::vector<SplitChoice>>(part.splits->rbegin(), part.splits->rend());
        visit_layouts(workload_, space_, turned, counts, visitor);
    }

    /// May be called once.
    [[nodiscard]] std::vector<FamilyPoint> take_families() { return families_.take(); }
    [[nodiscard]] const std::vector<RankedLayout>& pareto() const { return pareto_.layouts(); }

private:
    static constexpr double kEverything = std::numeric_limits<double>::infinity();

    /// A family with the current sizes, and seconds of its fastest member so far; infinite if none fits.
    struct OfSizes {
        Layout layout;
        double fastest;
    };

    OfSizes& family_of(const Layout& layout) {
        for (OfSizes& family : of_sizes_) {
            if (same_family(family.layout, layout)) return family;
        }
        OfSizes family{layout, kEverything};
        for (const FamilyPoint& point : known_) {
            if (same_family(point.fastest.layout, layout)) family.fastest = point.fastest.iteration_seconds;
        }
        return of_sizes_.emplace_back(std::move(family));
    }

    /// True if a member of the Pareto set is faster than `seconds` and takes at most `bytes`.
    [[nodiscard]] bool is_dominated(double seconds, std::int64_t bytes) const {
        const std::vector<RankedLayout>& line = pareto_.layouts();  // seconds rise and bytes fall along it
        const auto slower = std::ranges::lower_bound(line, seconds, {}, &RankedLayout::iteration_seconds);
        return slower != line.begin() && (slower - 1)->peak_bytes <= bytes;
    }

    /// True if layouts that take at least these seconds and bytes are neither the fastest of `family` nor in the Pareto set.
    [[nodiscard]] bool is_hidden(const OfSizes& family, double seconds, std::int64_t bytes) const {
        return (!options_.families || seconds > family.fastest) && (!options_.pareto || is_dominated(seconds, bytes));
    }

    /// True if the cost model has the bounds of a branch.
    [[nodiscard]] static bool bounds(const LayoutCost& cost) {
        return cost.least_seconds_unsplit && cost.least_bytes && cost.least_bytes_of_tail;
    }

    /// The cheapest figures come first: each of them shows of most layouts that they are hidden.
    void look_at(const Layout& layout, const LayoutCost& cost) {
        const std::int64_t limit = workload_.memory_limit;
        OfSizes& family = family_of(layout);
        std::int64_t least = 0;
        if (bounds(cost)) {
            if (is_hidden(family, least_seconds_, least_bytes_)) return;
            least = cost.least_bytes_of_tail(layout, space_, false, limit);
            if (least > limit || is_hidden(family, least_seconds_, least)) return;
        }
        const double seconds = cost.iteration_seconds(layout).seconds;
        if (is_hidden(family, seconds, least)) return;
        const MemoryNeed need = cost.memory(layout, limit);
        if (need.bytes > limit || need.host_missing > 0) return;
        family.fastest = std::min(family.fastest, seconds);
        if (options_.families) families_.offer(layout, seconds, need.bytes);
        if (options_.pareto) pareto_.offer(layout, seconds, need.bytes);
    }

    const Workload& workload_;
    const SearchSpace& space_;
    const SearchOptions& options_;
    const std::vector<FamilyPoint>& known_;
    FamilySet families_;
    ParetoSet pareto_;
    std::optional<ParallelSizes> sizes_;
    std::vector<OfSizes> of_sizes_;  ///< families with these sizes
    double least_seconds_ = 0;       ///< lower bound of the branch's seconds
    std::int64_t least_bytes_ = 0;   ///< and of its bytes
};

/// Number of parts in the first round; each later round has double the number of the one before.
constexpr std::size_t kFirstRound = 8;

}  // namespace

void add_slower_families(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model,
                         const SearchOptions& options, SearchResult& found) {
    const SearchSpace first = first_choices(space);
    CandidateCounts counts;
    const std::vector<Prefix> parts = prefixes(workload, first, counts);
    const auto wanted = static_cast<std::size_t>(options.threads > 0 ? options.threads : allowed_processors());
    const std::size_t threads = std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, parts.size()));
    std::vector<LayoutCost> pricers{cost_model(workload)};
    while (pricers.size() < threads) pricers.push_back(pricers.front().another ? pricers.front().another() : cost_model(workload));
    std::vector<LegalTails> tails(threads, LegalTails(workload, first));
    // A part starts with the Pareto set of earlier rounds, so that the result does not depend on threads.
    const std::vector<std::size_t> order = promising_first(parts);
    ParetoSet pareto;
    for (const RankedLayout& member : found.pareto) pareto.offer(member);
    FamilySet slower;
    std::size_t done = 0;
    for (std::size_t round = kFirstRound; done < parts.size(); round *= 2) {
        const std::size_t count = std::min(round, parts.size() - done);
        std::vector<PartPicture> pictures(count, PartPicture(workload, first, options, found.families, pareto));
        run_parallel(
            count, threads,
            [&](std::size_t place, std::size_t thread) {
                pictures[place].fill(parts[order[done + place]], pricers[thread], tails[thread]);
            },
            [&](std::size_t of_round, std::size_t) {
                if (options.progress) options.progress(done + of_round, parts.size());
            });
        for (PartPicture& picture : pictures) {
            for (const RankedLayout& member : picture.pareto()) pareto.offer(member);
            slower.absorb(FamilySet(picture.take_families()));
        }
        done += count;
    }
    std::vector<FamilyPoint> points = slower.take();
    for (FamilyPoint& point : points) {  // both searches may have evaluated the same members
        const auto same = [&](const FamilyPoint& known) { return same_family(known.fastest.layout, point.fastest.layout); };
        if (const auto known = std::ranges::find_if(found.families, same); known != found.families.end())
            point.members = std::max<std::int64_t>(0, point.members - known->members);
    }
    FamilySet families(std::move(found.families));
    families.absorb(FamilySet(std::move(points)));
    found.families = families.take();
    if (options.pareto) found.pareto = pareto.layouts();
}

}  // namespace mgplan::planner
