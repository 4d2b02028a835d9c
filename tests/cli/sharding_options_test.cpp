// --sharding and --optimizer: what the prediction and the export follow, and what is refused.

#include <set>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::sharding_options_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "simulate --world 16 --model llama3-8b --tp 1 --pp 1 --micro-batch 1 --global-batch 64 --recompute full ";

Json simulated(const std::string& options) {
    const Said said = say(kJob + "--format json" + (options.empty() ? "" : " " + options));
    EXPECT_TRUE(said.code == kDone || said.code == kNothingFits) << said.err;
    return Json::parse(said.out);
}

std::int64_t term(const Json& answer, const char* name) {
    return answer["predicted"]["memory"]["breakdown"][name].get<std::int64_t>();
}

TEST(ShardingOptions, DivideWhatTheyName) {
    const Json none = simulated("--sharding none"), optimizer = simulated("--sharding optimizer"),
               gradients = simulated("--sharding optimizer_gradients"), full = simulated("--sharding full");
    EXPECT_EQ(optimizer["predicted"], simulated("")["predicted"]);  // as it is without the option
    EXPECT_EQ(none["predicted"], simulated("--no-distributed-optimizer")["predicted"]);
    EXPECT_GT(term(none, "optimizer"), 8 * term(optimizer, "optimizer"));
    EXPECT_GT(term(optimizer, "gradients"), 4 * term(gradients, "gradients"));
    EXPECT_GT(term(gradients, "parameters"), 3 * term(full, "parameters"));  // the embedding stays gathered
    EXPECT_EQ(full["layout"]["sharding"], "full");
    EXPECT_EQ(gradients["layout"]["sharding"], "optimizer_gradients");
    EXPECT_EQ(none["layout"]["sharding"], "none");
    EXPECT_EQ(optimizer["layout"]["offload"], Json::object());

    const Json hybrid = simulated("--sharding hybrid:2");
    EXPECT_EQ(hybrid["layout"]["sharding"], "hybrid");
    EXPECT_EQ(hybrid["layout"]["optimizer_instances"], 2);
    EXPECT_GT(term(hybrid, "optimizer"), term(full, "optimizer"));
}

TEST(ShardingOptions, OwnEngineDividesTheSame) {
    const std::string own = "--engine mgplan --sharding ";
    const Json optimizer = simulated(own + "optimizer"), gradients = simulated(own + "optimizer_gradients"), full = simulated(own + "full"),
               hybrid = simulated(own + "hybrid:2");
    EXPECT_GT(term(optimizer, "gradients"), 4 * term(gradients, "gradients"));
    EXPECT_GT(term(gradients, "parameters"), 4 * term(full, "parameters"));
    EXPECT_GT(term(hybrid, "optimizer"), 19 * term(full, "optimizer") / 10);
    EXPECT_EQ(hybrid["layout"]["sharding"], "hybrid");
    const auto seconds = [](const Json& answer) { return answer["predicted"]["iteration_seconds"].get<double>(); };
    // Gathered for each pass, what was gathered once; and without overlap all of it is waited for.
    EXPECT_GT(seconds(full), seconds(gradients));
    EXPECT_GT(seconds(simulated(own + "full --no-overlap grad-reduce,param-gather")), 1.05 * seconds(full));
    const Said tied = say("simulate --world 16 --model qwen3-0.6b --tp 1 --pp 1 --engine mgplan --sharding full");
    EXPECT_EQ(tied.code, kBadInput) << tied.out;
    EXPECT_THAT(tied.err, HasSubstr("engine mgplan does not train --sharding full with tied embeddings"));
}

