// A bounded search shows what an exhaustive one does.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"
#include "planner/legal_tails.hpp"
#include "planner/ranking.hpp"
#include "planner/replayed_memories.hpp"
#include "planner/search_axes.hpp"
#include "planner/unsplit_bounds.hpp"
#include "runtime/sanitizers.hpp"
#include "simulator/cost_model.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::bounded_search_test {
namespace {

/// A job with a space that an exhaustive search gets through in a moment.
struct RandomJob {
    Workload work;
    SearchSpace space;
    std::string name;
};

/// `search`: the axes; any without.
RandomJob random_job(std::mt19937& random, const char* search = nullptr) {
    const auto any = [&](const auto& values) { return values[random() % std::size(values)]; };
    const char* const models[]{"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-30b-a3b", "qwen2.5-7b"};
    const char* const clusters[]{"dgx-h100", "gb200-nvl72", "dgx-b200", "dgx-a100-80g"};
    const char* const axes[]{"recipe",
                             "dispatcher,recompute",
                             "recompute,block,vpp",
                             "tp-overlap,optimizer",
                             "cuda-graphs,recompute",
                             "stages,recompute",
                             "sharding,recompute,tp-overlap",
                             "wide"};
    const std::int64_t worlds[]{8, 16}, batches[]{32, 64};
    const char *const model = any(models), *const cluster = any(clusters), *const asked = search != nullptr ? search : any(axes);
    const std::int64_t world = any(worlds), batch = any(batches);
    RandomJob job{workload_of(model, world, cluster, batch, 4096), {}, {}};
    if (random() % 4 == 0 && job.work.cluster.peak(Precision::fp8) > 0) {
        job.work.training.precision = Precision::fp8;
        job.work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    }
    job.space.engine = random() % 4 == 0 ? Engine::mgplan : Engine::megatron;
    if (job.space.engine == Engine::mgplan && random() % 2 == 0) job.work.training.offload.optimizer = 0.5;
    if (!job.work.training.offload.active() && random() % 3 == 0) job.work.training.offload.states = random() % 2 == 0 ? 1 : 0.5;
    if (job.space.engine == Engine::megatron && random() % 4 == 0) job.work.batch.lengths = {.tokens = {512, 3000}, .counts = {900, 35}};
    job.space.micro_batch = random() % 2 == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1, 4};
    job.space.cp = {1, 2};
    job.space.cp_comm_types = {CpCommType::p2p};
    Problems problems;
    widen(job.space, read_search_axes(asked, problems), job.work);
    job.name = fmt::format("{} on {} x {}, batch {}, {}, engine {}, offload {}", model, world, cluster, batch, asked,
                           to_string(job.space.engine), fmt::join(offload_words(job.work.training.offload), ","));
    return job;
}

TEST(BoundedSearch, ShowsWhatAnExhaustiveOneDoes) {
    std::mt19937 random(20261124);
    std::int64_t cut = 0;
#ifdef MGPLAN_ADDRESS_SANITIZER  // minutes there
    constexpr int kJobs = 3, kWide = 1;
#else
    constexpr int kJobs = 14, kWide = 3;
#endif
    for (int i = 0; i < kJobs; ++i) {
        // The last ones search everything, graphs among it.
        const RandomJob job = random_job(random, i < kJobs - kWide ? nullptr : "wide");
        SCOPED_TRACE(job.name);
        RankingOptions options;
        options.predictions = false;
        options.threads = 1;
        const Ranking all = rank_layouts(job.work, job.space, options);
        options.bounded = true;
        options.threads = 2;
        const Ranking bounded = rank_layouts(job.work, job.space, options);
        const SearchResult &a = all.search, &b = bounded.search;
        const std::size_t shown = std::min<std::size_t>(10, a.best.size());
        ASSERT_GE(b.best.size(), shown);
        for (std::size_t place = 0; place < shown; ++place) {
            EXPECT_EQ(fingerprint(b.best[place].layout), fingerprint(a.best[place].layout)) << "place " << place + 1;
            EXPECT_EQ(b.best[place].iteration_seconds, a.best[place].iteration_seconds) << "place " << place + 1;
        }
        EXPECT_EQ(b.fastest_seconds, a.fastest_seconds);
        EXPECT_EQ(b.counts.legal, a.counts.legal);
        EXPECT_EQ(b.counts.candidates(), a.counts.candidates());
        EXPECT_EQ(a.bounded, 0);
        EXPECT_EQ(b.counts.legal, b.feasible + b.too_large + b.bounded + b.too_large_replayed.count);
        EXPECT_LE(b.feasible, a.feasible);
        cut += b.bounded;
    }
    EXPECT_GT(cut, 0);
}

