// The search finds what brute force finds, whatever the pruning, and counts every candidate once.

#include "planner/search.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cost_models.hpp"
#include "support.hpp"

namespace mgplan::planner::testing {
namespace {

constexpr std::size_t kBest = 10;

/// Everything that brute force says about a workload.
struct BruteForce {
    std::vector<RankedLayout> best;
    std::int64_t legal = 0;
    std::int64_t feasible = 0;
};

BruteForce brute_force(const Workload& work, Objective objective) {
    BruteForce found;
    const LayoutCost cost = cli::simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) {
        ++found.legal;
        const std::int64_t peak = cost.peak_bytes(layout);
        const double seconds = cost.iteration_seconds(layout);
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
        const SearchResult result = search(work, SearchSpace{}, cli::simulator_cost_model(), options);
        SCOPED_TRACE(prune ? "pruned" : "not pruned");
        EXPECT_EQ(result.counts.legal, expected.legal);
        EXPECT_EQ(result.feasible, expected.feasible);
        EXPECT_EQ(result.evaluated, prune ? expected.feasible : expected.legal);
        expect_same(result.best, expected.best);
        expect_complete_counts(result);
    }
}

INSTANTIATE_TEST_SUITE_P(Search, BruteForcePairs,
                         ::testing::Values(
                             // Small models, every kind of world.
                             Pair{"tiny-llama", 1}, Pair{"tiny-llama", 2}, Pair{"tiny-llama", 6}, Pair{"tiny-llama", 8},
                             Pair{"tiny-moe", 1}, Pair{"tiny-moe", 6}, Pair{"tiny-moe", 8}, Pair{"tiny-moe", 12}, Pair{"tiny-gpt", 12},
                             Pair{"tiny-gpt", 16}, Pair{"qwen2.5-0.5b", 12}, Pair{"qwen2.5-0.5b", 14}, Pair{"qwen3-0.6b", 24},
                             Pair{"llama3.2-1b", 32}, Pair{"sc21-gpt-1.7b", 48}, Pair{"gpt-oss-20b", 16},
                             // Dense.
                             Pair{"llama3-8b", 8}, Pair{"llama3-8b", 16}, Pair{"llama3-8b", 72, "gb200-nvl72"}, Pair{"llama3-8b", 100},
                             Pair{"llama2-13b", 40, "dgx-a100-40g"}, Pair{"llama3-70b", 64}, Pair{"llama3-70b", 96, "dgx-h200", 384},
                             Pair{"llama3.1-405b", 192, "dgx-b200", 384}, Pair{"llama3.1-8b", 32, "dgx-h100", 64, 131072},
                             Pair{"gpt3-175b", 96, "dgx-a100-80g", 192}, Pair{"mistral-7b-v0.1", 24, "a100-pcie-80g"},
                             Pair{"nemotron4-15b", 64, "dgx-h100", 100},
                             // Mixtures of experts.
                             Pair{"mixtral-8x7b", 16}, Pair{"mixtral-8x7b", 24}, Pair{"mixtral-8x7b", 64}, Pair{"mixtral-8x22b", 96},
                             Pair{"qwen3-30b-a3b", 32}, Pair{"qwen2-57b-a14b", 56},
                             // Multi-latent attention, multi-token prediction, layers that nothing divides.
                             Pair{"deepseek-v2-lite", 8}, Pair{"deepseek-v2-lite", 32}, Pair{"moonlight-16b-a3b", 16},
                             Pair{"deepseek-v3", 96, "dgx-b300", 192},
                             // The other objective.
                             Pair{"llama3-8b", 16, "dgx-h100", 0, 0, Objective::memory},
                             Pair{"mixtral-8x7b", 32, "dgx-h100", 0, 0, Objective::memory}));

TEST(Search, FindsNothingWhereMemoryIsShortAndNamesTheNearest) {
    const Workload work = workload_of("llama3-70b", 8, "dgx-a100-40g");
    const SearchResult result = search(work, SearchSpace{}, cli::simulator_cost_model(), {});
    EXPECT_TRUE(result.best.empty());
    EXPECT_EQ(result.feasible, 0);
    EXPECT_EQ(result.evaluated, 0);
    expect_complete_counts(result);

    std::vector<std::int64_t> peaks;
    const LayoutCost cost = cli::simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) { peaks.push_back(cost.peak_bytes(layout)); });
    std::sort(peaks.begin(), peaks.end());
    ASSERT_EQ(result.nearest.size(), 3U);
    for (std::size_t i = 0; i < result.nearest.size(); ++i) EXPECT_EQ(result.nearest[i].peak_bytes, peaks[i]);
}

