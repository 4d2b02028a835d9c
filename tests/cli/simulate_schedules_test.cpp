// `mgplan simulate`: other schedules, slower ranks and balanced stages.

#include <nlohmann/json.hpp>

#include "simulated.hpp"

namespace mgplan::cli::testing::simulate_schedules_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SimulateSchedules, TakesAScheduleOfItsOwnForTheLayout) {
    const std::string words = "--model llama3-8b --world 16 --tp 2 --pp 4 --global-batch 32";
    const Json usual = simulate(words + " --engine mgplan"), divided = simulate(words + " --schedule zb-h1 --engine mgplan");
    EXPECT_EQ(usual["layout"]["schedule"], "1f1b");
    EXPECT_EQ(divided["layout"]["schedule"], "zb-h1");
    EXPECT_LT(divided["predicted"]["iteration_seconds"], usual["predicted"]["iteration_seconds"]);
    // The same passes as --kind replays, whose memory is that of 1F1B.
    const Json replayed = simulate(words + " --kind zb-h1 --engine mgplan");
    EXPECT_EQ(divided["predicted"]["iteration_seconds"], replayed["predicted"]["iteration_seconds"]);
    EXPECT_EQ(divided["schedule"], replayed["schedule"]);
    EXPECT_GT(simulate(words + " --schedule zb-h2 --engine mgplan")["predicted"]["memory"]["peak_bytes"],
              usual["predicted"]["memory"]["peak_bytes"]);
    const Json in_a_v = simulate(words + " --schedule zb-v");
    EXPECT_EQ(in_a_v["layout"]["vpp"], 2);
    EXPECT_EQ(in_a_v["predicted"]["iteration_seconds"],
              simulate(words + " --vpp 2 --kind zb-v --engine mgplan")["predicted"]["iteration_seconds"]);
    const Json ranks = simulate(words + " --schedule v-min --per-rank");
    EXPECT_EQ(ranks["ranks"][0]["memory"]["peak_bytes"], ranks["predicted"]["memory"]["peak_bytes"]);
    EXPECT_THAT(say("simulate " + words + " --schedule zb-h1").err, HasSubstr("--schedule zb-h1 implies --engine mgplan"));
    const auto refused = [&](const std::string& more, const std::string& message) {
        const Said said = say("simulate " + words + " " + more);
        EXPECT_EQ(said.code, kBadInput) << more;
        EXPECT_THAT(said.err, HasSubstr(message)) << more;
    };
    refused("--schedule zb-h1 --engine megatron",
            "--schedule zb-h1 with --engine megatron: Megatron-LM has no schedule with divided backwards");
    refused("--schedule zb-h1 --cuda-graphs attn", "schedule zb-h1 with CUDA graphs (use --cuda-graphs none)");
    refused("--schedule zb-h1 --vpp 2", "schedule zb-h1 has one model chunk a rank, but vpp = 2; use vpp = 1");
    refused("--schedule zb-h1 --kind zb-h2", "--kind zb-h2 replays another schedule than the layout's own, zb-h1");
    refused("--schedule zb-h1 --balance-stages", "not for zb-h1");
    refused("--schedule dualpipe-v --micro-batch 8", "fewer than kind dualpipe-v needs on pp = 4; use 8 or more");
    refused("--schedule zb-h9", "zb-h9");
}

