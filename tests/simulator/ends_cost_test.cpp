#include "simulator/layers/ends.hpp"

#include <gtest/gtest.h>

#include "tests/simulator/one_layer.hpp"

namespace mgplan::simulator::ends_cost_test {
namespace {

/// A vocabulary of 1,024 rows of 1,024, moved at a byte in a picosecond.
class EndsCost : public OneLayer {
protected:
    static constexpr double kByte = 1e-12;
    static constexpr double kTable = 1024.0 * 1024;
    static constexpr double kLogits = static_cast<double>(kTokens) * 1024;
};

TEST_F(EndsCost, MegatronsEmbeddingHasAGradientOfTheWholeTable) {
    const double whole = embedding_cost(shard).backward;
    shard.engine = Engine::mgplan;
    // Zeroed, and added to gradients of 4 bytes: 2, then 2 and twice 4.
    EXPECT_NEAR(whole - embedding_cost(shard).backward, kTable * 12 * kByte, 1e-15);

    shard.engine = Engine::megatron;
    workload.training.grad_dtype = Dtype::bf16;
    EXPECT_NEAR(whole - embedding_cost(shard).backward, kTable * 4 * kByte, 1e-15);
    const double before = embedding_cost(shard).backward;
    shard.tp = 2;
    EXPECT_NEAR(before - embedding_cost(shard).backward, kTable * 4 * kByte, 1e-15) << "half of the rows";
}

TEST_F(EndsCost, OfASeparateLossOnlyTheForwardIsSlowerThanAPlainStream) {
    workload.training.fused_cross_entropy = false;
    const PieceCost plain = head_cost(shard);
    calibration.cross_entropy_share = 0.5;
    EXPECT_NEAR(head_cost(shard).forward - plain.forward, kLogits * 30 * kByte, 1e-12);
    EXPECT_DOUBLE_EQ(head_cost(shard).backward, plain.backward);
}

TEST_F(EndsCost, AFusedLossIsAsSlowInBothDirections) {
    workload.training.fused_cross_entropy = true;
    const PieceCost plain = head_cost(shard);
    calibration.cross_entropy_share = 0.5;
    EXPECT_NEAR(head_cost(shard).forward - plain.forward, kLogits * 6 * kByte, 1e-12);
    EXPECT_NEAR(head_cost(shard).backward - plain.backward, kLogits * 6 * kByte, 1e-12);
}

}  // namespace
}  // namespace mgplan::simulator::ends_cost_test
