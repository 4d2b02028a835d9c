// The search finds what brute force finds, whatever the pruning, and counts every candidate once.

#include "planner/search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plan_families.hpp"
#include "planner/simulator_cost.hpp"
#include "runtime/sanitizers.hpp"
#include "support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::planner::testing::search_test {
namespace {

using ::testing::AnyOf;

constexpr std::size_t kBest = 10;
constexpr std::int64_t kAnyAmount = std::numeric_limits<std::int64_t>::max();

/// Everything that brute force says about a workload.
struct BruteForce {
    std::vector<RankedLayout> best;
    std::int64_t legal = 0;
    std::int64_t feasible = 0;
};

BruteForce brute_force(const Workload& work, Objective objective) {
    BruteForce found;
    const LayoutCost cost = simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) {
        ++found.legal;
        const std::int64_t peak = cost.memory(layout, kAnyAmount).bytes;
        const double seconds = cost.iteration_seconds(layout).seconds;
        if (peak > work.memory_limit) return;
        ++found.feasible;
        found.best.push_back({layout, seconds, peak});
    });
    const auto keep = found.best.begin() + static_cast<std::ptrdiff_t>(std::min(kBest, found.best.size()));
    std::partial_sort(found.best.begin(), keep, found.best.end(),
                      [&](const RankedLayout& a, const RankedLayout& b) { return ranks_before(a, b, objective); });
    found.best.erase(keep, found.best.end());
    return found;
}

void expect_same(const std::vector<RankedLayout>& found, const std::vector<RankedLayout>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(fingerprint(found[i].layout), fingerprint(expected[i].layout)) << "place " << i + 1;
        EXPECT_EQ(found[i].peak_bytes, expected[i].peak_bytes) << "place " << i + 1;
        EXPECT_EQ(found[i].iteration_seconds, expected[i].iteration_seconds) << "place " << i + 1;
    }
}

/// The counts add up, whatever was found.
void expect_complete_counts(const SearchResult& result) {
    std::int64_t rejected = 0;
    for (const auto& [reason, found] : result.counts.rejected) {
        EXPECT_GT(found.count, 0) << reason;
        EXPECT_FALSE(found.example.empty()) << reason;
        rejected += found.count;
    }
    EXPECT_EQ(result.counts.candidates(), result.counts.legal + rejected);
    EXPECT_EQ(result.counts.legal, result.feasible + result.too_large);
    std::int64_t too_large = 0;
    for (const auto& kind : result.too_large_by_term) {
        EXPECT_EQ(kind.count > 0, kind.nearest.has_value());
        too_large += kind.count;
    }
    EXPECT_EQ(result.too_large_uneven.count > 0, result.too_large_uneven.nearest.has_value());
    EXPECT_EQ(result.too_large, too_large + result.too_large_uneven.count);
}

struct Pair {
    const char* model;
    std::int64_t world;
    const char* cluster = "dgx-h100";
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    Objective objective = Objective::throughput;
};

void PrintTo(const Pair& pair, std::ostream* out) {
    *out << pair.model << " on " << pair.world << " x " << pair.cluster;
}

class BruteForcePairs : public ::testing::TestWithParam<Pair> {};

TEST_P(BruteForcePairs, FindTheSameLayouts) {
    const Pair& pair = GetParam();
    const Workload work = workload_of(pair.model, pair.world, pair.cluster, pair.batch, pair.sequence);
    const BruteForce expected = brute_force(work, pair.objective);
    ASSERT_GT(expected.legal, 0);
    for (const bool prune : {false, true}) {
        SearchOptions options;
        options.keep = kBest;
        options.objective = pair.objective;
        options.threads = 1;
        options.prune = prune;
        const SearchResult result = search(work, SearchSpace{}, simulator_cost_model(), options);
        SCOPED_TRACE(prune ? "pruned" : "not pruned");
        EXPECT_EQ(result.counts.legal, expected.legal);
        EXPECT_EQ(result.feasible, expected.feasible);
        EXPECT_EQ(result.evaluated, prune ? expected.feasible : expected.legal);
        expect_same(result.best, expected.best);
        expect_complete_counts(result);
    }
}

