// Compute time by module: what each of them holds, and that nothing is left over.

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/dgx_workload.hpp"

namespace mgplan::simulator::compute_modules_test {
namespace {

using enum ComputeModule;

struct Job {
    Workload work;
    LayoutRequest request;

    explicit Job(const std::string& model) : Job(formats::load_model(model).model) {}
    explicit Job(ModelSpec model) : work(dgx_workload(std::move(model))) {
        if (work.model.moe) request.ep = 8;
    }
    [[nodiscard]] TimePrediction time() const { return CostModel(work).exact_time(planner::make_layout(request, work)); }
    [[nodiscard]] TimePrediction time(Recompute recompute) const {
        Job job = *this;
        job.request.recompute = recompute;
        return job.time();
    }
    [[nodiscard]] TimePrediction time(Precision precision) const {
        Job job = *this;
        job.work.training.precision = precision;
        return job.time();
    }
};

double seconds_of(const TimePrediction& time, ComputeModule module) {
    return time.modules.at(module).seconds;
}

/// Modules but the host whose seconds differ by more than rounding.
std::vector<ComputeModule> different(const TimePrediction& one, const TimePrediction& other) {
    std::vector<ComputeModule> modules;
    for (std::size_t i = 0; i < kComputeModules.size(); ++i) {
        const auto module = static_cast<ComputeModule>(i);
        const double a = seconds_of(one, module), b = seconds_of(other, module);
        if (module != host && std::abs(a - b) > 1e-9 * (a + b)) modules.push_back(module);
    }
    return modules;
}

/// The seconds add up to the compute time, and no module is faster than the GPU.
void expect_sound(const Job& job, const TimePrediction& time, const std::string& what) {
    double seconds = 0;
    for (std::size_t i = 0; i < kComputeModules.size(); ++i) {
        const ModuleWork& work = time.modules.works[i];
        const double peak = job.work.cluster.peak(job.work.training.precision);
        EXPECT_LE(work.flops, peak * work.seconds) << what << " " << kComputeModules[i].json;
        EXPECT_LE(work.bytes, job.work.cluster.memory_bandwidth * work.seconds) << what << " " << kComputeModules[i].json;
        seconds += work.seconds;
    }
    EXPECT_NEAR(seconds, time.compute_seconds, 2e-12 * seconds) << what;
    EXPECT_NEAR(seconds_of(time, host), time.host_seconds, 1e-9 * seconds) << what;
}

TEST(ComputeModules, AddUpToTheComputeTimeOfEveryKindOfModel) {
    for (const char* model : {"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "deepseek-v3", "nemotron-3-nano-30b-a3b",
                              "qwen3-next-80b-a3b", "gemma3-27b", "jamba-v0.1", "gpt-oss-20b", "mimo-7b"}) {
        for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
            Job job(model);
            job.request.engine = engine;
            expect_sound(job, job.time(), model);
            expect_sound(job, job.time(Recompute::full), std::string(model) + " recompute");
            Job fp8 = job;
            fp8.work.training.precision = Precision::fp8;
            expect_sound(fp8, fp8.time(), std::string(model) + " fp8");
        }
    }
}

TEST(ComputeModules, AddUpWithGraphsAndShardedState) {
    for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
        Job job("llama3-8b");
        job.request.engine = engine;
        for (const CudaGraphScope scope : {CudaGraphScope::attn, CudaGraphScope::full_iteration}) {
            Job graphs = job;
            graphs.request.cuda_graphs = {scope};
            expect_sound(graphs, graphs.time(), "graphs");
            if (scope == CudaGraphScope::full_iteration) {
                EXPECT_EQ(seconds_of(graphs.time(), host), 0);
            }
        }
        FullyShardedSpec& sharding = job.work.training.megatron.fully_sharded;
        sharding.kind = FullyShardedKind::megatron_fsdp;
        sharding.strategy = ShardingStrategy::optim_grads_params;
        const TimePrediction sharded = job.time();
        expect_sound(job, sharded, "sharded");
        EXPECT_EQ(seconds_of(sharded, optimizer) > 0, engine == Engine::mgplan) << "which sums its gradients in the passes";
    }
}

TEST(ComputeModules, OfADenseModelHaveNoExpertsAndOfMoeModelsNoDenseMlp) {
    const TimePrediction dense = Job("llama3-8b").time(), moe = Job("mixtral-8x7b").time();
    for (const ComputeModule module : {experts, router_permute, quantisation, optimizer}) EXPECT_EQ(seconds_of(dense, module), 0);
    for (const ComputeModule module : {qkv_projection, attention_core, dense_mlp, norms_elementwise, output_loss})
        EXPECT_GT(seconds_of(dense, module), 0);
    EXPECT_EQ(seconds_of(moe, dense_mlp), 0);
    EXPECT_GT(seconds_of(moe, experts), 0);
    EXPECT_GT(seconds_of(moe, router_permute), 0);
    for (const ComputeModule module : {norms_elementwise, host}) EXPECT_EQ(dense.modules.at(module).flops, 0);
}