/// A schedule that the model keeps from running is told so, without misses of schedules that were not asked for.
TEST(PlanSchedules, SayWhyNothingFits) {
    const std::string job =
        "plan --engine mgplan --world 256 --model deepseek-v3 --cluster gb200-nvl72 --precision mxfp8 --tp 8 --pp 8 --ep 32 --etp 1 --cp 1 "
        "--micro-batch 1 --recompute full --schedule ";
    const TempFile page("schedules.html");
    const Said text = say(job + "dualpipe-v --html " + page.path()), markdown = say(job + "dualpipe-v --markdown");
    for (const auto& [code, said] : {std::pair{text.code, text.out}, {markdown.code, markdown.out}, {kNothingFits, page.text()}}) {
        EXPECT_EQ(code, kNothingFits);
        EXPECT_THAT(
            said, AllOf(HasSubstr("No layout fits with what --schedule names"), HasSubstr("schedule dualpipe-v: 0 layouts tried, 0 fit: "),
                        HasSubstr("schedule dualpipe-v with multi-token prediction"), Not(HasSubstr("earest misses")),
                        Not(HasSubstr("too large"))));
    }
    // Of a schedule that fits the page draws its own layouts.
    ASSERT_EQ(say("plan --world 16 --model llama3-8b --tp 2 --pp 4 --cp 1 --global-batch 32 --micro-batch 1,2 --schedule zb-h1 --html " +
                  page.path())
                  .code,
              kDone);
    EXPECT_THAT(page.text(), AllOf(ContainsRegex("First: tp2 [^<]*zb-h1"), Not(HasSubstr("No layout fits"))));
    const Said both = say(job + "auto,dualpipe-v");
    EXPECT_EQ(both.code, kDone) << both.err;
    EXPECT_THAT(both.out, HasSubstr("schedule dualpipe-v: 0 layouts tried, 0 fit: "));
    // One that runs, and does not fit: its own misses are the nearest.
    const std::string large =
        "plan --engine mgplan --world 8 --model llama3-70b --tp 2 --pp 4 --cp 1 --global-batch 32 --micro-batch 1 --schedule zb-h1";
    const Said missed = say(large);
    EXPECT_EQ(missed.code, kNothingFits);
    EXPECT_THAT(missed.out, AllOf(HasSubstr("with what --schedule names. Nearest misses:\n\n  tp2"), HasSubstr("schedule zb-h1: "),
                                  Not(HasSubstr("\nrejected"))));
    const Json nearest = Json::parse(say(large + " --format json").out)["nearest"];
    EXPECT_FALSE(nearest.empty());
    for (const auto& miss : nearest) EXPECT_EQ(miss["layout"]["schedule"], "zb-h1");
}

TEST(SimulateSchedules, ComparesSchedules) {
    const std::string words = "--world 8 --model llama3-8b --tp 1 --pp 8 --global-batch 64 --kind ";
    const double usual = simulate(words + "1f1b", kAnyCode)["predicted"]["bubble_fraction"].get<double>();
    const Json split = simulate(words + "zb-h1", kAnyCode);
    EXPECT_LT(split["predicted"]["bubble_fraction"].get<double>(), 0.8 * usual);
    EXPECT_EQ(split["schedule"]["kind"], "zb-h1");
    EXPECT_EQ(split["schedule"]["peak_live"].dump(), "[8,8,8,8,8,8,8,8]");
    for (const char* kind : {"zb-v", "v-half", "v-min", "dualpipe-v"}) {
        const Json v = simulate(words + kind + " --vpp 2", kAnyCode);
        EXPECT_GT(v["predicted"]["iteration_seconds"].get<double>(), 0) << kind;
        EXPECT_EQ(v["schedule"]["chunks"], 2);
    }
}

TEST(SimulateSchedules, SlowsTheStageOfAStraggler) {
    const std::string words = "--world 8 --model llama3-8b --tp 2 --pp 4 --vpp 1 --global-batch 64 --micro-batch 1";
    const double usual = simulate(words)["predicted"]["iteration_seconds"].get<double>();
    const Json slowed = simulate(words + " --straggler 7=1.5");
    EXPECT_EQ(slowed["disturbed"]["undisturbed_seconds"], usual);
    EXPECT_EQ(slowed["disturbed"]["slowdown_by_stage"].dump(), "[1.0,1.0,1.0,1.5]");
    EXPECT_EQ(slowed["predicted"]["slowest_stage"], 3);
    // With many microbatches the slowest stage decides: its computation takes half as long again, its communication as ever.
    const double ratio = slowed["predicted"]["iteration_seconds"].get<double>() / usual;
    EXPECT_GT(ratio, 1.2);
    EXPECT_LT(ratio, 1.5);
    // The other rank of its tp group makes no difference, the factor 1 neither.
    EXPECT_EQ(simulate(words + " --straggler 6=1.5")["predicted"], slowed["predicted"]);
    EXPECT_EQ(simulate(words + " --straggler 3=1")["predicted"]["iteration_seconds"].get<double>(), usual);
    EXPECT_THAT(say("simulate " + words + " --straggler 3=1.5").out,
                HasSubstr("stragglers: 1 stage slower, the most stage 1 (1.5 times): "));
}

