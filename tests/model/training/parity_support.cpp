#include "tests/model/training/parity_support.hpp"

#include <map>
#include <memory>
#include <tuple>

#include <gtest/gtest.h>

#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::model {

Outcome train(const TrainingTask& task) {
    return tests::train_ranks(
        task, kSteps, [](int) { return std::make_unique<runtime::CpuDevice>(); }, true);
}

Prediction predict(const TrainingTask& task, int rank, RoutingLog* routing) {
    return tests::predict_rank(task, rank, kSteps, {}, routing);
}

void expect_prediction_equals(const TrainingTask& task, int rank, RoutingLog& routing, const MemoryUse& memory,
                              const CollectiveCounter& traffic, std::int64_t host) {
    // Balanced counts follow from the sizes alone.
    const Prediction predicted = predict(task, rank, task.balanced_routing ? nullptr : &routing);
    for (int i = 0; i < kMemoryCategories; ++i) {
        const auto category = static_cast<MemoryCategory>(i);
        const auto index = static_cast<std::size_t>(i);
        EXPECT_EQ(predicted.memory.high_water[index], memory.high_water[index]) << "rank " << rank << " " << to_string(category);
        EXPECT_EQ(predicted.memory.at_peak[index], memory.at_peak[index]) << "rank " << rank << " at the peak " << to_string(category);
    }
    EXPECT_EQ(predicted.memory.peak, memory.peak) << "rank " << rank;
    EXPECT_EQ(predicted.host, host) << "rank " << rank << " on the host";
    EXPECT_EQ(predicted.traffic.totals(), traffic.totals()) << "rank " << rank;
}

void expect_prediction_equals(const TrainingTask& task, Outcome& outcome, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    expect_prediction_equals(task, rank, outcome.routing[at], outcome.memory[at], outcome.traffic[at], outcome.host[at]);
}

const Outcome& one_rank(const ModelSpec& model, int micro_batch, Precision precision, std::int64_t sequence) {
    static std::map<std::tuple<std::string, int, Precision, std::int64_t>, Outcome> known;
    Outcome& outcome = known[{model.name, micro_batch, precision, sequence}];
    if (outcome.steps.empty()) outcome = train(task_for(model, {.name = "one", .micro_batch = micro_batch}, precision, sequence));
    return outcome;
}

void expect_equal_steps(const std::vector<StepReport>& steps, const std::vector<StepReport>& expected, double tolerance,
                        std::size_t norms) {
    ASSERT_EQ(steps.size(), expected.size());
    EXPECT_LT(expected.back().loss, expected.front().loss);
    EXPECT_GT(expected.front().result.grad_norm, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(steps[i].loss / expected[i].loss, 1, tolerance) << "step " << i;
        ASSERT_EQ(steps[i].mtp_losses.size(), expected[i].mtp_losses.size());
        for (std::size_t k = 0; k < expected[i].mtp_losses.size(); ++k)
            EXPECT_NEAR(steps[i].mtp_losses[k] / expected[i].mtp_losses[k], 1, tolerance) << "step " << i << " depth " << k;
        EXPECT_NEAR(steps[i].auxiliary_loss, expected[i].auxiliary_loss, tolerance * expected[i].auxiliary_loss) << "step " << i;
        if (i < norms) {
            EXPECT_NEAR(steps[i].result.grad_norm / expected[i].result.grad_norm, 1, tolerance) << "step " << i;
        }
    }
}

}  // namespace mgplan::model
