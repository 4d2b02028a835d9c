// Where nothing fits, a bounded search shows the misses that an exhaustive one does.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/kept_layouts.hpp"
#include "planner/ranking.hpp"
#include "planner/search_axes.hpp"
#include "runtime/sanitizers.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::nearest_misses_test {
namespace {

struct Job {
    Workload work;
    SearchSpace space;
    std::string name;
};

/// A job that no card of `limit` bytes holds.
Job job_without_plans(std::mt19937& random) {
    const auto any = [&](const auto& values) { return values[random() % std::size(values)]; };
    const char* const models[]{"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-30b-a3b"};
    const char* const axes[]{"recipe", "dispatcher,recompute", "recompute,block,vpp", "tp-overlap,optimizer", "cuda-graphs,recompute"};
    const std::int64_t worlds[]{8, 16};
    const char *const model = any(models), *const asked = any(axes);
    const std::int64_t world = any(worlds);
    Job job{workload_of(model, world, "dgx-h100", 32, 4096), {}, {}};
    job.work.memory_limit = (1 + static_cast<std::int64_t>(random() % 3)) << 30;
    job.space.engine = random() % 4 == 0 ? Engine::mgplan : Engine::megatron;
    job.space.micro_batch = {1, 2};
    job.space.cp = {1, 2};
    job.space.cp_comm_types = {CpCommType::p2p};
    Problems problems;
    widen(job.space, read_search_axes(asked, problems), job.work);
    job.name = fmt::format("{} on {}, {}, engine {}", model, world, asked, to_string(job.space.engine));
    return job;
}

TEST(NearestMisses, AreThoseOfAnExhaustiveSearch) {
    std::mt19937 random(20261126);
    std::int64_t cut = 0, kinds = 0;
#ifdef MGPLAN_ADDRESS_SANITIZER  // minutes there
    constexpr int kJobs = 3;
#else
    constexpr int kJobs = 12;
#endif
    for (int i = 0; i < kJobs; ++i) {
        const Job job = job_without_plans(random);
        SCOPED_TRACE(job.name);
        RankingOptions options;
        options.predictions = false;
        options.threads = 1;
        const SearchResult all = rank_layouts(job.work, job.space, options).search;
        ASSERT_TRUE(all.best.empty());
        options.bounded = true;
        options.threads = 2;
        const SearchResult bounded = rank_layouts(job.work, job.space, options).search;
        ASSERT_EQ(bounded.nearest.size(), all.nearest.size());
        for (std::size_t place = 0; place < all.nearest.size(); ++place) {
            EXPECT_EQ(fingerprint(bounded.nearest[place].layout), fingerprint(all.nearest[place].layout)) << "place " << place + 1;
            EXPECT_EQ(bounded.nearest[place].peak_bytes, all.nearest[place].peak_bytes) << "place " << place + 1;
        }
        EXPECT_EQ(bounded.counts.legal, all.counts.legal);
        EXPECT_EQ(bounded.counts.candidates(), all.counts.candidates());
        EXPECT_EQ(bounded.feasible, 0);
        EXPECT_EQ(bounded.counts.legal, bounded.too_large + bounded.bounded);
        // What is said of a kind is what the exhaustive search says of it.
        std::int64_t counted = 0;
        const auto same = [&](const TooLarge& a, const TooLarge& b) {
            EXPECT_LE(b.count, a.count);
            counted += b.count;
            if (b.count == 0) return;
            ++kinds;
            ASSERT_TRUE(a.nearest && b.nearest);
            EXPECT_EQ(fingerprint(b.nearest->layout), fingerprint(a.nearest->layout));
            EXPECT_EQ(b.nearest->peak_bytes, a.nearest->peak_bytes);
        };
        for (std::size_t term = 0; term < kFillingTerms; ++term) same(all.too_large_by_term[term], bounded.too_large_by_term[term]);
        same(all.too_large_uneven, bounded.too_large_uneven);
        EXPECT_EQ(counted, bounded.too_large);
        cut += bounded.bounded;
    }
    EXPECT_GT(cut, 0);
    EXPECT_GT(kinds, 0);
}

TEST(NearestMisses, AreOneOfEachFamilyInWhateverOrderTheyCome) {
    std::vector<RankedLayout> misses;
    for (const std::int64_t tp : {1, 2, 4, 8}) {
        for (std::int64_t vpp = 1; vpp <= 4; ++vpp) {
            RankedLayout& miss = misses.emplace_back();
            miss.layout.sizes.tp = tp;
            miss.layout.vpp = static_cast<int>(vpp);
            miss.peak_bytes = 1000 * tp + (vpp == 3 ? 0 : 10 * vpp);
        }
    }
    std::mt19937 random(20261128);
    for (int i = 0; i < 50; ++i) {
        std::shuffle(misses.begin(), misses.end(), random);
        NearestMisses nearest(3);
        for (const RankedLayout& miss : misses) nearest.offer(miss.layout, miss.peak_bytes);
        ASSERT_EQ(nearest.list().size(), 3U);
        EXPECT_EQ(nearest.largest_peak(), 4000);
        for (std::size_t place = 0; place < 3; ++place) {
            EXPECT_EQ(nearest.list()[place].layout.sizes.tp, std::int64_t{1} << place);
            EXPECT_EQ(nearest.list()[place].layout.vpp, 3);
        }
    }
}

}  // namespace
}  // namespace mgplan::planner::testing::nearest_misses_test
