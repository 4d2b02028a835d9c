// The layout that the events find fastest is found among all, however few the search keeps for its closed form.

#include "planner/exact_ranking.hpp"

#include <limits>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "planner/simulator_cost.hpp"

namespace mgplan::planner::exact_ranking_test {
namespace {

Workload random_workload(std::mt19937& random) {
    const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
    Workload work;
    work.model = formats::load_model(pick(std::array{"llama3.2-1b", "tiny-moe", "qwen2.5-1.5b", "llama2-7b", "deepseek-v2-lite"})).model;
    work.cluster = load_cluster(pick(std::array{"dgx-h100", "dgx-a100-80g,node_network_gbits_per_second=200", "a100-pcie-80g"}));
    work.world = pick(std::array{4, 6, 8, 16});
    work.batch = {.global_batch = work.world * pick(std::array{1, 2, 4}), .sequence = pick(std::array{512, 2048, 4096})};
    work.batch.sequence = std::min(work.batch.sequence, work.model.max_positions);
    work.training.overlap_grad_reduce = work.training.overlap_param_gather = random() % 2 == 0;
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

SearchResult searched(const Workload& work, std::size_t keep, std::size_t contenders, const SearchSpace& space = {}) {
    SearchOptions options;
    options.keep = keep;
    options.keep_contenders = contenders;
    options.threads = 1;
    return search(work, space, simulator_cost_model(), options);
}

double fastest_of_all(const Workload& work, simulator::CostModel& model) {
    double fastest = std::numeric_limits<double>::infinity();
    CandidateCounts counts;
    const SearchSpace space;
    for (const auto& prefix : prefixes(work, space, counts)) {
        visit_layouts(work, space, prefix, counts, [&](const Layout& layout) {
            if (model.peaks(layout).deciding <= work.memory_limit) fastest = std::min(fastest, model.exact_seconds(layout));
        });
    }
    return fastest;
}

TEST(ExactRanking, FindsTheFastestOfExhaustiveTimelines) {
    std::mt19937 random(5);
    int moved = 0, solved = 0;
    for (int i = 0; i < 25; ++i) {
        const Workload work = random_workload(random);
        simulator::CostModel model(work);
        const double wanted = fastest_of_all(work, model);
        SCOPED_TRACE(fmt::format("{} on {} x {}, batch {} x {}", work.model.name, work.world, work.cluster.name, work.batch.global_batch,
                                 work.batch.sequence));
        if (wanted == std::numeric_limits<double>::infinity()) continue;
        // The closed form's first three alone: what is behind them comes in by its bound.
        SearchResult found = searched(work, 3, kContenders);
        const Layout first = found.best.front().layout;
        rank_exactly(found, model, Objective::throughput, 3);
        EXPECT_EQ(found.fastest_is_proven, true);
        EXPECT_DOUBLE_EQ(found.best.front().iteration_seconds, wanted);
        for (std::size_t place = 0; place < found.replayed; ++place) {
            EXPECT_EQ(found.best[place].iteration_seconds, model.exact_seconds(found.best[place].layout));
            for (std::size_t other = 0; other < place; ++other) EXPECT_FALSE(found.best[place].layout == found.best[other].layout);
        }
        ++solved;
        moved += found.best.front().layout == first ? 0 : 1;
    }
    EXPECT_GT(solved, 15);
    EXPECT_GT(moved, 0) << "the events never put another layout first, so that this test shows nothing";
}

TEST(ExactRanking, ClaimsNoProofWithoutOne) {
    Workload work;
    work.model = formats::load_model("llama3.2-1b").model;
    work.cluster = load_cluster("dgx-h100");
    work.world = 8;
    work.batch = {.global_batch = 64, .sequence = 2048};
    work.memory_limit = work.cluster.memory_bytes;
    simulator::CostModel model(work);
    SearchResult unknown = searched(work, 1, 0);
    // One layout is replayed, and a slow one at that: others have bounds below it.
    SearchResult slow = searched(work, 500, 0);
    unknown.best.front() = slow.best.back();
    rank_exactly(unknown, model, Objective::throughput, 1);
    EXPECT_EQ(unknown.fastest_is_proven, false);
    SearchResult by_memory = searched(work, 3, 10);
    rank_exactly(by_memory, model, Objective::memory, 3);
    EXPECT_FALSE(by_memory.fastest_is_proven.has_value());
}

TEST(ExactRanking, StopsWhereThePassesEnd) {
    // A million microbatches: one timeline more takes all passes that the proof has.
    Workload work;
    work.model = formats::load_model("llama3.2-1b").model;
    work.cluster = load_cluster("dgx-h100");
    work.world = 8;
    work.batch = {.global_batch = 8'000'000, .sequence = 512};
    work.memory_limit = work.cluster.memory_bytes;
    SearchSpace space;
    space.micro_batch = {1};
    space.pp = {1};
    simulator::CostModel model(work);
    SearchResult found = searched(work, 1, kContenders, space);
    found.best.front() = searched(work, 300, 0, space).best.back();
    rank_exactly(found, model, Objective::throughput, 1);
    EXPECT_EQ(found.fastest_is_proven, false);
    EXPECT_EQ(found.replayed, 1U);
}

}  // namespace
}  // namespace mgplan::planner::exact_ranking_test
