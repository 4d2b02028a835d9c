// Layouts whose ranks are processes: losses and gradient norms of one rank, bytes and traffic as predicted. What threads
// show for every layout (parity_test.cpp) is shown here for a few of each kind of group.

#include <gtest/gtest.h>

#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/mpi_main.hpp"

namespace mgplan::model {
namespace {

void expect_one_ranks_steps(const ModelSpec& model, const Case& c) {
    const TrainingTask task = task_for(model, c, Precision::fp64);
    runtime::MpiWorld& world = tests::the_world();
    ASSERT_EQ(world.size(), task.layout.sizes.world);
    world.run([&] {
        const auto& expected = one_rank(model, c.micro_batch).steps;
        world.traffic().clear();
        RoutingLog routing;
        std::vector<StepReport> steps;
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

}  // namespace
}  // namespace mgplan::model
