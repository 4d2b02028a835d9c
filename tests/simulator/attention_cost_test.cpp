#include "simulator/layers/attention.hpp"

#include <gtest/gtest.h>

#include "tests/simulator/one_layer.hpp"

namespace mgplan::simulator::attention_cost_test {
namespace {

/// 16 heads of 64.
class AttentionCost : public OneLayer {
protected:
    [[nodiscard]] PieceCost cost(std::int64_t window, Engine engine = Engine::megatron) const {
        Shard own = shard;
        own.engine = engine;
        return attention_cost(own, window);
    }
};

TEST_F(AttentionCost, AWindowLeavesTheKeysOutThatNoTileWalks) {
    // A query sees 1024 - 1024^2/8192 keys on average, and walks three quarters of a tile of 128 beside; without a window 2048.
    const double keys = 1024 - 128 + 96;
    const double saved = 4.0 * 4096 * (2048 - keys) * 16 * 64 / 1e12;
    EXPECT_NEAR(cost(0).forward - cost(1024).forward, saved, 1e-12);
    EXPECT_NEAR(cost(0).backward - cost(1024).backward, 2.5 * saved, 1e-12);
    EXPECT_LT(cost(128).forward, cost(1024).forward);
    EXPECT_DOUBLE_EQ(cost(0).forward_flops, cost(1024).forward_flops) << "model FLOPs are Megatron-LM's, which knows no windows";
    EXPECT_EQ(cost(0).kernels_backward, cost(1024).kernels_backward);
}

TEST_F(AttentionCost, AWindowAsLongAsTheSequenceIsNone) {
    for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
        EXPECT_DOUBLE_EQ(cost(4096, engine).forward, cost(0, engine).forward);
        EXPECT_DOUBLE_EQ(cost(8192, engine).backward, cost(0, engine).backward);
        EXPECT_NE(cost(3000, engine).forward, cost(0, engine).forward);
    }
}

TEST_F(AttentionCost, OurOwnWindowsAreSeparateProducts) {
    const PieceCost windowed = cost(1024, Engine::mgplan);
    workload.training.attention = AttentionBackend::unfused;
    EXPECT_DOUBLE_EQ(windowed.forward, cost(0, Engine::mgplan).forward);
    EXPECT_DOUBLE_EQ(windowed.backward, cost(1024, Engine::mgplan).backward);
    EXPECT_EQ(windowed.kernels_forward, cost(0, Engine::mgplan).kernels_forward);
}

/// Four ranks of a sequence of 4,096 tokens, on links that cost nothing.
class ContextParallelCost : public AttentionCost {
protected:
    ContextParallelCost() { paths.cp = {.ranks = 4, .ranks_per_domain = 4, .inside = 1e30}; }

    [[nodiscard]] PieceCost shared(CpCommType exchange, Engine engine, std::int64_t window = 0) const {
        Shard part = shard;
        part.engine = engine;
        part.cp = 4;
        part.cp_comm_type = exchange;
        part.tokens = part.tokens_outside = kTokens / 4;
        return attention_cost(part, window);
    }
};

TEST_F(ContextParallelCost, EveryPartOfASequenceIsAKernelOfItsOwn) {
    for (const CpCommType exchange : {CpCommType::p2p, CpCommType::all_gather}) {
        const PieceCost parts = shared(exchange, Engine::mgplan), whole = shared(CpCommType::a2a, Engine::mgplan);
        EXPECT_DOUBLE_EQ(parts.forward, shared(exchange, Engine::megatron).forward) << "Transformer Engine fuses each part, too";
        EXPECT_DOUBLE_EQ(parts.forward, whole.forward) << "all ranks have as many visible pairs";
        EXPECT_EQ(parts.kernels_forward - whole.kernels_forward, 3);
        EXPECT_EQ(parts.kernels_backward - whole.kernels_backward, 9);
    }
}

TEST_F(ContextParallelCost, OurOwnWindowedPartsAreSeparateProducts) {
    for (const CpCommType exchange : {CpCommType::p2p, CpCommType::all_gather}) {
        const PieceCost parts = shared(exchange, Engine::mgplan, 128);
        workload.training.attention = AttentionBackend::unfused;
        EXPECT_DOUBLE_EQ(parts.forward, shared(exchange, Engine::mgplan).forward);
        EXPECT_DOUBLE_EQ(parts.backward, shared(exchange, Engine::mgplan).backward);
        EXPECT_EQ(parts.kernels_forward, shared(exchange, Engine::mgplan).kernels_forward);
        workload.training.attention = AttentionBackend::flash;
        // Every part is products and a softmax of its own.
        const int once = shared(CpCommType::a2a, Engine::mgplan).kernels_forward - 1;
        EXPECT_EQ((parts.kernels_forward - once) % 4, 0);
        EXPECT_GT(parts.kernels_forward - once, 4);
    }
}

TEST_F(ContextParallelCost, AllToAllLeavesWholeSequences) {
    EXPECT_DOUBLE_EQ(shared(CpCommType::a2a, Engine::mgplan).forward, shared(CpCommType::a2a, Engine::megatron).forward);
    EXPECT_DOUBLE_EQ(shared(CpCommType::a2a, Engine::mgplan).forward, shared(CpCommType::p2p, Engine::megatron).forward);
}

}  // namespace
}  // namespace mgplan::simulator::attention_cost_test
