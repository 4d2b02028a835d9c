// A layer's time under the default calibration of A100 against published ones, in milliseconds.
#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::layer_times_test {
namespace {

struct Milliseconds {
    double forward = 0, backward = 0;
};

Milliseconds layer_of(Workload workload, const LayoutRequest& request) {
    workload.cluster = load_cluster("dgx-a100-80g");
    workload.memory_limit = workload.cluster.memory_bytes;
    workload.training.precision = Precision::fp16;
    workload.training.grad_dtype = Dtype::fp16;
    CostModel model(workload, default_calibration(workload.cluster));
    const PieceCost& layer = model.costs(planner::make_layout(request, workload)).layers.front().cost;
    return {1e3 * (layer.forward + layer.exposed_forward.total()),
            1e3 * (layer.backward + layer.recompute + layer.exposed_backward.total() + layer.exposed_recompute.total())};
}

void expect_near(const Milliseconds& predicted, const Milliseconds& measured, double share) {
    EXPECT_NEAR(predicted.forward, measured.forward, 0.12 * measured.forward);
    EXPECT_NEAR(predicted.backward, measured.backward, 0.06 * measured.backward);
    const double whole = measured.forward + measured.backward;
    EXPECT_NEAR(predicted.forward + predicted.backward, whole, share * whole);
}

/// Korthikanti et al., arXiv 2205.05198, table 4: a layer of 22B, four sequences of 2,048, on eight ranks.
TEST(LayerTimes, AreNearThoseOfTheSelectiveRecomputePaper) {
    ModelSpec model = gpt(48);
    model.hidden = 6144;
    model.ffn = 24576;
    model.heads = model.kv_heads = 64;
    model.head_dim = 96;
    model.max_positions = 2048;
    Workload workload = workload_of(model, 8, 4, 2048);
    workload.training.attention = AttentionBackend::unfused;
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.tp = 8;
    request.micro_batch = 4;
    request.sequence_parallel = false;
    expect_near(layer_of(workload, request), {7.7, 11.9}, 0.04);
    request.recompute = Recompute::selective;
    expect_near(layer_of(workload, request), {7.7, 13.2}, 0.05);
    request.sequence_parallel = true;
    expect_near(layer_of(workload, request), {7.2, 13.1}, 0.08);
}

/// sail-sg/VocabularyParallelism@6191c3b, artifact/exp_one_host.csv, 2,048 tokens and a vocabulary of 256,000: a quarter of the
/// mean of stages 1 to 6, which hold four layers each.
TEST(LayerTimes, AreNearThoseOfAPipelinesInnerStages) {
    ModelSpec model = gpt(32);
    model.hidden = 3072;
    model.ffn = 12288;
    model.heads = model.kv_heads = 24;
    model.head_dim = 128;
    model.max_positions = 2048;
    model.attention_dropout = model.hidden_dropout = 0;
    LayoutRequest request;
    request.engine = Engine::megatron;
    const double stages = 6 * 4 * 1e3;
    expect_near(layer_of(workload_of(model, 1, 1, 2048), request),
                {(10591 + 10475 + 10725 + 10360 + 10444 + 10381) / stages, (21108 + 20737 + 21143 + 20805 + 21030 + 20827) / stages}, 0.05);
}

}  // namespace
}  // namespace mgplan::simulator::layer_times_test
