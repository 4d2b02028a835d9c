#include "planner/ranking.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "plan/allowed_processors.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "planner/balanced_layout.hpp"
#include "planner/exact_ranking.hpp"
#include "planner/family_rows.hpp"
#include "planner/host_optimizer.hpp"
#include "planner/plan_families.hpp"
#include "planner/pricer_pool.hpp"
#include "planner/sharded_jobs.hpp"
#include "planner/slower_families.hpp"
#include "planner/split_schedules.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {
namespace {

using Clock = std::chrono::steady_clock;

/// Number of layouts whose stages are balanced in any case, and at most.
constexpr std::size_t kAlwaysBalanced = 10, kMostBalanced = 60;

/// Adds balanced versions of the best layouts with a pipeline to the simulated ones, if they are faster: of the first kAlwaysBalanced, and
/// of the next ones that would be the fastest if they gained as much as any before.
BalancingGain add_balanced(SearchResult& found, simulator::CostModel& model, const Workload& workload, Objective objective) {
    BalancingGain report;
    std::vector<RankedLayout>& best = found.best;
    std::vector<RankedLayout> added;
    double fastest = found.replayed > 0 ? best.front().iteration_seconds : 0, largest_gain = 0;
    for (std::size_t i = 0; i < found.replayed && report.tried < kMostBalanced; ++i) {
        if (best[i].layout.sizes.pp == 1) continue;
        if (report.tried >= kAlwaysBalanced && best[i].iteration_seconds > fastest * (1 + largest_gain)) break;
        ++report.tried;
        const BalancedLayout balanced = balance_layout(model, workload, best[i].layout);
        if (!balanced.why_not.empty()) continue;
        ++report.faster;
        fastest = std::min(fastest, balanced.seconds);
        largest_gain = std::max(largest_gain, balanced.gain());
        report.seconds_before[balanced.layout.split.get()] = balanced.seconds_before;
        added.push_back({balanced.layout, balanced.seconds, model.peaks(balanced.layout).deciding});
    }
    const auto behind = best.begin() + static_cast<std::ptrdiff_t>(found.replayed);
    const auto end = best.insert(behind, added.begin(), added.end()) + std::ssize(added);
    std::stable_sort(best.begin(), end, [objective](const auto& a, const auto& b) { return ranks_before(a, b, objective); });
    found.replayed += added.size();
    return report;
}

/// Number of layouts that a ranking by memory orders by replayed memory; later ones keep the order of the search's estimate, so that it
/// does not depend on the number of requested plans.
constexpr std::size_t kSortedAsReplayed = 12;

/// For a ranking by memory: sorts the first layouts of a list by replayed memory.
void sort_as_replayed(std::vector<RankedLayout>& best, ReplayedMemories& memories) {
    const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min(kSortedAsReplayed, best.size()));
    for (auto ranked = best.begin(); ranked != end; ++ranked) {
        if (ranked->layout.engine == Engine::megatron) ranked->peak_bytes = memories.of(ranked->layout).deciding_bytes();
    }
    std::stable_sort(best.begin(), end, [](const auto& a, const auto& b) { return ranks_before(a, b, Objective::memory); });
}

/// Throws with the rules that reject all candidates.
[[noreturn]] void refuse(const Workload& workload, const SearchSpace& space, const SearchResult& found) {
    auto messages = why_nothing_is_legal(workload, space, found.counts);
    if (messages.size() > 1) messages.insert(messages.begin(), "no candidate is a legal layout; what stands in the way:");
    throw ConfigError(std::move(messages));
}

