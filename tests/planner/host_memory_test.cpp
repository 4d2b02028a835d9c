// What waits in the hosts' memory has to fit there: the search judges every candidate by it, not those alone that it looks at closely.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "plan/layout/stage_ranks.hpp"
#include "planner/constraints.hpp"
#include "planner/exact_ranking.hpp"
#include "planner/ranking.hpp"
#include "simulator/cost_model.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::host_memory_test {
namespace {

struct Priced {
    Layout layout;
    double seconds = 0;
    std::int64_t node_host_bytes = 0;
    bool device_fits = false;
};

std::vector<Priced> price_all(const Workload& work, const SearchSpace& space) {
    simulator::CostModel model(work);
    std::vector<Priced> all;
    CandidateCounts counts;
    for (Layout& layout : candidates_of(work, space, counts)) {
        const simulator::MemoryPrediction memory = model.memory(layout);
        Priced one{std::move(layout), 0, memory.node_host_bytes, memory.deciding_bytes() <= work.memory_limit};
        one.seconds = model.estimate_time(one.layout).iteration_seconds;
        all.push_back(std::move(one));
    }
    return all;
}

TEST(HostMemory, BoundsEveryCandidateOfASearch) {
    Workload work = workload_of("llama3-8b", 16, "dgx-h100", 64, 4096);
    work.training.offload = {.modules = {OffloadModule::qkv_linear, OffloadModule::core_attn, OffloadModule::attn_proj}};
    SearchSpace space;
    space.engine = Engine::megatron;
    space.recompute = {Recompute::none};
    work.cluster.host_memory_bytes = std::numeric_limits<std::int64_t>::max();  // sums of nodes are asked for
    const std::vector<Priced> all = price_all(work, space);

    // So little memory that none of the fastest fits, more of them than the ranking looks at closely.
    std::vector<const Priced*> fitting;
    for (const Priced& each : all) {
        if (each.device_fits) fitting.push_back(&each);
    }
    std::sort(fitting.begin(), fitting.end(), [](const Priced* a, const Priced* b) { return a->seconds < b->seconds; });
    constexpr std::size_t kFastest = 2 * kRankedExactly;
    ASSERT_GT(fitting.size(), kFastest);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < kFastest; ++i) least = std::min(least, fitting[i]->node_host_bytes);
    work.cluster.host_memory_bytes = least - 1;
    const auto holds = [&](const Priced* each) { return each->node_host_bytes < least; };
    const auto winner = std::find_if(fitting.begin(), fitting.end(), holds);
    ASSERT_NE(winner, fitting.end());

    for (const bool bounded : {false, true}) {
        RankingOptions options;
        options.bounded = bounded;
        options.threads = 2;
        const SearchResult found = rank_layouts(work, space, options).search;
        ASSERT_FALSE(found.best.empty());
        EXPECT_LE(found.best.front().iteration_seconds, 1.02 * (*winner)->seconds);  // timed event by event
        simulator::CostModel model(work);
        for (const RankedLayout& ranked : found.best) EXPECT_TRUE(model.memory(ranked.layout).host_fits()) << fingerprint(ranked.layout);
        EXPECT_EQ(found.feasible + found.too_large_replayed.count, std::count_if(fitting.begin(), fitting.end(), holds));
        const TooLarge& missed = found.too_large_by_term[static_cast<std::size_t>(FillingTerm::host)];
        EXPECT_EQ(missed.count, std::count_if(fitting.begin(), fitting.end(), [&](const Priced* each) { return !holds(each); }));
        // The nearest misses by the fewest bytes.
        ASSERT_TRUE(missed.nearest);
        EXPECT_EQ(missed.nearest->peak_bytes - work.memory_limit, model.memory(missed.nearest->layout).host_missing());
        EXPECT_EQ(missed.nearest->peak_bytes - work.memory_limit, 1);
    }
}

// A node's ranks of several stages leave what each of their stages leaves.
TEST(HostMemory, IsSummedUpOverTheRanksOfANode) {
    Workload work = workload_of("llama3-8b", 16, "dgx-h100", 64, 4096);
    work.training.offload = {.optimizer = 1};
    work.training.megatron.precision_aware_optimizer = true;
    simulator::CostModel model(work);
    for (const int pp : {1, 2, 4}) {
        LayoutRequest request;
        request.pp = pp;
        request.micro_batch = 1;
        const Layout layout = make_layout(request, work);
        std::int64_t nodes[2]{};
        for (std::int64_t rank = 0; rank < 16; ++rank)
            nodes[rank / 8] += model.stage_memory(layout, static_cast<int>(stage_of_rank(layout.sizes, rank))).host_bytes;
        EXPECT_EQ(model.memory(layout).node_host_bytes, std::max(nodes[0], nodes[1])) << pp;
    }
}

}  // namespace
}  // namespace mgplan::planner::testing::host_memory_test
