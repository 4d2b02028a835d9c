// One network described by fields and by lists of parts has one prediction, under every choice that a layer feels.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/dgx_workload.hpp"

namespace mgplan::simulator::described_twins_test {
namespace {

struct Choice {
    std::string name;
    LayoutRequest layout{};
    TrainingSpec training{};
};

Choice choice(std::string name, const LayoutRequest& layout, const TrainingSpec& training = {}) {
    return {std::move(name), layout, training};
}

std::vector<Choice> choices(bool experts) {
    using enum CudaGraphScope;
    std::vector<Choice> all;
    for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
        LayoutRequest plain;
        plain.engine = engine;
        plain.tp = plain.pp = 2;
        plain.sequence_parallel = true;
        if (experts) plain.ep = 2;
        plain.etp = experts ? 1 : plain.tp;
        const std::string on = std::string(to_string(engine));
        all.push_back(choice(on, plain));
        for (const EnumSet<CudaGraphScope> scopes :
             {EnumSet{attn}, EnumSet{layer}, EnumSet{attn, moe_router}, EnumSet{attn, moe_router, moe_preprocess}, EnumSet{moe_router}}) {
            // Own graphs hold layers that fields describe; experts are in no graph of whole layers.
            if (engine == Engine::mgplan || experts == scopes.contains(layer) || (!experts && scopes.contains(moe_router))) continue;
            LayoutRequest graphs = plain;
            graphs.cuda_graphs = scopes;
            all.push_back(choice(on + " graphs", graphs));
        }
        for (const RecomputeModule module : {RecomputeModule::core_attn, RecomputeModule::layernorm, RecomputeModule::mlp,
                                             RecomputeModule::moe_act, RecomputeModule::moe}) {
            const bool of_experts = module == RecomputeModule::moe_act || module == RecomputeModule::moe;
            if (experts ? module == RecomputeModule::mlp : of_experts) continue;
            LayoutRequest again = plain;
            again.recompute = Recompute::selective;
            again.recompute_modules = {module};
            all.push_back(choice(on + " recomputes " + std::string(to_string(module)), again));
        }
        LayoutRequest full = plain;
        full.recompute = Recompute::full;
        all.push_back(choice(on + " recomputes all", full));
        TrainingSpec offloaded, muon, fp8;
        offloaded.offload.modules = {OffloadModule::core_attn, OffloadModule::qkv_linear};
        if (experts) offloaded.offload.modules.add(OffloadModule::expert_fc1);
        muon.megatron.optimizer = OptimizerKind::muon;
        all.push_back(choice(on + " offloads", plain, offloaded));
        all.push_back(choice(on + " muon", plain, muon));
        if (engine == Engine::mgplan) continue;  // its products in fp8 are of layers that fields describe
        fp8.precision = Precision::fp8;
        fp8.megatron.fp8_recipe = Fp8Recipe::blockwise;
        all.push_back(choice(on + " fp8", plain, fp8));
        fp8.megatron.fp8_recipe = Fp8Recipe::tensorwise;
        fp8.megatron.bf16_layers_at_start = fp8.megatron.bf16_layers_at_end = 1;
        LayoutRequest graphs = plain;
        graphs.cuda_graphs = {attn};
        all.push_back(choice(on + " fp8 with ends in bf16 under graphs", graphs, fp8));
    }
    return all;
}

TEST(DescribedTwins, HaveOnePredictionUnderEveryChoiceOfALayer) {
    for (const std::string preset : {"llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b"}) {
        for (const std::int64_t depths : {0, 1}) {
            ModelSpec fields = formats::load_model(preset).model;
            fields.layers = 8;
            if (fields.moe) fields.moe_layers.resize(8);
            fields.mtp_layers = depths;
            const ModelSpec parts = spec_of_kinds(typed_model(fields));
            ASSERT_FALSE(parts.kinds.empty());
            for (const Choice& chosen : choices(fields.moe.has_value())) {
                SCOPED_TRACE(preset + " " + chosen.name + (depths > 0 ? " predicting" : ""));
                const auto predicted = [&](const ModelSpec& model) {
                    Workload work = dgx_workload(model);
                    work.training = chosen.training;
                    CostModel costs(work);
                    return costs.predict_exactly(planner::make_layout(chosen.layout, work));
                };
                const Prediction a = predicted(fields), b = predicted(parts);
                EXPECT_EQ(a.time.iteration_seconds, b.time.iteration_seconds);
                EXPECT_EQ(a.memory.worst.breakdown, b.memory.worst.breakdown);
                EXPECT_EQ(a.memory.worst.peak_bytes(), b.memory.worst.peak_bytes());
                EXPECT_EQ(a.memory.node_host_bytes, b.memory.node_host_bytes);
            }
        }
    }
}

}  // namespace
}  // namespace mgplan::simulator::described_twins_test
