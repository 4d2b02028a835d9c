#include <vector>

#include <gtest/gtest.h>

#include "simulator/layers/attention.hpp"
#include "simulator/layers/ends.hpp"
#include "simulator/layers/mlp.hpp"
#include "tests/simulator/one_layer.hpp"

namespace mgplan::simulator::tensor_parallel_cost_test {
namespace {

/// One of two tensor parallel ranks whose links are slow enough to be seen and fast enough to hide behind a product.
class TensorParallelCost : public OneLayer {
protected:
    TensorParallelCost() : OneLayer(2) {
        calibration.overlap_cost = 0;
        paths.tp = {.ranks = 2, .ranks_per_domain = 2, .inside = 1e12};
        shard.tp = 2;
    }

    /// Exposed tp seconds in the backward of each piece whose input gradient is summed over tp: attention, MLP and head.
    [[nodiscard]] std::vector<double> exposed() const {
        std::vector<double> seconds;
        for (const PieceCost& cost : {attention_cost(shard, 0), dense_mlp_cost(shard), head_cost(shard)})
            seconds.push_back(cost.exposed_backward.tp);
        return seconds;
    }
};

TEST_F(TensorParallelCost, TheInputGradientIsReducedBesideTheWeightGradient) {
    EXPECT_GT(tp_reduce_seconds(shard, workload.model.hidden), 0);
    for (const double seconds : exposed()) EXPECT_DOUBLE_EQ(seconds, 0);
}

TEST_F(TensorParallelCost, BehindTheWeightGradientAllOfTheReductionShows) {
    workload.training.megatron.async_tp_reduce = false;
    const double reduction = tp_reduce_seconds(shard, workload.model.hidden);
    for (const double seconds : exposed()) EXPECT_DOUBLE_EQ(seconds, reduction);
}

TEST_F(TensorParallelCost, TheSwitchIsMegatronsAndOfAllReducesAlone) {
    const std::vector<double> own = [&] {
        shard.engine = Engine::mgplan;
        return exposed();
    }();
    workload.training.megatron.async_tp_reduce = false;
    EXPECT_EQ(exposed(), own);
    shard.engine = Engine::megatron;
    shard.sequence_parallel = true;
    const std::vector<double> synchronous = exposed();
    workload.training.megatron.async_tp_reduce = true;
    EXPECT_EQ(exposed(), synchronous) << "a reduce-scatter is always asynchronous";
}

}  // namespace
}  // namespace mgplan::simulator::tensor_parallel_cost_test
