// `mgplan simulate`: one layout, its ranks, and what does not fit.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "reports/table.hpp"
#include "simulated.hpp"

namespace mgplan::cli::testing::simulate_command_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// A variable of the environment, as long as this lives.
class Environment {
public:
    Environment(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        ::setenv(name, value, 1);
    }
    ~Environment() {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
        else
            ::unsetenv(name_);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

TEST(SimulateCommand, AdvisesAFusedLossWhereTheLossHoldsThePeak) {
    const std::string words =
        "simulate --model qwen3-30b-a3b --world 16 --global-batch 512 --seq 4096 --grad-dtype bf16 --pp 2 --vpp 2 --ep 2 --etp 1 "
        "--micro-batch 8 --recompute full";
    const auto activations = [&](const std::string& fusion) {
        const Said said = say(words + fusion + " --per-rank --format json");
        return Json::parse(said.out)["ranks"][8]["memory"]["breakdown"]["activations"].get<std::int64_t>();
    };
    EXPECT_THAT(say(words).out, AllOf(HasSubstr("does not fit"), HasSubstr("--loss-fusion te")));
    EXPECT_THAT(say(words + " --loss-fusion te").out, AllOf(HasSubstr("loss fusion te"), Not(HasSubstr("--loss-fusion te"))));
    constexpr std::int64_t kLogits = std::int64_t{8} * 4096 * 151'936;
    EXPECT_GE(activations(" --loss-fusion none") - activations(" --loss-fusion te"), 3 * kLogits) << "fp32 copies";
    EXPECT_EQ(activations(""), activations(" --loss-fusion none"));
    expect_refused(words + " --engine mgplan --loss-fusion te", {"--loss-fusion", "engine mgplan"});
}

TEST(SimulateCommand, NamesAllThatIsOn) {
    const std::string layout = "simulate --world 16 --model qwen3-30b-a3b --ep 8 --etp 1 --pp 2 --vpp 4 --max-memory 10TB";
    EXPECT_THAT(say(layout).out, AllOf(HasSubstr(", recompute none\n  on          alltoall\n"), Not(HasSubstr("besides"))));
    const std::string on =
        " --dispatcher deepep --overlap moe --recompute selective --recompute-modules layernorm,moe_act --cuda-graphs moe_router "
        "--grad-dtype bf16";
    EXPECT_THAT(say(layout + on).out,
                HasSubstr(", recompute selective (moe_act+layernorm)\n  on          deepep ov:moe bf16:g graphs=moe_router\n"));
    EXPECT_THAT(say(layout + on + " --markdown").out, HasSubstr("| norm+act | deepep ov:moe bf16:g graphs:router |"));
    // A saved plan holds what is on as its model's and its training's own.
    const TempFile plan("all_that_is_on.json");
    ASSERT_EQ(
        say("plan --world 16 --model qwen3-30b-a3b --tp 1 --cp 1 --ep 8 --pp 2 --vpp 4 --micro-batch 1 --recompute none --overlap moe "
            "--dispatcher deepep --save-plan " +
            plan.path())
            .code,
        kDone);
    EXPECT_THAT(say("simulate " + plan.path()).out, HasSubstr("\n  on          deepep ov:moe\n"));
    EXPECT_THAT(say("simulate --world 16 --model llama3-8b --engine mgplan --no-overlap grad-reduce --optimizer sgd --offload optimizer "
                    "--recompute full --recompute-method block --recompute-num-layers 2 --sharding none")
                    .out,
                HasSubstr(", recompute full (2 layers a chunk)\n  on          -\n"
                          "  besides     engine mgplan, no overlap of grad-reduce, sharding none, optimizer\n"
                          "              sgd, offload optimizer\n"));
    // Gradients are summed over dp and cp.
    const std::string one_replica = "simulate --world 16 --model llama3-8b --tp 2 --cp 8 --no-overlap grad-reduce";
    EXPECT_THAT(say(one_replica).out, HasSubstr("\n  besides     no overlap of grad-reduce\n"));
    EXPECT_THAT(say("simulate --world 16 --model llama3-8b --sharding hybrid:2").out, HasSubstr("sharding hybrid:2"));
}

TEST(SimulateCommand, SaysThatExpertsAreCutAsTheRest) {
    const auto assumed = [](const std::string& words) { return simulate("--world 16 --max-memory 10TB " + words)["assumed"].dump(); };
    EXPECT_THAT(assumed("--model qwen3-30b-a3b --tp 2 --ep 8"), HasSubstr("etp 2 (= tp, as Megatron-LM)"));
    EXPECT_THAT(assumed("--model qwen3-30b-a3b --tp 2 --ep 8 --etp 2"), Not(HasSubstr("etp")));
    EXPECT_THAT(assumed("--model qwen3-30b-a3b --ep 8"), Not(HasSubstr("etp")));
    EXPECT_THAT(assumed("--model llama3-8b --tp 2"), Not(HasSubstr("etp")));
}

// 32 copies of 8 tokens over 128 experts, of which this rank's may have none.
TEST(SimulateCommand, PredictsExpertsThatNoTokenMayChoose) {
    const Json json = simulate("--world 512 --model gpt-oss-120b --tp 4 --cp 128 --ep 128 --etp 1");
    EXPECT_GT(json["predicted"]["iteration_seconds"].get<double>(), 0);
}

TEST(SimulateCommand, PredictsTheLayoutAsked) {
    const Json json = simulate(
        "--world 32 --model llama3-70b --tp 8 --pp 4 --vpp 2 --micro-batch 2 --recompute selective --recompute-modules core_attn,mlp");
    const Json& l = json["layout"];
    EXPECT_EQ(l["tp"], 8);
    EXPECT_EQ(l["dp"], 1);
    EXPECT_EQ(l["pp"], 4);
    EXPECT_EQ(l["vpp"], 2);
    EXPECT_EQ(l["micro_batch"], 2);
    EXPECT_EQ(l["sequence_parallel"], true);
    EXPECT_EQ(l["recompute_modules"].dump(), R"(["core_attn","mlp"])");
    EXPECT_GT(json["predicted"]["iteration_seconds"].get<double>(), 0);
}

TEST(SimulateCommand, SaysWhereAClusterIsNotCalibratedAndDoublesItsInterval) {
    const std::string job = "simulate --world 8 --model llama3-8b --tp 2 --pp 1 --micro-batch 1 --format json --cluster ";
    const auto width = [&](const char* cluster, bool calibrated) {
        const Said said = say(job + cluster);
        EXPECT_EQ(said.code, kDone) << said.err;
        const Json answer = Json::parse(said.out);
        const bool told = answer["assumed"].dump().find("are not calibrated, its intervals doubled") != std::string::npos;
        EXPECT_EQ(told, !calibrated) << cluster;
        const Json& interval = answer["predicted"]["interval_seconds"];
        return (interval[1].get<double>() - interval[0].get<double>()) / answer["predicted"]["iteration_seconds"].get<double>();
    };
    const double known = width("dgx-h200", true);
    for (const char* cluster : {"mi250x", "mi300x", "mi325x", "mi355x"}) EXPECT_GT(width(cluster, false), 1.5 * known) << cluster;
    EXPECT_THAT(say("plan --world 8 --model llama3-8b --cluster mi300x").out, HasSubstr("are not calibrated, its intervals doubled"));
}

TEST(SimulateCommand, TakesEveryFormOfSplit) {
    const std::string words = "--world 16 --model llama3-8b --pp 4 ";
    EXPECT_EQ(simulate(words + "--first-stage-layers 7 --last-stage-layers 7")["layout"]["layers_per_chunk"].dump(), "[[7],[9],[9],[7]]");
    EXPECT_EQ(simulate("--world 16 --model llama3-8b --pp 2 --account-for-embedding --account-for-loss --vpp 1",
                       kDone)["layout"]["layers_per_chunk"]
                  .dump(),
              "[[16],[16]]");
    EXPECT_EQ(simulate(words + "--pipeline-layout Et*5|t*9|t*9|t*9L")["layout"]["layers_per_chunk"].dump(), "[[5],[9],[9],[9]]");
    EXPECT_EQ(simulate("--world 24 --model llama3-8b --pp 6 --global-batch 96")["layout"]["layers_per_chunk"].size(), 6U);
}

TEST(SimulateCommand, PricesCudaGraphs) {
    const std::string words = "--world 16 --model llama3-8b --tp 2 --pp 4 --micro-batch 1 --global-batch 64";
    const Json eager = simulate(words), same = simulate(words + " --cuda-graphs none");
    EXPECT_EQ(eager["layout"], same["layout"]);
    EXPECT_EQ(eager["predicted"], same["predicted"]);
    EXPECT_EQ(eager["layout"]["cuda_graphs"].dump(), "[]");
    for (const char* field : {"graph_static_inputs", "graph_boundary", "graph_objects"})
        EXPECT_EQ(eager["predicted"]["memory"]["breakdown"][field], 0);
    for (const char* scope : {"attn", "mlp", "attn,mlp", "layer", "full_iteration"}) {
        const Json json = simulate(words + " --cuda-graphs " + scope);
        const Json& memory = json["predicted"]["memory"];
        EXPECT_EQ(json["layout"]["cuda_graphs"].size(), std::string(scope) == "attn,mlp" ? 2U : 1U);
        EXPECT_GT(memory["breakdown"]["graph_static_inputs"], 0) << scope;
        EXPECT_GT(memory["breakdown"]["graph_objects"], 0) << scope;
        EXPECT_GE(memory["high_water"]["graph_objects"], memory["breakdown"]["graph_objects"]) << scope;
        EXPECT_GT(memory["peak_bytes"], eager["predicted"]["memory"]["peak_bytes"]) << scope;
        EXPECT_LE(json["predicted"]["iteration_seconds"], eager["predicted"]["iteration_seconds"]) << scope;
        EXPECT_THAT(json["assumed"].dump(), HasSubstr("64 KiB of device memory for each kernel of a CUDA graph"));
        EXPECT_THAT(json["assumed"].dump(), ::testing::Not(HasSubstr("no CUDA graphs")));
    }
    // The same bytes as the command that lists them.
    const TempFile plan("graphed_plan.json");
    ASSERT_EQ(say("plan --engine mgplan " + words + " --vpp 1 --sequence-parallel on --recompute none --cuda-graphs layer --save-plan " +
                  plan.path())
                  .code,
              kDone);
    const Json predicted = simulate(plan.path())["predicted"]["memory"]["breakdown"];
    const Json graphs = Json::parse(say("graphs " + plan.path() + " --format json").out);
    EXPECT_EQ(graphs["cuda_graphs"].dump(), R"(["layer"])");
    EXPECT_EQ(graphs["ranks"][0]["static_input_bytes"], predicted["graph_static_inputs"]);
    EXPECT_EQ(graphs["ranks"][0]["boundary_bytes"], predicted["graph_boundary"]);
    EXPECT_EQ(graphs["ranks"][0]["graph_object_bytes"], predicted["graph_objects"]);
}

TEST(SimulateCommand, ListsEveryRank) {
    const std::string words = "--world 16 --model llama3-8b --tp 2 --pp 4";
    for (const char* engine : {"mgplan", "megatron"}) {
        const std::string asked = words + " --engine " + engine;
        const Json json = simulate(asked + " --per-rank");
        ASSERT_THAT(json["ranks"], SizeIs(16));
        std::int64_t most = 0;
        for (std::int64_t rank = 0; rank < 16; ++rank) {
            const Json& entry = json["ranks"][static_cast<std::size_t>(rank)];
            EXPECT_EQ(entry["rank"], rank);
            EXPECT_EQ(entry["stage"], rank / 4);
            EXPECT_EQ(entry["memory"]["worst_rank"], rank);
            for (const auto& [field, value] : json["predicted"]["memory"].items()) {
                if (field != "allocator_replay") {  // of the whole layout's fullest rank alone
                    EXPECT_TRUE(entry["memory"].contains(field)) << field;
                }
            }
            std::int64_t sum = 0;
            for (const auto& [name, bytes] : entry["memory"]["breakdown"].items()) sum += bytes.get<std::int64_t>();
            EXPECT_EQ(sum, entry["memory"]["peak_bytes"].get<std::int64_t>());
            EXPECT_EQ(entry["memory"]["framework_bytes"].get<std::int64_t>() + entry["memory"]["breakdown"]["context"].get<std::int64_t>() +
                          entry["memory"]["breakdown"]["fragmentation"].get<std::int64_t>(),
                      sum);
            most = std::max(most, entry["estimated_peak_bytes"].get<std::int64_t>());
        }
        EXPECT_EQ(most, json["predicted"]["memory"]["peak_bytes"].get<std::int64_t>());
        // Nothing but the ranks is new.
        Json without = json;
        without.erase("ranks");
        EXPECT_EQ(without, simulate(asked));
    }
}

TEST(SimulateCommand, ShowsWhatEveryStagesRanksDoInAnIteration) {
    for (const char* words :
         {"--world 16 --model llama3-8b --tp 2 --pp 4", "--world 16 --model llama3-8b --tp 2 --pp 4 --vpp 2 --recompute full",
          "--world 16 --model llama3-8b --pp 4 --kind zb-h1", "--world 16 --model llama3.2-1b --tp 2 --no-overlap grad-reduce",
          "--world 64 --model mixtral-8x7b --ep 8 --pp 2 --no-overlap param-gather"}) {
        const Json json = simulate(std::string(words) + " --per-rank");
        const double iteration = json["predicted"]["iteration_seconds"];
        for (const auto& entry : json["ranks"]) {
            const Json& time = entry["time"];
            double sum = 0;
            for (const char* term : {"compute_seconds", "bubble_seconds", "optimizer_seconds", "fixed_seconds"})
                sum += time[term].get<double>();
            for (const auto& [group, seconds] : time["exposed_communication_seconds"].items()) {
                EXPECT_GE(seconds.get<double>(), 0) << group;
                sum += seconds.get<double>();
            }
            ASSERT_NEAR(sum, iteration, 1e-12 * iteration) << words << " rank " << entry["rank"];
            EXPECT_GE(time["bubble_seconds"].get<double>(), 0);
            EXPECT_LE(time["recompute_seconds"].get<double>() + time["host_seconds"].get<double>(), time["compute_seconds"].get<double>());
            EXPECT_DOUBLE_EQ(time["utilisation"].get<double>(), time["compute_seconds"].get<double>() / iteration);
            // The slowest stage is the one that the prediction speaks of.
            if (entry["stage"] != json["predicted"]["slowest_stage"]) continue;
            for (const char* term : {"compute_seconds", "recompute_seconds", "host_seconds"})
                EXPECT_EQ(time[term], json["predicted"][term]);
        }
        const Said table = say("simulate " + std::string(words) + " --per-rank");
        EXPECT_THAT(table.out, HasSubstr("time of each stage's ranks in an iteration"));
        const auto rows = split(say("simulate " + std::string(words) + " --per-rank --format csv").out, '\n');
        EXPECT_THAT(rows[0], EndsWith(",fixed_seconds,utilisation\r"));
        for (std::size_t i = 1; i + 1 < rows.size(); ++i)
            EXPECT_EQ(std::count(rows[i].begin(), rows[i].end(), ','), std::count(rows[0].begin(), rows[0].end(), ','));
    }
}

TEST(SimulateCommand, NamesTheOpAtEachRanksPeakWhereThereIsATimeline) {
    const std::string words = "--world 16 --model llama3-8b --tp 2 --pp 4 --vpp 2 --per-rank";
    const Json exact = simulate(words + " --engine mgplan");
    for (const auto& entry : exact["ranks"]) {
        EXPECT_EQ(entry["exact"], true);
        const Json& op = entry["memory"]["peak_op"];
        EXPECT_THAT(op["kind"].get<std::string>(), AnyOf("forward", "backward"));
        EXPECT_LT(op["chunk"].get<int>(), 2);
        EXPECT_GE(op["microbatch"].get<std::int64_t>(), 0);
        EXPECT_FALSE(op["tensor"].get<std::string>().empty());
    }
    // The first stage holds the most microbatches.
    EXPECT_GT(exact["ranks"][0]["memory"]["breakdown"]["activations"], exact["ranks"][15]["memory"]["breakdown"]["activations"]);
    const Json estimate = simulate(words);
    for (const auto& entry : estimate["ranks"]) {
        EXPECT_EQ(entry["exact"], false);
        const Json& op = entry["memory"]["peak_op"];
        EXPECT_THAT(op["kind"].get<std::string>(), AnyOf("forward", "backward"));
        EXPECT_GE(op["microbatch"].get<std::int64_t>(), 0);
        EXPECT_FALSE(op["tensor"].get<std::string>().empty());
        EXPECT_EQ(entry["estimated_peak_bytes"], entry["memory"]["peak_bytes"]);
    }
}

// Scratch of scans and delta rules by chunks is cut to a largest size, so that a micro-batch of many sequences is not what two of them say.
TEST(SimulateCommand, EstimatesScansAndDeltaRulesByChunksAsTheyRun) {
    for (const char* const model : {"nemotron-h-8b", "qwen3.5-9b"}) {
        for (const int micro_batch : {2, 4, 8}) {
            const Json json = simulate(std::string("--world 8 --model ") + model +
                                       " --engine mgplan --pp 4 --recompute full --per-rank --global-batch 128 --micro-batch " +
                                       std::to_string(micro_batch));
            for (const auto& entry : json["ranks"]) {
                EXPECT_EQ(entry["exact"], true);
                EXPECT_EQ(entry["estimated_peak_bytes"], entry["memory"]["peak_bytes"]) << model << ", " << micro_batch << " sequences";
            }
        }
    }
}

TEST(SimulateCommand, ListsEveryRankInCsv) {
    const std::string words = "--world 16 --model mixtral-8x7b --ep 8 --pp 2 --per-rank";
    const Json json = simulate(words, kNothingFits);
    const Said csv = say("simulate " + words + " --format csv");
    EXPECT_EQ(csv.code, kNothingFits);
    const auto lines = split(csv.out, '\n');
    ASSERT_THAT(lines, SizeIs(18));  // the header, 16 ranks, and what follows the last line's end
    const auto names = split(lines[0].substr(0, lines[0].size() - 1), ',');
    for (std::size_t rank = 0; rank < 16; ++rank) {
        const auto cells = split(lines[rank + 1].substr(0, lines[rank + 1].size() - 1), ',');
        ASSERT_EQ(cells.size(), names.size());
        const Json& entry = json["ranks"][rank];
        std::map<std::string, std::string> row;
        for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = cells[i];
        EXPECT_EQ(row["rank"], std::to_string(rank));
        EXPECT_EQ(row["stage"], entry["stage"].dump());
        EXPECT_EQ(row["peak_bytes"], entry["memory"]["peak_bytes"].dump());
        EXPECT_EQ(row["p99_bytes"], entry["memory"]["routing"]["p99_bytes"].dump());
        EXPECT_EQ(row["limit_bytes"], entry["memory"]["limit_bytes"].dump());
        EXPECT_EQ(row["graph_static_inputs"], "0");
        EXPECT_EQ(row["estimated_peak_bytes"], entry["estimated_peak_bytes"].dump());
        EXPECT_EQ(row["peak_op_kind"], entry["memory"]["peak_op"]["kind"].get<std::string>());
    }
    const auto one = split(say("simulate --world 16 --model mixtral-8x7b --ep 8 --pp 2 --format csv").out, '\n');
    EXPECT_THAT(one[0], HasSubstr(",p99_bytes,limit_bytes,fits"));
    EXPECT_THAT(one[1], HasSubstr(",85018877624,false,tp-cp-ep-dp-pp,"));
}

TEST(SimulateCommand, JudgesMixturesAtP99InEstimateAndTimelineAlike) {
    const std::string words = "--world 64 --model mixtral-8x7b --ep 8 --pp 2 --tp 2 --per-rank --engine mgplan";
    for (const char* device : {"cuda", "cpu"}) {
        const Json json = simulate(words + " --device " + device);
        for (const auto& entry : json["ranks"]) {
            const Json& memory = entry["memory"];
            const Json& routing = memory["routing"];
            EXPECT_GE(routing["p50_bytes"], memory["peak_bytes"]);
            EXPECT_GE(routing["p99_bytes"], routing["p50_bytes"]);
            EXPECT_GE(routing["worst_bytes"], routing["p99_bytes"]);
        }
        EXPECT_EQ(json["ranks"][0]["estimated_peak_bytes"], json["predicted"]["memory"]["routing"]["p99_bytes"]);
    }
    const Said table = say("simulate " + words);
    EXPECT_THAT(table.out, HasSubstr("at p99 of the routing skew"));
}

TEST(SimulateCommand, HasTheListsOfACommandsFlagsWithoutACommandToo) {
    for (const std::string words : {"simulate --world 16 --model llama3-8b", "plan --world 16 --model llama3-8b --top 1"}) {
        const Json json = Json::parse(say(words + " --format json").out);
        for (const char* list : {"used", "not_computed", "unknown"}) EXPECT_EQ(json.at(list), Json::array()) << words << " " << list;
    }
}

TEST(SimulateCommand, SaysWhichOptionsChangeNothing) {
    const auto idle = [](const std::string& words, const std::string& option, const std::string& why) {
        const Said said = say("simulate --world 16 --model " + words);
        EXPECT_EQ(said.code, kDone) << words << said.err;
        EXPECT_THAT(said.err, HasSubstr("mgplan: --" + option + " has no effect: " + why)) << words;
    };
    idle("llama3-8b --routing-skew zipf", "routing-skew", "llama3-8b has no experts");
    idle("llama3-8b --ep 4", "ep", "llama3-8b has no experts");
    idle("llama3-8b --adverse routing=0.6", "adverse", "llama3-8b has no experts");
    idle("llama3-8b --overlap moe", "overlap", "llama3-8b has no experts");
    idle("llama3-8b --recompute-modules mlp", "recompute-modules", "recompute is not selective");
    idle("llama3-8b --recompute-method block --recompute-num-layers 2", "recompute-num-layers", "recompute is not full");
    idle("llama3-8b --sequence-parallel on", "sequence-parallel", "tp is 1");
    idle("llama3-8b --cp-comm-type a2a", "cp-comm-type", "cp is 1");
    idle("llama3-8b --group-size 8", "group-size", "vpp is 1");
    idle("llama3-8b --account-for-loss", "account-for-loss", "pp is 1");
    idle("llama3-8b --device cpu", "device", "only --per-rank and --html");
    EXPECT_EQ(
        say("simulate --world 16 --model llama3-8b --tp 2 --pp 2 --vpp 2 --cp 2 --sequence-parallel on --cp-comm-type a2a --group-size 2 "
            "--recompute selective --recompute-modules mlp --device cuda --per-rank")
            .err,
        "");
    // Of residual streams the words say how many layers, and the memory follows.
    EXPECT_EQ(say("simulate --world 32 --model deepseek-v4-flash --ep 32 --recompute selective --recompute-modules mhc "
                  "--recompute-num-layers 2")
                  .err.find("--recompute-num-layers has no effect"),
              std::string::npos);
    const Said plan =
        say("--world 16 --model llama3-8b --recompute none,full --recompute-modules mlp --tp 2 --pp 4 --cp 1 --cp-comm-type p2p");
    EXPECT_THAT(plan.err, HasSubstr("--recompute-modules has no effect: --recompute leaves selective out"));
    EXPECT_THAT(plan.err, HasSubstr("--cp-comm-type has no effect: cp is 1"));
    EXPECT_THAT(say("buffers --model llama3-8b --dp 2 --edp 7").err, HasSubstr("--edp has no effect: the rank holds no experts"));
    EXPECT_THAT(say("graphs --layers-per-chunk 4 --microbatches 4 --group-size 3").err, HasSubstr("--group-size has no effect: vpp is 1"));
}

TEST(SimulateCommand, AddsItsTimesUpToTheIteration) {
    const Json json = simulate("--world 16 --model tiny-llama --tp 2 --pp 2");
    const Json& p = json["predicted"];
    double sum = 0;
    for (const auto& [group, seconds] : p["exposed_communication_seconds"].items()) sum += seconds.get<double>();
    for (const char* field : {"compute_seconds", "bubble_seconds", "optimizer_seconds", "fixed_seconds"}) sum += p[field].get<double>();
    EXPECT_NEAR(sum, p["iteration_seconds"].get<double>(), 1e-9);
    EXPECT_GT(p["fixed_seconds"].get<double>(), 0);
    EXPECT_THAT(say("simulate --world 16 --model tiny-llama --tp 2 --pp 2").out, HasSubstr("data, scheduler, logging"));
}

TEST(SimulateCommand, SaysWhereTheComputeGoes) {
    const std::vector<std::string> names{"qkv_projection",    "attention_core", "dense_mlp", "experts",      "router_permute",
                                         "norms_elementwise", "output_loss",    "optimizer", "quantisation", "host"};
    const std::string job = "--world 16 --model mixtral-8x7b --tp 2 --ep 8 --pp 1 --cp 1";
    const Json plan = Json::parse(say("plan " + job + " --explain 1 --top 2 --format json").out);
    std::vector<Json> predictions{simulate(job, kAnyCode)["predicted"]};
    for (const Json& each : plan["plans"]) predictions.push_back(each["predicted"]);
    ASSERT_GE(predictions.size(), 2U);
    for (const Json& p : predictions) {
        double seconds = 0, share = 0;
        std::vector<std::string> found;
        for (const auto& [name, module] : p.at("compute_by_module").items()) {
            found.push_back(name);
            seconds += module.at("seconds").get<double>();
            share += module.at("share").get<double>();
            for (const char* rate : {"flops_per_second", "bytes_per_second"})
                EXPECT_TRUE(module.at(rate).is_null() || module.at(rate).get<double>() > 0) << name;
        }
        EXPECT_EQ(found, names);
        EXPECT_NEAR(seconds, p["compute_seconds"].get<double>(), 1e-12 * seconds);
        EXPECT_NEAR(share, 1, 1e-12);
        const Json& modules = p["compute_by_module"];
        EXPECT_TRUE(modules["host"]["flops_per_second"].is_null() && modules["host"]["bytes_per_second"].is_null());
        EXPECT_EQ(modules["dense_mlp"]["seconds"], 0);
        EXPECT_GT(modules["experts"]["flops_per_second"], 100e12);
    }
}

TEST(SimulateCommand, PrintsModulesTheLongestFirst) {
    const std::string job = "--world 16 --model mixtral-8x7b --tp 2 --ep 8 --pp 1 --cp 1";
    for (const std::string& words : {"simulate " + job, "plan " + job + " --explain 1"}) {
        const std::string text = say(words).out;
        const auto begin = text.find("compute by module");
        ASSERT_NE(begin, std::string::npos) << words;
        const auto lines = split(text.substr(begin, text.find("\n\n", begin) - begin), '\n');
        EXPECT_THAT(lines[0], AllOf(HasSubstr("seconds"), HasSubstr("share"), HasSubstr("TFLOP/s"), HasSubstr("GB/s")));
        EXPECT_THAT(lines[2], StartsWith("experts "));
        EXPECT_THAT(lines, ::testing::Not(::testing::Contains(AnyOf(StartsWith("dense MLP"), StartsWith("quantisation")))));
        double last = 1e9;
        for (auto line = lines.begin() + 2; line != lines.end(); ++line) {
            const double seconds = std::stod(line->substr(line->find_first_of("0123456789")));
            EXPECT_LE(seconds, last) << *line;
            last = seconds;
        }
    }
}

TEST(SimulateCommand, KeepsToTheColumnsOfATerminal) {
    for (const char* words :
         {"simulate --world 16 --model llama3-8b --tp 2 --pp 2 --offload optimizer_states:0.5,core_attn --per-rank",
          "simulate --world 1024 --model deepseek-v3 --tp 2 --pp 16 --ep 8 --cp 2 --recompute full --per-rank",
          "simulate --world 16 --model mixtral-8x7b --tp 2 --pp 2 --offload optimizer_states --per-rank",
          "plan --world 16 --model mixtral-8x7b --tp 1,2 --micro-batch 1 --offload optimizer,expert_fc1,moe_act --explain 1"}) {
        const Said said = say(words);
        EXPECT_THAT(said.out, HasSubstr("over one iteration")) << said.err;
        const std::size_t most = std::string_view(words).starts_with("plan") ? 100 : 80;  // tables of MoE plans are wider
        for (const auto& line : split(said.out, '\n')) EXPECT_LE(reports::display_width(line), most) << line;
    }
}

TEST(SimulateCommand, DrawsTheFullestRankInText) {
    const std::string words = "simulate --world 16 --model llama3-8b --per-rank";
    const Environment ascii("LC_ALL", "C");
    const Said plain = say(words);
    ASSERT_EQ(plain.code, kDone) << plain.err;
    EXPECT_THAT(plain.out, AllOf(HasSubstr("memory of each stage's ranks at the peak (GiB)"), HasSubstr("op at the peak"),
                                 HasSubstr("memory of rank 0 (stage 0) over one iteration: "), HasSubstr("limit 79.2 GiB +"),
                                 HasSubstr("# comes and goes"), Not(HasSubstr("\x1b"))));
    const Environment utf8("LC_ALL", "C.UTF-8");
    EXPECT_THAT(say(words).out, AllOf(HasSubstr("limit 79.2 GiB ┤"), HasSubstr("█ comes and goes"), Not(HasSubstr("\x1b"))));
    EXPECT_THAT(say(words + " --engine megatron").out, AllOf(HasSubstr("█ comes and goes"), HasSubstr("of chunk 0, microbatch 0: ")));
    const Said none = say(words + " --cuda-graphs attn --global-batch 128");
    EXPECT_THAT(none.out, AllOf(HasSubstr("CUDA graphs have no memory timeline yet"), Not(HasSubstr("comes and goes"))));
}

TEST(SimulateCommand, WritesAPage) {
    TempFile page("page.html", "old");
    const Said said =
        say("simulate --world 256 --model llama3-70b --tp 8 --pp 16 --vpp 5 --global-batch 1024 --micro-batch 1 --html " + page.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.out, say("simulate --world 256 --model llama3-70b --tp 8 --pp 16 --vpp 5 --global-batch 1024 --micro-batch 1").out);
    const std::string html = page.text();
    EXPECT_LT(html.size(), 3'000'000U);
    EXPECT_THAT(html, AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("<title>llama3-70b on 256 GPUs"), HasSubstr("id=\"area-activations\""),
                            HasSubstr("5,120 forwards and backwards"),
                            HasSubstr("<td data-label=\"stage\">15</td><td data-label=\"rank\">240</td>"), EndsWith("</html>\n")));
    expect_refused("simulate --world 8 --model tiny-llama --html /no/such/folder/page.html",
                   {"--html = /no/such/folder/page.html cannot be written (No such file or directory)"});
}

TEST(SimulateCommand, StagesFollowTheOrder) {
    const Json json = simulate("--world 8 --model tiny-llama --pp 2 --order tp-cp-ep-pp-dp --per-rank");
    for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(json["ranks"][rank]["stage"], rank % 2);
}

TEST(SimulateCommand, PrintsWhatDoesNotFitAndExitsThree) {
    const Json json = simulate("--world 8 --model llama3-70b --tp 1", kNothingFits);
    EXPECT_GT(json["predicted"]["memory"]["peak_bytes"], json["predicted"]["memory"]["limit_bytes"]);
    const Said table = say("simulate --world 8 --model llama3-70b --tp 1");
    EXPECT_EQ(table.code, kNothingFits);
    EXPECT_THAT(table.out, HasSubstr("does not fit"));
    EXPECT_EQ(simulate("--world 8 --model llama3-8b --tp 8 --max-memory 10GiB", kNothingFits)["predicted"]["memory"]["limit_bytes"],
              std::int64_t{10} << 30);
}

TEST(SimulateCommand, AcceptsExpertSizesOfDenseModelsWithoutEffect) {
    EXPECT_EQ(simulate("--world 16 --model llama3-8b --tp 2 --ep 8 --etp 3"), simulate("--world 16 --model llama3-8b --tp 2"));
}

TEST(SimulateCommand, JudgesAPlanOnAnotherCluster) {
    TempFile file("plan.json");
    ASSERT_EQ(say("--world 32 --model llama3-70b --top 1 --save-plan " + file.path()).code, kDone);
    const Json here = simulate(file.path());
    const Json there = simulate(file.path() + " --cluster dgx-h100,node_network_gbits_per_second=100,nvlink_gbytes_per_second=50");
    EXPECT_EQ(here["layout"], there["layout"]);
    EXPECT_LT(here["predicted"]["iteration_seconds"], there["predicted"]["iteration_seconds"]);
    EXPECT_EQ(say("simulate " + file.path() + " --max-memory 20GiB").code, kNothingFits);
}

TEST(SimulateCommand, RefusesAPlanThatBreaksARule) {
    TempFile file("plan.json");
    ASSERT_EQ(say("--world 16 --model llama3-8b --tp 2 --top 1 --save-plan " + file.path()).code, kDone);
    Json plan = Json::parse(file.text());
    plan["model"]["ffn"] = 14337;
    TempFile changed("changed.json", plan.dump());
    expect_refused({"simulate", changed.path()}, {"tp = 2 does not divide ffn width = 14337"});
    plan["mgplan_plan"] = 99;
    TempFile newer("newer.json", plan.dump());
    expect_refused({"simulate", newer.path()}, {"plan version 99"});
}

TEST(SimulateCommand, WritesTheIterationAsATrace) {
    const TempFile file("timeline.json", "what was there before");
    const Json json = simulate("--world 8 --model tiny-llama --pp 4 --global-batch 16 --timeline " + file.path());
    const Json trace = Json::parse(file.text());
    double last = 0, counters = 0;
    std::map<std::string, int> slices;
    std::set<int> processes;
    for (const Json& event : trace["traceEvents"]) {
        processes.insert(event["pid"].get<int>());
        if (event["ph"] == "C") ++counters;
        if (event["ph"] != "X") continue;
        ASSERT_GE(event["ts"].get<double>(), 0);
        last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
        ++slices[event["cat"].get<std::string>()];
    }
    const int m = json["layout"]["num_microbatches"].get<int>();
    EXPECT_EQ(processes.size(), 4U);
    EXPECT_EQ(slices["compute"], 4 * (2 * m + 1)) << "forwards, backwards and the optimizer";
    EXPECT_EQ(slices["p2p"], 3 * 2 * m + (slices["p2p"] > 6 * m ? 2 : 0)) << "sends, and a tied embedding's all-reduce";
    EXPECT_EQ(counters, 4 * 2 * 2 * m) << "memory at each pass's begin and peak";
    EXPECT_LE(last, 1e6 * json["predicted"]["iteration_seconds"].get<double>() * (1 + 1e-9));
    EXPECT_GT(last, 0.5e6 * json["predicted"]["iteration_seconds"].get<double>());
}

TEST(SimulateCommand, WritesTheTraceOfAMegatronJobWithItsMemory) {
    const TempFile file("timeline.json", "");
    simulate("--world 8 --model tiny-llama --engine megatron --pp 4 --global-batch 16 --timeline " + file.path());
    const Json trace = Json::parse(file.text());
    const auto counts = [&](const char* phase) {
        return std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                             [&](const Json& event) { return event["ph"] == phase; });
    };
    EXPECT_GT(counts("X"), 0);
    EXPECT_GT(counts("C"), 0) << "memory counters";
}