/// `best`: the search's list before layouts were dropped that do not fit when replayed.
ComparedRank rank_of(const Layout& layout, const std::vector<RankedLayout>& best, const SearchResult& found, ReplayedMemories& memories) {
    if (memories.of(layout).deciding_bytes() > found.limit_bytes || !memories.host_fits(layout)) return {};
    const std::size_t replayed = found.replayed;
    const auto is_it = [&](const RankedLayout& each) { return each.layout == layout; };
    if (const auto kept = std::find_if(found.best.begin(), found.best.end(), is_it); kept != found.best.end()) {
        const auto place = static_cast<std::size_t>(kept - found.best.begin());
        return {place + 1, place < replayed};
    }
    // All dropped layouts ranked before those that were never replayed.
    const auto dropped = static_cast<std::size_t>(found.too_large_replayed.count);
    if (const auto ranked = std::find_if(best.begin(), best.end(), is_it); ranked != best.end()) {
        const auto place = static_cast<std::size_t>(ranked - best.begin());
        if (place >= replayed) return {std::max(place - std::min(place, dropped), found.best.size()) + 1, false};
        // Beyond the list no layout has been replayed yet.
        const auto before_it = std::count_if(best.begin(), ranked, [&](const RankedLayout& each) {
            return !memories.exceeds(each.layout, found.limit_bytes) && memories.host_fits(each.layout);
        });
        return {static_cast<std::size_t>(before_it) + 1, true};
    }
    const auto faster = static_cast<std::size_t>(found.before_compared);
    return {faster - std::min(faster, dropped) + 1, false, found.bounded > 0};
}

/// Seconds of the slowest layout that is displayed. `exact`: number of layouts of the list with
/// times from event simulation.
double slowest_of_interest(const SearchResult& found, std::size_t exact, std::size_t ranks, std::size_t families) {
    const std::span<const RankedLayout> replayed(found.best.data(), exact);
    double slowest = found.fastest_seconds.value_or(0);
    for (const RankedLayout& each : replayed.first(std::min(replayed.size(), ranks))) slowest = std::max(slowest, each.iteration_seconds);
    if (families == 0) return slowest;
    for (const auto& [fastest, others] : plan_families(found.best, families)) {
        if (fastest < replayed.size()) slowest = std::max(slowest, replayed[fastest].iteration_seconds);
    }
    return slowest;
}

/// Margin for sums in different orders.
constexpr double kJustAbove = 1 + 1e-9;

/// Seconds of the fastest of the first of `best`, by event simulation.
double fastest_exactly(const std::vector<RankedLayout>& best, simulator::CostModel& model) {
    constexpr std::size_t kFirst = 8;
    double fastest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(kFirst, best.size()); ++i) fastest = std::min(fastest, model.exact_seconds(best[i].layout));
    return best.empty() ? 0 : fastest * kJustAbove;
}

/// Number of ranks that must be exact: requested ranks, and the fastest of each displayed family.
std::size_t last_rank_shown(const SearchResult& found, std::size_t ranks, std::size_t families) {
    std::size_t last = std::min(ranks, found.best.size());
    if (families == 0) return last;
    for (const auto& [fastest, others] : plan_families(found.best, families)) last = std::max(last, fastest + 1);
    return last;
}

/// Number of families in a growing list.
class FamilyCount {
public:
    std::size_t among(std::span<const RankedLayout> list) {
        for (; counted_ < list.size(); ++counted_) (void)rows_.row_of(list[counted_]);
        return rows_.size();
    }

private:
    FamilyRows rows_;
    std::size_t counted_ = 0;
};

/// Reports how many of the wanted are certain; limits the number, because later ranks may be requested too.
void tell_how_many(const RankingOptions& options, std::size_t certain, std::size_t wanted) {
    options.replaying(std::min(certain, wanted), wanted);
}

using Predict = std::function<simulator::Prediction(const Layout&)>;

/// Number of families that an answer of `plans` looks at: by time for reasons too.
std::size_t families_considered(Objective objective, std::size_t plans, bool one_per_family) {
    return std::max(objective == Objective::throughput ? kConsideredFamilies : 0, one_per_family ? plans : 0);
}

/// The sizes of a published recipe, and its plan, which is searched for where no other plan has these sizes.
struct RecipeOfPlans {
    std::optional<RecipeSizes> sizes;
    std::function<std::optional<PlannedLayout>()> plan;
};

/// Marks the plan with the recipe's sizes. A table gets one of its own in the order of times if there is none.
void add_recipe(const RecipeOfPlans& recipe, bool table, std::vector<PlannedLayout>& plans) {
    const auto seconds = [](const PlannedLayout& plan) { return plan.prediction.time.iteration_seconds; };
    if (!recipe.sizes || plans.empty() || mark_recipe(plans, *recipe.sizes) || !table) return;
    auto plan = recipe.plan();
    if (!plan) return;
    plan->why = {PlanReason::like_nvidia_recipe};
    plans.insert(std::ranges::upper_bound(plans, seconds(*plan), {}, seconds), std::move(*plan));
}

