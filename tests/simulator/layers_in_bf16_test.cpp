// First and last layers whose products stay in 16 bits (--first-last-layers-bf16): each takes and costs what it does where all layers are
// in 16 bits, and all others what they do where all are quantised.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/shard_layers.hpp"

namespace mgplan::simulator::layers_in_bf16_test {
namespace {

class LayersInBf16 : public testing::TestWithParam<const char*> {
protected:
    Workload work;
    LayoutRequest request;

    LayersInBf16() {
        work.model = formats::load_model(GetParam()).model;
        work.cluster = load_cluster("dgx-h100");
        work.memory_limit = work.cluster.memory_bytes;
        work.world = 16;
        work.batch = {64, 4096};
        work.training.precision = Precision::fp8;
        work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
        request.engine = Engine::megatron;
        request.tp = 2;
        request.pp = 2;
        request.sequence_parallel = true;
        if (work.model.moe) request.ep = 4;
    }

    [[nodiscard]] Workload with(std::int64_t start, std::int64_t end) const {
        Workload changed = work;
        changed.training.megatron.bf16_layers_at_start = start;
        changed.training.megatron.bf16_layers_at_end = end;
        return changed;
    }
    [[nodiscard]] Workload whole_in_bf16() const {
        Workload changed = work;
        changed.training.precision = Precision::bf16;
        return changed;
    }

    struct Seen {
        std::vector<LayerCosts::Layer> layers;  ///< by kind
        RankMemory first, last;                 ///< of the stages
        double seconds;
    };
    Seen see(const Workload& workload) {
        const Layout layout = planner::make_layout(request, workload);
        CostModel model(workload);
        return {model.costs(layout).layers, model.stage_memory(layout, 0), model.stage_memory(layout, 1), model.exact_seconds(layout)};
    }
};

TEST_P(LayersInBf16, AreThoseOfAJobInBf16) {
    const std::int64_t layers = work.model.layers;
    const Seen quantised = see(work), wide = see(whole_in_bf16()), all = see(with(layers / 2, layers / 2)), some = see(with(1, 1));
    ASSERT_EQ(all.layers.size(), wide.layers.size());
    for (std::size_t kind = 0; kind < all.layers.size(); ++kind) {
        EXPECT_EQ(all.layers[kind].cost.forward, wide.layers[kind].cost.forward);
        EXPECT_EQ(all.layers[kind].cost.backward, wide.layers[kind].cost.backward);
    }
    EXPECT_EQ(all.first.breakdown.activations, wide.first.breakdown.activations);
    EXPECT_EQ(all.first.breakdown.parameters, wide.first.breakdown.parameters);
    EXPECT_GT(quantised.first.breakdown.parameters, wide.first.breakdown.parameters) << "copies in fp8";

    // Each stage has one of each, and half the layers.
    ASSERT_EQ(some.layers.size(), 2 * quantised.layers.size());
    EXPECT_EQ(some.layers[0].cost.forward, quantised.layers[0].cost.forward);
    EXPECT_EQ(some.layers[1].cost.forward, wide.layers[0].cost.forward);
    const std::int64_t copies = quantised.first.breakdown.parameters - wide.first.breakdown.parameters;
    EXPECT_EQ(some.first.breakdown.parameters, quantised.first.breakdown.parameters - copies / (layers / 2));
    EXPECT_GT(some.seconds, quantised.seconds);
    EXPECT_LT(some.seconds, wide.seconds);
}

TEST_P(LayersInBf16, AreReplayedLikeTheOthers) {
    const Workload workload = with(2, 2);
    const Layout layout = planner::make_layout(request, workload);
    CostModel model(workload);
    const auto replayed = model.replay_allocator(layout, 0);
    ASSERT_TRUE(replayed.has_value());
    Workload plain = work;
    CostModel quantised(plain);
    EXPECT_NE(replayed->allocated, quantised.replay_allocator(layout, 0)->allocated);
}

INSTANTIATE_TEST_SUITE_P(Models, LayersInBf16, testing::Values("llama3-8b", "mixtral-8x7b"), [](const auto& instance) {
    std::string name = instance.param;
    std::erase_if(name, [](char c) { return c == '-'; });
    return name;
});

}  // namespace
}  // namespace mgplan::simulator::layers_in_bf16_test
