// One rank of a plan without the others: what it holds and sends is what it would among them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::runtime::run_alone_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainingRunOptions run_of(const ModelSpec& model, const tests::Case& layout) {
    TrainingRunOptions run;
    run.task = tests::task_for(model, layout, Precision::bf16);
    run.steps = 2;
    run.learning_rate.maximum = 1e-2;
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 61), 16, 8, 1);
    return run;
}

void expect_as_predicted(const TrainingRunOptions& run, int rank) {
    const RunValues alone = run_alone(run, rank);
    ASSERT_EQ(alone.ranks.size(), 1U);
    EXPECT_EQ(alone.ranks[0].rank, rank);
    EXPECT_TRUE(alone.as_predicted) << "rank " << rank;
    EXPECT_GT(alone.ranks[0].measured.memory.peak_bytes, 0);
    EXPECT_TRUE(alone.emulated_partners);
    EXPECT_EQ(alone.problem, "");
    ASSERT_EQ(alone.steps.size(), 2U);
}

class DenseRankAlone : public ::testing::TestWithParam<tests::Case> {};

TEST_P(DenseRankAlone, HoldsAndSendsWhatItDoesAmongTheOthers) {
    for (const MemoryMode mode : {MemoryMode::pool, MemoryMode::arena}) {
        TrainingRunOptions run = run_of(tests::small_llama(), GetParam());
        run.memory = mode;
        const RunValues together = run_in_process(run);
        for (const auto& rank : together.ranks) {
            const RunValues alone = run_alone(run, rank.rank);
            EXPECT_TRUE(alone.as_predicted) << "rank " << rank.rank;
            EXPECT_EQ(alone.ranks[0].measured, rank.measured) << "rank " << rank.rank;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DenseRankAlone,
                         ::testing::Values(tests::Case{.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
                                           tests::Case{.name = "cp2_ring", .cp = 2}, tests::Case{.name = "pp4", .pp = 4},
                                           tests::Case{.name = "dp2_whole_optimizer", .dp = 2, .distributed_optimizer = false}),
                         [](const auto& test) { return test.param.name; });

TEST(RankAlone, OfAMixtureHoldsAndSendsAsPredicted) {
    ModelSpec model = tests::small_llama();
    model.moe.emplace();
    model.moe->experts = 8;
    model.moe->top_k = 2;
    model.moe->expert_ffn = 24;
    model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
    for (const auto& layout : {tests::Case{.name = "ep4", .dp = 4, .ep = 4}, tests::Case{.name = "ep2_etp2", .dp = 4, .ep = 2, .etp = 2},
                               tests::Case{.name = "ep2_pp2_tp2", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}}) {
        SCOPED_TRACE(layout.name);
        const TrainingRunOptions run = run_of(model, layout);
        for (const int rank : {0, static_cast<int>(run.task.layout.sizes.world) - 1}) expect_as_predicted(run, rank);
    }
}

TEST(RankAlone, OfManyMoreRanksThanThreadsWouldDo) {
    TrainingRunOptions run = run_of(tests::small_gpt(), tests::Case{.name = "", .tp = 4, .pp = 4, .dp = 8});
    run.task.batch.global_batch = 64;
    run.task.layout.sizes.world = std::int64_t{4} * 4 * 64;
    run.task.layout.num_microbatches = 1;
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 61), 16, 64, 1);
    for (const int rank : {0, 600, 1023}) expect_as_predicted(run, rank);
}

TEST(RankAlone, ThatNeedsMoreThanThereIsIsRefusedWithWhatIsMissing) {
    TrainingRunOptions run = run_of(tests::small_llama(), {.name = "tp2", .tp = 2});
    run.task.model.hidden = 4'000'000;
    try {
        static_cast<void>(run_alone(run, 1));
        FAIL() << "no machine holds that";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 needs "), HasSubstr(" are missing; plan a smaller model or batch")));
    }
}

}  // namespace
}  // namespace mgplan::runtime::run_alone_test