/// The plans of an answer. By time, reasons and the recommended plan are the same for a list as for one plan of each family;
/// the recommended plan is always among them.
std::vector<PlannedLayout> plans_of(const Workload& workload, const std::vector<RankedLayout>& best, std::size_t most, bool one_per_family,
                                    Objective objective, const Predict& predict, const RecipeOfPlans& recipe = {}) {
    const bool by_time = objective == Objective::throughput;
    const auto planned = [&](std::size_t index) {
        PlannedLayout plan{best[index].layout, predict(best[index].layout), index + 1};
        plan.prediction.memory.limit_bytes = workload.memory_limit;
        return plan;
    };
    std::vector<PlannedLayout> plans, listed;
    for (const auto& [fastest, others] : plan_families(best, families_considered(objective, most, one_per_family))) {
        plans.push_back(planned(fastest));
        if (!one_per_family) continue;
        for (const std::size_t index : others) plans.back().others.push_back(index + 1);
    }
    if (by_time) {
        give_reasons(plans, workload);
        add_recipe(recipe, one_per_family, plans);  // last, so that no other reason belongs to a plan without a rank
    }
    if (one_per_family) {
        if (!by_time && !plans.empty()) plans.front().recommended = true;
        if (!by_time) return plans;
        for (const std::size_t i : shown_plans(plans, most)) listed.push_back(std::move(plans[i]));
        return listed;
    }
    for (std::size_t i = 0; i < std::min(most, best.size()); ++i) {
        const auto known = std::ranges::find(plans, i + 1, &PlannedLayout::rank);
        listed.push_back(known != plans.end() ? std::move(*known) : planned(i));
    }
    if (!by_time && !listed.empty()) listed.front().recommended = true;
    const auto recommended = std::ranges::find(plans, true, &PlannedLayout::recommended);
    if (recommended != plans.end() && recommended->rank > listed.size()) listed.push_back(std::move(*recommended));
    return listed;
}

/// Removes families and the Pareto set if only the ranking itself needed them.
void keep_what_was_asked(const RankingOptions& options, SearchResult& found) {
    if (!options.pareto) found.pareto.clear();
    if (!options.families) found.families.clear();
}

/// Maximum number of threads that replay: an answer may need none of what the last of them replayed.
constexpr int kMostReplaying = 4;

std::size_t threads_of_replays(const RankingOptions& options) {
    return static_cast<std::size_t>(std::min(options.threads > 0 ? options.threads : allowed_processors(), kMostReplaying));
}

/// Caches that repeated searches of a ranking share.
struct Known {
    PricerPool pricers;
    simulator::CostModel model;
    ReplayedMemories memories;

    Known(const Workload& workload, const RankingOptions& options)
        : pricers(options.cost_model), model(workload), memories(model, threads_of_replays(options)) {}
    /// Shares the costs of layers with `other`, whose workload differs only in the sharding or the place of its state.
    Known(const Workload& workload, const RankingOptions& options, const Known& other)
        : pricers(other.pricers.of_other_sharding()), model(workload, other.model), memories(model, threads_of_replays(options)) {}

    simulator::Prediction predict(const Layout& layout) { return {model.exact_time(layout), memories.of(layout)}; }
};

/// Maximum number of repetitions because replays leave too few ranks: if most layouts that fit by estimate fail their replay, the list ends
/// early.
constexpr int kMostTurns = 5;

/// Requirements of a repeated ranking beyond its options.
struct Again {
    std::size_t ranks = 0;   ///< number that must be exact
    int turns = 0;           ///< repetitions that requested more of them
    double never_below = 0;  ///< as in SearchOptions, like the next
    double slowest_known = std::numeric_limits<double>::infinity();
    double ceiling = std::numeric_limits<double>::infinity();  ///< seconds; slower layouts are of no interest, others have filled the list
};

/// The ranking of one job.
struct RankedJob {
    Ranking ranking;        ///< without plans
    std::size_t exact = 0;  ///< number of leading layouts of the list with times from event simulation
    bool cut = false;       ///< slower layouts than those of the list may exist
};

/// Number of ranks and of families that an answer shows.
struct Shown {
    std::size_t ranks, families;

