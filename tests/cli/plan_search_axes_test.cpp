// `mgplan plan --search` and --dispatcher: what is switched on is named wherever a plan is.

#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::plan_search_axes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "plan --world 16 --model deepseek-v2-lite --global-batch 64 --micro-batch 1 --cp 1 --engine megatron ";

TEST(PlanSearchAxes, RowsAndFieldsNameWhatIsSwitchedOn) {
    const Said table = say(kJob + "--tp 2 --search recipe");
    EXPECT_EQ(table.code, kDone) << table.err;
    EXPECT_THAT(table.out, HasSubstr("all rows: cp 1, etp 1, dp 8, pp 1, features hybridep ov:tp\n"));
    EXPECT_THAT(table.out, HasSubstr("ov: overlap"));
    EXPECT_THAT(table.out, HasSubstr(" legal, at least "));

    const Json recipe = Json::parse(say(kJob + "--tp 2 --search recipe --format json").out);
    const Json& search = recipe["search"];
    EXPECT_GT(search["bounded"], 0);
    const double fastest = search["fastest_seconds"], first = recipe["plans"][0]["predicted"]["iteration_seconds"];
    EXPECT_EQ(fastest, first);
    std::int64_t rejected = 0;
    for (const auto& [rule, count] : search["rejected"].items()) {
        if (rule.starts_with("fits_in_memory")) rejected += count.get<std::int64_t>();
    }
    EXPECT_EQ(search["legal"].get<std::int64_t>(),
              search["feasible"].get<std::int64_t>() + search["bounded"].get<std::int64_t>() + rejected);
    const Json& layout = recipe["plans"][0]["layout"];
    EXPECT_THAT(layout["overlap"].dump(), HasSubstr("\"tp\""));
    EXPECT_EQ(layout["optimizer"], "adam");
    EXPECT_EQ(layout["optimizer_dtypes"]["exp_avg"], "fp32");

    const Json exhaustive = Json::parse(say(kJob + "--tp 2 --search recipe --exhaustive --format json").out);
    EXPECT_EQ(exhaustive["search"]["bounded"], 0);
    EXPECT_EQ(exhaustive["plans"], recipe["plans"]);
}

TEST(PlanSearchAxes, WhatRowsDecideIsNotAssumed) {
    const Said table = say(kJob + "--search cuda-graphs,optimizer --assumed");
    EXPECT_THAT(table.out,
                AllOf(HasSubstr("features bf16:g,m graphs\n"), Not(HasSubstr("no CUDA graphs")), Not(HasSubstr("fp32 gradients"))))
        << "even where all rows have them";
    EXPECT_THAT(say(kJob + "--search cuda-graphs --explain 1").out, HasSubstr(" graphs=attn"));
    EXPECT_THAT(say(kJob + "--search vpp --assumed").out, AllOf(HasSubstr("no CUDA graphs"), HasSubstr("bf16 with fp32 gradients")));
}

TEST(PlanSearchAxes, RowsSayWhichGraphsTheyHave) {
    const std::string job =
        "plan --world 8 --model qwen3-30b-a3b --cluster gb200-nvl72 --global-batch 64 --tp 1 --pp 1 --cp 1 --ep 8 --micro-batch 1 "
        "--search cuda-graphs,dispatcher ";
    const Said table = say(job + "--all --top 12");
    EXPECT_THAT(table.out, AllOf(HasSubstr("hybridep graphs:all"), HasSubstr(" graphs:router"), HasSubstr(" graphs ")));
    const Json bounded = Json::parse(say(job + "--format json").out), all = Json::parse(say(job + "--exhaustive --format json").out);
    EXPECT_EQ(bounded["plans"], all["plans"]);
}

TEST(PlanSearchAxes, DispatchersArePinned) {
    const Json plan = Json::parse(say(kJob + "--dispatcher hybridep --format json").out);
    for (const Json& each : plan["plans"]) EXPECT_EQ(each["layout"]["dispatcher"], "hybridep");
    EXPECT_EQ(Json::parse(say(kJob + "--search plain --format json").out)["plans"][0]["layout"]["dispatcher"], "alltoall");
    const Said csv = say(kJob + "--dispatcher hybridep --search plain --format csv");
    EXPECT_THAT(csv.out, HasSubstr(",switched_on,why,recommended,adverse_seconds,imbalance_fraction,idle_fraction\r\n"));
    EXPECT_THAT(csv.out, HasSubstr(",hybridep,fastest"));
}

