// Predictions of a rank on shapes: what a step with fewer microbatches tells of one with many.
#include <gtest/gtest.h>

#include "runtime/cpu/cpu_device.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::runtime::rank_prediction_test {
namespace {

const model::KernelTraits kCpu = CpuDevice::kernel_traits();

struct Case {
    int pp, vpp;
    std::int64_t group, microbatches;
    Recompute recompute = Recompute::none;
    bool experts = false;
};

model::TrainingTask task_of(const Case& which) {
    model::TrainingTask task;
    ModelSpec& model = task.model;
    model = tests::byte_llama(8);
    if (which.experts) tests::add_experts(model);
    Layout& layout = task.layout;
    layout.sizes = {2 * which.pp, 1, 1, which.experts ? 2 : 1, 1, which.pp, AxisOrder{}, 1};
    layout.vpp = which.vpp;
    layout.group_size = which.group;
    layout.num_microbatches = which.microbatches;
    layout.recompute = which.recompute;
    layout.recompute_num_layers = which.recompute == Recompute::full ? 1 : 0;
    task.batch = {2 * which.microbatches, 16};
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, which.pp, which.vpp).value());
    return task;
}

TEST(RankPrediction, FewMicrobatchesNeedAsMuchMemoryAsMany) {
    for (const Case& which : {Case{1, 1, 1, 30}, Case{2, 1, 2, 33}, Case{4, 1, 4, 40}, Case{2, 2, 2, 34}, Case{4, 2, 5, 64},
                              Case{2, 2, 5, 57}, Case{2, 4, 3, 65, Recompute::full}, Case{2, 2, 2, 42, Recompute::none, true}}) {
        SCOPED_TRACE(testing::Message() << "pp " << which.pp << " vpp " << which.vpp << " group " << which.group);
        const model::TrainingTask many = task_of(which);
        const model::TrainingTask few = with_few_microbatches(many);
        ASSERT_LT(few.layout.num_microbatches, which.microbatches);
        for (int rank = 0; rank < static_cast<int>(many.layout.sizes.world); ++rank)
            EXPECT_EQ(bytes_needed(few, rank, kCpu), bytes_needed(many, rank, kCpu)) << rank;
    }
}

TEST(RankPrediction, FewMicrobatchesStayAsTheyAre) {
    EXPECT_EQ(with_few_microbatches(task_of({4, 1, 4, 4})).layout.num_microbatches, 4);
}

}  // namespace
}  // namespace mgplan::runtime::rank_prediction_test
