// Each rule is broken alone by one layout, and says field, value, rule and way out.

#include "planner/constraints.hpp"

#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dispatcher_cases.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/data_sharding.hpp"
#include "planner/candidates.hpp"
#include "rule_cases.hpp"
#include "stream_cases.hpp"
#include "support.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::planner::testing::constraints_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

/// Names of the rules that a layout breaks at the first level that it breaks: what follows is of no meaning then.
std::vector<std::string> broken_rules(const Workload& work, const Layout& layout) {
    std::vector<std::string> names;
    for (int level = 0; level < kLevels && names.empty(); ++level) {
        for (const Rule& rule : rules()) {
            if (rule.level == static_cast<Level>(level) && rule.broken(work, layout)) names.emplace_back(rule.name);
        }
    }
    return names;
}

TEST(Constraints, EachRuleIsBrokenAloneAndSaysTheWayOut) {
    std::set<std::string> tested;
    std::vector<Case> every = rule_cases();
    for (Case& one : stream_cases()) every.push_back(std::move(one));
    for (Case& one : dispatcher_cases()) every.push_back(std::move(one));
    for (const Case& one : every) {
        SCOPED_TRACE(one.rule);
        Workload work = workload_of(one.model, one.world);
        Layout layout = make_layout(one.legal, work);
        ASSERT_THAT(broken_rules(work, layout), IsEmpty());
        one.spoil(work, layout);
        // Fields that follow from others: as make_layout() computes them.
        if (std::string(one.rule) != "interleaved_microbatches" && layout.dp() > 0)
            layout.num_microbatches = work.batch.global_batch / (layout.dp() * layout.micro_batch);
        EXPECT_THAT(broken_rules(work, layout), ElementsAre(one.rule));
        const auto messages = broken_messages(work, layout);
        if (messages.size() != 1) continue;
        for (const char* part : one.says) EXPECT_THAT(messages.front(), HasSubstr(part));
        const Rule* rule = nullptr;
        for (const Rule& candidate : rules()) {
            if (candidate.name == one.rule && candidate.broken(work, layout)) rule = &candidate;
        }
        ASSERT_NE(rule, nullptr);
        EXPECT_EQ(first_broken(work, layout, rule->level), rule);
        tested.insert(one.rule);
    }
    std::set<std::string> all;
    for (const Rule& rule : rules()) all.emplace(rule.name);
    EXPECT_EQ(tested, all);
}

TEST(Constraints, RefuseWhatIsNotPredictedBesideWeightsInParts) {
    Workload work = workload_of("llama3-8b", 8);
    Layout layout = make_layout({}, work);
    layout.engine = Engine::megatron;
    work.training.megatron.weight_shards.dense = 2;
    EXPECT_THAT(broken_rules(work, layout), IsEmpty());
    Layout graphs = layout;
    graphs.cuda_graphs.add(CudaGraphScope::attn);
    EXPECT_THAT(broken_rules(work, graphs), ElementsAre("weight_shards_are_predicted"));
    graphs.cuda_graphs = {};
    graphs.recompute = Recompute::full;
    graphs.recompute_method = RecomputeMethod::uniform;
    graphs.recompute_num_layers = 1;
    EXPECT_THAT(broken_rules(work, graphs), IsEmpty()) << "full recompute is predicted";
    using Spoil = void (*)(TrainingSpec&);
    for (const Spoil spoil : {Spoil([](TrainingSpec& training) { training.megatron.optimizer = OptimizerKind::muon; }),
                              Spoil([](TrainingSpec& training) { training.precision = Precision::fp8; }), Spoil([](TrainingSpec& training) {
                                  training.megatron.fully_sharded.kind = FullyShardedKind::torch_fsdp2;
                              })}) {
        Workload spoilt = work;
        spoil(spoilt.training);
        EXPECT_THAT(broken_rules(spoilt, layout), ElementsAre("weight_shards_are_predicted"));
    }
}

TEST(Constraints, KeepLayersInBf16FromDelayedScaling) {
    Workload work = workload_of("llama3-8b", 8);
    Layout layout = make_layout({}, work);
    layout.engine = Engine::megatron;
    work.training.precision = Precision::fp8;
    work.training.megatron.bf16_layers_at_start = 1;
    work.training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_THAT(broken_rules(work, layout), IsEmpty());
    work.training.megatron.fp8_recipe = Fp8Recipe::delayed;
    ASSERT_THAT(broken_rules(work, layout), ElementsAre("layers_in_bf16_suit_the_stages"));
    EXPECT_THAT(broken_messages(work, layout).front(), HasSubstr("do not go with delayed scaling"));
    layout.engine = Engine::mgplan;
    EXPECT_THAT(broken_rules(work, layout), IsEmpty()) << "a rule of Megatron-LM";
}

TEST(Constraints, KeepTensorParallelRanksWithinADomainInEveryOrder) {
    Workload work = workload_of("llama3-8b", 32);
    LayoutRequest request;
    request.tp = 4;
    request.cp = 4;
    // cp first: neighbours along tp are 4 ranks apart, and 4·4 ranks need two nodes.
    request.order = AxisOrder::parse("cp-tp-ep-dp-pp");
    EXPECT_THROW((void)make_layout(request, work), ConfigError);
    request.cp = 2;
    EXPECT_NO_THROW((void)make_layout(request, work));
    request.cp = 4;
    work.confine_tp = false;
    EXPECT_NO_THROW((void)make_layout(request, work));
}

