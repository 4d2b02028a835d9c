#pragma once
// One rank with a microbatch of 4,096 tokens, whose pieces are priced one by one.

#include <cstdint>

#include <gtest/gtest.h>

#include "simulator/layers/shard.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator {

class OneLayer : public testing::Test {
protected:
    static constexpr std::int64_t kTokens = 4096;

    explicit OneLayer(std::int64_t world = 1) : workload(workload_of(gpt(1), world, 1, kTokens)) {
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.kernels = shard.storage_kernels = &kernels;
        shard.paths = &paths;
        shard.tokens = shard.tokens_outside = kTokens;
        shard.engine = Engine::megatron;
    }

    Workload workload;
    Calibration calibration = ideal_calibration();
    KernelTimes kernels{workload.cluster, calibration, Precision::bf16};
    LayoutPaths paths;
    Shard shard;
};

}  // namespace mgplan::simulator
