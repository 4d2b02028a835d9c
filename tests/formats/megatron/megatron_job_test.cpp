// Exported commands start: each plan here was written with flags that Megatron-LM stops at. Sources are lines of Megatron-LM at d98e8a64.
#include "formats/megatron/megatron_job.hpp"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/text/errors.hpp"
#include "tests/formats/megatron/plain_plan.hpp"

namespace mgplan::formats::megatron_job_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tests::megatron::plain_plan;
using enum MegatronVersion;

/// With the scaling of angles that plain_plan() takes away.
Plan scaled_plan(const std::string& model) {
    Plan plan = plain_plan(model);
    plan.model = load_model(model).model;
    return plan;
}

/// The first value of a flag; "" for a flag that takes none, "absent" where it is not written.
std::string value_of(const MegatronJob& job, const std::string& name) {
    for (const MegatronFlags& part : job.parts) {
        for (const MegatronFlag& flag : part.flags) {
            if (flag.name == name) return flag.values.empty() ? "" : flag.values.front();
        }
    }
    return "absent";
}

std::string why_refused(const std::function<void()>& asked) {
    try {
        asked();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

// arguments.py, _add_mla_args: a factor and two scales, and no more on main; dev has the length too.
TEST(MegatronJob, WritesYarnOfLatentAttentionAsTheVersionSpellsIt) {
    const Plan plan = scaled_plan("kimi-k2");
    for (const MegatronVersion version : {v0_19, v0_20, dev}) {
        const MegatronJob job = megatron_job(plan, version);
        EXPECT_EQ(value_of(job, "--rope-type"), "yarn");
        EXPECT_EQ(value_of(job, "--rotary-scaling-factor"), "32");
        EXPECT_EQ(value_of(job, "--beta-fast"), "absent");
        EXPECT_EQ(value_of(job, "--original-max-position-embeddings"), version == dev ? "4096" : "absent");
        EXPECT_EQ(why_refused([&] { refuse_what_stops(job, 90); }), "accepted");
    }
}

// argument_utils.py:384, _apply_yarn_config_from_args.
TEST(MegatronJob, WritesYarnOfPlainAttention) {
    const MegatronJob job = megatron_job(scaled_plan("gpt-oss-20b"));
    EXPECT_EQ(value_of(job, "--position-embedding-type"), "yarn");
    EXPECT_EQ(value_of(job, "--rotary-scaling-factor"), "32");
    EXPECT_EQ(value_of(job, "--yarn-original-max-position-embeddings"), "4096");
    EXPECT_EQ(value_of(job, "--no-yarn-correction-range-round-to-int"), "");
    const Job read = read_megatron_arguments(job.words(), "written", {.held_against = HeldAgainst::nothing});
    EXPECT_EQ(read.model.rotary_scaling_values, scaled_plan("gpt-oss-20b").model.rotary_scaling_values);
}

// moe/experts.py:205.
TEST(MegatronJob, FusesNoDropoutBesideBiasesOfGroupedExperts) {
    EXPECT_EQ(value_of(megatron_job(plain_plan("gpt-oss-20b")), "--no-bias-dropout-fusion"), "");
    EXPECT_EQ(value_of(megatron_job(plain_plan("mixtral-8x7b")), "--no-bias-dropout-fusion"), "absent");
}

// arguments.py:1332.
TEST(MegatronJob, GivesChannelsToLatentAttentionWhoseHeadsDoNotDivideTheWidth) {
    EXPECT_EQ(value_of(megatron_job(plain_plan("glm-4.7-flash")), "--kv-channels"), "256");
    EXPECT_EQ(value_of(megatron_job(plain_plan("deepseek-v3")), "--kv-channels"), "absent");
}

// arguments.py, --rotary-base: an int.
TEST(MegatronJob, RoundsTheBaseOfAngles) {
    Plan plan = plain_plan("starcoder2-3b");
    plan.model.rotary_base = 999999.4420358813;
    EXPECT_EQ(value_of(megatron_job(plan), "--rotary-base"), "999999");
}

// transformer_config.py:3163; gpt_layer_specs.py:572 and gpt_builders.py of dev.
TEST(MegatronJob, WritesSparseAttentionAsEachVersionTakesIt) {
    const Plan plan = plain_plan("deepseek-v3.2");
    ASSERT_EQ(plan.model.mtp_layers, 1);
    for (const MegatronVersion version : {v0_19, v0_20, dev}) {
        const MegatronJob job = megatron_job(plan, version);
        EXPECT_EQ(value_of(job, "--no-rope-fusion"), "");
        EXPECT_EQ(value_of(job, "--mtp-num-layers"), version == dev ? "1" : "absent");
        EXPECT_EQ(why_refused([&] { refuse_what_stops(job, 90); }), "accepted");
    }
}

TEST(MegatronJob, TakesMultiTokenPredictionOutOfTheStagesToo) {
    Plan plan = plain_plan("deepseek-v3.2");
    StageSplitRequest split;
    split.layers = plan.model.layers;
    split.pp = 2;
    split.vpp = 0;
    split.mtp_layers = 1;
    split.pipeline_layout = "Et*30|t*31mL";
    plan.layout.sizes.world = plan.layout.sizes.pp = 2;
    plan.layout.split = std::make_shared<const StageSplit>(make_stage_split(split));
    const std::string flag = "--pipeline-model-parallel-layout";
    EXPECT_EQ(value_of(megatron_job(plan, v0_20), flag), "Et*30|t*31L");
    EXPECT_EQ(value_of(megatron_job(plan, dev), flag), "Et*30|t*31mL");
}

TEST(MegatronJob, RefusesWhatTheVersionHasNoFlagsForAndNamesThatWhichDoes) {
    Plan plan = plain_plan("llama3.1-8b");
    plan.training.distributed_optimizer = true;
    plan.training.offload.states = 1;
    EXPECT_THAT(why_refused([&] { (void)megatron_job(plan); }),
                AllOf(HasSubstr("--offload-optimizer-states: Megatron-LM 0.20 does not have it, dev does"), HasSubstr("--megatron dev")));
    EXPECT_EQ(value_of(megatron_job(plan, dev), "--offload-optimizer-states"), "");
    Plan shards = plain_plan("llama3.1-8b");
    shards.layout.sizes.world = 2;
    shards.training.megatron.weight_shards.dense = 2;
    EXPECT_EQ(value_of(megatron_job(shards, v0_19), "--tensor-parallel-num-weight-shards"), "2");
    EXPECT_THAT(why_refused([&] { (void)megatron_job(shards, dev); }), HasSubstr("0.19, 0.20 does"));
}

// transformer_config.py:3014: no exchanges to hide.
TEST(MegatronJob, RefusesWhatTheVersionStopsAt) {
    Plan plan = plain_plan("mixtral-8x7b");
    EXPECT_EQ(why_refused([&] { refuse_what_stops(megatron_job(plan), 90); }), "accepted");
    plan.training.overlap_moe = true;
    EXPECT_THAT(why_refused([&] { refuse_what_stops(megatron_job(plan), 90); }),
                HasSubstr("Megatron-LM 0.20 stops at this plan's flags: --overlap-moe-expert-parallel-comm"));
}

TEST(MegatronJob, WritesNoHiddenExchangesOfExpertsThatAModelDoesNotHave) {
    Plan plan = plain_plan("llama3.1-8b");
    plan.training.overlap_moe = true;
    EXPECT_EQ(value_of(megatron_job(plan), "--overlap-moe-expert-parallel-comm"), "absent");
    EXPECT_THAT(megatron_environment(plan), IsEmpty());
}

TEST(MegatronJob, ExportsOnlyVariablesThatArgumentsRequire) {
    Plan plan = plain_plan("llama3.1-8b");
    EXPECT_THAT(megatron_environment(plan), IsEmpty());
    plan.layout.sizes.world = plan.layout.sizes.tp = 2;
    const std::pair<std::string, std::string> one_queue{"CUDA_DEVICE_MAX_CONNECTIONS", "1"};
    EXPECT_THAT(megatron_environment(plan), ElementsAre(one_queue)) << "arguments.py:1477";
    plan.training.megatron.query_key_layer_scaling = true;
    EXPECT_THAT(megatron_environment(plan), Contains(std::pair<std::string, std::string>{"NVTE_APPLY_QK_LAYER_SCALING", "1"}))
        << "extensions/transformer_engine.py:2080";
    plan.training.megatron.query_key_layer_scaling = false;
    plan.training.megatron.fully_sharded.kind = FullyShardedKind::megatron_fsdp;
    EXPECT_THAT(megatron_environment(plan), IsEmpty()) << "arguments.py:1166";
    plan.training.megatron.fully_sharded = {};
    plan.cluster = load_cluster("dgx-b200");
    EXPECT_THAT(megatron_environment(plan), IsEmpty()) << "Blackwell asks for none";
    plan.training.megatron.weight_shards.dense = 2;
    plan.layout.cuda_graphs = {CudaGraphScope::attn};
    EXPECT_THAT(megatron_environment(plan), ElementsAre(std::pair<std::string, std::string>{"CUDA_GRAPHS_USE_NODE_PRIORITY", "1"}))
        << "arguments.py:1541";
}

// parallel_state.py:898: both grids, where pp is not last.
TEST(MegatronJob, GivesTheGridOfExpertsOfDenseModelsWherePpIsNotLast) {
    Plan plan = plain_plan("llama3.1-8b");
    plan.layout.sizes.world = 8;
    plan.layout.sizes.tp = plan.layout.sizes.cp = 2;
    tests::megatron::split_stages(plan, 2, 1);
    plan.layout.sizes.world = 8;
    plan.layout.sizes.order = AxisOrder::parse("tp-cp-ep-pp-dp");
    plan.layout.sizes.etp = 4;
    EXPECT_EQ(value_of(megatron_job(plan), "--expert-tensor-parallel-size"), "4");
    plan.layout.sizes.order = {};
    EXPECT_EQ(value_of(megatron_job(plan), "--expert-tensor-parallel-size"), "absent");
}

// _run_training.sh takes the brackets away and lets the shell split the rest.
TEST(MegatronJob, WritesListsOfYamlAsNvidiasRunnerReadsThem) {
    Plan plan = plain_plan("llama3.1-8b");
    plan.layout.recompute = Recompute::selective;
    plan.layout.recompute_modules = {RecomputeModule::core_attn, RecomputeModule::layernorm};
    const MegatronJob job = megatron_job(plan);
    EXPECT_THAT(megatron_yaml_text(job), HasSubstr("\n  --recompute-modules: \"[core_attn layernorm]\"\n"));
    EXPECT_EQ(argument_words(megatron_yaml_text(job), "job.yaml").words, job.words());
}

TEST(MegatronJob, SaysWhichVersionItIsFor) {
    const Plan plan = plain_plan("llama3.1-8b");
    EXPECT_THAT(megatron_args_text(megatron_job(plan)), HasSubstr("# Megatron-LM 0.20 (main at d98e8a64): llama3.1-8b, "));
    EXPECT_THAT(megatron_yaml_text(megatron_job(plan, v0_19)), HasSubstr("# Megatron-LM 0.19 (megatron-core 0.19.2): "));
}

// arguments.py, --no-rope-freq; gpt_layer_specs.py, qk_l2_norm.
TEST(MegatronJob, WritesLayersWithoutPositionsAndNormsWithoutWeights) {
    const Plan smollm = plain_plan("smollm3-3b");
    const MegatronJob job = megatron_job(smollm);
    EXPECT_THAT(value_of(job, "--no-rope-freq"), HasSubstr("[0]*3+[1]+[0]*3+[1]"));
    EXPECT_EQ(read_megatron_arguments(job.words(), "written", {.held_against = HeldAgainst::nothing}).model.rotary_layers,
              smollm.model.rotary_layers);
    const MegatronJob llama4 = megatron_job(plain_plan("llama4-scout"));
    EXPECT_EQ(value_of(llama4, "--qk-l2-norm"), "");
    EXPECT_EQ(value_of(llama4, "--moe-apply-probs-on-input"), "");
}

}  // namespace
}  // namespace mgplan::formats::megatron_job_test
