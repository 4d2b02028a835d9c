// Changes of the numbers that a plan computes, with what they save.

#include "planner/numeric_changes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::numeric_changes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

Layout layout_of(const Workload& work) {
    LayoutRequest request;
    request.tp = 2;
    request.sequence_parallel = true;
    request.engine = Engine::megatron;
    return make_layout(request, work);
}

TEST(NumericChanges, SayWhatEachSavesAlone) {
    Workload work = workload_of("llama3-8b", 16);
    const Layout layout = layout_of(work);
    const simulator::Prediction usual = simulator::CostModel(work).predict_exactly(layout);
    const auto changes = numeric_changes(work, layout, usual);
    ASSERT_THAT(changes, ElementsAre(Field(&JobChange::option, "--precision fp8-current"), Field(&JobChange::option, "--grad-dtype bf16")));
    EXPECT_LT(changes[0].seconds, 0.97 * usual.time.iteration_seconds);
    EXPECT_LT(changes[1].bytes, usual.memory.deciding_bytes());
    work.training.grad_dtype = Dtype::bf16;
    const simulator::Prediction narrow = simulator::CostModel(work).predict_exactly(layout);
    EXPECT_EQ(changes[1].seconds, narrow.time.iteration_seconds);
    EXPECT_EQ(changes[1].bytes, narrow.memory.deciding_bytes());
    EXPECT_THAT(numeric_changes(work, layout, narrow), ElementsAre(Field(&JobChange::option, "--precision fp8-current")));
}

TEST(NumericChanges, LeaveOutWhatTheGpuLacksOrWhatDoesNotFit) {
    Workload work = workload_of("llama3-8b", 16, "dgx-a100-80g");
    const Layout layout = layout_of(work);
    const simulator::Prediction usual = simulator::CostModel(work).predict_exactly(layout);
    ASSERT_THAT(numeric_changes(work, layout, usual), ElementsAre(Field(&JobChange::option, "--grad-dtype bf16")));
    work.memory_limit = std::int64_t{1} << 30;
    EXPECT_THAT(numeric_changes(work, layout, usual), ::testing::IsEmpty());
}

}  // namespace
}  // namespace mgplan::planner::testing::numeric_changes_test
