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

TEST_F(EndsCost, TheOutputProjectionIsQuantisedUnderMxfp8WhereAsked) {
    workload.training.precision = Precision::fp8;
    workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    workload.cluster.compute_capability = 100;
    const KernelTimes fp8(workload.cluster, calibration, Precision::fp8);
    shard.kernels = &fp8;
    const PieceCost in_16 = head_cost(shard);
    workload.training.megatron.fp8_output_projection = true;
    const PieceCost in_8 = head_cost(shard);
    // Twice the rate, and 4,096 tokens of 1,024 values that are read and written twice with their scales.
    const double product = 2 * kLogits * 1024 * 1e-12, casts = kTokens * 1024 * (4 + 2 / 32.0) * kByte;
    EXPECT_NEAR(in_16.forward - in_8.forward, product / 2 - casts, 1e-12);
    EXPECT_NEAR(in_16.backward - in_8.backward, 2 * product / 2 - casts, 1e-12);
    workload.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_NEAR(head_cost(shard).forward, in_16.forward, 1e-15);
}

}  // namespace
}  // namespace mgplan::simulator::ends_cost_test
