// `mgplan plan` for several worlds and for a number of tokens: days, cost, scaling, and what a change would bring; and why one plan
// stands before the next.

#include <cmath>
#include <set>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::scaling_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

/// Few layouts, so that many searches are fast.
constexpr const char* kSmall = "--model llama3-8b --cp 1 --vpp 1 --micro-batch 1 --recompute full";

Json scaling(const std::string& words) {
    const Said said = say(words + " --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    return Json::parse(said.out);
}

TEST(Scaling, CountsDaysHoursAndCostOfEveryWorld) {
    const Json report = scaling(fmt::format("--world 16,32,64 {} --tokens 1.5T --gpu-hour-price 2.5", kSmall));
    EXPECT_EQ(report["tokens"], 1.5e12);
    EXPECT_EQ(report["gpu_hour_price"], 2.5);
    EXPECT_EQ(report["world"], 16) << "the plan fields are those of the first world";
    EXPECT_EQ(report["plans"][0]["predicted"]["iteration_seconds"], report["scaling"][0]["iteration_seconds"]);
    ASSERT_THAT(report["scaling"], SizeIs(3));
    for (std::size_t i = 0; i < 3; ++i) {
        const Json& world = report["scaling"][i];
        const double gpus = 16 << i;
        EXPECT_EQ(world["world"], gpus);
        EXPECT_EQ(world["possible"], true);
        const double tokens = world["global_batch"].get<double>() * world["sequence"].get<double>();
        const double seconds = world["iteration_seconds"];
        EXPECT_DOUBLE_EQ(world["tokens_per_second"], tokens / seconds);
        const double steps = std::ceil(1.5e12 / tokens);
        EXPECT_EQ(world["steps"].get<double>(), steps);
        EXPECT_NEAR(world["days"].get<double>(), steps * seconds / 86400, 1e-9 * steps * seconds);
        EXPECT_NEAR(world["gpu_hours"].get<double>(), world["days"].get<double>() * 24 * gpus, 1e-6 * gpus);
        EXPECT_DOUBLE_EQ(world["cost"], world["gpu_hours"].get<double>() * 2.5);
        const Json& base = report["scaling"][0];
        EXPECT_NEAR(world["efficiency"].get<double>(),
                    world["tokens_per_second"].get<double>() / gpus / (base["tokens_per_second"].get<double>() / 16), 1e-12);
        if (i == 0) continue;
        const Json& smaller = report["scaling"][i - 1];
        EXPECT_LT(world["days"], smaller["days"]) << "more GPUs are done earlier";
        EXPECT_LE(world["efficiency"].get<double>(), 1.05) << "and not much better than in proportion";
    }
}

TEST(Scaling, TheParetoSetTradesTimeForMemory) {
    const Json report = scaling("--world 16 --model llama3-8b --search plain --tokens 1T");
    const Json& world = report["scaling"][0];
    const Json& set = world["pareto"];
    ASSERT_GT(set.size(), 3U);
    EXPECT_EQ(set[0]["iteration_seconds"], world["iteration_seconds"]) << "as plan ranks";
    for (std::size_t i = 1; i < set.size(); ++i) {
        EXPECT_GT(set[i]["iteration_seconds"], set[i - 1]["iteration_seconds"]);
        EXPECT_LT(set[i]["peak_bytes"], set[i - 1]["peak_bytes"]);
        EXPECT_GT(set[i]["days"], set[i - 1]["days"]);
    }
    // What fits in the memory of a member is no faster than it, but for what the search's estimates are off.
    const auto middle = set[set.size() / 2];
    const Json less =
        scaling(fmt::format("--world 16 --model llama3-8b --search plain --max-memory {}B", middle["peak_bytes"].get<std::int64_t>()));
    EXPECT_NEAR(less["plans"][0]["predicted"]["iteration_seconds"].get<double>(), middle["iteration_seconds"].get<double>(),
                0.03 * middle["iteration_seconds"].get<double>());
}

TEST(Scaling, WordsOfRowsTellLayoutsApart) {
    const std::string job =
        "--world 8 --model qwen3-30b-a3b --tp 1 --ep 1 --etp 1,2,4 --cp 1 --vpp 1 --pp 2 --micro-batch 1 --recompute none,full "
        "--cluster gb200-nvl72 --global-batch 64 --search plain --tokens 1T";
    const Json set = scaling(job)["scaling"][0]["pareto"];
    ASSERT_GT(set.size(), 2U);
    ASSERT_LE(set.size(), 8U) << "all of them are in the table";
    const Said table = say(job);
    std::set<std::string> words, fields;
    bool without_tp = false;
    const auto lines = split(table.out.substr(table.out.find("Pareto set")), '\n');
    for (const auto& line : lines) {
        if (const auto at = line.find("tp1"); at != std::string::npos) words.insert(line.substr(at));
    }
    for (const Json& each : set) {
        fields.insert(each["layout"].dump());
        without_tp = without_tp || each["layout"]["etp"] != 1;
    }
    EXPECT_TRUE(without_tp);
    EXPECT_EQ(words.size(), fields.size()) << table.out;
}

TEST(Scaling, SearchesTheSetsOfModulesThatASingleWorldSearches) {
    const std::string job =
        "--world 16 --model qwen3-30b-a3b --tp 1 --cp 1 --vpp 1 --pp 1 --micro-batch 1 --recompute selective --search recompute --top 40";
    const auto sets = [](const Json& report) {
        std::set<std::string> found;
        for (const Json& plan : report["plans"]) found.insert(plan["layout"]["recompute_modules"].dump());
        return found;
    };
    const auto alone = sets(scaling(job)), studied = sets(scaling(job + " --tokens 1T"));
    EXPECT_THAT(alone, Not(IsEmpty()));
    EXPECT_EQ(studied, alone);
}

TEST(Scaling, EveryChangeHasTheNumbersOfBothSides) {
    const Json report = scaling(fmt::format("--world 16 {} --tokens 1T", kSmall));
    const Json& world = report["scaling"][0];
    ASSERT_THAT(world["changes"], SizeIs(4));
    const std::vector<std::string> kinds{"one_more_node", "longer_sequence", "larger_batch", "smaller_batch"};
    for (std::size_t i = 0; i < 4; ++i) {
        const Json& change = world["changes"][i];
        EXPECT_EQ(change["change"], kinds[i]);
        EXPECT_EQ(change["before"]["iteration_seconds"], world["iteration_seconds"]);
        ASSERT_EQ(change["possible"], true) << change.dump();
        EXPECT_DOUBLE_EQ(change["speedup"].get<double>(),
                         change["after"]["tokens_per_second"].get<double>() / change["before"]["tokens_per_second"].get<double>());
    }
    const auto after = [&](std::size_t i, const char* field) { return world["changes"][i]["after"][field].get<std::int64_t>(); };
    EXPECT_EQ(after(0, "world"), 24);
    EXPECT_EQ(after(0, "global_batch") % 24, 0) << "an assumed batch lets dp grow with the world";
    EXPECT_EQ(after(1, "sequence"), 2 * world["sequence"].get<std::int64_t>());
    EXPECT_EQ(after(2, "global_batch"), 2 * world["global_batch"].get<std::int64_t>());
    EXPECT_EQ(after(3, "global_batch"), world["global_batch"].get<std::int64_t>() / 2);
    // It is the answer that asking for the change itself gives.
    const Json larger = scaling(fmt::format("--world 16 {} --global-batch {}", kSmall, after(2, "global_batch")));
    EXPECT_EQ(larger["plans"][0]["predicted"]["iteration_seconds"], world["changes"][2]["after"]["iteration_seconds"]);
    Json layout = larger["plans"][0]["layout"];
    for (const char* of_workload : {"dispatcher", "overlap", "sharding", "offload", "optimizer", "optimizer_dtypes"})
        layout.erase(of_workload);
    EXPECT_EQ(layout, world["changes"][2]["after"]["layout"]);
}

TEST(Scaling, OneMoreNodeTakesTheNearestBatchThatSuitsIt) {
    const auto of_one_more = [](int batch) {
        const Json report = scaling(fmt::format("--world 16 --global-batch {} --tokens 1T --pp 1 --tp 1 {}", batch, kSmall));
        return report["scaling"][0]["changes"][0];
    };
    const Json larger = of_one_more(64);
    EXPECT_EQ(larger["text"], "one more node: 24 GPUs, batch 72");
    EXPECT_EQ(larger["after"]["global_batch"], 72);
    EXPECT_GT(larger["speedup"], 1);
    EXPECT_EQ(of_one_more(112)["text"], "one more node: 24 GPUs, batch 120");
    EXPECT_EQ(of_one_more(32)["change"], "longer_sequence") << "24 and 48 are too far from 32";
}

TEST(Scaling, AGivenBatchStaysAndTheDefaultGrowsWithTheWorld) {
    const std::string words = std::string(kSmall) + " --pp 1 --tp 1 --top 1";
    const Json given = scaling("--world 1024,2048 --global-batch 2048 " + words);
    for (const auto& world : given["scaling"]) EXPECT_EQ(world["global_batch"], 2048);
    const Json grown = scaling("--world 1024,2048 --seq 4096 " + words);
    EXPECT_EQ(grown["scaling"][0]["global_batch"], 1024);
    EXPECT_EQ(grown["scaling"][1]["global_batch"], 2048);
    EXPECT_EQ(grown["tokens"], nullptr);
    EXPECT_EQ(grown["scaling"][0]["days"], nullptr);
}

TEST(Scaling, AWorldThatIsNotPossibleStandsBesideTheOthers) {
    const std::string words = std::string(kSmall) + " --tp 4 --pp 1 --global-batch 64";
    const Json report = scaling("--world 6,16 " + words);
    EXPECT_EQ(report["scaling"][0]["possible"], false);
    EXPECT_THAT(report["scaling"][0]["why_not"].get<std::string>(), HasSubstr("tp = 4 does not divide world = 6"));
    EXPECT_EQ(report["scaling"][1]["possible"], true);
    EXPECT_EQ(report["scaling"][1]["efficiency"], 1.0);
    EXPECT_EQ(report["world"], 16);
    const Said table = say("--world 6,16 " + words);
    EXPECT_EQ(table.code, kDone);
    EXPECT_THAT(table.out, HasSubstr("not possible: tp = 4"));
    EXPECT_THAT(table.err, HasSubstr("mgplan: planning 16 GPUs, one more node: 24 GPUs"));
    const Said csv = say("--world 6,16 " + words + " --format csv");
    EXPECT_THAT(csv.out, HasSubstr("\n6,best,false,"));
    EXPECT_THAT(csv.out, HasSubstr("\n16,best,true,,16,64,"));
    EXPECT_THAT(csv.out, HasSubstr("\n16,pareto,true,"));
    EXPECT_THAT(csv.out, HasSubstr("\n16,one_more_node,"));
}

TEST(Scaling, WhereNoWorldIsPossibleItSaysWhyOfEach) {
    expect_refused(fmt::format("--world 6,10 {} --tp 4", kSmall), {"6 GPUs: tp = 4", "10 GPUs: tp = 4"});
    // Legal, but too large: as with one world.
    const Said said = say("--world 2,4 --model llama3.1-405b --tokens 1T --tp 1 --cp 1 --format json");
    EXPECT_EQ(said.code, kNothingFits) << said.err;
    const Json report = Json::parse(said.out);
    EXPECT_THAT(report["plans"], IsEmpty());
    EXPECT_THAT(report["nearest"], Not(IsEmpty()));
    for (const auto& world : report["scaling"]) EXPECT_THAT(world["why_not"].get<std::string>(), HasSubstr("no layout fits in"));
}

TEST(Scaling, RefusesWhatIsNoRun) {
    const std::string words = "--world 16 --model llama3-8b ";
    for (const char* tokens : {"0", "-5", "many", "15Q", "1e30", "nan", "T", ""})
        expect_refused({"--world", "16", "--model", "llama3-8b", "--tokens", tokens}, {"--tokens = '", "such as 15T"});
    expect_refused(words + "--tokens 1T --gpu-hour-price=-1", {"--gpu-hour-price = '-1'"});
    expect_refused(words + "--tokens 1T --gpu-hour-price inf", {"--gpu-hour-price = 'inf'"});
    expect_refused(words + "--gpu-hour-price 2", {"--gpu-hour-price 2", "--tokens, which is missing"});
    expect_refused("--world 16,x --model llama3-8b", {"--world"});
    expect_refused("--world 0,16 --model llama3-8b", {"--world"});
    expect_refused("--world 16,32 --model llama3-8b --explain 1 --pick 2 --save-plan p.json",
                   {"--explain is for the plans of one world", "--pick is", "--save-plan is"});
}

TEST(Scaling, OneWorldWithoutTokensHasNoScaling) {
    const Json report = scaling(fmt::format("--world 16 {}", kSmall));
    for (const char* field : {"scaling", "tokens", "gpu_hour_price", "explained"}) EXPECT_FALSE(report.contains(field)) << field;
    // Naming a world twice makes no second one.
    EXPECT_FALSE(scaling(fmt::format("--world 16,16 {}", kSmall)).contains("scaling"));
}

TEST(Explain, TermsAddUpToWhatOnePlanIsAheadOfTheNext) {
    for (const char* words :
         {"--world 16 --model llama3-8b --vpp 1", "--world 64 --model mixtral-8x7b --tp 2 --pp 4 --recompute selective"}) {
        for (const int k : {1, 3, 7}) {
            const Json report = scaling(fmt::format("{} --explain {}", words, k));
            const Json& explained = report["explained"];
            const auto seconds = [&](int rank) {
                return report["plans"][static_cast<std::size_t>(rank - 1)]["predicted"]["iteration_seconds"].get<double>();
            };
            EXPECT_EQ(explained["rank"], k);
            EXPECT_EQ(explained["against"], k + 1);
            EXPECT_DOUBLE_EQ(explained["difference_seconds"].get<double>(), seconds(k + 1) - seconds(k));
            EXPECT_GE(explained["difference_seconds"].get<double>(), 0);
            double sum = 0, mine = 0;
            for (const auto& term : explained["terms"]) {
                EXPECT_GE(term["seconds"].get<double>(), -1e-12 * seconds(k)) << term.dump();
                sum += term["difference_seconds"].get<double>();
                mine += term["seconds"].get<double>();
            }
            EXPECT_NEAR(sum, seconds(k + 1) - seconds(k), 1e-12 * seconds(k));
            EXPECT_NEAR(mine, seconds(k), 1e-12 * seconds(k));
            std::int64_t bytes = 0;
            for (const auto& term : explained["memory"]) bytes += term["bytes"].get<std::int64_t>();
            EXPECT_EQ(bytes, report["plans"][static_cast<std::size_t>(k - 1)]["predicted"]["memory"]["peak_bytes"]);
        }
    }
}

TEST(Explain, SaysWhatDecides) {
    const Said said = say("--world 16 --model llama3-8b --top 3 --explain 2 --wide");
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.out, HasSubstr("plan 2 against plan 3\n"));
    EXPECT_THAT(said.out, HasSubstr("An iteration takes "));
    EXPECT_THAT(said.out, HasSubstr("most of it: "));
    EXPECT_THAT(said.out, HasSubstr("Where the time of a step goes:"));
    // The last of all has nothing behind it.
    const Said last = say("--world 1 --model tiny-llama --tp 1 --cp 1 --pp 1 --micro-batch 1 --recompute none --search plain --explain 1");
    EXPECT_EQ(last.code, kDone) << last.err;
    EXPECT_THAT(last.out, Not(HasSubstr("against plan")));
}