    Shown(const RankingOptions& options, const SearchResult& found)
        // The caller reports a rank that does not exist; it needs no list up to it.
        : ranks(std::cmp_greater(options.ranks, found.feasible + 1) ? 0 : options.ranks),
          families(std::max(options.predictions ? families_considered(options.objective, options.plans, options.one_per_family)
                                                : (options.one_per_family ? options.plans : 0),
                            options.families ? kRankedFamilies : 0)) {
        if (!options.one_per_family) ranks = std::max(options.plans, ranks);
    }
};

/// `narrowed`: the workload with the memory that plans may use. Replays use the whole card: an allocator has no headroom. `again`:
/// requirements found by the previous attempt.
RankedJob rank_within(const Workload& narrowed, const Workload& workload, const SearchSpace& space, const RankingOptions& options,
                      Known& known, const Again& again = {}) {
    const std::size_t wanted = std::max({options.plans, options.ranks, again.ranks});
    const bool by_time = options.objective == Objective::throughput;
    SearchOptions asked;
    asked.keep = std::max(wanted + wanted / 2, options.keeps_few ? kRankedExactlyAlways : kRankedExactly);
    asked.keep_contenders = kContenders;
    asked.objective = options.objective;
    // Schedules are also tried for near misses. If inputs of modules are offloaded, a layout that recomputes less copies more, so that no
    // bound holds for a whole branch. If Megatron-LM's host updates parameters, narrower gradients need more optimizer state.
    const OffloadSpec& offload = workload.training.offload;
    const bool host_updates = space.engine == Engine::megatron && offload.optimizer > 0;
    const bool narrows =
        std::any_of(space.switches.begin(), space.switches.end(), [](const auto& one) { return one && one->bf16_gradients; });
    asked.bounded = options.bounded && options.schedules.empty() && offload.modules.empty() && !(host_updates && narrows);
    asked.of_interest = [&](const std::vector<RankedLayout>& best) { return fastest_exactly(best, known.model); };
    asked.never_below = again.never_below;
    asked.slowest_known = again.slowest_known;
    asked.threads = options.threads;
    asked.pareto = options.pareto;
    asked.families = options.families;
    asked.compared = options.compared;
    asked.progress = options.progress;

    RankedJob ranked;
    Ranking& ranking = ranked.ranking;
    SearchResult& found = ranking.search;
    found = search(narrowed, space, known.pricers.of_next_search(), asked);
    if (found.counts.legal == 0) return ranked;
    simulator::CostModel& model = known.model;
    ReplayedMemories& memories = known.memories;
    rank_exactly(found, model, options.objective, wanted);
    // The axis of stages divides by work; the best layouts are divided by their own seconds and bytes.
    if (options.balance_stages || space.stage_loads) ranking.balanced = add_balanced(found, model, narrowed, options.objective);
    if (!options.schedules.empty())
        ranking.schedules = add_split_schedules(found, model, narrowed, options.schedules, options.objective, options.only_schedules);
    if (!by_time) sort_as_replayed(found.best, memories);
    const std::vector<RankedLayout> best = options.compared ? found.best : std::vector<RankedLayout>{};
    const Shown shown(options, found);
    const std::size_t ranks = shown.ranks, families = shown.families;
    const std::size_t searched = found.best.size();
    const bool all_exact = found.replayed >= found.best.size();
    const bool list_is_full = found.best.size() >= asked.keep;
    FamilyCount count;
    Clock::time_point said = Clock::now();
    const auto enough = [&](std::span<const RankedLayout> kept) {
        if (options.replaying && Clock::now() - said >= options.replaying_every) {
            tell_how_many(options, families > 0 ? count.among(kept) : kept.size(), families > 0 ? families : ranks);
            said = Clock::now();
        }
        if (kept.size() < ranks) return false;
        return families == 0 || count.among(kept) >= families;
    };
    const std::vector<std::size_t> places = keep_fitting_when_replayed(found, memories, enough);
    const auto kept_of_first = [&](std::size_t length) {
        return static_cast<std::size_t>(std::ranges::lower_bound(places, length) - places.begin());
    };
    const std::size_t exact = ranked.exact = kept_of_first(found.replayed);
    ranked.cut = list_is_full || found.best.size() + static_cast<std::size_t>(found.too_large_replayed.count) < searched;
    if (by_time && !found.best.empty()) found.fastest_seconds = found.best.front().iteration_seconds;
    // Checks that times are exact down to the last displayed rank, and that enough layouts are left after replays.
    const std::size_t last = last_rank_shown(found, ranks, families);
    const bool kept_too_few = list_is_full && found.best.size() < ranks;
    const bool complete = !list_is_full && all_exact;
    const bool too_few_exact = last > (complete ? exact : kept_of_first(certain_ranks(found.replayed)));
    Again more = again;
    more.slowest_known = std::numeric_limits<double>::infinity();  // it belongs to a shorter list
    more.ranks = (kept_too_few ? ranks : last) + static_cast<std::size_t>(found.too_large_replayed.count);
    ++more.turns;
    if (((by_time && too_few_exact) || kept_too_few) && more.ranks > wanted && more.turns < kMostTurns)
        return rank_within(narrowed, workload, space, options, known, more);
    if (by_time) {
        const double slowest = std::min(again.ceiling, slowest_of_interest(found, exact, ranks, families));
        // By event simulation the best may be slower than the lower bound of layouts that were cut off.
        if (found.cut_at_least < slowest)
            return rank_within(narrowed, workload, space, options, known,
                               {again.ranks, again.turns, slowest * kJustAbove, found.slowest_kept, again.ceiling});
    }
    if (options.compared) ranking.compared = rank_of(*options.compared, best, found, memories);
    keep_what_was_asked(options, found);
    return ranked;
}

