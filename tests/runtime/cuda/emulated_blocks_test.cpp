// Training runs in fp8 with a scale for each block, with the GPU's kernels on the host, and the GPUs that have no such products.

#include <memory>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/gpu/small_run.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::tests::emulated_blocks_test {
namespace {

using runtime::cuda::EmulatedDevice;

model::KernelTraits traits_of(int architecture) {
    model::KernelTraits traits = runtime::cuda::emulated_traits(true);
    traits.architecture = architecture;
    return traits;
}

model::TrainingTask task_in(Fp8Recipe recipe, const Case& c) {
    ModelSpec model = small_llama(kScale);
    if (recipe == Fp8Recipe::mxfp8) model.ffn = 128;  // 32 divides a rank's half
    auto task = task_for(model, c, Precision::fp8, kPlaces);
    task.training.megatron.fp8_recipe = recipe;
    return task;
}

class EmulatedBlocks : public testing::TestWithParam<Fp8Recipe> {};

TEST_P(EmulatedBlocks, AgreeWithTheCpuAndTakeThePredictedBytes) {
    const model::KernelTraits traits = traits_of(GetParam() == Fp8Recipe::mxfp8 ? 100 : 90);
    auto task = task_in(GetParam(), {.name = "tp2_sp", .tp = 2, .sequence_parallel = true});
    const Outcome actual = train_ranks(task, kSteps, [&](int) { return std::make_unique<EmulatedDevice>(traits); });
    const Outcome expected = train_ranks(task, kSteps, [](int) { return std::make_unique<runtime::CpuDevice>(); });
    expect_losses_near(actual, expected, 5e-3);
    expect_as_predicted(task, traits, actual);
}

TEST_P(EmulatedBlocks, OfMixturesAgreeWithTheCpuAndTakeThePredictedBytes) {
    const model::KernelTraits traits = traits_of(GetParam() == Fp8Recipe::mxfp8 ? 100 : 90);
    ModelSpec model = wide_mixture();
    model.ffn = 64;
    auto task = task_for(model, {.name = "ep2", .dp = 2, .ep = 2}, Precision::fp8, kPlaces);
    task.training.megatron.fp8_recipe = GetParam();
    const Outcome actual = train_ranks(task, kSteps, [&](int) { return std::make_unique<EmulatedDevice>(traits); });
    const Outcome expected = train_ranks(task, kSteps, [](int) { return std::make_unique<runtime::CpuDevice>(); });
    expect_losses_near(actual, expected, 5e-3);
    expect_as_predicted(task, traits, actual);
}

INSTANTIATE_TEST_SUITE_P(Recipes, EmulatedBlocks, testing::Values(Fp8Recipe::blockwise, Fp8Recipe::mxfp8),
                         [](const auto& recipe) { return recipe.param == Fp8Recipe::mxfp8 ? "mxfp8" : "blockwise"; });

TEST(EmulatedBlocks, NeedAGpuWithTheirProducts) {
    const auto refusal = [](Fp8Recipe recipe, int architecture, bool block_products = true) -> std::string {
        const auto task = task_in(recipe, {.name = "one"});
        model::KernelTraits traits = traits_of(architecture);
        traits.block_products = block_products;
        EmulatedDevice device(traits);
        runtime::InProcessWorld world(1);
        try {
            const model::RankTrainer trainer(task, device, world.view(0));
            return "";
        } catch (const ConfigError& error) {
            return error.what();
        }
    };
    EXPECT_EQ(refusal(Fp8Recipe::blockwise, 90), "");
    EXPECT_EQ(refusal(Fp8Recipe::mxfp8, 103), "");
    EXPECT_THAT(
        refusal(Fp8Recipe::blockwise, 100),
        testing::HasSubstr("precision = fp8-blockwise of the plan needs a GPU of compute capability 9.0 (Hopper), where products have "
                           "scales for blocks of 128, and this one has 10.0; make a plan with --precision fp8-current or bf16"));
    EXPECT_THAT(refusal(Fp8Recipe::blockwise, 89), testing::HasSubstr("this one has 8.9"));
    for (const int other : {90, 120}) {
        EXPECT_THAT(refusal(Fp8Recipe::mxfp8, other),
                    testing::HasSubstr("precision = mxfp8 of the plan needs a GPU of compute capability 10.0 to 11.9 (Blackwell), where "
                                       "products have scales for blocks of 32"));
    }
    EXPECT_EQ(refusal(Fp8Recipe::tensorwise, 90, false), "");
    for (const auto& [recipe, architecture, words] : {std::tuple(Fp8Recipe::blockwise, 90, "precision = fp8-blockwise of the plan needs"),
                                                      std::tuple(Fp8Recipe::mxfp8, 100, "precision = mxfp8 of the plan needs")}) {
        const std::string said = refusal(recipe, architecture, false);
        EXPECT_THAT(said, testing::HasSubstr(words));
        EXPECT_THAT(said,
                    testing::HasSubstr("cuBLASLt of CUDA 12.9 or later, and the CUDA module was built with an older one; build it with "
                                       "a newer CUDA, or make a plan with --precision"));
    }
}

}  // namespace
}  // namespace mgplan::tests::emulated_blocks_test