TEST(Order, SearchesEveryOrderOfAList) {
    const std::string words =
        "--world 16 --model llama3-8b --cluster dgx-h100,gpus_per_node=4 --tp 2 --pp 2 --cp 1 --vpp 1 --search plain --top 200";
    const auto layouts = [&](const std::string& order) {
        std::map<std::string, int> found;
        const Json report = scaling(words + " --order " + order);
        for (const auto& plan : report["plans"]) ++found[plan["layout"]["order"].get<std::string>()];
        return found;
    };
    const auto usual = layouts("tp-cp-ep-dp-pp"), other = layouts("dp-cp-ep-tp-pp"), both = layouts("tp-cp-ep-dp-pp,dp-cp-ep-tp-pp");
    ASSERT_EQ(both.size(), 2U);
    EXPECT_EQ(both.at("tp-cp-ep-dp-pp"), usual.at("tp-cp-ep-dp-pp"));
    EXPECT_EQ(both.at("dp-cp-ep-tp-pp"), other.at("dp-cp-ep-tp-pp"));
    // cp and ep have one rank: wherever they stand, the groups are the same.
    EXPECT_EQ(layouts("tp-cp-ep-dp-pp,cp-tp-dp-ep-pp,tp-dp-pp"), usual);
    EXPECT_THAT(say(words + " --order tp-cp-ep-dp-pp,dp-cp-ep-tp-pp").out, ::testing::ContainsRegex("rec +order"));
    expect_refused(words + " --order tp-cp-ep-dp-pp,tp-xx", {"--order: ", "unknown axis 'xx'"});
    expect_refused(words + " --order tp-cp-ep-dp-pp,,tp-dp-pp", {"order is empty"});
}

}  // namespace
}  // namespace mgplan::cli::testing::scaling_test