// tests/cli/memory_snapshot_test.py checks the contents of the file.
TEST(SimulateCommand, WritesTheFullestRanksMemorySnapshot) {
    const TempFile file("snapshot.pickle", "what was there before"), plan("plan.json");
    const std::string job = "--world 8 --model tiny-llama --engine megatron --pp 4 --global-batch 128";
    const Json json = simulate(job + " --memory-snapshot " + file.path());
    const Json& snapshot = json["memory_snapshot"];
    EXPECT_EQ(snapshot["file"], file.path());
    EXPECT_EQ(snapshot["rank"], json["predicted"]["memory"]["worst_rank"]);
    EXPECT_EQ(snapshot["allocated_bytes"], json["predicted"]["memory"]["allocator_replay"]["allocated_bytes"]);
    EXPECT_LT(snapshot["microbatches"].get<int>(), json["layout"]["num_microbatches"].get<int>());
    EXPECT_TRUE(file.text().starts_with("\x80\x04") && file.text().ends_with("."));

    const std::string first = file.text();
    const Said said = say("simulate " + job + " --memory-snapshot " + file.path());
    EXPECT_EQ(file.text(), first) << "the same job has the same snapshot";
    EXPECT_THAT(said.out, AllOf(HasSubstr(fmt::format("memory snapshot of rank {} (stage ", snapshot["rank"].get<int>())),
                                HasSubstr(human_bytes(snapshot["requested_bytes"].get<std::int64_t>()) + " of tensors at the peak"),
                                HasSubstr(fmt::format("with {} of 64 microbatches", snapshot["microbatches"].get<int>())),
                                HasSubstr(file.path() + ": open it at pytorch.org/memory_viz")));
    EXPECT_FALSE(simulate(job).contains("memory_snapshot"));

    ASSERT_EQ(say("plan " + job + " --cuda-graphs none --top 1 --save-plan " + plan.path()).code, kDone);
    EXPECT_TRUE(simulate(plan.path() + " --memory-snapshot " + file.path()).contains("memory_snapshot"));
}

