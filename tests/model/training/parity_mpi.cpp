// Layouts whose ranks are processes: losses and gradient norms of one rank, bytes and traffic as predicted. What threads
// show for every layout (parity_test.cpp) is shown here for a few of each kind of group.

#include <gtest/gtest.h>

#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/mpi_main.hpp"

namespace mgplan::model {
namespace {

/// This process's steps, held against one rank's and against the prediction.
std::vector<StepReport> expect_one_ranks_steps(const ModelSpec& model, const Case& c) {
    const TrainingTask task = task_for(model, c, Precision::fp64);
    runtime::MpiWorld& world = tests::the_world();
    std::vector<StepReport> steps;
    EXPECT_EQ(world.size(), task.layout.sizes.world) << c.name;
    if (world.size() != task.layout.sizes.world) return steps;
    world.run([&] {
        const auto& expected = one_rank(model, c.micro_batch).steps;
        world.traffic().clear();
        RoutingLog routing;
        MemoryUse memory;
        {
            runtime::CpuDevice device;
            RankTrainer trainer(task, device, world.view(), &routing);
            device.restart_high_water();
            for (int step = 0; step < kSteps; ++step) steps.push_back(trainer.step(tokens_of, 1e-2));
            memory = device.memory();
        }
        expect_equal_steps(steps, expected, 1e-10);
        expect_prediction_equals(task, world.rank(), routing, memory, world.traffic());
    });
    return steps;
}

/// A schedule with divided backwards, held against the undivided one of the same layout too.
void expect_steps_of_1f1b(Case c) {
    const auto divided = expect_one_ranks_steps(tests::small_llama(), c);
    c.name += "_undivided";
    c.schedule.reset();
    c.vpp = 1;
    expect_equal_steps(divided, expect_one_ranks_steps(tests::small_llama(), c), 1e-10);
}

TEST(ParityOverMpi, ExpertsOverEpAndEtp) {
    expect_one_ranks_steps(small_mixture(), {.name = "dp4_ep2_etp2", .dp = 4, .ep = 2, .etp = 2});
    expect_one_ranks_steps(small_sigmoid_mixture(), {.name = "dp4_ep4_plain", .dp = 4, .ep = 4, .distributed_optimizer = false});
}

TEST(ParityOverMpi, ExpertsBesideTensorAndSequenceParallelism) {
    expect_one_ranks_steps(small_mixture(), {.name = "tp2_dp2_ep2_etp2_moe",
                                             .tp = 2,
                                             .dp = 2,
                                             .ep = 2,
                                             .etp = 2,
                                             .sequence_parallel = true,
                                             .recompute = Recompute::selective,
                                             .modules = {RecomputeModule::moe, RecomputeModule::layernorm}});
}

TEST(ParityOverMpi, ContextParallelRanks) {
    for (const auto kind : {CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a})
        expect_one_ranks_steps(small_mixture(), {.name = "cp2_dp2_ep2", .cp = 2, .dp = 2, .ep = 2, .cp_comm_type = kind});
}

TEST(ParityOverMpi, FullRecomputeOverStages) {
    expect_one_ranks_steps(small_mixture(), {.name = "cp2_pp2_ep2_full", .cp = 2, .pp = 2, .ep = 2, .recompute = Recompute::full});
    expect_one_ranks_steps(
        small_sigmoid_mixture(),
        {.name = "pp2_vpp2_dp2_etp2_full", .pp = 2, .vpp = 2, .dp = 2, .etp = 2, .recompute = Recompute::full, .order = "dp-cp-tp-ep-pp"});
}

TEST(ParityOverMpi, SchedulesWithDividedBackwards) {
    expect_steps_of_1f1b({.name = "zb_h1_pp4", .pp = 4, .schedule = SplitSchedule::zb_h1});
    expect_steps_of_1f1b({.name = "zb_h1_tp2_pp2_sp", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = SplitSchedule::zb_h1});
    expect_steps_of_1f1b({.name = "zb_v_pp2_dp2", .pp = 2, .vpp = 2, .dp = 2, .schedule = SplitSchedule::zb_v});
    expect_steps_of_1f1b({.name = "v_min_cp2_pp2", .cp = 2, .pp = 2, .vpp = 2, .schedule = SplitSchedule::v_min});
    expect_steps_of_1f1b({.name = "dualpipe_v_tp2_pp2", .tp = 2, .pp = 2, .vpp = 2, .schedule = SplitSchedule::dualpipe_v});
}

}  // namespace
}  // namespace mgplan::model
