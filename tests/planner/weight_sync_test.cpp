// Seconds of a weight sync: links, and the host that loads one tensor after the other.

#include <gtest/gtest.h>

#include "plan/parameters/model_adapter.hpp"
#include "planner/rl/weight_sync.hpp"
#include "simulator/cluster_parameters.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::weight_sync_test {
namespace {

std::int64_t tensors_of(const std::string& model) {
    return published_tensors(typed_model(workload_of(model, 8, "dgx-h100").model));
}

/// The numbers of tensors in the indices of these checkpoints at Hugging Face.
TEST(WeightSync, CountsTensorsAsTheyArePublished) {
    EXPECT_EQ(tensors_of("llama3-8b"), 291);
    EXPECT_EQ(tensors_of("qwen3-8b"), 399);
    EXPECT_EQ(tensors_of("qwen3-30b-a3b"), 18867);
    EXPECT_EQ(tensors_of("qwen3-235b-a22b"), 36945);
}

struct Sync {
    ClusterSpec cluster = workload_of("llama3-8b", 8, "dgx-h100").cluster;
    simulator::Calibration calibration = simulator::calibration_of(cluster);
    SyncedWeights weights{1e12, 1e11, 64, 64, 1};
    Layout trainer;
    Sync() {
        trainer.sizes.world = 64;
        trainer.sizes.tp = 8;
    }
    [[nodiscard]] double shared() const { return shared_sync_seconds(weights, trainer, cluster, calibration); }
    [[nodiscard]] double separate() const { return separate_sync_seconds(weights, trainer, cluster, calibration); }
};

TEST(WeightSync, LastsAsLongAsTheHostLoadsTensors) {
    Sync sync;
    const double links = sync.shared(), broadcast = sync.separate();
    sync.weights.tensors = 100'000;
    EXPECT_NEAR(sync.shared(), 30, 1e-9);
    EXPECT_NEAR(sync.separate(), 30, 1e-9);
    sync.weights.tensors = 300;
    EXPECT_EQ(sync.shared(), links);
    EXPECT_EQ(sync.separate(), broadcast);
}

/// Between nodes NCCL's ring leaves each of them by the adapters of all its GPUs.
TEST(WeightSync, IsBroadcastOverAllAdaptersOfANode) {
    Sync sync;
    const double all = sync.separate();
    sync.cluster.network.bandwidth /= 4;
    EXPECT_GT(sync.separate(), 2 * all);
    const double one_adapter = sync.weights.model_bytes / (4 * sync.cluster.network.bandwidth * sync.calibration.network_efficiency);
    EXPECT_LT(all, one_adapter / 6);
}

}  // namespace
}  // namespace mgplan::planner::testing::weight_sync_test
