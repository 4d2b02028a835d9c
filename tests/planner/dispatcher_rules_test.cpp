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

}  // namespace
}  // namespace mgplan::planner::testing::dispatcher_rules_test
