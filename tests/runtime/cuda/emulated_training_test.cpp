// Whole training runs with the GPU's kernels on the host: losses, bytes and traffic.

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "plan/text/errors.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/sanitizers.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "tests/gpu/kinds.hpp"
#include "tests/gpu/small_run.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"
#include "tests/runtime/cuda/emulated_devices.hpp"
#include "tests/runtime/cuda/one_way_plans.hpp"

namespace mgplan::tests::emulated_training_test {
namespace {

using runtime::CpuDevice;
using runtime::cuda::emulated_traits;
using runtime::cuda::EmulatedDevice;
using runtime::cuda::EmulatedDevices;
using runtime::cuda::OneWayPlans;

Outcome on_cpu(const model::TrainingTask& task) {
    return train_ranks(task, kSteps, [](int) { return std::make_unique<CpuDevice>(); });
}

Outcome on_emulated_gpus(const model::TrainingTask& task, bool fused) {
    return train_ranks(task, kSteps, [fused](int) { return std::make_unique<EmulatedDevice>(emulated_traits(fused)); });
}

class EmulatedTraining : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(EmulatedTraining, AgreesWithTheCpuAndTakesThePredictedBytes) {
    const auto& [llama, c] = GetParam();
    const auto task = task_for(llama ? small_llama(kScale) : small_gpt(kScale), c, Precision::fp64, kPlaces);
    const Outcome actual = on_emulated_gpus(task, true);
    expect_losses_near(actual, on_cpu(task), 1e-11);
    expect_as_predicted(task, emulated_traits(true), actual);
}

/// Under a sanitizer only those with the most different code: the whole list would take minutes.
std::vector<Case> cases_in_time() {
#ifdef MGPLAN_ADDRESS_SANITIZER
    return {{.name = "full_recompute", .recompute = Recompute::full},
            {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
            {.name = "tp2_pp2", .tp = 2, .pp = 2, .sequence_parallel = true}};
#else
    return cases();
#endif
}

INSTANTIATE_TEST_SUITE_P(Layouts, EmulatedTraining, testing::Combine(testing::Bool(), testing::ValuesIn(cases_in_time())),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param) ? "Llama_" : "Gpt_") + std::get<1>(test.param).name;
                         });

struct Mixture {
    std::string name;
    ModelSpec model;
    Case layout;
};

class EmulatedMixture : public testing::TestWithParam<Mixture> {};

TEST_P(EmulatedMixture, AgreesWithTheCpuAndTakesThePredictedBytes) {
    const auto task = task_for(GetParam().model, GetParam().layout, Precision::fp64, kPlaces);
    const Outcome actual = on_emulated_gpus(task, true);
    EXPECT_GT(actual.steps.front().auxiliary_loss, 1) << "nothing is quite balanced";
    expect_losses_near(actual, on_cpu(task), 1e-11);
    expect_as_predicted(task, emulated_traits(true), actual);
}

ModelSpec biased_mixture() {
    ModelSpec model = small_mixture(RouterScore::sigmoid);
    model.moe->expert_bias = true;
    model.moe->expert_bias_update_rate = 0.05;  // choices change with it
    return model;
}

constexpr auto kSoftmax = RouterScore::softmax, kSigmoid = RouterScore::sigmoid;
INSTANTIATE_TEST_SUITE_P(Layouts, EmulatedMixture,
                         testing::Values(Mixture{"dropless_ep2", small_mixture(kSoftmax), {.name = "", .dp = 2, .ep = 2}},
                                         Mixture{"sigmoid_ep2_etp2", small_mixture(kSigmoid), {.name = "", .dp = 4, .ep = 2, .etp = 2}},
                                         Mixture{"biased_ep2", biased_mixture(), {.name = "", .dp = 2, .ep = 2}},
                                         Mixture{"capacity_ep2", small_mixture(kSoftmax, 1), {.name = "", .dp = 2, .ep = 2}},
                                         Mixture{"padded_ep2_tp2",
                                                 small_mixture(kSigmoid, 1.25, true),
                                                 {.name = "", .tp = 2, .ep = 2, .sequence_parallel = true}}),
                         [](const auto& test) { return test.param.name; });

class EmulatedKind : public testing::TestWithParam<Kind> {};

TEST_P(EmulatedKind, AgreesWithTheCpuAndTakesThePredictedBytes) {
    const auto task = task_for(GetParam(), Precision::fp64);
    const Outcome actual = on_emulated_gpus(task, true);
    expect_losses_near(actual, on_cpu(task), 1e-11);
    expect_as_predicted(task, emulated_traits(true), actual);
}

INSTANTIATE_TEST_SUITE_P(OfEverything, EmulatedKind, testing::ValuesIn(kinds()), [](const auto& test) { return test.param.name; });