/// The layouts of the space with the recipe's sizes; nothing if it has none.
std::optional<SearchSpace> with_sizes(SearchSpace space, const RecipeSizes& sizes) {
    const auto pin = [](std::vector<std::int64_t>& axis, std::int64_t size) {
        const bool has = axis.empty() || std::ranges::find(axis, size) != axis.end();
        axis = {size};
        return has;
    };
    const bool has_all = pin(space.tp, sizes.tp) && pin(space.cp, sizes.cp) && pin(space.ep, sizes.ep) && pin(space.pp, sizes.pp) &&
                         (sizes.ep == 1 || pin(space.etp, sizes.etp));
    return has_all ? std::optional(std::move(space)) : std::nullopt;
}

/// Ranks a workload with each sharding of a space, one after another, and merges the lists.
class ShardedRanking {
public:
    /// All arguments must outlive it. Plans leave `headroom` bytes free.
    ShardedRanking(const Workload& workload, const SearchSpace& space, const RankingOptions& options, std::int64_t headroom)
        : workload_(workload),
          space_(space),
          options_(options),
          headroom_(headroom),
          jobs_(sharded_jobs(workload, space)),
          narrowed_(jobs_) {
        for (ShardedJob& job : narrowed_) job.workload.memory_limit -= headroom;
    }

    /// Throws ConfigError if no layout is legal.
    Ranking run() {
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
            const Known* shared = i == 0 ? shared_ : known_.front().get();
            known_.push_back(shared != nullptr ? std::make_unique<Known>(jobs_[i].workload, options_, *shared)
                                               : std::make_unique<Known>(jobs_[i].workload, options_));
            rank(i);
        }
        if (all_.search.counts.legal == 0) refuse(narrowed_.front().workload, space_, all_.search);
        if (compared_) all_.compared = rank_compared();
        if (options_.predictions)
            all_.plans =
                plans_of(workload_, all_.search.best, options_.plans, options_.one_per_family, options_.objective,
                         [this](const Layout& layout) { return predict(layout); }, {options_.recipe, [this] { return plan_of_recipe(); }});
        if (options_.host_offload && !all_.plans.empty()) all_.offload = faster_on_host(all_.plans.front());
        return std::move(all_);
    }

    /// Prediction of a layout of the merged answer, after run().
    simulator::Prediction predict(const Layout& layout) {
        const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const ShardedJob& one) { return one.has(layout); });
        return known_[static_cast<std::size_t>(job - jobs_.begin())]->predict(job->own(layout));
    }