// What repeats nothing copies most to the host, so bounds by what repeats nothing do not hold.
TEST(BoundedSearch, PricesEverythingWhereInputsOfModulesWaitOnTheHost) {
    RandomJob job{workload_of("qwen3-30b-a3b", 16, "dgx-h100", 32, 4096), {}, {}};
    job.space.engine = Engine::mgplan;
    job.space.micro_batch = {1};
    job.space.cp = {1};
    Problems problems;
    widen(job.space, read_search_axes("recompute", problems), job.work);
    RankingOptions options;
    options.bounded = true;
    EXPECT_GT(rank_layouts(job.work, job.space, options).search.bounded, 0);
    job.work.training.offload.modules.add(OffloadModule::moe_act);
    EXPECT_EQ(rank_layouts(job.work, job.space, options).search.bounded, 0);
    job.work.training.offload = {.optimizer = 0.5};
    EXPECT_GT(rank_layouts(job.work, job.space, options).search.bounded, 0);
    job.space.engine = Engine::megatron;
    EXPECT_GT(rank_layouts(job.work, job.space, options).search.bounded, 0);
    widen(job.space, read_search_axes("optimizer", problems), job.work);
    EXPECT_EQ(rank_layouts(job.work, job.space, options).search.bounded, 0);
}

/// Layouts of a job that are far apart, with and without graphs, and with every choice of switches.
std::vector<Layout> some_layouts(const RandomJob& job, std::size_t every) {
    std::vector<Layout> some;
    CandidateCounts counts;
    std::size_t met = 0;
    for (const Prefix& prefix : prefixes(job.work, job.space, counts)) {
        visit_layouts(job.work, job.space, prefix, counts, [&](const Layout& layout) {
            if (met++ % every == 0) some.push_back(layout);
        });
    }
    return some;
}

TEST(BoundedSearch, NoLayoutNeedsLessThanItsBoundOfBytes) {
    std::mt19937 random(77);
    std::int64_t graphed = 0, switched = 0, close = 0, tight = 0;
    for (int i = 0; i < 12; ++i) {
        const RandomJob job = random_job(random, i % 2 == 0 ? "wide" : nullptr);
        SCOPED_TRACE(job.name);
        const LayoutCost cost = simulator_cost_model()(job.work);
        for (const Layout& layout : some_layouts(job, 997)) {
            constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
            const std::int64_t least = cost.least_bytes_of_tail(layout, job.space, false, kAny);
            const std::int64_t anywhere = cost.least_bytes_of_tail(layout, job.space, true, kAny);
            const auto [deciding, even] = [&] {
                const MemoryNeed need = cost.memory(layout, kAny);
                return std::pair(need.bytes, need.even);
            }();
            ASSERT_LE(least, even) << fingerprint(layout);
            ASSERT_LE(least, anywhere) << fingerprint(layout);
            ASSERT_LE(anywhere, deciding) << fingerprint(layout);
            for (const std::int64_t enough : {least / 2, even - 1, even})
                ASSERT_LE(cost.least_bytes_of_tail(layout, job.space, true, enough), deciding) << fingerprint(layout);
            ASSERT_LE(cost.least_bytes_switched(layout), even) << fingerprint(layout);
            tight += 100 * anywhere > 99 * deciding ? 1 : 0;
            graphed += layout.cuda_graphs.empty() ? 0 : 1;
            switched += layout.switches ? 1 : 0;
            close += 10 * least > 9 * even ? 1 : 0;
        }
    }
    EXPECT_GT(graphed, 0);
    EXPECT_GT(switched, 0);
    EXPECT_GT(close, 0);
    EXPECT_GT(tight, 0);
}

