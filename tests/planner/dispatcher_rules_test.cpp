// Rules of what dispatches the tokens of experts: a layout's own dispatcher, or the job's where it has none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dispatcher_cases.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::dispatcher_rules_test {
namespace {

using ::testing::HasSubstr;

/// What make_layout() says against so many expert-parallel ranks; "" for nothing.
std::string refusal(const Workload& work, EnumSet<CudaGraphScope> graphs, LayoutSwitches switches = {}, Engine engine = Engine::megatron,
                    std::int64_t ep = 8) {
    LayoutRequest request;
    request.engine = engine;
    request.ep = ep;
    request.etp = 1;
    request.cuda_graphs = graphs;
    if (switches != LayoutSwitches{}) request.switches = std::make_shared<const LayoutSwitches>(switches);
    try {
        (void)make_layout(request, work);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(DispatcherRules, GraphsAreJudgedByTheDispatcherOfTheLayout) {
    using enum CudaGraphScope;
    Workload work = workload_of("qwen3-30b-a3b", 8);
    const LayoutSwitches all_to_all{.dispatcher = TokenDispatcher::all_to_all}, hybrid{.dispatcher = TokenDispatcher::hybrid_ep};
    for (const CudaGraphScope scope : {moe, layer, full_iteration}) {
        SCOPED_TRACE(to_string(scope));
        EXPECT_THAT(refusal(work, {scope}), HasSubstr("the dispatcher reads on the host"));
        EXPECT_EQ(refusal(work, {scope}, hybrid), "");
    }
    work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    EXPECT_EQ(refusal(work, {full_iteration}), "");
    EXPECT_THAT(refusal(work, {full_iteration}, all_to_all), HasSubstr("the dispatcher reads on the host"));
    EXPECT_EQ(refusal(work, {attn, moe_router, moe_preprocess}, all_to_all), "");
}

TEST(DispatcherRules, SharedExpertsAreHiddenBehindAnyExchange) {
    Workload work = workload_of("qwen3-30b-a3b", 8);
    work.training.megatron.moe_shared_expert_overlap = true;
    work.model.moe->dispatcher = TokenDispatcher::all_gather;
    EXPECT_EQ(refusal(work, {}), "") << "without shared experts";
    work.model.moe->shared_ffn = 768;
    EXPECT_THAT(refusal(work, {}), HasSubstr("the dispatcher allgather has none; use alltoall, deepep or hybridep"));
    EXPECT_EQ(refusal(work, {}, {.dispatcher = TokenDispatcher::all_to_all}), "");
    EXPECT_EQ(refusal(work, {}, {.dispatcher = TokenDispatcher::hybrid_ep}), "");
}

TEST(DispatcherRules, OfKernelsHoldForTheJobsOwnDispatcherToo) {
    Workload work = workload_of("qwen3-30b-a3b", 64, "dgx-b300");
    work.model.moe->dispatcher = TokenDispatcher::deep_ep;
    EXPECT_EQ(refusal(work, {}), "");
    EXPECT_EQ(refusal(work, {}, {}, Engine::mgplan), "") << "has no kernels of DeepEP";
    work.cluster = workload_of("llama3-8b", 8, "mi300x").cluster;
    EXPECT_EQ(refusal(work, {}), "") << "DeepEP has a port for AMD's GPUs";
    EXPECT_THAT(refusal(work, {}, {.dispatcher = TokenDispatcher::hybrid_ep}), HasSubstr("hybridep is a CUDA program"));
    work.cluster = workload_of("llama3-8b", 8, "gb200-nvl72").cluster;
    EXPECT_EQ(refusal(work, {}), "") << "the job may have a patched build";
    EXPECT_THAT(refusal(work, {}, {.dispatcher = TokenDispatcher::deep_ep}),
                HasSubstr("dispatcher deepep needs NVLink among 2 to 8 GPUs, and the domain of gb200-nvl72 is 72"));
    EXPECT_EQ(refusal(work, {}, {.dispatcher = TokenDispatcher::hybrid_ep}), "") << "the layout's own choice counts";
    work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    EXPECT_EQ(refusal(work, {}), "");
    work.cluster.compute_capability = 120;
    EXPECT_THAT(refusal(work, {}), HasSubstr("dispatcher hybridep needs NVLink and a GPU of compute capability 8.0 to 10.3"));
}

TEST(DispatcherRules, DeepEpHas160Ranks) {
    Workload work = workload_of("deepseek-v3", 256, "dgx-b300");
    work.model.moe->dispatcher = TokenDispatcher::deep_ep;
    EXPECT_THAT(refusal(work, {}, {}, Engine::megatron, 256), HasSubstr("among at most 160 ranks, not ep·etp = 256·1"));
    EXPECT_EQ(refusal(work, {}, {}, Engine::megatron, 128), "");
}

TEST(DispatcherRules, KernelsTakeBf16Alone) {
    Workload work = workload_of("qwen3-30b-a3b", 8);
    for (const TokenDispatcher dispatcher : {TokenDispatcher::deep_ep, TokenDispatcher::hybrid_ep, TokenDispatcher::all_to_all}) {
        const bool takes_any = dispatcher == TokenDispatcher::all_to_all;
        for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::fp16}) {
            work.training.precision = precision;
            work.model.moe->dispatcher = TokenDispatcher::all_gather;
            EXPECT_EQ(refusal(work, {}, {.dispatcher = dispatcher}).empty(), takes_any) << to_string(precision);
            work.model.moe->dispatcher = dispatcher;
            EXPECT_EQ(refusal(work, {}).empty(), takes_any) << to_string(precision) << " of the job itself";
        }
        work.training.precision = Precision::bf16;
        EXPECT_EQ(refusal(work, {}), "");
        work.training.precision = Precision::fp8;
        EXPECT_EQ(refusal(work, {}), "") << "products in 8 bits, tokens in bf16";
    }
}

}  // namespace
}  // namespace mgplan::planner::testing::dispatcher_rules_test