private:
    /// Ranks another workload or space up to `asked.plans`, without layouts that take `faster_than` seconds or more where that is cheaper.
    /// The workload may differ in the sharding and the place of its state alone. An empty ranking where no layout is legal.
    [[nodiscard]] Ranking rank_other(const Workload& workload, const SearchSpace& space, RankingOptions asked,
                                     double faster_than = std::numeric_limits<double>::infinity()) const {
        asked.plans = 1;
        asked.bounded = options_.bounded;
        asked.threads = options_.threads;
        asked.cost_model = options_.cost_model;
        asked.progress = options_.progress;
        asked.replaying = options_.replaying;
        ShardedRanking ranking(workload, space, asked, headroom_);
        ranking.shared_ = known_.front().get();
        ranking.faster_than_ = faster_than;
        try {
            return ranking.run();
        } catch (const ConfigError&) {
            return {};
        }
    }

    /// Looks at the sizes of the first plan and at half of its tp, pp and ep, which the freed memory may allow: a search of all
    /// sizes takes up to half as long as the ranking itself.
    [[nodiscard]] std::optional<JobChange> faster_on_host(const PlannedLayout& first) const {
        if (!by_time() || space_.engine != Engine::megatron) return {};
        const auto training = with_optimizer_on_host(workload_.training, space_.engine);
        if (!training) return {};
        Workload changed = workload_;
        changed.training = *training;
        SearchSpace space = space_;
        const ParallelSizes& sizes = first.layout.sizes;
        for (const auto& [axis, size] :
             {std::pair{&space.tp, sizes.tp}, {&space.pp, sizes.pp}, {&space.ep, sizes.ep}, {&space.cp, sizes.cp}}) {
            const bool halved = axis != &space.cp && size % 2 == 0 && (axis->empty() || std::ranges::find(*axis, size / 2) != axis->end());
            *axis = halved ? std::vector{size / 2, size} : std::vector{size};
        }
        const double usual = first.prediction.time.iteration_seconds, enough = (1 - kLeastGain) * usual;
        RankingOptions order_alone;
        order_alone.predictions = order_alone.one_per_family = false;
        const Ranking found = rank_other(changed, space, order_alone, enough);
        const std::vector<RankedLayout>& best = found.search.best;
        if (best.empty() || best.front().iteration_seconds >= enough) return {};
        return JobChange{"--offload optimizer", best.front().iteration_seconds, best.front().peak_bytes};
    }

    /// The fastest plan with the recipe's sizes, from a search of its own: bounds may have cut it from the list. Its rank is 0 where it is
    /// none of the list's exact ones. Nothing if the space excludes these sizes, or no such layout is legal and fits.
    [[nodiscard]] std::optional<PlannedLayout> plan_of_recipe() const {
        const std::optional<SearchSpace> space = with_sizes(space_, *options_.recipe);
        if (!space) return {};
        Ranking found = rank_other(workload_, *space, {});
        if (found.plans.empty()) return {};
        PlannedLayout plan = std::move(found.plans.front());
        const auto end = all_.search.best.begin() + static_cast<std::ptrdiff_t>(exact_);
        const auto listed =
            std::find_if(all_.search.best.begin(), end, [&](const RankedLayout& each) { return each.layout == plan.layout; });
        plan.rank = listed == end ? 0 : static_cast<std::size_t>(listed - all_.search.best.begin()) + 1;
        plan.others.clear();
        plan.recommended = false;
        return plan;
    }

    [[nodiscard]] bool by_time() const { return options_.objective == Objective::throughput; }

    void rank(std::size_t i) {
        const ShardedJob& job = jobs_[i];
        RankingOptions asked = options_;
        const bool here = options_.compared && (job.has(*options_.compared) || (i == 0 && job_of_compared() == nullptr));
        asked.compared.reset();
        if (here) asked.compared = job.own(*options_.compared);
        if (i > 0) {  // reported for the workload's own sharding alone
            asked.schedules.clear();
            asked.balance_stages = false;
        }
        Again again;
        again.ceiling = again.slowest_known = again.never_below = std::min(slowest_shown(), faster_than_);
        if (!std::isfinite(again.ceiling)) again.never_below = 0;
        RankedJob ranked = rank_within(narrowed_[i].workload, job.workload, space_, asked, *known_[i], again);
        if (here) {
            compared_ = RankedLayout{*asked.compared, known_[i]->model.exact_seconds(*asked.compared), 0};
            rank_in_job_ = ranked.ranking.compared;
        }
        merge(job, std::move(ranked), again.ceiling);
    }

    [[nodiscard]] const ShardedJob* job_of_compared() const {
        const auto found = std::find_if(jobs_.begin(), jobs_.end(), [this](const ShardedJob& job) { return job.has(*options_.compared); });
        return found == jobs_.end() ? nullptr : &*found;
    }

    /// Seconds of the slowest layout that the answer shows, with a margin; infinite as long as more layouts are wanted.
    [[nodiscard]] double slowest_shown() const {
        const SearchResult& found = all_.search;
        const Shown shown(options_, found);
        FamilyCount count;
        if (!by_time() || found.best.empty() || found.best.size() < shown.ranks || count.among(found.best) < shown.families)
            return std::numeric_limits<double>::infinity();
        return slowest_of_interest(found, exact_, shown.ranks, shown.families) * kJustAbove;
    }

    void merge(const ShardedJob& job, RankedJob ranked, double ceiling) {
        SearchResult found = std::move(ranked.ranking.search);
        if (by_time() && ranked.cut && !found.best.empty()) ceiling = std::min(ceiling, found.best.back().iteration_seconds);
        const bool proven = found.fastest_is_proven.value_or(false) || (found.best.empty() && found.cut_at_least >= ceiling);
        merge_best(job, std::move(found.best), ranked.exact);
        if (ceiling < complete_up_to_) complete_up_to_ = ceiling;
        auto& best = all_.search.best;
        std::erase_if(best, [this](const RankedLayout& each) { return by_time() && each.iteration_seconds > complete_up_to_; });
        exact_ = std::min(exact_, best.size());
        if (!job.sharding) {
            all_.balanced = std::move(ranked.ranking.balanced);
            all_.schedules = std::move(ranked.ranking.schedules);
            all_.search.fastest_is_proven = found.fastest_is_proven;
        }
        if (all_.search.fastest_is_proven) all_.search.fastest_is_proven = *all_.search.fastest_is_proven && proven;
        if (by_time() && !best.empty()) all_.search.fastest_seconds = best.front().iteration_seconds;
        all_.search.slowest_kept = std::min(all_.search.slowest_kept, found.slowest_kept);
        merge_results(all_.search, std::move(found), job);
    }

    /// Merges the leading layouts with exact times, and after them the others.
    void merge_best(const ShardedJob& job, std::vector<RankedLayout> found, std::size_t exact) {
        std::vector<RankedLayout> known = std::move(all_.search.best);
        std::vector<RankedLayout>& best = all_.search.best;
        best.clear();
        if (job.sharding) {
            const auto undivided = [](const RankedLayout& each) { return each.layout.dp() * each.layout.sizes.cp == 1; };
            const auto end = found.begin() + static_cast<std::ptrdiff_t>(exact);
            exact -= static_cast<std::size_t>(std::count_if(found.begin(), end, undivided));
            std::erase_if(found, undivided);  // one rank keeps all of it, as in the job without this sharding
        }
        for (RankedLayout& each : found) each.layout = job.merged(std::move(each.layout));
        const auto before = [this](const RankedLayout& a, const RankedLayout& b) { return ranks_before(a, b, options_.objective); };
        const auto middle = known.begin() + static_cast<std::ptrdiff_t>(exact_);
        const auto middle_of_found = found.begin() + static_cast<std::ptrdiff_t>(exact);
        std::merge(known.begin(), middle, found.begin(), middle_of_found, std::back_inserter(best), before);
        std::merge(middle, known.end(), middle_of_found, found.end(), std::back_inserter(best), before);
        exact_ += exact;
    }

    /// The compared layout's rank in its own job, and the layouts of other jobs before it.
    [[nodiscard]] ComparedRank rank_compared() const {
        ComparedRank rank = rank_in_job_;
        if (rank.rank == 0 || jobs_.size() == 1) return rank;
        for (const RankedLayout& each : all_.search.best) {
            const bool its_job = job_of_compared() == nullptr ? jobs_.front().has(each.layout) : job_of_compared()->has(each.layout);
            if (!its_job && each.iteration_seconds < compared_->iteration_seconds) ++rank.rank;
        }
        rank.least = rank.least || compared_->iteration_seconds > complete_up_to_;
        return rank;
    }

    const Workload& workload_;
    const SearchSpace& space_;
    const RankingOptions& options_;
    std::int64_t headroom_;
    std::vector<ShardedJob> jobs_, narrowed_;  ///< `narrowed_`: with the memory that plans may use
    std::vector<std::unique_ptr<Known>> known_;
    const Known* shared_ = nullptr;  ///< of a workload that may differ in the sharding and the place of its state alone
    double faster_than_ = std::numeric_limits<double>::infinity();  ///< seconds; slower layouts are of no interest
    Ranking all_;
    std::size_t exact_ = 0;  ///< number of leading layouts of the list with times from event simulation
    double complete_up_to_ = std::numeric_limits<double>::infinity();  ///< seconds up to which the list holds all layouts
    std::optional<RankedLayout> compared_;
    ComparedRank rank_in_job_;
};