TEST(EmulatedTrainingInBf16, UsesFusedAttentionWhereItIsPredicted) {
    for (const bool fused : {false, true}) {
        const auto task = task_for(small_llama(kScale), {.name = "tp2", .tp = 2}, Precision::bf16, kPlaces);
        const Outcome actual = on_emulated_gpus(task, fused);
        expect_losses_near(actual, on_cpu(task), 5e-3);
        expect_as_predicted(task, emulated_traits(fused), actual);
    }
}

TEST(EmulatedTrainingInFp8, AgreesWithTheCpuAndTakesThePredictedBytes) {
    auto task = task_for(small_llama(kScale), {.name = "tp2_sp", .tp = 2, .sequence_parallel = true}, Precision::fp8, kPlaces);
    task.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    const Outcome actual = on_emulated_gpus(task, true);
    expect_losses_near(actual, on_cpu(task), 5e-3);
    expect_as_predicted(task, emulated_traits(true), actual);
}

TEST(EmulatedTrainingInFp8, OfMixturesAgreesWithTheCpuAndTakesThePredictedBytes) {
    auto task = task_for(wide_mixture(), {.name = "ep2_etp2", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
                         Precision::fp8, kPlaces);
    for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
        task.training.megatron.fp8_recipe = recipe;
        const Outcome actual = on_emulated_gpus(task, true);
        expect_losses_near(actual, on_cpu(task), 5e-3);
        expect_as_predicted(task, emulated_traits(true), actual);
    }
}

TEST(EmulatedTrainingInFp8, WithDelayedScalingAgreesWithTheCpuAndTakesThePredictedBytes) {
    auto task = task_for(small_llama(kScale), {.name = "tp2_sp", .tp = 2, .dp = 2, .sequence_parallel = true}, Precision::fp8, kPlaces);
    task.training.megatron.fp8_recipe = Fp8Recipe::delayed;
    const Outcome actual = on_emulated_gpus(task, true);
    expect_losses_near(actual, on_cpu(task), 5e-3);
    expect_as_predicted(task, emulated_traits(true), actual);
}

TEST(EmulatedTrainingInFp8, OfStoredParametersAgreesWithTheCpuAndTakesThePredictedBytes) {
    auto task = task_for(small_llama(kScale), {.name = "tp2_sp_dp2", .tp = 2, .dp = 2, .sequence_parallel = true}, Precision::fp8, kPlaces);
    task.training.fp8_parameters = true;
    for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
        task.training.megatron.fp8_recipe = recipe;
        const Outcome actual = on_emulated_gpus(task, true);
        expect_losses_near(actual, on_cpu(task), 5e-3);
        expect_as_predicted(task, emulated_traits(true), actual);
    }
}

TEST(EmulatedTrainingInFp8, NeedsAGpuWithFp8) {
    auto task = task_for(small_llama(kScale), {.name = "one"}, Precision::fp8, kPlaces);
    task.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    model::KernelTraits traits = emulated_traits(true);
    traits.architecture = 80;
    EmulatedDevice device(traits);
    runtime::InProcessWorld world(1);
    try {
        const model::RankTrainer trainer(task, device, world.view(0));
        FAIL() << "an A100 has no fp8";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("precision = fp8-current of the plan needs a GPU of compute capability 8.9 (Ada) or "
                                                     "later, and this one has 8.0; make a plan with --precision bf16"));
    }
}

TEST(EmulatedTrainingInBf16, TakesThePredictedBytesForMixturesToo) {
    const auto task = task_for(small_mixture(RouterScore::softmax), {.name = "", .dp = 2, .ep = 2}, Precision::bf16, kPlaces);
    expect_as_predicted(task, emulated_traits(true), on_emulated_gpus(task, true));
}

TEST(RunOnEmulatedGpus, IsAsPredictedByTheirTraitsAndTrainsAsTheCpu) {
    for (const auto& [model, layout] : {std::pair{small_llama(kScale), Case{.name = "", .tp = 2, .pp = 2, .sequence_parallel = true}},
                                        std::pair{small_mixture(RouterScore::sigmoid, 1.25), Case{.name = "", .dp = 2, .ep = 2}}}) {
        runtime::TrainingRunOptions run = run_of(model, layout, Precision::bf16);
        const runtime::RunValues on_the_cpu = runtime::run_in_process(run);
        run.devices = std::make_shared<EmulatedDevices>(std::int64_t{1} << 40);
        const runtime::RunValues values = runtime::run_in_process(run);
        EXPECT_EQ(on_the_cpu.device, "CPU");
        EXPECT_EQ(values.device, "an emulated GPU");
        EXPECT_TRUE(values.as_predicted) << model.name;
        ASSERT_EQ(values.steps.size(), on_the_cpu.steps.size());
        // The tolerance of bf16 for these models on a card, tests/gpu/training_test.cpp.
        for (std::size_t i = 0; i < values.steps.size(); ++i) EXPECT_NEAR(values.steps[i].loss / on_the_cpu.steps[i].loss, 1, 3e-3) << i;
        for (std::size_t rank = 0; rank < values.ranks.size(); ++rank) {
            EXPECT_NE(values.ranks[rank].predicted.memory, on_the_cpu.ranks[rank].predicted.memory) << "other kernels, other scratch";
            EXPECT_TRUE(values.ranks[rank].ops.empty()) << "begun is not done";
        }
    }
}