TEST(BoundedSearch, NoLayoutIsFasterThanItsBoundOfSeconds) {
    std::mt19937 random(78);
    std::int64_t close = 0, halfway = 0, pipelined = 0, more_repeated = 0;
    for (int i = 0; i < 8; ++i) {
        const RandomJob job = random_job(random, i % 2 == 0 ? "wide" : nullptr);
        SCOPED_TRACE(job.name);
        const LayoutCost cost = simulator_cost_model()(job.work);
        UnsplitBounds unsplit(cost, job.space);
        for (const Layout& layout : some_layouts(job, 4999)) {
            const TimeEstimate time = cost.iteration_seconds(layout);
            const double seconds = std::min(time.seconds, time.at_least), hair = 1e-9 * seconds;
            // Cheaper bounds answer where they exceed what is enough.
            for (const double enough : {0.0, 0.5 * seconds, 0.9 * seconds, std::numeric_limits<double>::infinity()}) {
                ASSERT_LE(cost.least_seconds(layout, job.space, enough), seconds + hair) << fingerprint(layout) << ", " << enough;
                ASSERT_LE(cost.least_seconds_unsplit(layout, job.space, enough), seconds + hair) << fingerprint(layout) << ", " << enough;
            }
            ASSERT_LE(unsplit.of(layout, std::numeric_limits<double>::infinity()), seconds + hair) << fingerprint(layout);
            halfway += cost.least_seconds_unsplit(layout, job.space, 0.5 * seconds) > 0.5 * seconds ? 1 : 0;
            ASSERT_LE(cost.least_seconds_switched(layout, job.space, 0.5 * seconds), seconds + hair) << fingerprint(layout);
            const double switched = cost.least_seconds_switched(layout, job.space, std::numeric_limits<double>::infinity());
            ASSERT_LE(switched, seconds + hair) << fingerprint(layout);
            ASSERT_LE(cost.least_seconds(layout, job.space, std::numeric_limits<double>::infinity()), switched + hair)
                << fingerprint(layout);
            // What full recompute repeats is in the one and not in the other.
            const double repeated = cost.least_seconds_repeated(layout, job.space);
            ASSERT_LE(repeated, seconds + hair) << fingerprint(layout);
            if (layout.recompute == Recompute::full)
                more_repeated +=
                    repeated > 1.1 * cost.least_seconds_unsplit(layout, job.space, std::numeric_limits<double>::infinity()) ? 1 : 0;
            close += cost.least_seconds(layout, job.space, 0) > 0.5 * seconds ? 1 : 0;
            pipelined += layout.sizes.pp > 1 ? 1 : 0;
        }
    }
    EXPECT_GT(close, 0);
    EXPECT_GT(halfway, 0);
    EXPECT_GT(pipelined, 0);
    EXPECT_GT(more_repeated, 0);
}

TEST(BoundedSearch, OneBoundHoldsForAllSplitsAndChunks) {
    std::mt19937 random(82);
    std::int64_t compared = 0;
    for (int i = 0; i < 4; ++i) {
        const RandomJob job = random_job(random, i % 2 == 0 ? "wide" : "recipe");
        SCOPED_TRACE(job.name);
        const LayoutCost cost = simulator_cost_model()(job.work);
        UnsplitBounds unsplit(cost, job.space);
        CandidateCounts counts;
        // The first layout of each branch, in the order in which a search meets them, and the last.
        std::size_t met = 0;
        std::optional<Layout> one;
        LayoutVisitor visitor;
        visitor.visit = [&](const Layout& layout) { one = layout; };
        visitor.enter = [&](const Layout& first, std::int64_t) {
            const double bound = unsplit.of(first, std::numeric_limits<double>::infinity());
            const TimeEstimate time = cost.iteration_seconds(first);
            const double seconds = std::min(time.seconds, time.at_least);
            EXPECT_LE(bound, seconds * (1 + 1e-9)) << fingerprint(first);
            EXPECT_EQ(bound, cost.least_seconds_unsplit(first, job.space, std::numeric_limits<double>::infinity()));
            ++compared;
            return met++ % 400 == 0;
        };
        for (const Prefix& prefix : prefixes(job.work, job.space, counts)) {
            visit_layouts(job.work, job.space, prefix, counts, visitor);
            if (!one) continue;
            const TimeEstimate time = cost.iteration_seconds(*one);
            EXPECT_LE(cost.least_seconds_unsplit(*one, job.space, std::numeric_limits<double>::infinity()),
                      std::min(time.seconds, time.at_least) * (1 + 1e-9))
                << fingerprint(*one);
        }
    }
    EXPECT_GT(compared, 100);
}

TEST(BoundedSearch, ReplaysThatEndEarlySayWhatWholeOnesDo) {
    std::mt19937 random(83);
    std::int64_t too_large = 0, fitting = 0;
    for (int i = 0; i < 5; ++i) {
        const RandomJob job = random_job(random, "optimizer,recompute");
        SCOPED_TRACE(job.name);
        if (job.space.engine != Engine::megatron) continue;
        simulator::CostModel model(job.work);
        for (const Layout& layout : some_layouts(job, 4999)) {
            const std::int64_t bytes = model.replayed_memory(layout).deciding_bytes();
            for (const std::int64_t limit : {bytes / 2, bytes - 1, bytes, 2 * bytes}) {
                ReplayedMemories memories(model);
                EXPECT_EQ(memories.exceeds(layout, limit), bytes > limit) << fingerprint(layout) << ", " << limit;
                EXPECT_EQ(memories.exceeds(layout, limit), bytes > limit) << "asked again";
                EXPECT_EQ(memories.of(layout).deciding_bytes(), bytes);
                EXPECT_EQ(memories.exceeds(layout, bytes), false);
                ++(bytes > limit ? too_large : fitting);
            }
        }
    }
    EXPECT_GT(too_large, 4);
    EXPECT_GT(fitting, 4);
}

