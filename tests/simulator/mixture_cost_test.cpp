#include <gtest/gtest.h>

#include "simulator/layers/mlp.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::mixture_cost_test {
namespace {

/// One of `ep` ranks with 512 tokens, each copied to two of eight experts; only moving rows of tokens takes time.
class MixtureCost : public testing::Test {
protected:
    Workload workload = workload_of(mixture(2), 8, 8);
    Calibration calibration = ideal_calibration();
    LayoutPaths paths;

    /// Forward seconds for which a slow permutation is to blame.
    double permuting(std::int64_t ep, TokenDispatcher dispatcher) {
        workload.model.moe->dispatcher = dispatcher;
        calibration.permutation_share = 1;
        const double fast = forward(ep);
        calibration.permutation_share = 0.5;
        return forward(ep) - fast;
    }

private:
    [[nodiscard]] double forward(std::int64_t ep) const {
        const KernelTimes kernels(workload.cluster, calibration, Precision::bf16);
        Shard shard;
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.kernels = shard.storage_kernels = &kernels;
        shard.paths = &paths;
        shard.ep = ep;
        shard.tokens = shard.tokens_outside = 512;
        return mixture_cost(shard).forward;
    }
};

constexpr double kCopies = 2 * 512 * 1024 * 2 * 2 / 1e12;  ///< seconds in which all copies are read and written once

TEST_F(MixtureCost, WhatArrivesForASingleExpertIsInOrder) {
    EXPECT_NEAR(permuting(4, TokenDispatcher::all_to_all), 4 * kCopies, 1e-12) << "before and behind the exchange, there and back";
    EXPECT_NEAR(permuting(8, TokenDispatcher::all_to_all), 2 * kCopies, 1e-12);
}

TEST_F(MixtureCost, ATokenThatArrivesOnceIsCopiedForItsExpert) {
    EXPECT_NEAR(permuting(8, TokenDispatcher::deep_ep), 4 * kCopies, 1e-12);
}

}  // namespace
}  // namespace mgplan::simulator::mixture_cost_test