TEST(Search, JudgesMixturesUnderTheirRoutingSkew) {
    Workload work = workload_of("mixtral-8x7b", 64);
    work.routing.kind = RoutingKind::zipf;
    std::int64_t feasible = 0, uneven = 0;
    const LayoutCost cost = cli::simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) {
        const Peaks peaks = cost.peaks(layout, std::numeric_limits<std::int64_t>::max());
        EXPECT_LE(peaks.even, peaks.deciding);
        feasible += peaks.deciding <= work.memory_limit;
        uneven += peaks.even <= work.memory_limit && peaks.deciding > work.memory_limit;
    });
    const SearchResult result = search(work, SearchSpace{}, cli::simulator_cost_model(), {});
    expect_complete_counts(result);
    EXPECT_GT(uneven, 0);
    EXPECT_EQ(result.feasible, feasible);
    EXPECT_EQ(result.too_large_uneven, uneven);
    for (const auto& ranked : result.best) EXPECT_EQ(ranked.peak_bytes, cost.peak_bytes(ranked.layout));

    Workload balanced = work;
    balanced.routing.kind = RoutingKind::balanced;
    const SearchResult without = search(balanced, SearchSpace{}, cli::simulator_cost_model(), {});
    EXPECT_EQ(without.feasible, feasible + uneven);
    EXPECT_EQ(without.too_large_uneven, 0);
}

TEST(Search, NamesTheNearestMixturesByWhatTheirSkewNeeds) {
    Workload work = workload_of("mixtral-8x22b", 8, "dgx-a100-40g");
    work.routing.kind = RoutingKind::zipf;
    std::vector<Peaks> peaks;
    const LayoutCost cost = cli::simulator_cost_model()(work);
    visit_naively(work, [&](const Layout& layout) { peaks.push_back(cost.peaks(layout, std::numeric_limits<std::int64_t>::max())); });
    std::sort(peaks.begin(), peaks.end(), [](const Peaks& a, const Peaks& b) { return a.deciding < b.deciding; });
    for (const int threads : {1, 3}) {
        SearchOptions options;
        options.threads = threads;
        options.keep_nearest = 20;
        const SearchResult result = search(work, SearchSpace{}, cli::simulator_cost_model(), options);
        EXPECT_EQ(result.feasible, 0);
        ASSERT_EQ(result.nearest.size(), 20U);
        for (std::size_t i = 0; i < result.nearest.size(); ++i) {
            EXPECT_EQ(result.nearest[i].peak_bytes, peaks[i].deciding);
            EXPECT_EQ(result.nearest[i].even_peak_bytes, cost.peaks(result.nearest[i].layout, 0).even);
        }
    }
}

TEST(Search, KeepsAsManyAsAskedAndALongerListBeginsWithTheShorter) {
    const Workload work = workload_of("llama3-8b", 16);
    const auto keep = [&](std::size_t count) {
        SearchOptions options;
        options.keep = count;
        return search(work, SearchSpace{}, cli::simulator_cost_model(), options);
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
    return [=](const Workload&) { return LayoutCost{[=](const Layout&) { return bytes; }, [=](const Layout&) { return seconds; }}; };
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
        return LayoutCost{[](const Layout& layout) { return 100 / layout.sizes.tp; }, [](const Layout&) { return 1.0; }};
    };
    const auto result = search(work, SearchSpace{}, by_tp, {});
    EXPECT_EQ(result.best.front().layout.sizes.tp, 8);
}

TEST(Search, PassesOnWhatTheCostModelThrows) {
    const Workload work = workload_of("tiny-llama", 8);
    const auto broken = [](const Workload&) {
        return LayoutCost{[](const Layout&) -> std::int64_t { throw std::runtime_error("no idea"); }, [](const Layout&) { return 1.0; }};
    };
    SearchOptions options;
    options.threads = 4;
    EXPECT_THROW((void)search(work, SearchSpace{}, broken, options), std::runtime_error);
}

}  // namespace
}  // namespace mgplan::planner::testing