TEST(Constraints, LetJobsOfOlderReleasesBePredicted) {
    Workload work = workload_of("gpt-oss-20b", 8);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.tp = 2;
    request.etp = 2;
    request.sequence_parallel = true;
    EXPECT_THROW((void)make_layout(request, work), ConfigError);
    work.newest_rules = false;
    EXPECT_EQ(make_layout(request, work).sizes.etp, 2);
}

TEST(Constraints, AreReportedTogetherLevelByLevel) {
    const Workload work = workload_of("qwen2.5-0.5b", 16);
    LayoutRequest request;
    request.tp = 16;
    try {
        (void)make_layout(request, work);
        FAIL();
    } catch (const ConfigError& error) {
        // 14 heads, a domain of 8; 2 kv heads are replicated and the width 4864 divides.
        EXPECT_THAT(error.problems(), SizeIs(2));
    }
}

TEST(Constraints, OfLaterLevelsAreToldAlongWhereTheyStandAlone) {
    const Workload work = workload_of("mixtral-8x7b", 16);
    LayoutRequest request;
    request.tp = 3;
    request.cp = 3;
    request.ep = 5;
    try {
        (void)make_layout(request, work);
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.problems(), IsSupersetOf({HasSubstr("tp = 3 does not divide attention heads"), HasSubstr("cp = 3: 2·cp"),
                                                    HasSubstr("ep = 5 does not divide experts = 8")}));
    }
}

TEST(Constraints, RefuseSizesThatAreNotPositive) {
    const Workload work = workload_of("llama3-8b", 16);
    LayoutRequest request;
    request.tp = 0;
    request.pp = -4;
    request.micro_batch = 0;
    try {
        (void)make_layout(request, work);
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.problems(), ElementsAre(HasSubstr("tp = 0"), HasSubstr("pp = -4"), HasSubstr("micro-batch = 0")));
    }
}

TEST(Constraints, SizesAtTheEndOfSixtyFourBitsAreRefusedNotMultiplied) {
    const Workload work = workload_of("mixtral-8x7b", 16);
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;
    for (const auto member : {&LayoutRequest::tp, &LayoutRequest::cp, &LayoutRequest::ep, &LayoutRequest::pp, &LayoutRequest::vpp}) {
        LayoutRequest request;
        request.*member = kHuge;
        EXPECT_THROW((void)make_layout(request, work), ConfigError);
    }
    LayoutRequest request;
    request.micro_batch = kHuge;
    EXPECT_THROW((void)make_layout(request, work), ConfigError);
    request.micro_batch = 1;
    request.etp = kHuge;
    EXPECT_THROW((void)make_layout(request, work), ConfigError);
}

// Megatron-LM parallel_state.py:898 (initialize_model_parallel, d98e8a64): without pp last both grids need the same data parallelism.
TEST(Constraints, GiveModelsWithoutExpertsTheirGridWherePpIsNotLast) {
    const Workload work = workload_of("llama3-8b", 8);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.pp = request.cp = 2;
    request.order = AxisOrder::parse("tp-cp-ep-pp-dp");
    EXPECT_NO_THROW((void)make_layout(request, work)) << "no command of Megatron-LM";
    request.idle_expert_shards = 1;
    EXPECT_THROW((void)make_layout(request, work), ConfigError);
    request.etp = 2;
    EXPECT_NO_THROW((void)make_layout(request, work));
}

TEST(Constraints, MakeALayoutAgainFromItsRequest) {
    for (const char* model : {"llama3-8b", "tiny-moe", "deepseek-v2-lite", "llama3.1-405b"}) {
        const Workload work = workload_of(model, 24);
        CandidateCounts counts;
        std::size_t i = 0;
        for (const Layout& layout : candidates_of(work, SearchSpace{}, counts)) {
            if (++i % 7 != 0) continue;
            ASSERT_EQ(make_layout(request_of(layout), work), layout) << fingerprint(layout);
        }
        EXPECT_GT(i, 100U);
    }
}

TEST(Constraints, MakeALayoutAgainFromItsRequestInOtherOrdersAndWithOtherRecompute) {
    SearchSpace space;
    space.orders = {AxisOrder::parse("cp-tp-ep-dp-pp")};
    space.recompute_modules = {RecomputeModule::layernorm, RecomputeModule::mlp};
    space.recompute_method = RecomputeMethod::block;
    space.recompute_num_layers = 2;
    space.group_size = 6;
    space.engine = Engine::megatron;
    for (const char* model : {"tiny-llama", "tiny-moe"}) {
        const Workload work = workload_of(model, 12);
        CandidateCounts counts;
        const auto layouts = candidates_of(work, space, counts);
        EXPECT_GT(layouts.size(), 100U);
        for (const Layout& layout : layouts) ASSERT_EQ(make_layout(request_of(layout), work), layout) << fingerprint(layout);
    }
}

TEST(Constraints, StandInTheDocumentation) {
    std::ifstream file(tests::data_folder() + "/../docs/errors.md");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    for (const Rule& rule : rules()) EXPECT_THAT(page, HasSubstr("`" + std::string(rule.name) + "`"));
}

}  // namespace
}  // namespace mgplan::planner::testing::constraints_test