/// The nearest misses of one job, searched again if nothing fits and bounds cut off layouts that do not fit.
SearchResult nearest_misses(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    SearchOptions asked;
    asked.keep = 0;
    asked.objective = options.objective;
    asked.bounded = asked.nearest_alone = true;
    asked.threads = options.threads;
    asked.progress = options.progress;
    PricerPool pricers(options.cost_model);
    SearchResult found = search(workload, space, pricers.of_next_search(), asked);
    // Only kinds of misses within the list of nearest ones have a known nearest layout.
    if (found.nearest.empty()) return found;
    const auto leave_out = [&](TooLarge& kind) {
        if (!kind.nearest || kind.nearest->peak_bytes <= found.nearest.back().peak_bytes) return;
        found.bounded += kind.count;
        found.too_large -= kind.count;
        kind = {};
    };
    for (TooLarge& kind : found.too_large_by_term) leave_out(kind);
    leave_out(found.too_large_uneven);
    return found;
}

/// Ranks the layouts that leave the headroom, or else all that fit, or finds the nearest misses.
Ranking rank_or_miss(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    const auto rank = [&](std::int64_t headroom, const RankingOptions& asked) {
        return ShardedRanking(workload, space, asked, headroom).run();
    };
    Ranking ranking = rank(options.headroom_bytes, options);
    if (ranking.search.best.empty() && options.headroom_bytes > 0) {
        ranking = rank(0, options);
        ranking.search.headroom_missed = !ranking.search.best.empty();
    }
    // Bounds cut off layouts that do not fit, including the nearest misses.
    if (ranking.search.best.empty() && ranking.search.bounded > 0) {
        const bool none_fits = ranking.search.feasible == 0 && ranking.search.too_large_replayed.count == 0;
        if (none_fits) {
            ranking.search = {};
            for (const ShardedJob& job : sharded_jobs(workload, space))
                merge_results(ranking.search, nearest_misses(job.workload, space, options), job);
            if (!ranking.search.nearest.empty()) return ranking;
        }
        RankingOptions all = options;
        all.bounded = false;
        ranking = rank(0, all);
        ranking.search.headroom_missed = options.headroom_bytes > 0 && !ranking.search.best.empty();
    }
    return ranking;
}

}  // namespace

