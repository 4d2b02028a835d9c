// Rows of the fullest rank against draws of the same process, exact variances and cases that are known without any draw.

#include "simulator/memory/routing_load.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace mgplan::simulator::routing_load_test {
namespace {

ModelSpec mixture(std::int64_t experts, std::int64_t top_k, std::size_t layers) {
    ModelSpec model;
    model.name = "mixture";
    model.layers = static_cast<std::int64_t>(layers);
    model.moe = MoeSpec{.experts = experts, .top_k = top_k, .expert_ffn = 8};
    model.moe_layers.assign(layers, true);
    return model;
}

RoutingSkew skew_of(RoutingKind kind, double exponent = 1) {
    RoutingSkew skew;
    skew.kind = kind;
    skew.exponent = exponent;
    return skew;
}

RowFactors rows(const ModelSpec& model, const RoutingSkew& skew, const RoutedJob& job, RoutingQuantile quantile,
                const std::vector<LiveMixtures>& live) {
    RoutingLoad load(model, skew);
    return load.rows(load.level(job, quantile), live);
}

/// Rows of the fullest rank in single passes, and on average over all passes of a step, over those of the even split: one
/// entry for each step drawn, in ascending order.
struct Drawn {
    std::vector<double> peak, saved;
};

/// `chances`: of each expert to be among a token's top_k, placed anew in each layer of each step. A token takes its experts
/// by systematic sampling from a random order, which meets the chances exactly.
Drawn draw(std::vector<double> chances, std::size_t ep, std::size_t tokens, int layers, int microbatches, int steps) {
    std::mt19937_64 random(17);
    const std::size_t local = chances.size() / ep;
    const double top_k = std::accumulate(chances.begin(), chances.end(), 0.0);
    const double even = static_cast<double>(tokens) * top_k / static_cast<double>(ep);
    std::vector<std::size_t> order(chances.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Drawn drawn;
    for (int step = 0; step < steps; ++step) {
        double peak = 0;
        std::vector<double> sums(ep, 0);
        for (int layer = 0; layer < layers; ++layer) {
            std::shuffle(chances.begin(), chances.end(), random);
            for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
                std::vector<double> received(ep, 0);
                for (std::size_t token = 0; token < tokens; ++token) {
                    std::shuffle(order.begin(), order.end(), random);
                    double at = std::uniform_real_distribution<>(0, 1)(random), sum = 0;
                    for (const std::size_t expert : order) {
                        sum += chances[expert];
                        if (sum <= at) continue;
                        received[expert / local] += 1;
                        at += 1;
                    }
                }
                for (std::size_t rank = 0; rank < ep; ++rank) {
                    peak = std::max(peak, received[rank]);
                    sums[rank] += received[rank];
                }
            }
        }
        drawn.peak.push_back(peak / even);
        drawn.saved.push_back(*std::max_element(sums.begin(), sums.end()) / even / (layers * microbatches));
    }
    std::sort(drawn.peak.begin(), drawn.peak.end());
    std::sort(drawn.saved.begin(), drawn.saved.end());
    return drawn;
}

void expect_covers(const std::vector<double>& drawn, double p50, double p99, double slack) {
    const auto above = [&](double factor) {
        return static_cast<double>(drawn.end() - std::upper_bound(drawn.begin(), drawn.end(), factor));
    };
    const auto count = static_cast<double>(drawn.size());
    EXPECT_LE(above(p50), 0.5 * count);
    EXPECT_LE(above(p99), 0.02 * count) << "1 % asked for, and the draws' own noise";
    // And not by much: Boole's inequality gives away little.
    EXPECT_LE(p50 - 1, (drawn[drawn.size() * 9 / 10] - 1) * slack);
    EXPECT_LE(p99 - 1, (drawn.back() - 1) * slack);
}

TEST(RoutingLoad, CoversWhatAFairRouterDraws) {
    constexpr std::int64_t kEp = 4, kTokens = 64, kLayers = 3, kMicrobatches = 2;
    const ModelSpec model = mixture(16, 2, kLayers);
    const Drawn drawn = draw(std::vector<double>(16, 2.0 / 16), kEp, kTokens * kEp, kLayers, kMicrobatches, 400);
    const RoutedJob job{.ep = kEp, .world = kEp, .tokens = kTokens, .microbatches = kMicrobatches};
    const auto at = [&](RoutingQuantile q) { return rows(model, {}, job, q, {{0, kLayers, kMicrobatches}}); };
    const RowFactors p50 = at(RoutingQuantile::p50), p99 = at(RoutingQuantile::p99);
    expect_covers(drawn.peak, p50.peak, p99.peak, 1.1);
    expect_covers(drawn.saved, p50.saved, p99.saved, 1.25);
    EXPECT_LT(p99.saved, p50.peak) << "what is kept adds up over passes, which evens out";
}

TEST(RoutingLoad, CoversWhatAPopularFewDraw) {
    constexpr std::int64_t kEp = 4, kTokens = 64, kLayers = 3, kMicrobatches = 2;
    const ModelSpec model = mixture(16, 2, kLayers);
    std::vector<double> shares, chances;
    for (int i = 1; i <= 16; ++i) shares.push_back(std::pow(i, -0.6));
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (const double share : shares) chances.push_back(2 * share / sum);
    const Drawn drawn = draw(chances, kEp, kTokens * kEp, kLayers, kMicrobatches, 400);
    const RoutedJob job{.ep = kEp, .world = kEp, .tokens = kTokens, .microbatches = kMicrobatches};
    const auto at = [&](RoutingQuantile q) { return rows(model, skew_of(RoutingKind::zipf, 0.6), job, q, {{0, kLayers, kMicrobatches}}); };
    const RowFactors p50 = at(RoutingQuantile::p50), p99 = at(RoutingQuantile::p99);
    expect_covers(drawn.peak, p50.peak, p99.peak, 1.35);
    expect_covers(drawn.saved, p50.saved, p99.saved, 1.35);
}

TEST(RoutingLoad, SendsAllToOneRankAtWorst) {
    const RoutedJob job{.ep = 8, .etp = 2, .world = 16, .tokens = 100};
    const std::vector<LiveMixtures> live{{0, 2, 3}};
    for (const RoutingKind kind : {RoutingKind::balanced, RoutingKind::uniform, RoutingKind::worst}) {
        // Two experts to a rank, of which a token can choose both: 2 of its 4 copies, where 4/8 of a copy is even.
        const RowFactors worst = rows(mixture(16, 4, 2), skew_of(kind), job, RoutingQuantile::worst, live);
        EXPECT_DOUBLE_EQ(worst.peak, 4);
        EXPECT_DOUBLE_EQ(worst.saved, 4);
        EXPECT_DOUBLE_EQ(rows(mixture(64, 4, 2), skew_of(kind), job, RoutingQuantile::worst, live).peak, 8) << "all of its copies";
    }
    EXPECT_DOUBLE_EQ(rows(mixture(16, 4, 2), skew_of(RoutingKind::worst), job, RoutingQuantile::p50, live).saved, 4);
    EXPECT_DOUBLE_EQ(rows(mixture(16, 4, 2), skew_of(RoutingKind::balanced), job, RoutingQuantile::p99, live).peak, 1);
    EXPECT_DOUBLE_EQ(rows(mixture(16, 4, 2), {}, job, RoutingQuantile::worst, {}).peak, 1) << "a rank without mixtures";
}

TEST(RoutingLoad, LeavesARankThatHoldsAllExpertsWithAllRows) {
    for (const RoutingKind kind : {RoutingKind::uniform, RoutingKind::zipf, RoutingKind::worst}) {
        for (const auto quantile : {RoutingQuantile::p50, RoutingQuantile::p99, RoutingQuantile::worst}) {
            const RowFactors factors =
                rows(mixture(16, 4, 2), skew_of(kind), {.ep = 1, .etp = 2, .world = 8, .tokens = 100}, quantile, {{0, 2, 1}});
            EXPECT_EQ(factors.peak, 1);
            EXPECT_EQ(factors.saved, 1);
        }
    }
}

TEST(RoutingLoad, StaysWithinTheCapacityOfExperts) {
    ModelSpec model = mixture(16, 2, 2);
    model.moe->capacity_factor = 1.25;
    const RoutedJob job{.ep = 4, .world = 4, .tokens = 256};
    // 256 · 2 / 16 · 1.25 = 40 copies of a rank's tokens for an expert.
    EXPECT_DOUBLE_EQ(rows(model, {}, job, RoutingQuantile::worst, {{0, 2, 1}}).peak, 1.25);
    const RowFactors skewed = rows(model, skew_of(RoutingKind::zipf, 2), job, RoutingQuantile::p99, {{0, 2, 1}});
    EXPECT_LE(skewed.peak, 1.25);
    EXPECT_GT(skewed.peak, 1);
    model.moe->pad_to_capacity = true;
    for (const auto quantile : {RoutingQuantile::p50, RoutingQuantile::p99, RoutingQuantile::worst})
        EXPECT_EQ(rows(model, skew_of(RoutingKind::zipf, 2), job, quantile, {{0, 2, 1}}).peak, 1) << "counted padded";
}

TEST(RoutingLoad, TakesTheHistogramOfEachLayerAsItIs) {
    const ModelSpec model = mixture(8, 2, 2);
    RoutingSkew skew = skew_of(RoutingKind::histogram);
    skew.counts = {{0, 0, 0, 0, 5, 5, 0, 0}, {1, 1, 1, 1, 1, 1, 1, 1}};
    const RoutedJob job{.ep = 4, .world = 4, .tokens = 1'000'000};
    const auto at = [&](LiveMixtures live) { return rows(model, skew, job, RoutingQuantile::p99, {live}); };
    // In the first layer all copies go to rank 2, which is four times the even share.
    EXPECT_NEAR(at({0, 1, 1}).saved, 4, 1e-2);
    EXPECT_NEAR(at({0, 2, 1}).peak, 4, 1e-2);
    EXPECT_NEAR(at({0, 2, 1}).saved, 2.5, 1e-2);
    EXPECT_NEAR(at({1, 1, 1}).peak, 1, 1e-2);
    EXPECT_NEAR(at({0, 3, 1}).saved, 2, 1e-2) << "a layer of multi-token prediction is like the last";
    // Twice as many microbatches of the first layer as of the other.
    EXPECT_NEAR(rows(model, skew, job, RoutingQuantile::p99, {{0, 1, 2}, {1, 1, 1}}).saved, 3, 1e-2);
    // Experts that one rank's neighbours would share the load with.
    skew.counts = {{4, 0, 0, 0, 4, 0, 0, 0}, {0, 4, 0, 0, 0, 4, 0, 0}};
    EXPECT_NEAR(at({0, 2, 1}).saved, 2, 1e-2);
}

TEST(RoutingLoad, TakesOneHistogramAsPopularityInAnyOrder) {
    const ModelSpec model = mixture(8, 2, 2);
    RoutingSkew counted = skew_of(RoutingKind::histogram);
    counted.counts.emplace_back();
    for (int i = 8; i >= 1; --i) counted.counts[0].push_back(840.0 / i);
    const RoutedJob job{.ep = 4, .world = 8, .tokens = 4096, .microbatches = 4};
    for (const auto quantile : {RoutingQuantile::p50, RoutingQuantile::p99}) {
        const RowFactors a = rows(model, counted, job, quantile, {{0, 2, 2}});
        const RowFactors b = rows(model, skew_of(RoutingKind::zipf), job, quantile, {{0, 2, 2}});
        EXPECT_DOUBLE_EQ(a.peak, b.peak);
        EXPECT_DOUBLE_EQ(a.saved, b.saved);
    }
    EXPECT_NEAR(rows(model, skew_of(RoutingKind::zipf, 0), job, RoutingQuantile::p99, {{0, 2, 2}}).peak,
                rows(model, {}, job, RoutingQuantile::p99, {{0, 2, 2}}).peak, 1e-12);
}

/// Variance of the copies that one token gives to the first `local` experts, by looking at every choice it has.
double counted_variance(int experts, int top_k, int groups, int chosen_groups, int local) {
    const int size = experts / groups;
    double choices = 0, sum = 0, square = 0;
    for (unsigned pick = 0; pick < 1U << static_cast<unsigned>(groups); ++pick) {
        if (__builtin_popcount(pick) != chosen_groups) continue;
        for (unsigned taken = 0; taken < 1U << static_cast<unsigned>(experts); ++taken) {
            if (__builtin_popcount(taken) != top_k) continue;
            bool allowed = true;
            int own = 0;
            for (int expert = 0; expert < experts; ++expert) {
                if ((taken >> static_cast<unsigned>(expert) & 1U) == 0) continue;
                allowed = allowed && (pick >> static_cast<unsigned>(expert / size) & 1U) != 0;
                own += expert < local;
            }
            if (!allowed) continue;
            choices += 1;
            sum += own;
            square += own * own;
        }
    }
    return square / choices - sum / choices * sum / choices;
}

TEST(RoutingLoad, KnowsTheVarianceOfGroupLimitedChoices) {
    // With the mean even the excess is in proportion to the deviation; a world of a billion tokens leaves no bound in sight.
    for (const std::int64_t ep : {2, 4, 6, 12}) {
        ModelSpec model = mixture(12, 3, 1);
        const auto excess = [&] {
            return rows(model, {}, {.ep = ep, .world = ep, .tokens = 1'000'000'000}, RoutingQuantile::p99, {{0, 1, 1}}).peak - 1;
        };
        const double free_excess = excess();
        model.moe->groups = 4;
        model.moe->group_top_k = 2;
        const double ratio = excess() / free_excess;
        const int local = static_cast<int>(12 / ep);
        EXPECT_NEAR(ratio * ratio, counted_variance(12, 3, 4, 2, local) / counted_variance(12, 3, 1, 1, local), 1e-6) << "ep " << ep;
    }
}

TEST(RoutingLoad, GrowsWithTheSkewAndEvensOutOverLayers) {
    const ModelSpec model = mixture(64, 8, 32);
    const RoutedJob job{.ep = 16, .world = 64, .tokens = 4096, .microbatches = 8};
    RowFactors before;
    for (const double exponent : {0.0, 0.25, 0.5, 1.0, 2.0}) {
        const RowFactors now = rows(model, skew_of(RoutingKind::zipf, exponent), job, RoutingQuantile::p99, {{0, 8, 4}});
        EXPECT_GT(now.peak, before.peak) << exponent;
        EXPECT_GT(now.saved, before.saved) << exponent;
        before = now;
    }
    const auto saved = [&](std::int64_t layers) {
        return rows(model, skew_of(RoutingKind::zipf), job, RoutingQuantile::p99, {{0, layers, 4}}).saved;
    };
    EXPECT_LT(saved(32), saved(8));
    EXPECT_LT(saved(8), saved(2));
}

RC_GTEST_PROP(RoutingLoad, OrdersQuantiles, ()) {
    const std::int64_t experts = *rc::gen::element<std::int64_t>(2, 8, 12, 64, 128);
    const std::int64_t top_k = *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(experts, 9) + 1);
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= experts; ++d)
        if (experts % d == 0) divisors.push_back(d);
    RoutedJob job;
    job.ep = *rc::gen::elementOf(divisors);
    job.etp = *rc::gen::element<std::int64_t>(1, 2);
    job.pp = *rc::gen::element<std::int64_t>(1, 4);
    job.world = job.ep * job.etp * job.pp * *rc::gen::element<std::int64_t>(1, 8);
    job.tokens = *rc::gen::element<std::int64_t>(1, 7, 512, 65536);
    job.microbatches = *rc::gen::element<std::int64_t>(1, 128);
    ModelSpec model = mixture(experts, top_k, 8);
    if (*rc::gen::arbitrary<bool>()) model.moe->capacity_factor = *rc::gen::element(0.5, 1.0, 2.0);
    const auto skew = skew_of(*rc::gen::element(RoutingKind::uniform, RoutingKind::zipf), *rc::gen::element(0.1, 1.0, 3.0));
    const std::vector<LiveMixtures> live{{0, 2, *rc::gen::inRange<std::int64_t>(0, 5)}, {4, 1, *rc::gen::inRange<std::int64_t>(0, 5)}};
    RowFactors before;
    for (const auto quantile : {RoutingQuantile::p50, RoutingQuantile::p99, RoutingQuantile::worst}) {
        const RowFactors now = rows(model, skew, job, quantile, live);
        RC_ASSERT(now.peak >= before.peak);
        RC_ASSERT(now.saved >= before.saved);
        RC_ASSERT(now.peak >= now.saved);
        RC_ASSERT(now.peak <= static_cast<double>(job.ep));
        before = now;
    }
}

TEST(RoutingLoad, InvertsTheNormalTail) {
    for (const double p : {0.5, 0.3, 0.08, 0.07, 1e-3, 1e-6, 1e-11, 1e-12, 1e-30})
        EXPECT_NEAR(0.5 * std::erfc(normal_upper_quantile(p) / std::sqrt(2.0)) / p, 1, 1e-9) << p;
}

TEST(RoutingLoad, TheBusiestOfAGroupIsKnownWhereNothingIsRandom) {
    const ModelSpec model = mixture(8, 2, 2);
    const auto busiest = [&](const ModelSpec& of, const RoutingSkew& skew, std::int64_t ep) { return RoutingLoad(of, skew).busiest(ep); };
    EXPECT_EQ(busiest(model, skew_of(RoutingKind::balanced), 4), 1);
    EXPECT_EQ(busiest(model, skew_of(RoutingKind::uniform), 4), 1);
    EXPECT_EQ(busiest(model, skew_of(RoutingKind::zipf), 1), 1);
    // All copies of all tokens go to one of four ranks; one of eight holds a single expert, and so one of a token's two copies.
    EXPECT_DOUBLE_EQ(busiest(model, skew_of(RoutingKind::worst), 4), 4);
    EXPECT_DOUBLE_EQ(busiest(model, skew_of(RoutingKind::worst), 8), 4);
    // 10 of 16 copies lie on the second of two ranks in one layer, 12 on the first in the other.
    RoutingSkew counted = skew_of(RoutingKind::histogram);
    counted.counts = {{1, 2, 2, 1, 2, 3, 3, 2}, {3, 3, 3, 3, 1, 1, 1, 1}};
    EXPECT_NEAR(busiest(model, counted, 2), (10.0 / 16 + 12.0 / 16) / 2 * 2, 1e-12);
    ModelSpec dropping = model;
    dropping.moe->capacity_factor = 1.5;
    EXPECT_DOUBLE_EQ(busiest(dropping, skew_of(RoutingKind::worst), 4), 1.5);
    dropping.moe->pad_to_capacity = true;
    EXPECT_EQ(busiest(dropping, skew_of(RoutingKind::worst), 4), 1);
}

TEST(RoutingLoad, TheBusiestOfAGroupIsAsDrawn) {
    // Zipf shares of 16 experts in random orders, on 4 ranks: the largest sum, against the mean of all.
    std::mt19937_64 random(5);
    std::vector<double> shares;
    for (int i = 1; i <= 16; ++i) shares.push_back(std::pow(i, -0.6));
    const double even = std::accumulate(shares.begin(), shares.end(), 0.0) / 4;
    double drawn = 0;
    constexpr int kDraws = 20'000;
    for (int draw = 0; draw < kDraws; ++draw) {
        std::shuffle(shares.begin(), shares.end(), random);
        double most = 0;
        for (int rank = 0; rank < 4; ++rank)
            most = std::max(most, std::accumulate(shares.begin() + 4 * rank, shares.begin() + 4 * rank + 4, 0.0));
        drawn += most / even / kDraws;
    }
    const double predicted = RoutingLoad(mixture(16, 2, 4), skew_of(RoutingKind::zipf, 0.6)).busiest(4);
    EXPECT_GT(predicted, drawn * 0.98);
    EXPECT_LT(predicted, drawn * 1.03);
}

}  // namespace
}  // namespace mgplan::simulator::routing_load_test
