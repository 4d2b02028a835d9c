// Runs as `mgplan run --device cuda` makes them: several ranks on one card, measured and predicted.

#include "tests/gpu/gpu.hpp"
#include "tests/gpu/small_run.hpp"

namespace mgplan::tests {
namespace {

class GpuRun : public GpuTest {};

TEST_F(GpuRun, IsAsPredictedAndTrainsAsTheCpu) {
    for (const auto& model : {small_llama(kScale), small_mixture(RouterScore::softmax)}) {
        runtime::TrainingRunOptions run = run_of(model, {.name = "", .tp = 2, .pp = 2, .sequence_parallel = true}, Precision::fp32);
        const runtime::RunValues on_the_cpu = runtime::run_in_process(run);
        run.devices = runtime::cuda_devices(false);
        const runtime::RunValues values = runtime::run_in_process(run);
        EXPECT_NE(values.device, "CPU");
        EXPECT_TRUE(values.as_predicted) << model.name;
        ASSERT_EQ(values.steps.size(), on_the_cpu.steps.size());
        for (std::size_t i = 0; i < values.steps.size(); ++i) {
            EXPECT_NEAR(values.steps[i].loss / on_the_cpu.steps[i].loss, 1, 1e-4) << i;
            EXPECT_GT(values.steps[i].seconds, 0);
        }
    }
}

TEST_F(GpuRun, RepeatsItselfToTheBitWhenAskedTo) {
    runtime::TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .tp = 2, .dp = 2}, Precision::bf16);
    run.devices = runtime::cuda_devices(true);
    const runtime::RunValues once = runtime::run_in_process(run), again = runtime::run_in_process(run);
    EXPECT_TRUE(once.as_predicted);
    for (std::size_t i = 0; i < once.steps.size(); ++i) {
        EXPECT_EQ(once.steps[i].loss, again.steps[i].loss) << i;
        EXPECT_EQ(once.steps[i].grad_norm, again.steps[i].grad_norm) << i;
    }
}

}  // namespace
}  // namespace mgplan::tests