std::vector<Pair> pairs() {
    return {
        // Small models, every kind of world.
        {"tiny-llama", 1},
        {"tiny-llama", 2},
        {"tiny-llama", 6},
        {"tiny-llama", 8},
        {"tiny-moe", 1},
        {"tiny-moe", 6},
        {"tiny-moe", 8},
        {"tiny-moe", 12},
        {"tiny-gpt", 12},
        {"tiny-gpt", 16},
        {"qwen2.5-0.5b", 12},
        {"qwen2.5-0.5b", 14},
        {"qwen3-0.6b", 24},
        {"llama3.2-1b", 32},
        {"sc21-gpt-1.7b", 48},
        {"gpt-oss-20b", 16},
        // Dense.
        {"llama3-8b", 8},
        {"llama3-8b", 16},
        {"llama3-8b", 72, "gb200-nvl72"},
        {"llama3-8b", 100},
        {"llama2-13b", 40, "dgx-a100-40g"},
        {"llama3-70b", 64},
        {"llama3-70b", 96, "dgx-h200", 384},
        {"llama3.1-405b", 192, "dgx-b200", 384},
        {"llama3.1-8b", 32, "dgx-h100", 64, 131072},
        {"gpt3-175b", 96, "dgx-a100-80g", 192},
        {"mistral-7b-v0.1", 24, "a100-pcie-80g"},
        {"nemotron4-15b", 64, "dgx-h100", 100},
        // Mixtures of experts.
        {"mixtral-8x7b", 16},
        {"qwen2-57b-a14b", 56},
        // Multi-latent attention, multi-token prediction.
        {"deepseek-v2-lite", 8},
        // The other objective.
        {"llama3-8b", 16, "dgx-h100", 0, 0, Objective::memory},
        {"mixtral-8x7b", 24},
        {"mixtral-8x7b", 64},
        {"mixtral-8x22b", 96},
        {"qwen3-30b-a3b", 32},
        {"deepseek-v2-lite", 32},
        {"moonlight-16b-a3b", 16},
        {"deepseek-v3", 96, "dgx-b300", 192},  // layers that nothing divides
        {"mixtral-8x7b", 32, "dgx-h100", 0, 0, Objective::memory},
    };
}

INSTANTIATE_TEST_SUITE_P(Search, BruteForcePairs, ::testing::ValuesIn(tests::sanitized_share(pairs(), 12)));

/// The smallest of each family, sorted.
std::vector<std::int64_t> smallest_peaks(const Workload& work) {
    std::vector<RankedLayout> smallest;
    const LayoutCost cost = simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) {
        const std::int64_t bytes = cost.memory(layout, kAnyAmount).bytes;
        const auto alike = [&](const RankedLayout& each) { return same_family(each.layout, layout); };
        const auto found = std::find_if(smallest.begin(), smallest.end(), alike);
        if (found == smallest.end())
            smallest.push_back({layout, 0, bytes});
        else
            found->peak_bytes = std::min(found->peak_bytes, bytes);
    });
    std::vector<std::int64_t> peaks;
    for (const RankedLayout& each : smallest) peaks.push_back(each.peak_bytes);
    std::sort(peaks.begin(), peaks.end());
    return peaks;
}

TEST(Search, FindsNothingWhereMemoryIsShortAndNamesTheNearest) {
    const Workload work = workload_of("llama3-70b", 8, "dgx-a100-40g");
    const SearchResult result = search(work, SearchSpace{}, simulator_cost_model(), {});
    EXPECT_TRUE(result.best.empty());
    EXPECT_EQ(result.feasible, 0);
    EXPECT_EQ(result.evaluated, 0);
    expect_complete_counts(result);

    const std::vector<std::int64_t> peaks = smallest_peaks(work);
    ASSERT_EQ(result.nearest.size(), 3U);
    for (std::size_t i = 0; i < result.nearest.size(); ++i) EXPECT_EQ(result.nearest[i].peak_bytes, peaks[i]);
}

/// Bytes and seconds of some layouts, asked for in their order of one model, as a thread does.
std::vector<std::pair<std::int64_t, double>> priced_in_order(const Workload& work, const std::vector<Layout>& layouts) {
    const LayoutCost cost = simulator_cost_model()(work);
    std::vector<std::pair<std::int64_t, double>> priced;
    for (const Layout& layout : layouts) {
        const std::int64_t bytes = cost.memory(layout, kAnyAmount).bytes;
        priced.emplace_back(bytes, cost.iteration_seconds(layout).seconds);
    }
    return priced;
}

