#include "simulator/muon.hpp"

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/price/layout_paths.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::muon_test {
namespace {

/// Seconds of five Newton-Schulz steps at the peak: 4 s^2 l + 2 s^3 FLOPs each.
double steps(double s, double l, double peak) {
    return 5 * (4 * s * s * l + 2 * s * s * s) / peak;
}

TEST(Muon, TakesTheProductsOfItsSteps) {
    const Workload workload = workload_of(formats::load_model("llama3-8b").model, 1, 1);
    const Calibration calibration = ideal_calibration();
    const KernelTimes kernels(workload.cluster, calibration, Precision::bf16);
    const double peak = workload.cluster.peak(Precision::bf16);
    ParallelSizes sizes;
    const MuonSeconds seconds = muon_seconds(workload.model, 0, sizes, kernels);
    // Queries, keys and values apart; the projection behind attention; gate and value together; the second matrix of the MLP.
    const double expected = steps(4096, 4096, peak) + 2 * steps(1024, 4096, peak) + steps(4096, 4096, peak) + steps(4096, 28672, peak) +
                            steps(4096, 14336, peak);
    EXPECT_NEAR(seconds.dense, expected, 0.02 * expected);
    EXPECT_EQ(seconds.expert, 0);
}

TEST(Muon, OrthogonalisesEachExpertForItself) {
    const Workload workload = workload_of(formats::load_model("mixtral-8x7b").model, 1, 1);
    const Calibration calibration = ideal_calibration();
    const KernelTimes kernels(workload.cluster, calibration, Precision::bf16);
    ParallelSizes sizes;
    const double all = muon_seconds(workload.model, 0, sizes, kernels).expert;
    sizes.world = sizes.ep = 4;
    const double quarter = muon_seconds(workload.model, 0, sizes, kernels).expert;
    EXPECT_GT(all, 0);
    EXPECT_NEAR(quarter, all / 4, 1e-9 * all);
}

/// Without the layout of whole matrices every rank needs all gradients (Megatron-core layer_wise_optimizer.py).
TEST(Muon, AllReducesGradientsUnlessShardsHoldWholeMatrices) {
    Workload workload = workload_of(formats::load_model("llama3-8b").model, 8, 8);
    workload.training.overlap_grad_reduce = false;
    workload.training.megatron.optimizer = OptimizerKind::muon;
    LayoutRequest request;
    request.engine = Engine::megatron;
    const auto seconds = [&](bool laid_out) {
        workload.training.megatron.layer_wise_layout = laid_out;
        CostModel model(workload);
        return model.estimate(planner::make_layout(request, workload)).time.iteration_seconds;
    };
    const double scattered = seconds(true);
    EXPECT_GT(seconds(false), scattered);
    workload.training.megatron.optimizer = OptimizerKind::adam;
    workload.training.distributed_optimizer = true;
    EXPECT_EQ(seconds(false), seconds(true)) << "a switch of layer-wise optimizers alone";
}

/// Read off the record of engine mgplan: the products of the same steps, and what passes over the matrices in between.
TEST(Muon, OfTheOwnEngineTakesItsRecordedOps) {
    const Workload workload = workload_of(formats::load_model("llama3-8b").model, 1, 1);
    const Calibration calibration = ideal_calibration();
    const KernelTimes kernels(workload.cluster, calibration, Precision::bf16);
    const OpRates rates{&kernels, &kernels, &calibration};
    ParallelSizes sizes;
    const double products = muon_seconds(workload.model, 0, sizes, kernels).dense;
    const double whole = own_muon_seconds(workload.model, 0, sizes, workload.training, rates, {}).dense;
    EXPECT_GT(whole, 0.98 * products);
    EXPECT_LT(whole, 1.5 * products);
    // Two ranks share the products with what is divided; the Gram matrices' own products each rank makes for itself.
    sizes.world = sizes.tp = 2;
    const LayoutPaths paths = paths_of(sizes, workload.cluster, calibration);
    const double shared = own_muon_seconds(workload.model, 0, sizes, workload.training, rates, paths).dense;
    EXPECT_GT(shared, whole / 2);
    EXPECT_LT(shared, 1.5 * whole);
}

}  // namespace
}  // namespace mgplan::simulator::muon_test