TEST(SimulateCommand, RefusesAMemorySnapshotWithoutAReplay) {
    const TempFile file("snapshot.pickle", "what was there before");
    const std::string job = "--world 8 --model tiny-llama --pp 2 --vpp 2 --global-batch 131072 ",
                      snapshot = " --memory-snapshot " + file.path();
    const std::vector<std::string> nowhere = {"--memory-snapshot = /nowhere/at/all.pickle cannot be written"};
    expect_refused("simulate " + job + "--memory-snapshot /nowhere/at/all.pickle", nowhere);
    expect_refused("simulate " + job + "--engine mgplan" + snapshot, {"engine mgplan places its tensors itself; use --engine megatron"});
    expect_refused("simulate " + job + "--engine megatron --cuda-graphs attn,mlp" + snapshot,
                   {"CUDA graphs (cuda-graphs = attn,mlp) allocate from pools of their own", "use a layout with --cuda-graphs none"});
    expect_refused("simulate " + job + "--engine megatron --group-size 16384" + snapshot,
                   {"allocations (pp 2, vpp 2, groups of 16384 microbatches), and a snapshot holds at most 1,000,000"});
    for (const char* state : {"--sharding full", "--optimizer muon", "--offload optimizer"}) {
        SCOPED_TRACE(state);
        expect_refused(fmt::format("simulate --world 16 --model llama3-8b --tp 2 --global-batch 64 {}{}", state, snapshot),
                       {"--memory-snapshot replays Adam on the GPU", "use --sharding optimizer and --optimizer adam"});
    }
    EXPECT_EQ(file.text(), "what was there before");
}