TEST(PlanSearchAxes, WhatContradictsItselfIsRefused) {
    const auto refused = [](const std::string& options) {
        const Said said = say(options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return said.err;
    };
    EXPECT_THAT(refused(kJob + "--search dispatchers"),
                HasSubstr("--search = 'dispatchers' is no axis of the search; use plain, recipe, wide"));
    EXPECT_THAT(refused(kJob + "--search recompute --recompute-modules mlp"),
                HasSubstr("--search recompute and --recompute-modules both say what is searched; drop one of them"));
    EXPECT_THAT(refused(kJob + "--dispatcher nccl"), HasSubstr("--dispatcher = 'nccl' is not known; use allgather, alltoall, deepep"));
    EXPECT_THAT(refused("plan --world 8 --model llama3-8b --engine megatron --search moe-overlap"), HasSubstr("needs experts, and "));
    EXPECT_THAT(refused("plan --world 8 --model tiny-moe --engine mgplan --search dispatcher"),
                HasSubstr("is a choice of Megatron-LM, not of engine mgplan"));
}

TEST(PlanSearchAxes, ASavedPlanHasTheSwitchesInItsJob) {
    const std::string file = ::testing::TempDir() + "/plan_search_axes.json";
    ASSERT_EQ(say(kJob + "--dispatcher hybridep --save-plan " + file).code, kDone);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_EQ(exported.code, kDone) << exported.err;
    EXPECT_THAT(exported.out, HasSubstr("--moe-flex-dispatcher-backend hybridep"));
}

TEST(PlanSearchAxes, NearestMissesAreNamedWhereBoundsCutThem) {
    const Said said = say("--world 8 --model llama3-70b --search recipe --format json");
    EXPECT_EQ(said.code, kNothingFits);
    const Json found = Json::parse(said.out);
    EXPECT_GT(found["nearest"].size(), 0U);
    const Json all = Json::parse(say("--world 8 --model llama3-70b --search recipe --exhaustive --format json").out);
    EXPECT_EQ(found["nearest"], all["nearest"]);
}

// With weights in parts full recompute keeps more of the gathered ones: the state of the first of its branch is no bound of the others'.
TEST(PlanSearchAxes, BoundsHoldWhereFullRecomputeStandsFirst) {
    const TempFile job("parts.args");
    std::ofstream(job.path())
        << "--num-layers 2 --hidden-size 4096 --ffn-hidden-size 16384 --num-experts 42 --moe-router-topk 1 --moe-router-pre-softmax "
           "--moe-grouped-gemm "
           "--num-attention-heads 16 --seq-length 128 --max-position-embeddings 128 --vocab-size 8000 --swiglu --normalization RMSNorm "
           "--disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --micro-batch-size 1 "
           "--global-batch-size 64 --bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --moe-token-dispatcher-type alltoall "
           "--tensor-model-parallel-size 1 --use-distributed-optimizer --tensor-parallel-num-weight-shards 4 "
           "--expert-tensor-parallel-num-weight-shards 4 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag --overlap-grad-reduce "
           "--overlap-param-gather\n";
    const std::string words = fmt::format(
        "plan --world 16 --model {} --cluster dgx-b200 --search recompute --recompute full,none --cp 1 --tp 1 --pp 1 --ep 1 --etp 1 "
        "--micro-batch 1,2,4 --format json --max-memory ",
        job.path());
    for (const std::string limit : {"161GiB", "6GiB"}) {
        Json bounded = Json::parse(say(words + limit).out), all = Json::parse(say(words + limit + " --exhaustive").out);
        for (const char* const found : {"plans", "nearest"}) EXPECT_EQ(bounded[found].size(), all[found].size()) << limit << ", " << found;
        EXPECT_EQ(bounded["nearest"], all["nearest"]) << limit;
        EXPECT_EQ(all["plans"].empty(), limit == "6GiB");
    }
}

TEST(PlanSearchAxes, APlanWithSwitchesIsWhatSimulateSaysOfIt) {
    const TempFile plan("switched.json");
    const std::string words = "--world 8 --model llama3-8b --cp 1 --pp 1,2 --tp 1,2 --search optimizer,tp-overlap --format json --top 3 ";
    for (int pick = 1; pick <= 3; ++pick) {
        const Json found = Json::parse(say(words + fmt::format("--pick {} --save-plan {}", pick, plan.path())).out);
        const Json alone = Json::parse(say("simulate " + plan.path() + " --format json").out);
        const auto& shown = found["plans"][static_cast<std::size_t>(pick - 1)]["predicted"];
        EXPECT_DOUBLE_EQ(shown["iteration_seconds"].get<double>(), alone["predicted"]["iteration_seconds"].get<double>()) << pick;
        EXPECT_EQ(shown["memory"]["peak_bytes"], alone["predicted"]["memory"]["peak_bytes"]) << pick;
    }
}

TEST(PlanSearchAxes, ADispatcherThatTheJobForbidsIsRefusedWithThoseThatGoWithIt) {
    const std::string job = "plan --world 16 --model mixtral-8x7b --global-batch 64 --micro-batch 1 --cp 1 ";
    expect_refused(job + "--dispatcher deepep --cuda-graphs full_iteration",
                   {"--dispatcher = deepep: cuda graphs: full_iteration captures the experts of mixtral-8x7b",
                    "--dispatcher = deepep: with the rest of this job use hybridep"});
    const auto refusal = [](const std::string& words) {
        const Said said = say(words);
        EXPECT_EQ(said.code, kBadInput);
        return said.err;
    };
    EXPECT_EQ(refusal(job + "--dispatcher hybridep --precision fp32"),
              "mgplan: --dispatcher = hybridep: dispatcher hybridep combines tokens in bf16 alone, and these are fp32; use alltoall, or a "
              "--precision that computes in bf16\n"
              "mgplan: --dispatcher = hybridep: with the rest of this job use allgather or alltoall\n");
    EXPECT_THAT(refusal(job + "--dispatcher deepep --cluster gb200-nvl72"),
                AllOf(HasSubstr("the domain of gb200-nvl72 is 72"),
                      HasSubstr("with the rest of this job use allgather, alltoall or hybridep"), Not(HasSubstr("exchanges over"))));
    // HybridEP would hold these graphs, but not on these GPUs and not for these tokens.
    for (const std::string other : {"--cluster mi300x", "--precision fp32"}) {
        const std::string said = refusal(job + "--dispatcher alltoall --cuda-graphs full_iteration " + other);
        EXPECT_THAT(said, AllOf(HasSubstr("--dispatcher = alltoall: cuda graphs: full_iteration captures"),
                                HasSubstr("or use attn,moe_router,moe_preprocess"), Not(HasSubstr("hybridep"))));
    }
    // One that will do is enough.
    const Json some = Json::parse(say(job + "--dispatcher deepep,alltoall --cluster gb200-nvl72 --top 1 --format json").out);
    EXPECT_EQ(some["plans"][0]["layout"]["dispatcher"], "alltoall");
}

TEST(PlanSearchAxes, GraphsAreJudgedByTheDispatcherOfTheRow) {
    const std::string job =
        "plan --world 8 --model qwen3-30b-a3b --cluster gb200-nvl72 --global-batch 64 --tp 1 --pp 1 --cp 1 --ep 8 --micro-batch 1 --format "
        "json ";
    const Json one = Json::parse(say(job + "--dispatcher hybridep --cuda-graphs full_iteration").out);
    EXPECT_EQ(one["plans"][0]["layout"]["cuda_graphs"].dump(), R"(["full_iteration"])");
    expect_refused(job + "--dispatcher alltoall,deepep --cuda-graphs full_iteration",
                   {"full_iteration captures the experts of qwen3-30b-a3b", "the dispatcher reads on the host"});
    // Where some dispatchers can have the graphs, the rows of the others are turned away.
    const TempFile plan("graphs.json"), command("graphs.sh");
    const Json some = Json::parse(say(job + "--search dispatcher --cuda-graphs full_iteration --save-plan " + plan.path()).out);
    EXPECT_GT(some["search"]["rejected"]["cuda_graphs_suit_the_dispatcher"], 0);
    for (const Json& each : some["plans"]) EXPECT_EQ(each["layout"]["dispatcher"], "hybridep");
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + command.path()).code, kDone);
    // A command with HybridEP and such graphs is no job of another dispatcher, unless its graphs are left out.
    const std::string again =
        "plan --world 8 --cluster gb200-nvl72 --model " + command.path() + " --tp 1 --pp 1 --cp 1 --ep 8 --micro-batch 1 --format json ";
    expect_refused(again + "--dispatcher alltoall",
                   {"--dispatcher = alltoall: cuda graphs: full_iteration captures the experts", "use the dispatcher hybridep, or attn,",
                    "--dispatcher = alltoall: with the rest of this job use hybridep"});
    EXPECT_EQ(say(again + "--dispatcher alltoall --cuda-graphs none").code, kDone);
    EXPECT_EQ(say(again + "--top 1").code, kDone);
}

/// core_attn frees nothing where attention is fused, and is in no set of the search's own.
TEST(PlanSearchAxes, WhatACommandRecomputesStaysInTheSearch) {
    const TempFile command("recomputes.sh",
                           R"(--num-layers 8 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 8192 --seq-length 2048
--max-position-embeddings 2048 --vocab-size 32000 --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --expert-model-parallel-size 8
--micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer --recompute-granularity selective
--recompute-modules core_attn moe_act --no-bias-dropout-fusion
)");
    const std::string job =
        "plan --world 8 --model " + command.path() + " --tp 1 --pp 1 --cp 1 --ep 8 --micro-batch 1 --recompute selective ";
    for (const std::string search : {"recompute", "recipe", "wide"}) {
        const Said said = say(job + "--exhaustive --top 500 --format csv --search " + search);
        EXPECT_EQ(said.code, kDone) << said.err;
        EXPECT_NE(said.out.find(",core_attn moe_act,"), std::string::npos) << search;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_search_axes_test
