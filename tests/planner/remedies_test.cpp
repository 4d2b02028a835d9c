// What would make a layout fit really does.

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/constraints.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"
#include "simulator/cost_model.hpp"
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
    changed.training.offload = remedy.offload;
    if (remedy.change.starts_with("bf16 instead of ")) changed.training.precision = Precision::bf16;
    changed.training.megatron.precision_aware_optimizer |= remedy.offload.optimizer > 0 && remedy.layout.engine == Engine::megatron;
    // As simulate and check judge it.
    const simulator::MemoryPrediction memory = simulator::CostModel(changed).replayed_memory(remedy.layout);
    EXPECT_EQ(memory.deciding_bytes(), remedy.peak_bytes);
    EXPECT_TRUE(memory.fits());
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
            // The nearest miss is nearest: on this world nothing fits, so the host and more GPUs are the only ways.
            ASSERT_FALSE(found.empty());
            EXPECT_THAT(found.back().change, HasSubstr("GPUs instead of "));
            for (const Remedy& remedy : found) {
                const bool on_host = remedy.change == "the optimizer on the host (--offload optimizer)";
                EXPECT_TRUE(on_host || remedy.change == found.back().change) << remedy.change;
                expect_fits(work, remedy);
            }
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

TEST(Remedies, FitWithTheAllocatorReplayed) {
    // Half of the micro-batch fits by what a search assumes of the allocator, and not by its replay.
    Workload work = workload_of("qwen3-30b-a3b", 8, "dgx-h100", 512);
    work.training.precision = Precision::fp8;
    work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.etp = request.tp = 8;
    request.sequence_parallel = true;
    request.micro_batch = 2;
    request.recompute = Recompute::full;
    LayoutRequest half = request;
    half.micro_batch = 1;
    const Layout smaller = make_layout(half, work);
    simulator::CostModel model(work);
    // A limit between the two.
    work.memory_limit = model.replayed_memory(smaller).deciding_bytes() - 1;
    ASSERT_LE(model.peaks(smaller).deciding, work.memory_limit) << "or this test shows nothing";
    const auto found = remedies(work, make_layout(request, work), simulator_cost_model());
    EXPECT_FALSE(found.empty());
    for (const Remedy& remedy : found) {
        EXPECT_THAT(remedy.change, ::testing::Not(HasSubstr("micro-batch")));
        expect_fits(work, remedy);
    }
}

TEST(Remedies, LeaveQuantisedCopiesOut) {
    Workload work = workload_of("qwen3-30b-a3b", 8, "dgx-h100", 512);
    work.training.precision = Precision::fp8;
    work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.etp = request.tp = 8;
    request.sequence_parallel = true;
    request.recompute = Recompute::full;
    const auto wider = [](const Remedy& remedy) { return remedy.change == "bf16 instead of fp8-current (--precision bf16)"; };
    const auto found = remedies(work, make_layout(request, work), simulator_cost_model());
    const auto bf16 = std::find_if(found.begin(), found.end(), wider);
    ASSERT_NE(bf16, found.end());
    expect_fits(work, *bf16);
    work.training.precision = Precision::bf16;
    work.memory_limit = std::int64_t{30} << 30;
    for (const Remedy& remedy : remedies(work, make_layout(request, work), simulator_cost_model()))
        EXPECT_FALSE(remedy.change.starts_with("bf16")) << remedy.change;
}

TEST(Remedies, OffloadTheOptimizer) {
    const Workload work = workload_of("mixtral-8x7b", 8, "dgx-h100", 128);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 8;
    request.recompute = Recompute::full;
    const auto found = remedies(work, make_layout(request, work), simulator_cost_model());
    const auto on_host =
        std::find_if(found.begin(), found.end(), [](const Remedy& remedy) { return remedy.change.ends_with("(--offload optimizer)"); });
    ASSERT_NE(on_host, found.end());
    EXPECT_EQ(on_host->offload.optimizer, 1);
    expect_fits(work, *on_host);
    // What is there already is no way out.
    Workload offloading = work;
    offloading.training.offload.optimizer = 0.5;
    for (const Remedy& remedy : remedies(offloading, make_layout(request, offloading), simulator_cost_model()))
        EXPECT_EQ(remedy.offload, offloading.training.offload);
    // Megatron-LM asks for the distributed optimizer.
    Workload whole = work;
    whole.training.distributed_optimizer = false;
    for (const Remedy& remedy : remedies(whole, make_layout(request, whole), simulator_cost_model()))
        EXPECT_FALSE(remedy.offload.active()) << remedy.change;
}

TEST(Remedies, MayBeNone) {
    Workload work = workload_of("llama3-8b", 2);
    work.memory_limit = std::int64_t{1} << 20;  // no context fits into a MiB
    EXPECT_THAT(remedies(work, make_layout({}, work), simulator_cost_model()), IsEmpty());
}

}  // namespace
}  // namespace mgplan::planner::testing::remedies_test
