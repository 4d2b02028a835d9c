// The picture of a bounded search against every layout of the first choices, each evaluated.

#include "planner/slower_families.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "planner/family_set.hpp"
#include "planner/plan_families.hpp"
#include "planner/scaling.hpp"
#include "planner/search_axes.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::slower_families_test {
namespace {

SearchOptions picture(int threads) {
    SearchOptions options;
    options.keep = 20;
    options.keep_nearest = 0;
    options.pareto = options.families = true;
    options.threads = threads;
    return options;
}

/// A bounded search, with families and Pareto set of the layouts that it evaluates.
SearchResult bounded(const Workload& work, const SearchSpace& space) {
    SearchOptions options = picture(1);
    options.bounded = true;
    return search(work, space, simulator_cost_model(), options);
}

SearchSpace usual_space(const Workload& work) {
    SearchSpace space;
    widen(space, usual_axes(), work);
    return space;
}

class SlowerFamilies : public ::testing::TestWithParam<std::tuple<std::string, std::int64_t>> {};

TEST_P(SlowerFamilies, AreThoseOfEveryLayout) {
    const auto& [model, world] = GetParam();
    const Workload work = workload_of(model, world);
    const SearchSpace space = usual_space(work);
    SearchResult found = bounded(work, space);
    const SearchResult all = search(work, first_choices(space), simulator_cost_model(), picture(1));
    ASSERT_GT(found.bounded, 0);
    ASSERT_GT(all.families.size(), found.families.size());
    FamilySet families(found.families);
    families.absorb(FamilySet(all.families));
    ParetoSet pareto;
    for (const SearchResult* result : {&std::as_const(found), &all}) {
        for (const RankedLayout& member : result->pareto) pareto.offer(member);
    }
    add_slower_families(work, space, simulator_cost_model(), picture(1), found);

    const auto expected = families.take();
    ASSERT_EQ(found.families.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const FamilyPoint &point = found.families[i], &wanted = expected[i];
        EXPECT_EQ(point.fastest.layout, wanted.fastest.layout) << fingerprint(wanted.fastest.layout);
        EXPECT_EQ(point.fastest.iteration_seconds, wanted.fastest.iteration_seconds);
        EXPECT_EQ(point.fastest.peak_bytes, wanted.fastest.peak_bytes);
        EXPECT_GT(point.members, 0);
        EXPECT_LE(point.members, wanted.members);
    }
    ASSERT_EQ(found.pareto.size(), pareto.layouts().size());
    for (std::size_t i = 0; i < found.pareto.size(); ++i) EXPECT_EQ(found.pareto[i].layout, pareto.layouts()[i].layout);
}

INSTANTIATE_TEST_SUITE_P(Models, SlowerFamilies,
                         ::testing::Values(std::tuple("llama3-8b", 16), std::tuple("llama3-70b", 64), std::tuple("qwen3-30b-a3b", 32),
                                           std::tuple("nemotron-h-8b", 32), std::tuple("deepseek-v3", 512)));

TEST(SlowerFamiliesOfThreads, AreTheSameForAnyNumber) {
    const Workload work = workload_of("qwen3-30b-a3b", 16);
    const SearchSpace space = usual_space(work);
    SearchResult one = bounded(work, space), four = one;
    add_slower_families(work, space, simulator_cost_model(), picture(1), one);
    add_slower_families(work, space, simulator_cost_model(), picture(4), four);
    ASSERT_EQ(one.families.size(), four.families.size());
    for (std::size_t i = 0; i < one.families.size(); ++i) {
        EXPECT_EQ(one.families[i].fastest.layout, four.families[i].fastest.layout);
        EXPECT_EQ(one.families[i].members, four.families[i].members);
    }
}

TEST(SlowerFamiliesOfThreads, CountNoMemberTwice) {
    const Workload work = workload_of("llama3-8b", 16);
    const SearchSpace first = first_choices(usual_space(work));
    const SearchResult all = search(work, first, simulator_cost_model(), picture(1));
    SearchResult again = all;
    add_slower_families(work, first, simulator_cost_model(), picture(1), again);
    ASSERT_EQ(again.families.size(), all.families.size());
    for (std::size_t i = 0; i < all.families.size(); ++i) EXPECT_EQ(again.families[i].members, all.families[i].members);
}

}  // namespace
}  // namespace mgplan::planner::testing::slower_families_test
