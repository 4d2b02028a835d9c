// `mgplan simulate`: one layout, its ranks, and what does not fit.

#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

Json simulate(const std::string& words, int code = kDone) {
    const Said said = say("simulate " + words + " --format json");
    EXPECT_EQ(said.code, code) << words << "\n" << said.err;
    return Json::parse(said.out);
}

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
    ASSERT_EQ(say("plan " + words + " --vpp 1 --sequence-parallel on --recompute none --cuda-graphs layer --save-plan " + plan.path()).code,
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

TEST(SimulateCommand, NamesTheOpAtEachRanksPeakWhereThereIsATimeline) {
    const std::string words = "--world 16 --model llama3-8b --tp 2 --pp 4 --vpp 2 --per-rank";
    const Json exact = simulate(words);
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
    const Json estimate = simulate(words + " --engine megatron");
    for (const auto& entry : estimate["ranks"]) {
        EXPECT_EQ(entry["exact"], false);
        const Json& op = entry["memory"]["peak_op"];
        EXPECT_THAT(op["kind"].get<std::string>(), AnyOf("forward", "backward"));
        EXPECT_GE(op["microbatch"].get<std::int64_t>(), 0);
        EXPECT_FALSE(op["tensor"].get<std::string>().empty());
        EXPECT_EQ(entry["estimated_peak_bytes"], entry["memory"]["peak_bytes"]);
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
    EXPECT_LT(html.size(), 2'000'000U);
    EXPECT_THAT(html, AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("<title>llama3-70b on 256 GPUs"), HasSubstr("id=\"area-activations\""),
                            HasSubstr("5,120 forwards and backwards"), HasSubstr("<td>15</td><td>240</td>"), EndsWith("</html>\n")));
    const Said unwritable = say("simulate --world 8 --model tiny-llama --html /no/such/folder/page.html");
    EXPECT_EQ(unwritable.code, kRunFailed);
    EXPECT_THAT(unwritable.err, HasSubstr("--html /no/such/folder/page.html: the file cannot be written"));
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
    const Json there = simulate(file.path() + " --cluster dgx-h100,node_network_gbps=100,nvlink_gbps=50");
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

}  // namespace
}  // namespace mgplan::cli::testing
