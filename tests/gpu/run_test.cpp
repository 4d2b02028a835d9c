// Runs as `mgplan run --device cuda` makes them: several ranks on one card, measured and predicted.

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/gpu.hpp"
#include "tests/gpu/small_run.hpp"

namespace mgplan::tests::run_test {
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

/// Four steps: eager, captured, replayed twice.
void expect_bits_of_an_eager_run(runtime::TrainingRunOptions run, EnumSet<CudaGraphScope> scopes, const std::string& name) {
    SCOPED_TRACE(name);
    run.devices = runtime::cuda_devices(true);
    run.memory = runtime::MemoryMode::arena;
    run.steps = 4;
    const runtime::RunValues eager = runtime::run_in_process(run);
    run.task.layout.cuda_graphs = scopes;
    const runtime::RunValues graphs = runtime::run_in_process(run);
    EXPECT_TRUE(eager.as_predicted);
    EXPECT_TRUE(graphs.as_predicted);
    EXPECT_GT(graphs.ranks.front().measured.graphs.forward_graphs, 0);
    ASSERT_EQ(graphs.steps.size(), eager.steps.size());
    for (std::size_t i = 0; i < eager.steps.size(); ++i) {
        EXPECT_EQ(graphs.steps[i].loss, eager.steps[i].loss) << i;
        EXPECT_EQ(graphs.steps[i].grad_norm, eager.steps[i].grad_norm) << i;
        EXPECT_EQ(graphs.steps[i].auxiliary_loss, eager.steps[i].auxiliary_loss) << i;
    }
}

TEST_F(GpuRun, GivesTheBitsOfAnEagerRunWithCapturedLayersAndIterations) {
    for (const Case& layout :
         {Case{.name = "one"}, Case{.name = "pp2", .pp = 2}, Case{.name = "tp2", .tp = 2, .sequence_parallel = true}}) {
        for (const EnumSet<CudaGraphScope> scopes :
             {EnumSet<CudaGraphScope>{CudaGraphScope::layer}, EnumSet<CudaGraphScope>{CudaGraphScope::attn},
              EnumSet<CudaGraphScope>{CudaGraphScope::full_iteration}}) {
            runtime::TrainingRunOptions run = run_of(small_llama(kScale), layout, Precision::bf16);
            run.task.model.hidden_dropout = 0.1;
            expect_bits_of_an_eager_run(run, scopes, layout.name);
        }
    }
}

TEST_F(GpuRun, GivesTheBitsOfAnEagerRunWithMixturesCapturedUpToTheirExperts) {
    using enum CudaGraphScope;
    for (const Case& layout : {Case{.name = "one"}, Case{.name = "pp2_ep2", .pp = 2, .dp = 2, .ep = 2}}) {
        for (const EnumSet<CudaGraphScope> scopes :
             {EnumSet<CudaGraphScope>{attn, moe_router}, EnumSet<CudaGraphScope>{attn, moe_router, moe_preprocess}})
            expect_bits_of_an_eager_run(run_of(small_mixture(RouterScore::softmax), layout, Precision::bf16), scopes, layout.name);
        for (const EnumSet<CudaGraphScope> scopes : {EnumSet<CudaGraphScope>{layer}, EnumSet<CudaGraphScope>{full_iteration}})
            expect_bits_of_an_eager_run(run_of(small_mixture(RouterScore::sigmoid, 1.25, true), layout, Precision::bf16), scopes,
                                        layout.name + " padded");
    }
}

/// Small layers leave a GPU waiting for the host: what a launch costs is most of a step. No claim is made of how much.
TEST_F(GpuRun, TellsHowLongStepsOfSmallLayersTakeWithAndWithoutGraphs) {
    runtime::TrainingRunOptions run = run_of(small_llama(kScale), {.name = ""}, Precision::bf16);
    run.devices = runtime::cuda_devices(false);
    run.memory = runtime::MemoryMode::arena;
    run.steps = 30;
    using Scopes = EnumSet<CudaGraphScope>;
    for (const auto& [name, scopes] : {std::pair{"eager", Scopes{}}, std::pair{"layer", Scopes{CudaGraphScope::layer}},
                                       std::pair{"full_iteration", Scopes{CudaGraphScope::full_iteration}}}) {
        run.task.layout.cuda_graphs = scopes;
        const runtime::RunValues values = runtime::run_in_process(run);
        std::vector<double> seconds;
        for (std::size_t i = values.steps.size() / 2; i < values.steps.size(); ++i) seconds.push_back(values.steps[i].seconds);
        std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
        std::printf("small layers, %s: %.6f s a step (median of the last %zu)\n", name, seconds[seconds.size() / 2], seconds.size());
        RecordProperty(std::string("seconds_") + name, std::to_string(seconds[seconds.size() / 2]));
        EXPECT_TRUE(values.as_predicted);
    }
}

}  // namespace
}  // namespace mgplan::tests::run_test
