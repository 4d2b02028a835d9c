// Which layouts exist: all that the rules accept, each once, none that they refuse.

#include "planner/candidates.hpp"

#include <map>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::candidates_test {
namespace {

using ::testing::IsEmpty;

/// A workload and the fingerprints of its candidates.
struct Enumerated {
    Workload work;
    std::unordered_set<std::string> candidates;
    std::size_t count = 0;
};

Enumerated enumerate(Workload work) {
    Enumerated found{std::move(work), {}, 0};
    CandidateCounts counts;
    for (const Layout& layout : candidates_of(found.work, SearchSpace{}, counts)) {
        ++found.count;
        found.candidates.insert(fingerprint(layout));
    }
    EXPECT_EQ(static_cast<std::int64_t>(found.count), counts.legal);
    return found;
}

const std::vector<Enumerated>& enumerated() {
    static const std::vector<Enumerated> all = [] {
        std::vector<Enumerated> list;
        list.push_back(enumerate(workload_of("llama3-8b", 24)));
        list.push_back(enumerate(workload_of("llama2-13b", 100)));   // 40 heads: tp 5 exists
        list.push_back(enumerate(workload_of("qwen2.5-0.5b", 42)));  // 14 heads: tp 7
        list.push_back(enumerate(workload_of("mixtral-8x7b", 24)));
        list.push_back(enumerate(workload_of("tiny-moe", 12)));
        list.push_back(enumerate(workload_of("gpt3-175b", 72, "gb200-nvl72", 144)));  // 96 heads: tp 3, 6, 12, 24
        list.push_back(enumerate(workload_of("deepseek-v2-lite", 18)));               // 27 layers
        Workload sixes = workload_of("llama3-8b", 36);
        sixes.model.heads = 36;
        sixes.model.kv_heads = 12;
        sixes.batch.sequence = 3 * 3 * 512;
        sixes.cluster.gpus_per_node = sixes.cluster.nvlink_domain = 12;
        list.push_back(enumerate(sixes));
        return list;
    }();
    return all;
}

TEST(Candidates, AreNeverTheSameLayoutTwice) {
    for (const auto& [work, candidates, count] : enumerated()) EXPECT_EQ(candidates.size(), count) << work.model.name;
}

TEST(Candidates, SatisfyEveryRule) {
    for (const char* model : {"llama3-8b", "tiny-moe", "deepseek-v2-lite"}) {
        const Workload work = workload_of(model, 12);
        CandidateCounts counts;
        for (const Layout& layout : candidates_of(work, SearchSpace{}, counts)) {
            ASSERT_THAT(broken_messages(work, layout), IsEmpty()) << fingerprint(layout);
            ASSERT_NE(layout.split, nullptr);
            ASSERT_EQ(layout.split->vpp(), layout.vpp);
            ASSERT_EQ(layout.split->pp(), layout.sizes.pp);
        }
        EXPECT_GT(counts.legal, 0);
    }
}

TEST(Candidates, AreExactlyWhatNestedLoopsFind) {
    for (const auto& [work, candidates, count] : enumerated()) {
        std::size_t naive = 0;
        visit_naively(work, [&](const Layout& layout) {
            ++naive;
            ASSERT_TRUE(candidates.contains(fingerprint(layout))) << work.model.name << ": " << fingerprint(layout);
        });
        EXPECT_EQ(naive, count) << work.model.name;
    }
}

/// A random request; sizes are mostly divisors of the world, so that a fair part is legal.
LayoutRequest any_request(const Workload& work) {
    const auto divisor = [&] {
        const auto all = divisors(work.world);
        return *rc::gen::weightedOneOf<std::int64_t>(
            {{6, rc::gen::elementOf(all)}, {1, rc::gen::inRange<std::int64_t>(1, work.world + 2)}});
    };
    LayoutRequest request;
    request.tp = divisor();
    request.cp =
        *rc::gen::weightedOneOf<std::int64_t>({{2, rc::gen::just<std::int64_t>(1)}, {2, rc::gen::elementOf(divisors(work.world))}});
    request.pp = divisor();
    request.ep = divisor();
    request.etp = divisor();
    request.vpp = *rc::gen::inRange<std::int64_t>(1, 9);
    request.micro_batch = *rc::gen::inRange<std::int64_t>(1, 17);
    request.sequence_parallel = *rc::gen::arbitrary<bool>();
    request.cp_comm_type = *rc::gen::element(CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a);
    request.recompute = *rc::gen::element(Recompute::none, Recompute::selective, Recompute::full);
    return request;
}

RC_GTEST_PROP(Candidates, HoldEveryRandomLayoutThatTheRulesAccept, ()) {
    const Enumerated& space = enumerated()[*rc::gen::inRange<std::size_t>(0, enumerated().size())];
    // Many tries for one draw of the workload: most random layouts break some rule.
    int accepted = 0;
    for (int i = 0; i < 30; ++i) {
        const LayoutRequest request = any_request(space.work);
        try {
            const Layout layout = make_layout(request, space.work);
            ++accepted;
            if (!space.candidates.contains(fingerprint(layout))) RC_FAIL(space.work.model.name + ": " + fingerprint(layout));
        } catch (const ConfigError& error) {
            for (const auto& problem : error.problems()) RC_ASSERT(problem.find(';') != std::string::npos);
        }
    }
    RC_TAG(accepted > 0);
}

TEST(Candidates, PinnedListsHoldOnlyWhatIsPinned) {
    const Workload work = workload_of("llama3-8b", 16);
    SearchSpace space;
    space.tp = {2, 6, 8};
    space.pp = {2};
    space.vpp = {1, 4};
    space.micro_batch = {3, 1};
    space.recompute = {Recompute::full};
    space.sequence_parallel = true;
    CandidateCounts counts;
    std::set<std::int64_t> tps, vpps, micro_batches;
    for (const Layout& layout : candidates_of(work, space, counts)) {
        tps.insert(layout.sizes.tp);
        vpps.insert(layout.vpp);
        micro_batches.insert(layout.micro_batch);
        EXPECT_EQ(layout.sizes.pp, 2);
        EXPECT_EQ(layout.recompute, Recompute::full);
        EXPECT_TRUE(layout.sequence_parallel);
    }
    EXPECT_THAT(tps, ::testing::ElementsAre(2, 8));
    EXPECT_THAT(vpps, ::testing::ElementsAre(1, 4));
    EXPECT_THAT(micro_batches, ::testing::ElementsAre(1));
    // tp 6 and micro-batch 3 stay visible as rejections.
    EXPECT_EQ(counts.rejected.at("tp_divides_world").count, 1);
    EXPECT_GT(counts.rejected.at("batch_divides").count, 0);
}

TEST(Candidates, RepeatedValuesInAListMakeNoSecondLayout) {
    const Workload work = workload_of("mixtral-8x7b", 8);
    SearchSpace once, twice;
    once.tp = {2};
    once.cp = {2};
    once.ep = {2};
    once.recompute = {Recompute::none};
    once.cp_comm_types = {CpCommType::p2p};
    twice = once;
    for (auto* list : {&twice.tp, &twice.cp, &twice.ep}) list->push_back(2);
    twice.recompute.push_back(Recompute::none);
    twice.cp_comm_types.push_back(CpCommType::p2p);
    CandidateCounts first, second;
    EXPECT_EQ(candidates_of(work, once, first).size(), candidates_of(work, twice, second).size());
    EXPECT_EQ(first.legal, second.legal);
}

TEST(Candidates, TakeAPinnedLayoutStringWithTheChunksItMakes) {
    const Workload work = workload_of("tiny-llama", 4);
    SearchSpace space;
    space.pipeline_layout = "Et|t|t|tL";
    CandidateCounts counts;
    std::set<std::pair<std::int64_t, int>> shapes;
    for (const Layout& layout : candidates_of(work, space, counts)) shapes.emplace(layout.sizes.pp, layout.vpp);
    EXPECT_THAT(shapes, ::testing::ElementsAre(std::pair{std::int64_t{2}, 2}, std::pair{std::int64_t{4}, 1}));
}

TEST(Candidates, ExpertSizesOfDenseModelsAreWithoutEffect) {
    const Workload work = workload_of("llama3-8b", 16);
    SearchSpace space, pinned;
    pinned.ep = {4, 3};
    pinned.etp = {2};
    CandidateCounts free_counts, pinned_counts;
    EXPECT_EQ(candidates_of(work, space, free_counts).size(), candidates_of(work, pinned, pinned_counts).size());
    EXPECT_EQ(free_counts.candidates(), pinned_counts.candidates());
}

TEST(Candidates, FollowAnyRankOrder) {
    for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-dp-pp", "pp-dp-tp-cp-ep", "dp-pp-tp"}) {
        for (const char* model : {"tiny-llama", "tiny-moe"}) {
            const Workload work = workload_of(model, 8);
            SearchSpace space;
            space.orders = {AxisOrder::parse(order)};
            CandidateCounts counts;
            std::unordered_set<std::string> seen;
            for (const Layout& layout : candidates_of(work, space, counts)) {
                ASSERT_THAT(broken_messages(work, layout), IsEmpty()) << order << " " << fingerprint(layout);
                EXPECT_TRUE(seen.insert(fingerprint(layout)).second);
            }
            EXPECT_FALSE(seen.empty()) << order << " " << model;
        }
    }
}