TEST(BoundedSearch, TailsThatManyLayoutsShareAreThoseOfEach) {
    std::mt19937 random(79);
    std::int64_t legal = 0;
    for (int i = 0; i < 6; ++i) {
        const RandomJob job = random_job(random, i < 4 ? "wide" : nullptr);
        SCOPED_TRACE(job.name);
        LegalTails tails(job.work, job.space);
        LayoutVisitor shared, alone;
        for (LayoutVisitor* visitor : {&shared, &alone}) {
            visitor->visit = [](const Layout&) {};
            visitor->enter = [&](const Layout& first, std::int64_t) {
                EXPECT_TRUE(broken_messages(job.work, first).empty()) << fingerprint(first);
                return false;  // counted, not visited
            };
        }
        shared.tails = &tails;
        CandidateCounts counts;
        for (const Prefix& prefix : prefixes(job.work, job.space, counts)) {
            CandidateCounts of_shared, of_alone;
            visit_layouts(job.work, job.space, prefix, of_shared, shared);
            visit_layouts(job.work, job.space, prefix, of_alone, alone);
            ASSERT_EQ(of_shared.legal, of_alone.legal);
            ASSERT_EQ(of_shared.rejected.size(), of_alone.rejected.size());
            for (const auto& [rule, found] : of_alone.rejected) {
                ASSERT_EQ(of_shared.rejected[rule].count, found.count) << rule;
                ASSERT_EQ(of_shared.rejected[rule].example, found.example) << rule;
            }
            legal += of_alone.legal;
        }
    }
    EXPECT_GT(legal, 0);
}

TEST(BoundedSearch, PricersThatShareSayWhatEachSaysAlone) {
    std::mt19937 random(80);
    std::int64_t looked_at = 0;
    for (int i = 0; i < 4; ++i) {
        const RandomJob job = random_job(random, "wide");
        SCOPED_TRACE(job.name);
        const LayoutCost first = simulator_cost_model()(job.work), another = first.another();
        for (const Layout& layout : some_layouts(job, 29989)) {
            const LayoutCost alone = simulator_cost_model()(job.work);
            // What one has found out the other takes.
            const TimeEstimate time = alone.iteration_seconds(layout);
            for (const LayoutCost* cost : {looked_at % 2 == 0 ? &first : &another, looked_at % 2 == 0 ? &another : &first}) {
                EXPECT_EQ(cost->iteration_seconds(layout).seconds, time.seconds) << fingerprint(layout);
                EXPECT_EQ(cost->iteration_seconds(layout).at_least, time.at_least) << fingerprint(layout);
                constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
                EXPECT_EQ(cost->memory(layout, kAny).bytes, alone.memory(layout, kAny).bytes) << fingerprint(layout);
            }
            ++looked_at;
        }
    }
    EXPECT_GT(looked_at, 10);
}

TEST(BoundedSearch, OverlapsThatAreSwitchedOnTakeNoMemory) {
    std::mt19937 random(81);
    std::int64_t overlapped = 0;
    for (int i = 0; i < 4; ++i) {
        const RandomJob job = random_job(random, "tp-overlap,moe-overlap,optimizer");
        SCOPED_TRACE(job.name);
        for (const Layout& layout : some_layouts(job, 4999)) {
            if (!layout.switches || !(layout.switches->overlap_tp || layout.switches->overlap_moe)) continue;
            LayoutSwitches others = *layout.switches;
            others.overlap_tp = others.overlap_moe = false;
            Layout plain = layout;
            plain.switches = std::make_shared<const LayoutSwitches>(others);
            EXPECT_EQ(simulator::CostModel(job.work).replayed_memory(layout).deciding_bytes(),
                      simulator::CostModel(job.work).replayed_memory(plain).deciding_bytes())
                << fingerprint(layout);
            ++overlapped;
        }
    }
    EXPECT_GT(overlapped, 0);
}

TEST(BoundedSearch, CutsTheSameForAnyNumberOfThreads) {
    std::mt19937 random(7);
    RandomJob job = random_job(random);
    std::vector<std::int64_t> cuts;
    for (const int threads : {1, 2, 3}) {
        RankingOptions options;
        options.predictions = false;
        options.bounded = true;
        options.threads = threads;
        const SearchResult found = rank_layouts(job.work, job.space, options).search;
        cuts.push_back(found.bounded);
        cuts.push_back(found.evaluated);
    }
    EXPECT_EQ(cuts[2], cuts[0]);
    EXPECT_EQ(cuts[3], cuts[1]);
    EXPECT_EQ(cuts[4], cuts[0]);
    EXPECT_EQ(cuts[5], cuts[1]);
}

}  // namespace
}  // namespace mgplan::planner::testing::bounded_search_test