TEST(SimulateCommand, DrawsAPageWithTheFiguresOfTheJson) {
    const TempFile page("whole.html");
    const std::string words = "--world 16 --model llama3-8b --tp 2 --pp 4 --global-batch 32 --straggler 0=1.25 --jitter 2 --html ";
    Json json = simulate(words + page.path());
    json["predicted"]["memory"].erase("allocator_replay");  // of the JSON alone
    const std::string html = page.text(), begin = "id=\"prediction\">";
    const auto at = html.find(begin) + begin.size();
    EXPECT_EQ(Json::parse(html.substr(at, html.find("</script>", at) - at)), json["predicted"]);
    EXPECT_THAT(html, AllOf(HasSubstr("<h2>The pipeline, schedule 1f1b</h2>"), HasSubstr("<h2>Rank groups</h2>"), HasSubstr("id=\"curve\""),
                            HasSubstr("stragglers: 1 stage slower"), HasSubstr("jitter of 2 %")));
    for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(outside)));
}

// Between warm-up and cool-down each forward runs with a backward, begin and end the same.
TEST(SimulateCommand, DrawsPairsThatHideExchangesAsTheyRun) {
    const TempFile page("pairs.html");
    const auto passes_of = [&](const std::string& overlap) {
        simulate("--world 32 --model qwen3-30b-a3b --ep 8 --pp 4 --vpp 2 --global-batch 128 --engine megatron " + overlap + "--html " +
                 page.path());
        const std::string html = page.text(), begin = "id=\"passes\">";
        const auto at = html.find(begin) + begin.size();
        return Json::parse(html.substr(at, html.find("</script>", at) - at))[0]["rows"];
    };
    for (const Json& row : passes_of("")) {
        for (std::size_t i = 1; i < row.size(); ++i) EXPECT_EQ(row[i].size(), 5U) << "no pairs";
    }
    const Json rows = passes_of("--overlap moe ");
    for (const Json& row : rows) {
        const auto stage = row[0].get<std::size_t>();
        std::map<double, std::vector<Json>> pairs;  // by begin
        std::size_t alone = 0;
        for (std::size_t i = 1; i < row.size(); ++i) {
            if (row[i].size() == 6U)
                pairs[row[i][0].get<double>()].push_back(row[i]);
            else
                ++alone;
        }
        EXPECT_GT(pairs.size(), 10U) << stage;
        EXPECT_GE(alone, 2 * (4 + 2 * (3 - stage) + 1)) << "warm-up and cool-down of stage " << stage;
        for (const auto& [begin, pair] : pairs) {
            ASSERT_EQ(pair.size(), 2U) << begin;
            EXPECT_EQ(pair[0][1], pair[1][1]);
            EXPECT_NE(pair[0][2], pair[1][2]) << "a forward and a backward";
            EXPECT_TRUE(pair[0][3] != pair[1][3] || pair[0][4] != pair[1][4]) << "of two microbatches or chunks";
        }
    }
}