/// All groups of a layout, dense and of the experts; of models without experts the dense ones.
std::string groups_text(const Layout& layout, bool moe) {
    const RankGroups groups(layout.sizes);
    std::string text;
    for (const auto& kind : groups.all()) {
        if (!moe && kind.name.starts_with("expert")) continue;
        text += kind.name + fmt::format(" {}:{};", kind.group_size, fmt::join(kind.ranks, ","));
    }
    return text;
}

/// What tells layouts apart but their order: its groups stand for it.
std::string with_groups(Layout layout, bool moe) {
    const std::string groups = groups_text(layout, moe);
    layout.sizes.order = AxisOrder{};
    if (!moe) layout.sizes.etp = layout.sizes.tp;
    return fingerprint(layout) + groups;
}

TEST(Candidates, OfSeveralOrdersAreThoseOfEachButNoLayoutTwice) {
    const std::vector<std::string> orders{"tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp", "dp-tp-cp-ep-pp",
                                          "tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep", "tp-dp-pp"};
    for (const char* model : {"tiny-llama", "tiny-moe"}) {
        const Workload work = workload_of(model, 8);
        const bool moe = work.model.moe.has_value();
        SearchSpace narrow;
        narrow.micro_batch = {1};
        narrow.vpp = {1};
        narrow.recompute = {Recompute::none};
        SearchSpace all = narrow;
        all.orders.clear();
        std::set<std::string> wanted;
        for (const auto& order : orders) {
            all.orders.push_back(AxisOrder::parse(order));
            SearchSpace one = narrow;
            one.orders = {AxisOrder::parse(order)};
            CandidateCounts counts;
            for (const Layout& layout : candidates_of(work, one, counts)) wanted.insert(with_groups(layout, moe));
        }
        CandidateCounts counts;
        std::set<std::string> found;
        std::set<std::string> used;
        for (const Layout& layout : candidates_of(work, all, counts)) {
            ASSERT_THAT(broken_messages(work, layout), IsEmpty()) << layout.sizes.order.text() << " " << fingerprint(layout);
            EXPECT_TRUE(found.insert(with_groups(layout, moe)).second) << layout.sizes.order.text() << " " << fingerprint(layout);
            used.insert(layout.sizes.order.text());
        }
        EXPECT_EQ(found, wanted) << model;
        EXPECT_EQ(counts.legal, static_cast<std::int64_t>(found.size()));
        EXPECT_GT(used.size(), 2U) << model;
    }
}

TEST(Candidates, ARepeatedOrderChangesNothing) {
    const Workload work = workload_of("tiny-moe", 8);
    SearchSpace once, twice;
    once.orders = {AxisOrder::parse("cp-tp-ep-dp-pp")};
    twice.orders = {once.orders.front(), once.orders.front()};
    CandidateCounts first, second;
    EXPECT_EQ(candidates_of(work, once, first).size(), candidates_of(work, twice, second).size());
    EXPECT_EQ(first.candidates(), second.candidates());
}

}  // namespace
}  // namespace mgplan::planner::testing::candidates_test
