// What would make a layout fit really does.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/constraints.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::remedies_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Prices the remedy's layout anew, on the world that it asks for.
void expect_fits(const Workload& work, const Remedy& remedy) {
    SCOPED_TRACE(remedy.change);
    Workload changed = work;
    changed.world = remedy.layout.sizes.world;
    changed.batch.global_batch = remedy.global_batch;
    EXPECT_THAT(broken_messages(changed, remedy.layout), IsEmpty());
    const std::int64_t peak = simulator_cost_model()(changed).memory(remedy.layout, work.memory_limit).bytes;
    EXPECT_EQ(peak, remedy.peak_bytes);
    EXPECT_LE(peak, work.memory_limit);
}

TEST(Remedies, OfNearestMissesFit) {
    const struct {
        const char* model;
        std::int64_t world;
        const char* cluster;
    } hopeless[] = {{"llama3.1-405b", 16, "dgx-h100"}, {"deepseek-v3", 64, "dgx-h100"},      {"llama3-70b", 8, "dgx-a100-40g"},
                    {"gpt3-175b", 24, "dgx-a100-80g"}, {"mixtral-8x22b", 8, "dgx-a100-40g"}, {"llama3-8b", 1, "dgx-a100-40g"}};
    for (const auto& [model, world, cluster] : hopeless) {
        SCOPED_TRACE(model);
        const Workload work = workload_of(model, world, cluster);
        const auto result = search(work, SearchSpace{}, simulator_cost_model(), {});
        ASSERT_TRUE(result.best.empty());
        ASSERT_FALSE(result.nearest.empty());
        for (const auto& miss : result.nearest) {
            const auto found = remedies(work, miss.layout, simulator_cost_model());
            // The nearest miss is nearest: on this world nothing fits, so more GPUs are the only way.
            ASSERT_EQ(found.size(), 1U);
            EXPECT_THAT(found.front().change, HasSubstr("GPUs instead of "));
            expect_fits(work, found.front());
        }
    }
}

TEST(Remedies, NameTheSmallestOfEachChangeThatHelps) {
    const Workload work = workload_of("llama2-13b", 64, "dgx-a100-40g", 1024);
    LayoutRequest request;
    request.tp = 2;
    request.pp = 2;
    request.micro_batch = 4;
    request.recompute = Recompute::selective;
    const auto peak = [&, cost = simulator_cost_model()(work)](const LayoutRequest& changed) {
        return cost.memory(make_layout(changed, work), work.memory_limit).bytes;
    };
    ASSERT_GT(peak(request), work.memory_limit);
    std::vector<std::string> changes;
    for (const auto& remedy : remedies(work, make_layout(request, work), simulator_cost_model())) {
        changes.push_back(remedy.change);
        expect_fits(work, remedy);
    }
    EXPECT_THAT(changes, ::testing::Contains("full recompute"));
    EXPECT_THAT(changes, ::testing::Contains("micro-batch 1 instead of 4"));
    request.micro_batch = 2;
    EXPECT_GT(peak(request), work.memory_limit);

    // Half of the micro-batch: now more stages help too.
    const auto found = remedies(work, make_layout(request, work), simulator_cost_model());
    const auto stages = std::find_if(found.begin(), found.end(), [](const Remedy& remedy) { return remedy.change.starts_with("pp "); });
    ASSERT_NE(stages, found.end());
    expect_fits(work, *stages);
    while (peak(request) > work.memory_limit) request.pp *= 2;
    EXPECT_EQ(stages->layout.sizes.pp, request.pp);
    EXPECT_GT(request.pp, 4);
}

TEST(Remedies, BeginWithWhatCostsLeast) {
    // 70 B on 64 GPUs that miss by some GiB: narrower gradients, or recompute of some layers, are enough.
    const Workload work = workload_of("llama3-70b", 64, "dgx-h100", 512);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.tp = request.pp = 4;
    request.sequence_parallel = true;
    Workload tight = work;
    tight.memory_limit =
        simulator_cost_model()(work).memory(make_layout(request, work), work.memory_limit * 4).bytes - (std::int64_t{6} << 30);
    std::vector<std::string> changes;
    for (const Remedy& remedy : remedies(tight, make_layout(request, tight), simulator_cost_model())) {
        changes.push_back(remedy.change);
        expect_fits(tight, remedy);
    }
    ASSERT_GE(changes.size(), 3U);
    EXPECT_EQ(changes[0], "gradients in bf16 (--grad-dtype bf16)");
    EXPECT_THAT(changes[1], HasSubstr("selective recompute of "));
    EXPECT_THAT(changes[2], ::testing::ContainsRegex("full recompute of [0-9]+ layers? of each chunk"));
    EXPECT_THAT(changes, ::testing::Contains("full recompute"));
}

TEST(Remedies, MayBeNone) {
    Workload work = workload_of("llama3-8b", 2);
    work.memory_limit = std::int64_t{1} << 20;  // no context fits into a MiB
    EXPECT_THAT(remedies(work, make_layout({}, work), simulator_cost_model()), IsEmpty());
}

}  // namespace
}  // namespace mgplan::planner::testing::remedies_test
