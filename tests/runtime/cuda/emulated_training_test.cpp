// Whole training runs with the GPU's kernels on the host: losses, bytes and traffic.

#include "runtime/cpu/cpu_device.hpp"
#include "tests/gpu/small_models.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::tests {
namespace {

using runtime::CpuDevice;
using runtime::cuda::emulated_traits;
using runtime::cuda::EmulatedDevice;

Outcome on_cpu(const model::TrainingTask& task) {
    return train(
        task, [](int) { return std::make_unique<CpuDevice>(); }, [](CpuDevice& device) { device.pool().restart_high_water(); },
        [](CpuDevice& device) { return device.memory(); });
}

Outcome on_emulated_gpus(const model::TrainingTask& task, bool fused) {
    return train(
        task, [fused](int) { return std::make_unique<EmulatedDevice>(emulated_traits(fused)); },
        [](EmulatedDevice& device) { device.pool().restart_high_water(); }, [](EmulatedDevice& device) { return device.memory(); });
}

class EmulatedTraining : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(EmulatedTraining, AgreesWithTheCpuAndTakesThePredictedBytes) {
    const auto& [llama, c] = GetParam();
    const auto task = task_for(llama ? small_llama() : small_gpt(), c, Precision::fp64);
    const Outcome actual = on_emulated_gpus(task, true);
    expect_losses_near(actual, on_cpu(task), 1e-11);
    expect_as_predicted(task, emulated_traits(true), actual);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EmulatedTraining, testing::Combine(testing::Bool(), testing::ValuesIn(cases())), [](const auto& test) {
    return std::string(std::get<0>(test.param) ? "Llama_" : "Gpt_") + std::get<1>(test.param).name;
});

TEST(EmulatedTrainingInBf16, UsesFusedAttentionWhereItIsPredicted) {
    for (const bool fused : {false, true}) {
        const auto task = task_for(small_llama(), {.name = "tp2", .tp = 2}, Precision::bf16);
        const Outcome actual = on_emulated_gpus(task, fused);
        expect_losses_near(actual, on_cpu(task), 5e-3);
        expect_as_predicted(task, emulated_traits(fused), actual);
    }
}

}  // namespace
}  // namespace mgplan::tests