TEST(RunOnEmulatedGpus, PlansForAttentionThatTheLibraryRefuses) {
    runtime::TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .dp = 2}, Precision::bf16);
    run.devices = std::make_shared<EmulatedDevices>(std::int64_t{1} << 40);
    const runtime::RunValues fused = runtime::run_in_process(run);
    for (const bool backward : {false, true}) {
        run.devices = std::make_shared<EmulatedDevices>(std::int64_t{1} << 40, std::make_shared<OneWayPlans>(backward));
        const runtime::RunValues values = runtime::run_in_process(run);
        EXPECT_TRUE(values.as_predicted) << backward;
        EXPECT_NE(values.ranks[0].predicted.memory, fused.ranks[0].predicted.memory) << "separate products have other scratch";
        for (std::size_t i = 0; i < values.steps.size(); ++i) EXPECT_NEAR(values.steps[i].loss / fused.steps[i].loss, 1, 3e-3) << i;
    }
}

TEST(RunOnEmulatedGpus, IsRefusedWhereTheRanksDoNotFitTogether) {
    runtime::TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .dp = 2}, Precision::bf16);
    run.devices = std::make_shared<EmulatedDevices>(1 << 20);
    try {
        (void)runtime::run_in_process(run);
        FAIL() << "it ran";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("the 2 ranks of this plan need up to "),
                                                 testing::HasSubstr("more than the 1.0 MiB of memory that the emulated GPU has"),
                                                 testing::HasSubstr("--device cpu")));
    }
}

TEST(RunOnEmulatedGpus, IsRefusedForMoreRanksThanAKernelAddsUp) {
    runtime::TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .dp = 2}, Precision::bf16);
    run.task.layout.sizes.world = 65;
    run.devices = std::make_shared<EmulatedDevices>(std::int64_t{1} << 40);
    try {
        (void)runtime::run_in_process(run);
        FAIL() << "it ran";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("the plan is for 65 ranks, and at most 64 share one GPU"));
    }
}

class PredictionOfARun : public testing::TestWithParam<Mixture> {};

// As a run is measured: from the first allocation on, with the pool's blocks.
TEST_P(PredictionOfARun, IsItsMeasurementByTheTraitsOfItsDeviceAlone) {
    auto task = task_for(GetParam().model, GetParam().layout, Precision::bf16, kPlaces);
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    const auto ranks = static_cast<std::size_t>(task.layout.sizes.world);
    runtime::InProcessWorld world(static_cast<int>(ranks));
    std::vector<runtime::RankUse> measured(ranks);
    std::vector<runtime::RankUse> predicted(ranks), of_the_cpu(ranks);
    runtime::run_ranks(world, [&](int rank) {
        const auto index = static_cast<std::size_t>(rank);
        EmulatedDevice device(emulated_traits(true));
        std::array<model::RoutingLog, 2> routing;
        runtime::RankPrediction prediction(task, rank, emulated_traits(true), &routing[0]);
        runtime::RankPrediction cpu_prediction(task, rank, CpuDevice::kernel_traits(), &routing[1]);
        model::RankTrainer trainer(task, device, world.view(rank), &routing[0]);
        for (int step = 0; step < kSteps; ++step) {
            routing[0] = {};
            const model::StepEnd end = trainer.step(tokens_of, 1e-2).end;
            routing[1] = routing[0];
            prediction.step(end);
            cpu_prediction.step(end);
        }
        measured[index] = runtime::rank_use(device.memory(), device.pool().reserved_bytes(), device.host_peak(), world.traffic(rank));
        predicted[index] = prediction.use();
        of_the_cpu[index] = cpu_prediction.use();
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(measured[rank] == predicted[rank]) << "rank " << rank;
        EXPECT_FALSE(measured[rank] == of_the_cpu[rank]) << "rank " << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PredictionOfARun,
    testing::Values(Mixture{"dense_tp2_pp2", small_llama(kScale), {.name = "", .tp = 2, .pp = 2, .sequence_parallel = true}},
                    Mixture{"mixture_ep2_etp2", small_mixture(kSoftmax), {.name = "", .dp = 4, .ep = 2, .etp = 2}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mgplan::tests::emulated_training_test
