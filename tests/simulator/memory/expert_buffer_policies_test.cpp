// Buffers of a fixed size for what a rank's experts receive, and the pages in which it waits (docs/memory-experts.md).

#include "simulator/piece/expert_buffer_policies.hpp"

#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::expert_buffer_policies_test {
namespace {

constexpr std::int64_t s = 512, b = 2, h = 1024;

class ExpertBufferPolicies : public testing::Test {
protected:
    ModelSpec model = mixture(1);
    TrainingSpec training;
    PieceSizes sizes;

    ExpertBufferPolicies() {
        model.attention_dropout = model.hidden_dropout = 0;
        model.moe->grouped_gemm = true;
        model.moe->dispatcher = TokenDispatcher::hybrid_ep;
        training.precision = Precision::fp8;
        training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
        training.megatron.op_fuser = true;
        training.megatron.expert_buffers = {.capacity = 1.5, .paged_stash = true, .pages = 1.25};
        sizes.engine = Engine::megatron;
        sizes.micro_batch = b;
        sizes.sequence = s;
        sizes.ep = 2;
        sizes.traits = {model::DeviceKind::cuda, 100, true};
    }

    /// What a forward keeps where experts receive so many times the rows of an even split, and what its backward leaves of it.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> kept_and_left(double received) const {
        PieceTrace trace = trace_mixture(model, sizes, received);
        apply_megatron_policies(trace, {model, traced_layer(model, true), training, sizes});
        const PassProfile profile = piece_profiles(trace)[static_cast<std::size_t>(Piece::mixture)];
        return {profile.forward.net_total(), profile.forward.net_total() + profile.backward.net_total()};
    }
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> without_stash(double received) {
        training.megatron.expert_buffers.paged_stash = false;
        const auto result = kept_and_left(received);
        training.megatron.expert_buffers.paged_stash = true;
        return result;
    }
    /// Bytes of one row that the fused experts keep: two inputs in 8 bits with a scale for each 32 elements, the product in 16, a
    /// probability.
    [[nodiscard]] std::int64_t row() const {
        const std::int64_t inner = model.moe->expert_ffn;
        return h + h / 32 + inner + inner / 32 + 2 * inner * 2 + 4;
    }
    [[nodiscard]] std::int64_t rows() const { return s * b * model.moe->top_k; }
};

TEST_F(ExpertBufferPolicies, FillPagesInPlaceOfBuffers) {
    const auto [whole, left] = without_stash(1);
    const auto [at_capacity, left_at_capacity] = without_stash(1.5);
    EXPECT_EQ(at_capacity - whole, rows() / 2 * row()) << "half as many rows again";
    const auto [paged, left_paged] = kept_and_left(1.5);
    EXPECT_EQ(paged - whole, rows() / 4 * row()) << "a quarter in pages, whatever the buffers' size";
    EXPECT_EQ(left_paged, left_at_capacity);
    EXPECT_EQ(left, left_at_capacity);
    training.megatron.expert_buffers.pages = 1;
    EXPECT_EQ(kept_and_left(1.5).first, whole);
}

TEST_F(ExpertBufferPolicies, LeaveSharedExpertsWhereTheyAre) {
    model.moe->shared_ffn = model.moe->expert_ffn;
    EXPECT_EQ(kept_and_left(1.5).first - without_stash(1).first, rows() / 4 * row());
}

TEST_F(ExpertBufferPolicies, TakeNothingOfExpertsThatAreNotFused) {
    training.megatron.op_fuser = false;
    EXPECT_EQ(kept_and_left(1.5).first, without_stash(1.5).first);
    training.megatron.op_fuser = true;
    sizes.traits.architecture = 90;
    EXPECT_EQ(kept_and_left(1.5).first, without_stash(1.5).first);
}

TEST(ExpertBuffers, HoldForAllRoutingsAlike) {
    Workload workload = workload_of(mixture(4), 8, 16);
    workload.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 4;
    request.pp = 2;
    const auto memory = [&](double capacity, RoutingKind kind, double exponent = 0) {
        workload.training.megatron.expert_buffers.capacity = capacity;
        workload.routing = {};
        workload.routing.kind = kind;
        workload.routing.exponent = exponent;
        return CostModel(workload).estimate(planner::make_layout(request, workload)).memory.worst;
    };
    const RankMemory even = memory(0, RoutingKind::balanced), twice = memory(2, RoutingKind::balanced);
    EXPECT_GT(twice.peak_bytes(), even.peak_bytes());
    EXPECT_EQ(memory(1, RoutingKind::balanced).peak_bytes(), even.peak_bytes());
    for (const RankMemory& skewed : {memory(2, RoutingKind::zipf, 1), memory(2, RoutingKind::worst)}) {
        EXPECT_EQ(skewed.peak_bytes(), twice.peak_bytes());
        EXPECT_EQ(skewed.routing->p99, twice.peak_bytes()) << "what is more than the buffers is not taken";
        EXPECT_EQ(skewed.routing->worst, twice.peak_bytes());
    }
    EXPECT_GT(memory(8, RoutingKind::balanced).peak_bytes(), memory(4, RoutingKind::balanced).peak_bytes())
        << "more than all ranks send, and yet allocated";
    request.ep = 2;
    EXPECT_GT(memory(2, RoutingKind::balanced).peak_bytes(), memory(0, RoutingKind::balanced).peak_bytes());
    request.ep = 4;
    request.engine = Engine::mgplan;
    EXPECT_EQ(memory(2, RoutingKind::balanced).peak_bytes(), memory(0, RoutingKind::balanced).peak_bytes()) << "Megatron-LM's alone";
}

}  // namespace
}  // namespace mgplan::simulator::expert_buffer_policies_test
