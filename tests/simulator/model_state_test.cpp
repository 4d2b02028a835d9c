#include <gtest/gtest.h>

#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kElements = 1'024'000;  // a multiple of lcm(d, 128) for every d used here

Layout data_parallel(std::int64_t dp, std::int64_t cp = 1) {
    Layout layout;
    layout.sizes.world = dp * cp;
    layout.sizes.cp = cp;
    return layout;
}

std::int64_t bytes(const ParameterCount& count, const Layout& layout, const TrainingSpec& training) {
    const ModelStateBytes state = model_state_bytes(count, layout, training);
    return state.parameters + state.gradients + state.optimizer + state.update;
}

struct Form {
    const char* name;
    Precision precision;
    Dtype gradients;
    std::int64_t whole;          ///< bytes per parameter without the distributed optimizer
    std::int64_t kept, divided;  ///< with it: kept + divided / d
};

class BytesPerParameter : public testing::TestWithParam<Form> {};

TEST_P(BytesPerParameter, FollowThePublishedForm) {
    const Form& form = GetParam();
    TrainingSpec training;
    training.precision = form.precision;
    training.grad_dtype = form.gradients;
    training.distributed_optimizer = false;
    EXPECT_EQ(bytes({.dense = kElements}, data_parallel(8), training), form.whole * kElements);
    training.distributed_optimizer = true;
    for (const std::int64_t d : {1, 2, 8, 40})
        EXPECT_EQ(bytes({.dense = kElements}, data_parallel(d), training), form.kept * kElements + form.divided * kElements / d);
}

// Megatron-LM, docs on the distributed optimizer: table of bytes per parameter.
INSTANTIATE_TEST_SUITE_P(Forms, BytesPerParameter,
                         testing::Values(Form{"bf16_with_fp32_gradients", Precision::bf16, Dtype::fp32, 18, 6, 12},
                                         Form{"bf16_with_bf16_gradients", Precision::bf16, Dtype::bf16, 20, 4, 16},
                                         Form{"fp16_with_fp16_gradients", Precision::fp16, Dtype::fp16, 20, 4, 16},
                                         Form{"fp8_computing_over_bf16", Precision::fp8, Dtype::fp32, 18, 6, 12},
                                         Form{"fp32", Precision::fp32, Dtype::fp32, 16, 8, 8}),
                         [](const auto& instance) { return instance.param.name; });

TEST(ModelState, IsDividedOverContextParallelRanksToo) {
    EXPECT_EQ(model_state_bytes({.dense = kElements}, data_parallel(4, 2), {}).optimizer, 12 * kElements / 8);
}

TEST(ModelState, OfExpertsIsDividedOverTheirOwnRanks) {
    Layout layout = data_parallel(8);
    layout.sizes.ep = 4;  // edp = 2
    EXPECT_EQ(model_state_bytes({.dense = 0, .expert = kElements}, layout, {}).optimizer, 12 * kElements / 2);
}

TEST(ModelState, OfSeveralOptimizerInstancesIsDividedOnlyInsideEach) {
    TrainingSpec training;
    training.distributed_optimizer_instances = 2;
    EXPECT_EQ(model_state_bytes({.dense = kElements}, data_parallel(8), training).optimizer, 12 * kElements / 4);
}

TEST(ModelState, IsPaddedToWholeShardsOf128) {
    const ModelStateBytes state = model_state_bytes({.dense = 1}, data_parallel(3), {});
    EXPECT_EQ(state.parameters, 2 * 384);  // lcm(3, 128)
    EXPECT_EQ(state.gradients, 4 * 384);
    EXPECT_EQ(state.optimizer, 12 * 128);
}

TEST(ModelState, OfNothingIsNothing) {
    EXPECT_EQ(bytes({}, data_parallel(8), {}), 0);
}

}  // namespace
}  // namespace mgplan::simulator
