// Overlapped reductions and gathers between processes: every rank runs all tests, and fails when any rank does.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/comm/mpi/mpi_world.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::model {
namespace {

runtime::MpiWorld* the_world = nullptr;

void expect_one_ranks_steps(TrainingTask task) {
    constexpr int kSteps = 3;
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = true;
    task.gradients.bucket_size = 3000;
    the_world->run([&] {
        const auto expected = small::train(small::task(task.model, {}), kSteps).steps;
        the_world->traffic().clear();
        runtime::CpuDevice device;
        BytesByCategory high_water{};
        {
            RankTrainer trainer(task, device, the_world->view());
            device.pool().restart_high_water();
            for (int step = 0; step < kSteps; ++step) {
                const StepReport report = trainer.step(small::tokens_of, 1e-2);
                const StepReport& wanted = expected[static_cast<std::size_t>(step)];
                EXPECT_NEAR(report.loss / wanted.loss, 1, 1e-10) << "step " << step;
                EXPECT_NEAR(report.result.grad_norm / wanted.result.grad_norm, 1, 1e-10) << "step " << step;
            }
            high_water = device.memory().high_water;
        }
        const small::Prediction prediction = small::predict(task, the_world->rank(), kSteps);
        EXPECT_EQ(prediction.high_water, high_water);
        EXPECT_EQ(prediction.traffic.totals(), the_world->traffic().totals());
    });
}

TEST(OverlapOverMpi, TensorAndSequenceParallelRanksTrainOneRanksModel) {
    expect_one_ranks_steps(small::task(small::gpt(), {.tp = 2, .dp = 2, .sequence_parallel = true}));
}

TEST(OverlapOverMpi, InterleavedStagesTrainOneRanksModel) {
    expect_one_ranks_steps(small::task(small::gpt(), {.pp = 2, .vpp = 2, .dp = 2, .group = 4}));
}

/// Of the ranks but the first: failures alone.
class FailurePrinter final : public testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed()) fmt::print(stderr, "rank {}: {}\n", the_world->rank(), result.message());
    }
};

}  // namespace
}  // namespace mgplan::model

int main(int argc, char** argv) {
    using namespace mgplan;
    runtime::MpiOptions options;
    options.deadline = std::chrono::seconds(60);
    runtime::MpiWorld world(options);
    model::the_world = &world;
    testing::InitGoogleTest(&argc, argv);
    if (world.rank() != 0) {
        auto& listeners = testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new model::FailurePrinter);
    }
    const double own_result = RUN_ALL_TESTS();
    runtime::CpuDevice device;
    const auto result = device.empty({1}, Dtype::fp64, model::MemoryCategory::communication, "test result");
    device.write(result, &own_result);
    std::vector<std::int32_t> everyone;
    for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
    world.join("results", everyone)->all_reduce(result, model::Reduction::maximum);
    double worst = 0;
    device.read(result, &worst);
    return static_cast<int>(worst);
}