TEST(ShardingOptions, OwnEngineTrainsWithThem) {
    const std::string file = ::testing::TempDir() + "/sharding_options_run.json";
    const std::string job = "plan --world 4 --model tiny-llama --tp 1 --pp 1 --micro-batch 1 --global-batch 8 --seq 32 --search plain ";
    for (const char* sharding : {"--sharding optimizer_gradients", "--sharding full --engine mgplan", "--sharding hybrid:2"}) {
        ASSERT_EQ(say(job + sharding + " --save-plan " + file).code, kDone);
        const Said said = say("run " + file + " --steps 2 --format json");
        ASSERT_EQ(said.code, kDone) << sharding << said.err;
        EXPECT_EQ(Json::parse(said.out)["as_predicted"], true) << said.out;
    }
    ASSERT_EQ(say("plan --world 4 --model tiny-gpt --tp 1 --pp 1 --search plain --sharding full --save-plan " + file).code, kDone);
    const Said refused = say("run " + file + " --steps 2");
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_THAT(refused.err, HasSubstr("--sharding full with tied embeddings"));
}

TEST(ShardingOptions, OptimizersKeepTheirState) {
    const Json adam = simulated("--sharding none"), sgd = simulated("--sharding none --optimizer sgd");
    EXPECT_EQ(sgd["layout"]["optimizer"], "sgd");
    EXPECT_LT(term(sgd, "optimizer"), term(adam, "optimizer"));
}

TEST(ShardingOptions, ASavedPlanIsExportedWithThem) {
    const std::string file = ::testing::TempDir() + "/sharding_options.json";
    ASSERT_EQ(say("plan --world 16 --model llama3-8b --sharding full --optimizer sgd --save-plan " + file).code, kDone);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_EQ(exported.code, kDone) << exported.err;
    for (const char* flag : {"--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params", "--optimizer sgd"})
        EXPECT_THAT(exported.out, HasSubstr(flag));
}

TEST(ShardingOptions, GradientsAreOfTheTypeThatIsSaid) {
    const Json plain = simulated("--sharding full"), wide = simulated("--sharding full --grad-dtype fp32"),
               narrow = simulated("--sharding full --grad-dtype bf16");
    EXPECT_EQ(plain["layout"]["optimizer_dtypes"]["gradients"], "fp32") << "the job's, not Megatron-FSDP's own default of bf16";
    EXPECT_EQ(wide["layout"]["optimizer_dtypes"]["gradients"], "fp32");
    EXPECT_EQ(plain["predicted"]["memory"], wide["predicted"]["memory"]);
    EXPECT_EQ(term(wide, "gradients"), 2 * term(narrow, "gradients"));
    EXPECT_GT(wide["predicted"]["iteration_seconds"].get<double>(), narrow["predicted"]["iteration_seconds"].get<double>());

    const std::string search = "plan --world 16 --model llama3-8b --search optimizer --exhaustive --format csv";
    EXPECT_THAT(say(search).out, HasSubstr("bf16-grads"));
    EXPECT_THAT(say(search + " --sharding full").out, HasSubstr("bf16-grads"));
    EXPECT_THAT(say(search + " --sharding full --grad-dtype fp32").out, Not(HasSubstr("bf16-grads"))) << "pinned";
}

