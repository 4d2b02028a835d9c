// What experts received in a run, against what its own counts of choices predict.

#include "simulator/memory/routing_load.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator::routing_load_test {
namespace {

using model::RankTrainer;
using model::RoutingLog;
using model::RoutingPlace;
using model::TrainingTask;
namespace small = model::small;

constexpr std::int64_t kRanks = 4, kExperts = 8, kTopK = 2, kSteps = 4, kMicrobatches = 2;

ModelSpec mixture() {
    ModelSpec model = small::llama();
    model.name = "small-mixture";
    model.moe = MoeSpec{.experts = kExperts, .top_k = kTopK, .expert_ffn = 16};
    model.moe_layers = {false, true, true, true};
    return model;
}

TEST(RoutingLoad, OfARunsOwnCountsBoundsItsFullestRank) {
    TrainingTask task = small::task(mixture(), {.dp = kRanks});
    task.layout.sizes.ep = kRanks;
    const std::int64_t layers = task.model.layers;

    std::vector<RoutingLog> logs(kRanks);
    runtime::InProcessWorld world(kRanks);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(rank), &logs[static_cast<std::size_t>(rank)]);
        for (std::int64_t step = 0; step < kSteps; ++step) (void)trainer.step(small::tokens_of, 1e-2);
    });

    // Tables hold [ep rank][expert], so that any rank's log tells what every rank received.
    RoutingSkew skew;
    skew.kind = RoutingKind::histogram;
    skew.counts.assign(3, std::vector<double>(kExperts, 0));
    double fullest = 0, copies = 0;
    for (std::int64_t step = 1; step <= kSteps; ++step) {
        for (std::int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
            for (std::int64_t layer = 1; layer < layers; ++layer) {
                const auto& table = logs.front().at(RoutingPlace{step, microbatch, layer});
                ASSERT_EQ(std::ssize(table), kRanks * kExperts);
                std::vector<double> received(kRanks, 0);
                for (std::int64_t i = 0; i < std::ssize(table); ++i) {
                    const auto count = static_cast<double>(table[static_cast<std::size_t>(i)]);
                    const std::int64_t expert = i % kExperts;
                    skew.counts[static_cast<std::size_t>(layer - 1)][static_cast<std::size_t>(expert)] += count;
                    received[static_cast<std::size_t>(expert * kRanks / kExperts)] += count;
                    copies += count;
                }
                fullest = std::max(fullest, *std::max_element(received.begin(), received.end()));
            }
        }
    }
    const double even = static_cast<double>(task.layout.micro_batch * task.batch.sequence * kTopK);
    EXPECT_EQ(copies, even * kRanks * 3 * kMicrobatches * kSteps) << "nothing is dropped";

    validate(skew, task.model, "the run's counts");
    RoutingLoad load(task.model, skew);
    const RoutedJob job{.ep = kRanks, .world = kRanks, .tokens = task.batch.sequence, .microbatches = kMicrobatches};
    const auto peak = [&](RoutingQuantile quantile) {
        const std::vector<LiveMixtures> live{{0, 3, 1}};
        return load.rows(load.level(job, quantile), live).peak;
    };
    // The run's tokens are few and alike, which its counts do not tell: it may be above p99, which takes them for independent.
    EXPECT_GT(peak(RoutingQuantile::p50), 1);
    EXPECT_GE(fullest / even, peak(RoutingQuantile::p50)) << "of the fullest of four steps";
    EXPECT_LE(fullest / even, peak(RoutingQuantile::worst));
}

}  // namespace
}  // namespace mgplan::simulator::routing_load_test