TEST(SimulateSchedules, DrawsJitterFromASeed) {
    const std::string words = "--world 8 --model llama3-8b --tp 2 --pp 4 --vpp 1 --global-batch 32 --micro-batch 1 --jitter 5";
    const Json json = simulate(words);
    const Json& jitter = json["disturbed"]["jitter"];
    EXPECT_EQ(json["disturbed"]["undisturbed_seconds"], json["predicted"]["iteration_seconds"]);
    const double planned = json["predicted"]["iteration_seconds"].get<double>();
    EXPECT_NEAR(jitter["mean_seconds"].get<double>(), planned, 0.02 * planned);
    EXPECT_GT(jitter["p95_seconds"].get<double>(), jitter["mean_seconds"].get<double>());
    EXPECT_EQ(simulate(words + " --seed 1")["disturbed"], json["disturbed"]);
    EXPECT_NE(simulate(words + " --seed 2")["disturbed"]["jitter"]["mean_seconds"], jitter["mean_seconds"]);
    EXPECT_THAT(say("simulate " + words).out, HasSubstr("jitter of 5 % in 200 runs of 1 replica (seed 1): mean "));
}

TEST(SimulateSchedules, RefusesStragglersThatAreNone) {
    const std::string words = "simulate --world 8 --model llama3-8b --tp 2 --pp 4 ";
    expect_refused(words + "--straggler 3", {"'3' is not RANK=FACTOR", "such as 3=1.5"});
    expect_refused(words + "--straggler a=2,3=b,1=0.5,1=1e9,2=nan",
                   {"'a=2' is not", "'3=b' is not", "factor = 0.5 of rank 1", "factor = 1e9"});
    expect_refused(words + "--straggler 3=2,3=3", {"rank 3 twice"});
    expect_refused(words + "--straggler -1=2", {"rank = -1 is out of range"});
    expect_refused(words + "--straggler 8=2,9=2", {"rank = 8 is no rank of the layout; use 0 to 7", "rank = 9"});
    expect_refused(words + "--jitter 101", {"--jitter"});
    expect_refused(words + "--jitter nan", {"--jitter"});
}

TEST(SimulateSchedules, BalancesStagesWhereThatIsFaster) {
    const std::string words = "--world 16 --model llama3-8b --tp 1 --pp 8 --micro-batch 1 --global-batch 128";
    const double even = simulate(words)["predicted"]["iteration_seconds"].get<double>();
    const Json json = simulate(words + " --balance-stages");
    ASSERT_TRUE(json["balanced"]["why_not"].is_null());
    EXPECT_EQ(json["balanced"]["seconds_before"], even);
    EXPECT_LT(json["predicted"]["iteration_seconds"].get<double>(), even);
    EXPECT_EQ(json["balanced"]["seconds"], json["predicted"]["iteration_seconds"]);
    // The string makes the same layout again, and the head's stage has fewer layers than the others.
    const std::string string = json["layout"]["pipeline_layout"].get<std::string>();
    EXPECT_EQ(simulate(words + " --pipeline-layout " + string)["predicted"], json["predicted"]);
    EXPECT_LT(json["layout"]["layers_per_chunk"][7][0], json["layout"]["layers_per_chunk"][3][0]);
    // What is balanced stays.
    EXPECT_TRUE(simulate(words + " --balance-stages --pipeline-layout " + string)["balanced"]["why_not"].is_string());
    const Json whole = simulate("--world 2 --model tiny-llama --balance-stages --global-batch 8");
    EXPECT_EQ(whole["balanced"]["why_not"], "pp = 1 has one stage");
    // A slower split is taken where the even one does not fit, and that is said.
    const Said fitting = say("simulate --world 1024 --model deepseek-v3 --pp 16 --ep 64 --recompute selective --balance-stages");
    EXPECT_THAT(fitting.out,
                AllOf(HasSubstr(" %; the split before does not fit in memory\n"), HasSubstr("balanced stages: --pipeline-layout '")));
    EXPECT_THAT(say("simulate " + words + " --balance-stages").out, Not(HasSubstr("the split before")));
    expect_refused("simulate " + words + " --balance-stages --kind zb-h1", {"--balance-stages balances for the schedules of Megatron-LM"});
}

TEST(SimulateSchedules, OfAMegatronCommandNeedsTheOtherEngineByName) {
    const TempFile file("pp.sh",
                        "ARGS=(--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 128 --max-position-embeddings 128 "
                        "--micro-batch-size 1 --global-batch-size 16 --bf16 --vocab-size 1000 --pipeline-model-parallel-size 2 "
                        "--untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0)\n");
    const std::string words = "simulate --world 2 --megatron-args " + file.path() + " --schedule zb-h1";
    const Said refused = say(words);
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("--schedule zb-h1 with a Megatron-LM command"), HasSubstr("use --engine mgplan, or leave")));
    EXPECT_EQ(say(words + " --engine mgplan").code, kDone);
}

}  // namespace
}  // namespace mgplan::cli::testing::simulate_schedules_test