TEST(ShardingOptions, SeveralAreSearchedTogether) {
    const std::string job = "plan --world 8 --model qwen3-14b --seq 8k --global-batch 128 --tp 2,4 --cp 1 --micro-batch 1 --all --top 40";
    const auto shardings = [&](const std::string& options) {
        std::set<std::string> found;
        const Said said = say(job + options + " --format json");
        EXPECT_EQ(said.code, kDone) << said.err;
        if (said.code != kDone) return found;
        const Json report = Json::parse(said.out);
        for (const Json& plan : report["plans"]) found.insert(plan["layout"]["sharding"].get<std::string>());
        return found;
    };
    EXPECT_EQ(shardings(" --sharding optimizer"), (std::set<std::string>{"optimizer"}));
    EXPECT_EQ(shardings(" --sharding optimizer,full"), (std::set<std::string>{"full", "optimizer"}));
    EXPECT_EQ(shardings(""), (std::set<std::string>{"full", "optimizer"}));
    EXPECT_EQ(shardings(" --search plain"), (std::set<std::string>{"optimizer"}));
    EXPECT_THAT(say(job).out, HasSubstr(" fsdp"));
    const auto refused = [&](const std::string& options) {
        const Said said = say(job + options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return said.err;
    };
    EXPECT_THAT(refused(" --sharding optimizer,zero3"), HasSubstr("--sharding = 'zero3' is not known"));
    EXPECT_THAT(refused(" --sharding optimizer,full --engine mgplan"), HasSubstr("which is for engine megatron"));
    EXPECT_THAT(refused(" --sharding optimizer,full --optimizer muon"), HasSubstr("--sharding full is Megatron-FSDP's"));
    EXPECT_THAT(refused(" --sharding full --search sharding"), HasSubstr("both say what is searched"));
}

TEST(ShardingOptions, ASavedPlanKeepsTheShardingThatTheSearchChose) {
    const std::string file = ::testing::TempDir() + "/sharding_of_search.json";
    const std::string job = "--world 8 --model qwen3-14b --seq 8k --global-batch 128 --tp 2 --cp 1 --pp 1 --micro-batch 1 ";
    const Said said = say("plan " + job + "--save-plan " + file + " --compare tp2+sp,mbs1,pp1,none,fsdp --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json first = Json::parse(said.out)["plans"][0];
    EXPECT_EQ(first["layout"]["sharding"], "full");
    const Said simulated = say("simulate " + file + " --format json");
    EXPECT_EQ(Json::parse(simulated.out)["predicted"]["iteration_seconds"], first["predicted"]["iteration_seconds"]);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_THAT(exported.out, HasSubstr("--use-megatron-fsdp"));
    EXPECT_THAT(exported.out, HasSubstr("--megatron-fsdp-main-grads-dtype fp32"));
}

TEST(ShardingOptions, SchedulesThatImplyAnEngineRefuseWhatItLacks) {
    for (const char* job : {"plan --world 16 --model llama3-8b --schedule zb-h1 --optimizer ademamix",
                            "plan --world 16 --model llama3-8b --schedule auto,zb-h1 --optimizer ademamix",
                            "simulate --world 16 --model llama3-8b --pp 4 --kind zb-h1 --optimizer ademamix"}) {
        const Said said = say(job);
        EXPECT_EQ(said.code, kBadInput) << job;
        EXPECT_THAT(said.err, HasSubstr("engine mgplan does not train the optimizer AdEMAMix")) << job;
    }
}

TEST(ShardingOptions, WhatContradictsItselfIsRefused) {
    const auto refused = [](const std::string& options) {
        const Said said = say(kJob + options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return said.err;
    };
    EXPECT_THAT(refused("--sharding zero3"), HasSubstr("--sharding = 'zero3' is not known; use one of none, optimizer, "));
    EXPECT_THAT(refused("--sharding hybrid"), HasSubstr("hybrid:N with N of at least 2"));
    EXPECT_THAT(refused("--sharding full --no-distributed-optimizer"), HasSubstr("drop one of the two"));
    EXPECT_THAT(refused("--sharding full --optimizer muon"), HasSubstr("use --optimizer adam or sgd, or --sharding optimizer"));
    EXPECT_THAT(refused("--optimizer ademamix --engine mgplan"),
                HasSubstr("AdEMAMix (use adam, sgd, lion or muon); or use --engine megatron"));
    const Said wide = say("simulate --world 16 --model llama3-8b --tp 16 --engine mgplan --optimizer muon");
    EXPECT_EQ(wide.code, kBadInput);
    EXPECT_THAT(wide.err, HasSubstr("Muon with tp = 16 above 8 kv heads (use a smaller tp, or --optimizer adam)"));
    EXPECT_THAT(refused("--sharding full --optimizer sgd --engine mgplan"), HasSubstr("with another optimizer than Adam"));
    EXPECT_THAT(refused("--optimizer adamw2"), HasSubstr("--optimizer"));
    EXPECT_THAT(refused("--sharding none --overlap param-gather"), HasSubstr("--sharding none divides none"));
    EXPECT_THAT(refused("--sharding full --no-overlap param-gather"), HasSubstr("Megatron-FSDP overlaps what it divides"));
    EXPECT_THAT(refused("--sharding optimizer_gradients --no-overlap grad-reduce"), HasSubstr("Megatron-FSDP overlaps what it divides"));
}

/// A dense model on 16 GPUs, tp 2.
std::string dense_command(const std::string& words) {
    return "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50000 "
           "--micro-batch-size 1 --global-batch-size 64 --bf16 --tensor-model-parallel-size 2 --sequence-parallel "
           "--use-distributed-optimizer " +
           words;
}

TEST(ShardingOptions, PartsOfWeightsAreKeptOrRefusedAloud) {
    const TempFile file("parts.args", dense_command("--tensor-parallel-num-weight-shards 4"));
    const std::string simulate = "simulate --world 16 --megatron-args " + file.path();
    const Said as_said = say(simulate), wider = say(simulate + " --tp 4");
    EXPECT_EQ(as_said.code, kDone) << as_said.err;
    EXPECT_THAT(as_said.err, Not(HasSubstr("weights stay")));
    EXPECT_EQ(wider.code, kDone) << wider.err;
    EXPECT_THAT(in_one_line(wider.err), HasSubstr("weights stay in 2 parts whatever the tp: the command's "
                                                  "--tensor-parallel-num-weight-shards = 4 is them times its tp = 2"));
    EXPECT_THAT(in_one_line(say("plan --top 1 --world 16 --model " + file.path()).err),
                HasSubstr("weights stay in 2 parts whatever the tp"));
    // check says it where one of its better layouts has another tp.
    const Said better = say("check --top 3 --format json --world 16 --megatron-args " + file.path());
    const bool another = [&] {
        const Json layouts = Json::parse(better.out)["better"];
        return std::any_of(layouts.begin(), layouts.end(), [](const Json& one) { return one["layout"]["tp"] != 2; });
    }();
    EXPECT_TRUE(another) << "the search finds a better tp";
    EXPECT_THAT(in_one_line(better.err), HasSubstr("weights stay in 2 parts whatever the tp"));
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + file.path()).err, Not(HasSubstr("weights stay")));
    const auto refused = [&](const std::string& options) {
        const Said said = say(simulate + " " + options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return in_one_line(said.err);
    };
    EXPECT_THAT(refused("--sharding optimizer_gradients"), HasSubstr("does not go with the command's weights in parts"));
    EXPECT_THAT(refused("--engine mgplan"), HasSubstr("engine mgplan holds no weights in parts"));
    EXPECT_THAT(refused("--optimizer muon"), HasSubstr("not predicted are weight shards (GTP) with Muon"));
    EXPECT_THAT(refused("--cuda-graphs attn"), HasSubstr("not predicted are weight shards (GTP) under CUDA graphs"));
    EXPECT_THAT(refused("--recompute selective --recompute-modules mlp"), HasSubstr("weight shards (GTP) of recomputed modules"));
}

TEST(ShardingOptions, LayersInBf16KeepToAStage) {
    const TempFile file("ends.args", dense_command("--fp8-format e4m3 --fp8-recipe tensorwise --first-last-layers-bf16 "
                                                   "--num-layers-at-start-in-bf16 5"));
    const std::string simulate = "simulate --world 16 --megatron-args " + file.path();
    EXPECT_EQ(say(simulate).code, kDone);
    EXPECT_EQ(say(simulate + " --cuda-graphs attn").code, kDone);
    for (const auto& [options, said] :
         {std::pair("--pp 2", "pp = 2: 5 layers in bf16"), std::pair("--precision fp8-delayed", "do not go with delayed scaling")}) {
        const Said refused = say(simulate + " " + options);
        EXPECT_EQ(refused.code, kBadInput) << options;
        EXPECT_THAT(in_one_line(refused.err), HasSubstr(said));
    }
    const Said plan = say("plan --format json --top 3 --search recompute,cuda-graphs --pp 1,2 --world 16 --model " + file.path());
    ASSERT_EQ(plan.code, kDone) << plan.err;
    const Json plans = Json::parse(plan.out)["plans"];
    ASSERT_FALSE(plans.empty());
    for (const Json& one : plans) EXPECT_EQ(one["layout"]["pp"], 1);
}

}  // namespace
}  // namespace mgplan::cli::testing::sharding_options_test