TEST(ComputeModules, AreTheOnesWhoseSizesChange) {
    const Job dense("llama3-8b"), moe("mixtral-8x7b");
    const auto changed = [](const Job& job, const auto& change) {
        Job other = job;
        change(other.work.model);
        return different(job.time(), other.time());
    };
    using testing::ElementsAre;
    EXPECT_THAT(changed(dense, [](ModelSpec& model) { model.ffn *= 2; }), ElementsAre(dense_mlp));
    EXPECT_THAT(changed(moe, [](ModelSpec& model) { model.moe->expert_ffn *= 2; }), ElementsAre(experts));
    EXPECT_THAT(changed(moe, [](ModelSpec& model) { model.moe->shared_ffn = 4096; }), testing::Contains(experts));
    EXPECT_THAT(changed(dense, [](ModelSpec& model) { model.vocab *= 2; }), testing::Contains(output_loss));
    EXPECT_THAT(changed(dense, [](ModelSpec& model) { model.vocab *= 2; }), testing::Not(testing::Contains(qkv_projection)));
    EXPECT_THAT(changed(moe, [](ModelSpec& model) { model.moe->top_k = 1; }), testing::IsSupersetOf({experts, router_permute}));
    Job longer = dense;
    longer.work.batch = {32, 8192};  // the same tokens
    EXPECT_THAT(different(dense.time(), longer.time()), testing::Contains(attention_core));
    EXPECT_NEAR(longer.time().modules.at(attention_core).flops, 2 * dense.time().modules.at(attention_core).flops,
                1e-3 * longer.time().modules.at(attention_core).flops);
}

TEST(ComputeModules, OfMixersWithoutAttentionAreProjectionsAndACore) {
    ModelSpec model = formats::load_model("nemotron-h-8b").model;
    const TimePrediction time = Job(model).time();
    for (NamedLayer& kind : model.kinds) {
        if (mixer_as<Mamba2>(kind.layer) != nullptr) std::get<Mamba2>(*kind.layer.mixer).state_size *= 2;
    }
    EXPECT_THAT(different(time, Job(model).time()), testing::IsSupersetOf({qkv_projection, attention_core}));
    EXPECT_THAT(different(time, Job(model).time()), testing::Not(testing::Contains(dense_mlp)));
}

TEST(ComputeModules, OfRecomputeAreThoseOfTheLayers) {
    const Job job("llama3-8b");
    const TimePrediction none = job.time(), full = job.time(Recompute::full);
    // A forward takes a third of the FLOPs of both passes.
    EXPECT_NEAR(full.modules.at(dense_mlp).flops, none.modules.at(dense_mlp).flops * 4 / 3, 1e-9 * full.modules.at(dense_mlp).flops);
    EXPECT_EQ(seconds_of(full, output_loss), seconds_of(none, output_loss));
    EXPECT_THAT(different(none, full), testing::UnorderedElementsAre(qkv_projection, attention_core, dense_mlp, norms_elementwise));
}

TEST(ComputeModules, OfFp8HaveCasts) {
    for (const Engine engine : {Engine::megatron, Engine::mgplan}) {
        Job job("llama3-8b");
        job.request.engine = engine;
        const TimePrediction bf16 = job.time(), fp8 = job.time(Precision::fp8);
        EXPECT_EQ(seconds_of(bf16, quantisation), 0);
        EXPECT_GT(seconds_of(fp8, quantisation), 0);
        EXPECT_EQ(fp8.modules.at(quantisation).flops, 0);
        EXPECT_LT(seconds_of(fp8, dense_mlp), 0.75 * seconds_of(bf16, dense_mlp));
        EXPECT_EQ(fp8.modules.at(dense_mlp).flops, bf16.modules.at(dense_mlp).flops);
    }
}

TEST(ComputeModules, OfMultiTokenPredictionAreThoseOfItsHalves) {
    ModelSpec model = formats::load_model("mixtral-8x7b").model;
    const TimePrediction without = Job(model).time();
    model.mtp_layers = 1;
    const TimePrediction with = Job(model).time();
    const double layers = static_cast<double>(model.layers);
    EXPECT_NEAR(with.modules.at(experts).flops, without.modules.at(experts).flops * (layers + 1) / layers,
                1e-9 * with.modules.at(experts).flops);
    EXPECT_NEAR(with.modules.at(output_loss).flops, without.modules.at(output_loss).flops * 2, 1e-9 * with.modules.at(output_loss).flops);
    EXPECT_GT(with.modules.at(qkv_projection).flops, without.modules.at(qkv_projection).flops * (layers + 1) / layers)
        << "and its own projection";
}

TEST(ComputeModules, OfTheSlowestStageAreShownWithAnyNumberOfStages) {
    Job job("llama3-8b");
    job.request.pp = 4;
    const TimePrediction time = job.time();
    EXPECT_EQ(time.slowest_stage, 3);
    EXPECT_GT(seconds_of(time, output_loss), 0);
    expect_sound(job, time, "pp 4");
    job.request.vpp = 2;
    expect_sound(job, job.time(), "vpp 2");
}

TEST(ComputeModules, OfSlowedRanksAddUpToo) {
    Job job("llama3-8b");
    job.request.pp = 2;
    const Layout layout = planner::make_layout(job.request, job.work);
    CostModel model(job.work);
    const TimePrediction usual = model.exact_time(layout), slow = model.timeline(layout, false, {1, 1.5}).step.time;
    double seconds = 0;
    for (const ModuleWork& work : slow.modules.works) seconds += work.seconds;
    EXPECT_NEAR(seconds, slow.compute_seconds, 2e-12 * seconds);
    EXPECT_DOUBLE_EQ(seconds_of(slow, dense_mlp), 1.5 * seconds_of(usual, dense_mlp));
}

}  // namespace
}  // namespace mgplan::simulator::compute_modules_test