TEST(Search, PricesALayoutAlikeWhateverWasPricedBefore) {
    // Each thread prices other layouts first. Only with their keys complete do its memos give what another thread's give.
    struct Job {
        const char* model;
        std::int64_t world;
        Precision precision;
    };
    for (const Job& job :
         {Job{"llama3-8b", 16, Precision::fp8},
#ifndef MGPLAN_ADDRESS_SANITIZER  // minutes there
          Job{"mixtral-8x7b", 24, Precision::bf16}, Job{"gpt-oss-20b", 8, Precision::bf16}, Job{"deepseek-v2-lite", 8, Precision::fp8}
#endif
         }) {
        Workload work = workload_of(job.model, job.world);
        work.training.precision = job.precision;
        std::vector<Layout> layouts;
        visit_naively(work, [&](const Layout& layout) {
            layouts.push_back(layout);
            layouts.back().engine = layouts.size() % 2 == 0 ? Engine::megatron : Engine::mgplan;
        });
        const auto priced = priced_in_order(work, layouts);
        std::vector<std::size_t> order(layouts.size());
        std::iota(order.rbegin(), order.rend(), 0U);  // the last first
        std::mt19937 random(7);
        for (int turn = 0; turn < 3; ++turn, std::shuffle(order.begin(), order.end(), random)) {
            std::vector<Layout> reordered;
            for (const std::size_t i : order) reordered.push_back(layouts[i]);
            const auto again = priced_in_order(work, reordered);
            std::size_t different = 0;
            for (std::size_t i = 0; i < order.size(); ++i) {
                if (again[i] != priced[order[i]] && ++different == 1) ADD_FAILURE() << job.model << ", " << summary(reordered[i]);
            }
            EXPECT_EQ(different, 0U) << job.model << ", turn " << turn << ", of " << layouts.size();
        }
    }
}

#ifndef MGPLAN_ADDRESS_SANITIZER  // a minute there
TEST(Search, JudgesMixturesUnderTheirRoutingSkew) {
    Workload work = workload_of("mixtral-8x7b", 64);
    work.routing.kind = RoutingKind::zipf;
    std::int64_t feasible = 0, uneven = 0, nearest = kAnyAmount;
    const LayoutCost cost = simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) {
        const MemoryNeed need = cost.memory(layout, kAnyAmount);
        EXPECT_LE(need.even, need.bytes);
        feasible += need.bytes <= work.memory_limit;
        if (need.even > work.memory_limit || need.bytes <= work.memory_limit) return;
        ++uneven;
        nearest = std::min(nearest, need.bytes);
    });
    const SearchResult result = search(work, SearchSpace{}, simulator_cost_model(), {});
    expect_complete_counts(result);
    EXPECT_GT(uneven, 0);
    EXPECT_EQ(result.feasible, feasible);
    ASSERT_EQ(result.too_large_uneven.count, uneven);
    EXPECT_EQ(result.too_large_uneven.nearest->peak_bytes, nearest);
    for (const auto& ranked : result.best) EXPECT_EQ(ranked.peak_bytes, cost.memory(ranked.layout, kAnyAmount).bytes);

    Workload balanced = work;
    balanced.routing.kind = RoutingKind::balanced;
    const SearchResult without = search(balanced, SearchSpace{}, simulator_cost_model(), {});
    EXPECT_EQ(without.feasible, feasible + uneven);
    EXPECT_EQ(without.too_large_uneven.count, 0);
}
#endif

TEST(Search, NamesTheNearestMixturesByWhatTheirSkewNeeds) {
    Workload work = workload_of("mixtral-8x22b", 8, "dgx-a100-40g");
    work.routing.kind = RoutingKind::zipf;
    const std::vector<std::int64_t> peaks = smallest_peaks(work);
    for (const int threads : {1, 3}) {
        SearchOptions options;
        options.threads = threads;
        options.keep_nearest = 12;
        const SearchResult result = search(work, SearchSpace{}, simulator_cost_model(), options);
        EXPECT_EQ(result.feasible, 0);
        ASSERT_EQ(result.nearest.size(), 12U);
        for (std::size_t i = 0; i < result.nearest.size(); ++i) EXPECT_EQ(result.nearest[i].peak_bytes, peaks[i]);
    }
}

TEST(Search, KeepsAsManyAsAskedAndALongerListBeginsWithTheShorter) {
    const Workload work = workload_of("llama3-8b", 16);
    const auto keep = [&](std::size_t count) {
        SearchOptions options;
        options.keep = count;
        return search(work, SearchSpace{}, simulator_cost_model(), options);
    };
    EXPECT_TRUE(keep(0).best.empty());
    const auto many = keep(1000);
    ASSERT_EQ(many.best.size(), 1000U);
    const auto three = keep(3);
    expect_same(three.best, {many.best.begin(), many.best.begin() + 3});
    EXPECT_TRUE(std::is_sorted(many.best.begin(), many.best.end(),
                               [](const RankedLayout& a, const RankedLayout& b) { return ranks_before(a, b, Objective::throughput); }));
}

TEST(Search, RanksEveryPairOfDifferentLayoutsOneWayOnly) {
    const Workload work = workload_of("tiny-moe", 12);
    CandidateCounts counts;
    auto layouts = candidates_of(work, SearchSpace{}, counts);
    ASSERT_GT(layouts.size(), 100U);
    layouts.resize(std::min<std::size_t>(layouts.size(), 1500));
    // All at the same price: only the order of last resort tells them apart.
    for (const Objective objective : {Objective::throughput, Objective::memory}) {
        for (std::size_t i = 0; i < layouts.size(); ++i) {
            for (std::size_t k = 0; k < i; ++k) {
                const RankedLayout a{layouts[i], 1, 1}, b{layouts[k], 1, 1};
                ASSERT_NE(ranks_before(a, b, objective), ranks_before(b, a, objective)) << fingerprint(a.layout) << "\n"
                                                                                        << fingerprint(b.layout);
            }
        }
    }
}

