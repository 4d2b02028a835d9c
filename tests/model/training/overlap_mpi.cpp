// Overlapped reductions and gathers between processes.

#include <gtest/gtest.h>

#include "tests/model/training/small_training.hpp"
#include "tests/model/training/watched_world.hpp"
#include "tests/support/mpi_main.hpp"

namespace mgplan::model {
namespace {

void expect_one_ranks_steps(TrainingTask task) {
    constexpr int kSteps = 3;
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = true;
    task.gradients.bucket_size = 3000;
    runtime::MpiWorld& world = tests::the_world();
    world.run([&] {
        const auto expected = small::train(small::task(task.model, {}), kSteps).steps;
        world.traffic().clear();
        runtime::CpuDevice device;
        BytesByCategory high_water{};
        {
            RankTrainer trainer(task, device, world.view());
            device.restart_high_water();
            for (int step = 0; step < kSteps; ++step) {
                const StepReport report = trainer.step(small::tokens_of, 1e-2);
                const StepReport& wanted = expected[static_cast<std::size_t>(step)];
                EXPECT_NEAR(report.loss / wanted.loss, 1, 1e-10) << "step " << step;
                EXPECT_NEAR(report.result.grad_norm / wanted.result.grad_norm, 1, 1e-10) << "step " << step;
            }
            high_water = device.memory().high_water;
        }
        const small::Prediction prediction = small::predict(task, world.rank(), kSteps);
        EXPECT_EQ(prediction.high_water, high_water);
        EXPECT_EQ(prediction.traffic.totals(), world.traffic().totals());
    });
}

TEST(OverlapOverMpi, TensorAndSequenceParallelRanksTrainOneRanksModel) {
    expect_one_ranks_steps(small::task(small::gpt(), {.tp = 2, .dp = 2, .sequence_parallel = true}));
}

TEST(OverlapOverMpi, ReductionsBesideWeightGradientsHaveTheBitsOfThoseBehindThem) {
    runtime::MpiWorld& world = tests::the_world();
    for (const bool sequence_parallel : {false, true}) {
        TrainingTask task = small::task(small::llama(), {.tp = 2, .dp = 2, .sequence_parallel = sequence_parallel});
        task.training.precision = Precision::bf16;
        world.run([&] {
            const auto trained = [&](bool at_once) {
                runtime::CpuDevice device;
                RankTrainer trainer(task, device, watched_world(world.view(), {.at_once = at_once}));
                for (int step = 0; step < 3; ++step) (void)trainer.step(small::tokens_of, 1e-2);
                return small::parameter_bytes(trainer);
            };
            EXPECT_EQ(trained(false), trained(true));
        });
    }
}

TEST(OverlapOverMpi, InterleavedStagesTrainOneRanksModel) {
    expect_one_ranks_steps(small::task(small::gpt(), {.pp = 2, .vpp = 2, .dp = 2, .group = 4}));
}

}  // namespace
}  // namespace mgplan::model
