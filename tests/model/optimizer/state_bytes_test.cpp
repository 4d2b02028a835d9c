// Bytes per parameter: the six forms of Megatron-LM's table for its distributed optimizer (docs/api-guide/dist_optimizer.md),
// their fp64 counterpart, and the padding, as a training step on shapes allocates them.

#include <numeric>

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::model::state_bytes_test {
namespace {

struct Form {
    std::string name;
    Precision precision;
    Dtype grad_dtype;
    std::int64_t whole;    ///< bytes per parameter on every rank
    std::int64_t divided;  ///< bytes per parameter and data-parallel rank; without the distributed optimizer all are whole
};

void PrintTo(const Form& form, std::ostream* out) {
    *out << form.name;
}

class StateBytes : public testing::TestWithParam<Form> {};

/// Elements of a buffer of one bucket by the rules of docs/buffers.md, summed up by hand.
std::int64_t padded(const std::vector<Parameter>& parameters, std::int64_t ranks) {
    const auto up = [](std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; };
    std::int64_t position = 0;
    for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter)
        position = up(position, 64) + parameter->count();
    return up(position, std::lcm(ranks, std::int64_t{128}));
}

std::int64_t total_bytes(const TrainingTask& task) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    RankTrainer trainer(task, device, recording_world(0, static_cast<int>(task.layout.sizes.world)));
    (void)trainer.step(small::tokens_of, 1e-3);
    std::int64_t bytes = 0;
    for (const auto category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer})
        bytes += device.memory().high_water[static_cast<std::size_t>(category)];
    return bytes;
}

TEST_P(StateBytes, AreThoseOfTheTablePlusThePadding) {
    const Form& form = GetParam();
    for (const auto& [cp, dp] : {std::pair{1, 1}, std::pair{2, 2}, std::pair{1, 3}, std::pair{1, 8}}) {
        TrainingTask task = small::task(small::llama(), {.cp = cp, .dp = dp});
        task.training.precision = form.precision;
        task.training.grad_dtype = form.grad_dtype;
        const auto parameters = stage_parameters(task.model, task.layout, 0)[0];
        std::int64_t count = 0;
        for (const Parameter& parameter : parameters) count += parameter.count();
        const std::int64_t ranks = std::int64_t{cp} * dp;

        const std::int64_t elements = padded(parameters, ranks);
        EXPECT_EQ(total_bytes(task), elements * form.whole + elements / ranks * form.divided) << ranks << " ranks";
        EXPECT_GT(elements, count);  // the test sees padding

        task.training.distributed_optimizer = false;
        EXPECT_EQ(total_bytes(task), count * (form.whole + form.divided)) << ranks << " ranks, not distributed";
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, StateBytes,
                         testing::Values(Form{"all_16_bit_20_and_4_plus_16_by_d", Precision::bf16, Dtype::bf16, 4, 16},
                                         Form{"fp32_gradients_18_and_6_plus_12_by_d", Precision::bf16, Dtype::fp32, 6, 12},
                                         Form{"all_fp32_16_and_8_plus_8_by_d", Precision::fp32, Dtype::fp32, 8, 8},
                                         Form{"all_fp64_32_and_16_plus_16_by_d", Precision::fp64, Dtype::fp64, 16, 16}),
                         [](const auto& test) { return test.param.name; });

TEST(StateBytes, NarrowMomentsSaveTwoBytesEach) {
    TrainingTask task = small::task(small::llama(), {.dp = 2});
    task.training.precision = Precision::bf16;
    const std::int64_t elements = padded(stage_parameters(task.model, task.layout, 0)[0], 2);
    task.training.exp_avg_dtype = Dtype::bf16;
    EXPECT_EQ(total_bytes(task), elements * 6 + elements / 2 * 10);
    task.training.exp_avg_sq_dtype = Dtype::bf16;
    EXPECT_EQ(total_bytes(task), elements * 6 + elements / 2 * 8);
}

TEST(StateBytes, FourBytesOfThe16BitFormLiveDuringTheUpdateAlone) {
    TrainingTask task = small::task(small::llama(), {.dp = 2});
    task.training.precision = Precision::bf16;
    task.training.grad_dtype = Dtype::bf16;
    MetaDevice device({.keep_allocations = true, .keep_ops = false});
    RankTrainer trainer(task, device, recording_world(0, 2));
    (void)trainer.step(small::tokens_of, 1e-3);
    const auto optimizer = static_cast<std::size_t>(MemoryCategory::optimizer);
    const std::int64_t elements = padded(stage_parameters(task.model, task.layout, 0)[0], 2);
    EXPECT_EQ(device.memory().high_water[optimizer] - device.memory().current[optimizer], elements / 2 * 4);
    int copies = 0;
    for (const AllocationRecord& record : device.allocations()) {
        if (record.name != "main gradients") continue;
        ++copies;
        EXPECT_GE(record.returned, 0);
    }
    EXPECT_EQ(copies, 1);
}

}  // namespace
}  // namespace mgplan::model::state_bytes_test