TEST(SimulateCommand, LongSequencesHaveNoMaskOfTheDataLoader) {
    const TempFile plan("long.json", "");
    const std::string job =
        "plan --world 8 --model llama3.2-1b --global-batch 8 --tp 1 --cp 8 --pp 1 --micro-batch 1 --recompute full --assumed --seq ";
    const Said planned = say(job + "128k --save-plan " + plan.path());
    ASSERT_EQ(planned.code, kDone) << planned.err;
    EXPECT_THAT(planned.out, HasSubstr("no attention mask from the data loader"));
    const Said exported = say("export " + plan.path() + " --to megatron-args");
    EXPECT_THAT(exported.out, HasSubstr("--no-create-attention-mask-in-dataloader"));
    EXPECT_THAT(say(job + "8k").out, Not(HasSubstr("attention mask")));
    EXPECT_THAT(say("plan --world 8 --model llama3.2-1b --global-batch 8 --tp 8 --cp 1 --attention unfused --assumed --seq 32k").out,
                Not(HasSubstr("attention mask")))
        << "unfused attention reads it";
    // A command that does not say so has it, and is told what that takes.
    std::string command = exported.out;
    command.erase(command.find("--no-create-attention-mask-in-dataloader"),
                  std::string_view("--no-create-attention-mask-in-dataloader").size());
    const TempFile args("long.args", command);
    const Said masked = say("simulate --world 8 --vocab-size 128256 --megatron-args " + args.path());
    EXPECT_THAT(masked.err, HasSubstr("attention mask takes 16.0 GiB for each sequence of 131072 tokens"));
}

}  // namespace
}  // namespace mgplan::cli::testing::simulate_command_test