Ranking rank_layouts(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    Ranking ranking = rank_or_miss(workload, space, options);
    if (!(options.pareto || options.families) || ranking.search.bounded == 0 || ranking.search.best.empty()) return ranking;
    Workload searched = workload;
    searched.memory_limit = ranking.search.limit_bytes;
    SearchOptions asked;
    asked.pareto = options.pareto;
    asked.families = options.families;
    asked.threads = options.threads;
    asked.progress = options.progress;
    add_slower_families(searched, space, options.cost_model, asked, ranking.search);
    return ranking;
}

FirstLayout first_layout(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    RankingOptions asked = options;
    asked.plans = asked.ranks = 1;
    asked.predictions = asked.one_per_family = asked.host_offload = asked.pareto = asked.families = false;
    asked.compared.reset();
    ShardedRanking ranking(workload, space, asked, options.headroom_bytes);
    const SearchResult found = ranking.run().search;
    FirstLayout first{{}, found.too_large_replayed.count};
    if (found.best.empty()) return first;
    const Layout& layout = found.best.front().layout;
    first.plan = PlannedLayout{layout, ranking.predict(layout)};
    first.plan->prediction.memory.limit_bytes = workload.memory_limit;
    return first;
}

std::vector<PlannedLayout> plans_of(const Workload& workload, const SearchResult& search, std::size_t most, bool one_per_family) {
    simulator::CostModel model(workload);
    ReplayedMemories memories(model);
    return plans_of(workload, search.best, most, one_per_family, search.fastest_seconds ? Objective::throughput : Objective::memory,
                    [&](const Layout& layout) {
                        return simulator::Prediction{model.exact_time(layout), memories.of(layout)};
                    });
}

}  // namespace mgplan::planner
