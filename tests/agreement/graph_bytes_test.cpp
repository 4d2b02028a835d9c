// What the simulator says of a stage's CUDA graphs against those of the model on shapes, which are a run's
// (tests/runtime/training_run/graph_run_test.cpp).

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "model/graphs/layer_graphs.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator::graph_bytes_test {
namespace {

using enum CudaGraphScope;
namespace small = model::small;
using Scopes = EnumSet<CudaGraphScope>;

Workload workload_of(const model::TrainingTask& task) {
    Workload work;
    work.model = task.model;
    work.batch = task.batch;
    work.training = task.training;
    work.world = task.layout.sizes.world;
    return work;
}

ModelSpec mixture(bool shared, double capacity = 0, bool pads = false) {
    ModelSpec model = small::llama();
    model.name = "small-mixture";
    model.hidden_dropout = model.attention_dropout = 0;
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 24, .shared_ffn = shared ? 16 : 0, .auxiliary_loss = 0.02};
    model.moe->capacity_factor = capacity;
    model.moe->pad_to_capacity = pads;
    model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
    model.moe_layers.front() = model.moe_layers.back() = false;
    return model;
}

/// Static inputs stand under no name; names without bytes are left out.
using Bytes = std::map<std::string, std::int64_t>;

Bytes of_the_model(const model::TrainingTask& task, int stage) {
    Bytes bytes;
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
        model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
        model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
        if (trainer.schedule().rank != stage) continue;
        for (int step = 0; step < 2; ++step) (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
        const model::GraphTotals totals = trainer.graph_totals().value();
        bytes[""] = totals.static_input_bytes;
        for (const auto& [name, held] : totals.boundary) bytes[name] = held;
        return bytes;
    }
    return bytes;
}

Bytes of_the_simulator(const model::TrainingTask& task, int stage) {
    const Workload work = workload_of(task);
    CostModel costs(work, Calibration{});
    const GraphTerms terms = costs.graphs(task.layout, stage);
    Bytes bytes{{"", terms.static_inputs}};
    for (const auto& [name, held] : terms.boundary) {
        if (held > 0) bytes[std::string(name)] = held;
    }
    return bytes;
}

void expect_same(const ModelSpec& model, const tests::Case& sizes, Scopes scopes, Precision precision = Precision::bf16) {
    model::TrainingTask task = tests::task_for(model, sizes, precision);
    task.layout.cuda_graphs = scopes;
    for (int stage = 0; stage < sizes.pp; ++stage) {
        SCOPED_TRACE(testing::Message() << "pp " << sizes.pp << " vpp " << sizes.vpp << " ep " << sizes.ep << " stage " << stage);
        const Bytes expected = of_the_model(task, stage);
        EXPECT_EQ(of_the_simulator(task, stage), expected);
        EXPECT_GT(expected.at(""), 0);
    }
}

TEST(GraphBytes, OfDenseLayersAreThoseOfTheModel) {
    ModelSpec model = small::llama();
    model.hidden_dropout = model.attention_dropout = 0;
    for (const Scopes scopes : {Scopes{layer}, Scopes{attn}, Scopes{mlp}, Scopes{attn, mlp}}) {
        expect_same(model, {.name = "", .pp = 2}, scopes);
        expect_same(model, {.name = "", .tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true}, scopes);
    }
}

TEST(GraphBytes, OfMixturesAreThoseOfTheModelByName) {
    for (const Scopes scopes : {Scopes{moe_router}, Scopes{attn, moe_router}, Scopes{moe_router, moe_preprocess},
                                Scopes{attn, moe_router, moe_preprocess}, Scopes{attn, mlp, moe_router, moe_preprocess}}) {
        for (const bool shared : {false, true}) {
            expect_same(mixture(shared), {.name = ""}, scopes);
            expect_same(mixture(shared), {.name = "", .pp = 2, .dp = 2, .ep = 2}, scopes);
            expect_same(mixture(shared), {.name = "", .tp = 2, .pp = 2, .vpp = 2, .ep = 2, .sequence_parallel = true}, scopes);
        }
    }
    expect_same(mixture(false), {.name = ""}, {attn, moe_router, moe_preprocess}, Precision::fp64);
}

TEST(GraphBytes, OfMixturesWithACapacityAreThoseOfTheModelByName) {
    expect_same(mixture(false, 1), {.name = "", .dp = 2, .ep = 2}, {attn, moe_router});
    for (const Scopes scopes :
         {Scopes{attn, moe_router, moe_preprocess}, Scopes{moe}, Scopes{attn, moe}, Scopes{attn, mlp, moe}, Scopes{layer}})
        expect_same(mixture(true, 1.25, true), {.name = "", .pp = 2, .dp = 2, .ep = 2}, scopes);
}

TEST(GraphBytes, OfAWholeIterationAreThoseOfTheModel) {
    const Scopes whole{full_iteration};
    expect_same(small::llama(), {.name = ""}, whole);
    expect_same(small::llama(), {.name = "", .tp = 2, .cp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true}, whole);
    expect_same(mixture(true, 1.25, true), {.name = "", .pp = 2, .dp = 2, .ep = 2}, whole);
    ModelSpec further = small::llama(), learned = small::gpt();
    further.mtp_layers = 2;
    expect_same(further, {.name = "", .pp = 2}, whole);
    learned.hidden_dropout = 0.1;
    learned.attention_dropout = 0;
    expect_same(learned, {.name = "", .dp = 2}, whole);
    expect_same(learned, {.name = "", .pp = 2}, whole);
}

}  // namespace
}  // namespace mgplan::simulator::graph_bytes_test