/// A cost model out of thin air: prices that tie often, to see how ties are broken.
CostModelFactory flat_cost(std::int64_t bytes, double seconds) {
    return [=](const Workload&) {
        return LayoutCost{[=](const Layout&, std::int64_t) { return bytes; }, [=](const Layout&) { return seconds; }};
    };
}

TEST(Search, BreaksTiesByTheSimplerLayout) {
    const Workload work = workload_of("llama3-8b", 16);
    const auto result = search(work, SearchSpace{}, flat_cost(1, 1.0), {});
    ASSERT_FALSE(result.best.empty());
    const Layout& simplest = result.best.front().layout;
    EXPECT_EQ(simplest.sizes.tp, 1);
    EXPECT_EQ(simplest.sizes.cp, 1);
    EXPECT_EQ(simplest.sizes.pp, 1);
    EXPECT_EQ(simplest.micro_batch, 1);
    EXPECT_EQ(simplest.recompute, Recompute::none);
}

TEST(Search, BreaksTiesByLessMemory) {
    const Workload work = workload_of("llama3-8b", 16);
    const auto by_tp = [](const Workload&) {
        return LayoutCost{[](const Layout& layout, std::int64_t) { return 100 / layout.sizes.tp; }, [](const Layout&) { return 1.0; }};
    };
    const auto result = search(work, SearchSpace{}, by_tp, {});
    EXPECT_EQ(result.best.front().layout.sizes.tp, 8);
}

TEST(Search, KeepsTheNearestMissOfEveryLargestTerm) {
    for (const auto& work : {workload_of("llama3-70b", 16), workload_of("mixtral-8x7b", 8, "dgx-a100-40g")}) {
        std::array<std::int64_t, kFillingTerms> counts{}, least{};
        least.fill(kAnyAmount);
        std::int64_t model_state = 0;
        const LayoutCost cost = simulator_cost_model()(work);
        visit_naively(work, [&](const Layout& layout) {
            const MemoryNeed need = cost.memory(layout, kAnyAmount);
            if (need.even <= work.memory_limit) return;
            const FillingTerm largest = cost.memory(layout, work.memory_limit).largest;
            if (largest != need.largest) {
                ++model_state;
                EXPECT_THAT(largest, AnyOf(FillingTerm::parameters, FillingTerm::gradients, FillingTerm::optimizer));
            }
            const auto term = static_cast<std::size_t>(largest);
            ++counts[term];
            least[term] = std::min(least[term], need.bytes);
        });
        std::size_t kinds = 0;
        for (const bool prune : {true, false}) {
            SearchOptions options;
            options.prune = prune;
            const SearchResult result = search(work, SearchSpace{}, simulator_cost_model(), options);
            for (std::size_t term = 0; term < kFillingTerms; ++term) {
                const TooLarge& found = result.too_large_by_term[term];
                EXPECT_EQ(found.count, counts[term]) << to_string(static_cast<FillingTerm>(term));
                if (!found.nearest) continue;
                ++kinds;
                EXPECT_EQ(found.nearest->peak_bytes, least[term]);
                EXPECT_EQ(cost.memory(found.nearest->layout, kAnyAmount).bytes, least[term]);
            }
        }
        EXPECT_GT(kinds, 2U);
        EXPECT_GT(model_state, 0) << "some layouts that activations fill most are too large without them";
    }
}

TEST(Search, GivesEveryCountedRuleAReason) {
    for (const auto& rule : rules()) EXPECT_EQ(reason_of(rule.name), rule.reason);
    EXPECT_EQ(reason_of(kFits), "does not fit in memory");
    EXPECT_EQ(reason_of(kFitsReplayed), "fits with fragmentation assumed, not with the allocator replayed");
    EXPECT_EQ(reason_of(kFitsAtP99), "fits with even routing, not at p99 of the routing skew");
    EXPECT_FALSE(reason_of(kLayoutSuits).empty());
}

TEST(Search, PassesOnWhatTheCostModelThrows) {
    const Workload work = workload_of("tiny-llama", 8);
    const auto broken = [](const Workload&) {
        return LayoutCost{[](const Layout&, std::int64_t) -> std::int64_t { throw std::runtime_error("no idea"); },
                          [](const Layout&) { return 1.0; }};
    };
    SearchOptions options;
    options.threads = 4;
    EXPECT_THROW((void)search(work, SearchSpace{}, broken, options), std::runtime_error);
}

}  // namespace
}  // namespace mgplan::planner::testing::search_test
