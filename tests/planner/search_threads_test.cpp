// The result of a search does not depend on how many threads work on it. Also run under the thread sanitizer.

#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "planner/pricer_pool.hpp"
#include "planner/replayed_memories.hpp"
#include "planner/search.hpp"
#include "planner/search_axes.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::search_threads_test {
namespace {

void expect_equal(const SearchResult& a, const SearchResult& b) {
    const auto same_list = [](const std::vector<RankedLayout>& x, const std::vector<RankedLayout>& y) {
        ASSERT_EQ(x.size(), y.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            EXPECT_EQ(x[i].layout, y[i].layout);
            EXPECT_EQ(x[i].peak_bytes, y[i].peak_bytes);
            EXPECT_EQ(x[i].iteration_seconds, y[i].iteration_seconds);
        }
    };
    same_list(a.best, b.best);
    same_list(a.nearest, b.nearest);
    ASSERT_EQ(a.contenders.size(), b.contenders.size());
    for (std::size_t i = 0; i < a.contenders.size(); ++i) EXPECT_EQ(a.contenders[i].layout, b.contenders[i].layout);
    EXPECT_EQ(a.others_at_least, b.others_at_least);
    EXPECT_EQ(a.counts.legal, b.counts.legal);
    EXPECT_EQ(a.evaluated, b.evaluated);
    EXPECT_EQ(a.feasible, b.feasible);
    EXPECT_EQ(a.too_large, b.too_large);
    const auto same_kind = [](const TooLarge& x, const TooLarge& y) {
        EXPECT_EQ(x.count, y.count);
        ASSERT_EQ(x.nearest.has_value(), y.nearest.has_value());
        if (x.nearest) {
            EXPECT_EQ(x.nearest->layout, y.nearest->layout);
        }
    };
    for (std::size_t term = 0; term < kFillingTerms; ++term) same_kind(a.too_large_by_term[term], b.too_large_by_term[term]);
    same_kind(a.too_large_uneven, b.too_large_uneven);
    ASSERT_EQ(a.counts.rejected.size(), b.counts.rejected.size());
    for (const auto& [reason, found] : a.counts.rejected) {
        const auto other = b.counts.rejected.find(reason);
        ASSERT_NE(other, b.counts.rejected.end()) << reason;
        EXPECT_EQ(found.count, other->second.count) << reason;
        EXPECT_EQ(found.example, other->second.example) << reason;
    }
}

TEST(SearchThreads, ManyFindWhatOneFinds) {
    for (const auto& work :
         {workload_of("llama3-8b", 24), workload_of("mixtral-8x7b", 16), workload_of("llama3-70b", 16, "dgx-a100-40g")}) {
        SearchOptions options;
        options.keep_contenders = 30;
        options.threads = 1;
        const auto alone = search(work, SearchSpace{}, simulator_cost_model(), options);
        EXPECT_EQ(alone.threads, 1);
        for (const int threads : {2, 3, 8}) {
            options.threads = threads;
            SCOPED_TRACE(threads);
            expect_equal(search(work, SearchSpace{}, simulator_cost_model(), options), alone);
        }
    }
}

// Pricers of a pool share recordings, prices and schedules, over all switches.
TEST(SearchThreads, ThatShareWhatTheyKnowFindWhatOneFinds) {
    Workload work = workload_of("mixtral-8x7b", 16);
    work.batch.global_batch = 64;
    SearchSpace space;
    space.engine = Engine::megatron;
    Problems problems;
    widen(space, read_search_axes("vpp,cuda-graphs,tp-overlap,optimizer", problems), work);
    ASSERT_TRUE(problems.list().empty());
    SearchOptions options;
    options.bounded = true;
    options.threads = 1;
    const SearchResult alone = search(work, space, simulator_cost_model(), options);
    for (const int threads : {2, 4}) {
        SCOPED_TRACE(threads);
        PricerPool pricers(simulator_cost_model());
        options.threads = threads;
        for (int again = 0; again < 2; ++again) {
            const SearchResult found = search(work, space, pricers.of_next_search(), options);
            ASSERT_EQ(found.best.size(), alone.best.size());
            for (std::size_t i = 0; i < found.best.size(); ++i) {
                EXPECT_EQ(found.best[i].layout, alone.best[i].layout);
                EXPECT_EQ(found.best[i].peak_bytes, alone.best[i].peak_bytes);
                EXPECT_EQ(found.best[i].iteration_seconds, alone.best[i].iteration_seconds);
            }
            EXPECT_EQ(found.counts.legal, alone.counts.legal);
            EXPECT_EQ(found.bounded, alone.bounded);
        }
    }
}

TEST(SearchThreads, ReportProgressWhileTheyWork) {
    const Workload work = workload_of("tiny-llama", 2);
    std::atomic<bool> reported = false;
    SearchOptions options;
    options.threads = 2;
    options.progress = [&](std::size_t done, std::size_t total) {
        EXPECT_LE(done, total);
        reported = true;
    };
    // Layouts cost nothing until somebody has heard about the progress.
    const auto patient = [&](const Workload&) {
        return LayoutCost{[&](const Layout&, std::int64_t) {
                              reported.wait(false);
                              return std::int64_t{1};
                          },
                          [](const Layout&) { return 1.0; }};
    };
    options.progress = [&, inner = options.progress](std::size_t done, std::size_t total) {
        inner(done, total);
        reported.notify_all();
    };
    (void)search(work, SearchSpace{}, patient, options);
    EXPECT_TRUE(reported);
}

TEST(SearchThreads, EndWhereProgressThrows) {
    const Workload work = workload_of("llama3-8b", 64);
    struct Enough {};
    std::atomic<bool> thrown = false;
    std::atomic<std::int64_t> priced = 0;
    SearchOptions options;
    options.threads = 2;
    options.progress = [&](std::size_t, std::size_t) {
        thrown = true;
        thrown.notify_all();
        throw Enough{};
    };
    const auto waits_for_progress = [&](const Workload&) {
        return LayoutCost{[&](const Layout&, std::int64_t) {
                              thrown.wait(false);
                              // On a busy machine the thread that throws may sleep before it does; meanwhile the other must not
                              // run through all of the work.
                              std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              ++priced;
                              return std::int64_t{1};
                          },
                          [](const Layout&) { return 1.0; }};
    };
    EXPECT_THROW((void)search(work, SearchSpace{}, waits_for_progress, options), Enough);
    const auto all = search(work, SearchSpace{}, simulator_cost_model(), SearchOptions{});
    EXPECT_LT(priced, (all.feasible + all.too_large) / 2);  // of the parts that were begun, not of all
}

TEST(SearchThreads, MayOutnumberTheWork) {
    const Workload work = workload_of("tiny-llama", 1);
    SearchOptions options;
    options.threads = 64;
    const auto result = search(work, SearchSpace{}, simulator_cost_model(), options);
    EXPECT_GT(result.feasible, 0);
    EXPECT_EQ(result.threads, 1);
}

TEST(SearchThreads, ReplayWhatOneReplays) {
    const Workload work = workload_of("llama3-8b", 16);
    SearchOptions options;
    options.keep = 8;
    const std::vector<RankedLayout> best = search(work, SearchSpace{}, simulator_cost_model(), options).best;
    ASSERT_EQ(best.size(), 8U);
    simulator::CostModel one(work), several(work);
    ReplayedMemories alone(one), together(several, 3);
    const std::int64_t limit = alone.of(best[4].layout).deciding_bytes();  // some of them exceed it
    for (std::size_t i = 0; i < best.size(); ++i) {
        const bool asks_limit = i % 2 == 1;
        together.prepare(std::span(best).subspan(i), asks_limit ? std::optional(limit) : std::nullopt);
        const Layout& layout = best[i].layout;
        EXPECT_TRUE(!asks_limit || together.exceeds(layout, limit) == alone.exceeds(layout, limit)) << fingerprint(layout);
        EXPECT_EQ(together.of(layout).deciding_bytes(), alone.of(layout).deciding_bytes()) << fingerprint(layout);
    }
}

}  // namespace
}  // namespace mgplan::planner::testing::search_threads_test
