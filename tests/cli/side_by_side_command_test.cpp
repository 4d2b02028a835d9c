// `mgplan side-by-side`: clusters, precisions and batches next to each other.

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "reports/table.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::side_by_side_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

/// Few layouts, so that many searches are fast.
constexpr const char* kSmall = "--model llama3-8b --cp 1 --vpp 1 --micro-batch 1 --search plain";

Said compare(const std::string& words) {
    return say(fmt::format("side-by-side {} {}", kSmall, words));
}

Json options(const std::string& words) {
    const Said said = compare(words + " --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    return Json::parse(said.out)["options"];
}

TEST(SideBySide, ShowsThePlanThatPlanRecommendsForEachCluster) {
    const Json both = options("--on 16:dgx-h100 --on 8:gb300-nvl72,precision=fp8 --global-batch 64");
    ASSERT_THAT(both, SizeIs(2));
    const char* const alone[] = {"--world 16 --cluster dgx-h100", "--world 8 --cluster gb300-nvl72 --precision fp8"};
    for (std::size_t i = 0; i < 2; ++i) {
        const Json& option = both[i];
        const Json report = Json::parse(say(fmt::format("plan {} {} --global-batch 64 --format json", kSmall, alone[i])).out);
        const auto recommended = std::ranges::find_if(report["plans"], [](const Json& plan) { return plan["recommended"] == true; });
        ASSERT_NE(recommended, report["plans"].end());
        EXPECT_EQ(option["plan"]["layout"], (*recommended)["layout"]);
        EXPECT_EQ(option["plan"]["predicted"], (*recommended)["predicted"]);
        EXPECT_EQ(option["plan"]["recommended"], true);
        EXPECT_EQ(option["world"], report["world"]);
        EXPECT_EQ(option["cluster"], report["cluster"]["name"]);
        for (const char* name : {"iteration_seconds", "adverse_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu"})
            EXPECT_EQ(option[name], (*recommended)["predicted"][name]) << name;
        EXPECT_EQ(option["why_not"], nullptr);
    }
}

TEST(SideBySide, SearchesAsOthersOptionsSay) {
    const Json both = options("--on 16:dgx-h100 --on 16:dgx-h200 --tp 4 --pp 2 --recompute full --objective memory");
    for (const Json& option : both) {
        EXPECT_EQ(option["plan"]["layout"]["tp"], 4);
        EXPECT_EQ(option["plan"]["layout"]["pp"], 2);
        EXPECT_EQ(option["plan"]["layout"]["recompute"], "full");
    }
}

TEST(SideBySide, NamesASplitSchedule) {
    EXPECT_THAT(compare("--on 8:dgx-h100 --on 8:dgx-h200 --tp 1 --pp 4 --schedule zb-h1").out, HasSubstr(" pp4 zb-h1 mbs1"));
}

TEST(SideBySide, CountsDaysHoursAndCostByEachOnesPrice) {
    const Json both = options("--on 16:dgx-h100 --on 8:dgx-h200,price=4 --on 8:dgx-h100,price=0 --tokens 1T --price 2.5");
    const double prices[] = {2.5, 4, 0};
    for (std::size_t i = 0; i < 3; ++i) {
        const Json& option = both[i];
        const double tokens = option["global_batch"].get<double>() * option["sequence"].get<double>();
        const double days = std::ceil(1e12 / tokens) * option["iteration_seconds"].get<double>() / 86400;
        EXPECT_NEAR(option["days"].get<double>(), days, 1e-9 * days);
        EXPECT_NEAR(option["gpu_hours"].get<double>(), days * 24 * option["world"].get<double>(), 1e-6 * days);
        EXPECT_DOUBLE_EQ(option["cost"], option["gpu_hours"].get<double>() * prices[i]);
        EXPECT_EQ(option["gpu_hour_price"], prices[i]);
    }
    const Json unpriced = options("--on 16:dgx-h100 --on 8:dgx-h200,price=4 --tokens 1T");
    EXPECT_EQ(unpriced[0]["cost"], nullptr);
    EXPECT_NE(unpriced[0]["days"], nullptr);
    EXPECT_NE(unpriced[1]["cost"], nullptr);
    const Json speed = options("--on 16:dgx-h100 --on 8:dgx-h200");
    for (const char* name : {"days", "gpu_hours", "cost"}) EXPECT_EQ(speed[0][name], nullptr) << name;
}

TEST(SideBySide, NamesTheBlindRunsOfEachGpu) {
    const Json both = options("--on 8:dgx-h100 --on 8:dgx-h200");
    EXPECT_EQ(both[0]["accuracy"]["kind"], "dense on H100");
    EXPECT_EQ(both[1]["accuracy"]["kind"], "dense") << "no dense runs on H200";
    EXPECT_GT(both[1]["accuracy"]["blind"]["runs"], both[0]["accuracy"]["blind"]["runs"]);
    EXPECT_GT(both[0]["accuracy"]["blind"]["mean_error"], 0);
    const Json own = options("--on 8:dgx-h100 --on 8:dgx-h200 --engine mgplan");
    EXPECT_EQ(own[0]["accuracy"]["blind"], nullptr);
    EXPECT_THAT(compare("--on 8:dgx-h100 --on 8:dgx-h200 --engine mgplan").out, HasSubstr("unknown"));
}

std::int64_t tokens_of(const Json& option) {
    return option["global_batch"].get<std::int64_t>() * option["sequence"].get<std::int64_t>();
}

TEST(SideBySide, GivesAllTheBatchOfTheLargestWorld) {
    // 1,536 GPUs alone take 6 Mi tokens, 16 take 4 Mi.
    const std::string pinned = "--tp 8 --pp 2 --recompute full ";
    const Json both = options(pinned + "--on 16:dgx-h200 --on 1536:dgx-h200");
    EXPECT_EQ(both[0]["global_batch"], 1536);
    EXPECT_EQ(both[1]["global_batch"], 1536);
    const Json three = options(pinned + "--on 16:dgx-h200 --on 48:dgx-h200 --on 80:dgx-h200");
    for (const Json& option : three) EXPECT_EQ(option["global_batch"], 1440) << "80 GPUs alone take 1,280; a multiple of 3 and 5 near it";
    const Json longer = options(pinned + "--on 16:dgx-h200 --on 16:dgx-h200,seq=8k");
    EXPECT_EQ(longer[1]["sequence"], 8192);
    EXPECT_EQ(tokens_of(longer[0]), tokens_of(longer[1]));
    EXPECT_EQ(Json::parse(compare(pinned + "--on 16:dgx-h200 --on 16:dgx-h100 --format json").out)["batch_source"], "assumed");
    EXPECT_THAT(in_one_line(compare(pinned + "--on 16:dgx-h200 --on 16:dgx-h100").out), HasSubstr("assumed for the largest world"));
}

TEST(SideBySide, TakesABatchOfAllAndOneOfItsOwn) {
    const std::string pinned = "--tp 8 --pp 2 --recompute full ";
    const Json given = options(pinned + "--on 16:dgx-h200 --on 32:dgx-h200,global_batch=128 --global-batch 64");
    EXPECT_EQ(given[0]["global_batch"], 64);
    EXPECT_EQ(given[1]["global_batch"], 128);
    const Json tokens =
        options(pinned + "--on 16:dgx-h200 --on 32:dgx-h200,seq=8k --on 16:dgx-h200,global_batch=8 --global-batch-tokens 1M");
    EXPECT_EQ(tokens[0]["global_batch"], 256);
    EXPECT_EQ(tokens[1]["global_batch"], 128);
    EXPECT_EQ(tokens[2]["global_batch"], 8);
    const std::string differ = compare(pinned + "--on 16:dgx-h200 --on 32:dgx-h200,global_batch=128 --global-batch 64").out;
    EXPECT_THAT(in_one_line(differ), HasSubstr("differs in tokens: compare tokens/s, not s/step"));
    EXPECT_THAT(differ, HasSubstr("128 x 4,096 tokens"));
    const std::string same = compare(pinned + "--on 16:dgx-h200 --on 32:dgx-h200 --global-batch 64").out;
    EXPECT_THAT(same, Not(HasSubstr("batch: ")));
    EXPECT_THAT(same, HasSubstr("llama3-8b, batch of 64 x 4,096 tokens, bf16\n"));
    // A published batch is taken as it is.
    const Json published = Json::parse(say("side-by-side --model deepseek-v3 --on 1024:dgx-h100 --on 768:dgx-h100 --tp 1 --pp 16 --ep 16 "
                                           "--recompute full --vpp 1 --cp 1 --micro-batch 1 --search plain --format json")
                                           .out);
    EXPECT_EQ(published["batch_source"], "published");
    for (const Json& option : published["options"]) EXPECT_EQ(option["global_batch"], 15360);
}

TEST(SideBySide, OtherSequencesGetABatchThatSuitsTheirWorld) {
    const Json both = options("--on 64:dgx-h100 --on 64:dgx-h100,seq=12k");
    EXPECT_EQ(both[0]["global_batch"].get<int>() * 4096, 4 << 20);
    const auto batch = both[1]["global_batch"].get<std::int64_t>();
    EXPECT_EQ(batch % 64, 0) << "341 sequences have as many tokens, and two factors";
    EXPECT_NEAR(static_cast<double>(batch), 341, 341.0 / 8);
}

TEST(SideBySide, NamesTheCommandOfTheFirstColumn) {
    const std::string words = "--on 16:dgx-h100,precision=fp8,seq=8k --on 32:dgx-h100";
    const std::string text = compare(words).out;
    const std::string command =
        in_one_line(text.substr(text.find("next: plan ") + 11, text.find(" and the other options") - text.find("next: plan ") - 11));
    EXPECT_EQ(command.substr(0, 49), "--world 16 --cluster dgx-h100 --precision fp8 --s") << text;
    const Json plans = Json::parse(say(fmt::format("plan {} {} --format json", kSmall, command)).out)["plans"];
    const auto recommended = std::ranges::find_if(plans, [](const Json& plan) { return plan["recommended"] == true; });
    ASSERT_NE(recommended, plans.end());
    EXPECT_EQ((*recommended)["predicted"], options(words)[0]["plan"]["predicted"]);
}

TEST(SideBySide, NamesNoWinnerOfATieAndAColumnWhereNamesAreEqual) {
    const std::string text = compare("--on 16:dgx-h100,price=3 --on 16:dgx-h100,price=2 --tokens 1T").out;
    EXPECT_THAT(text, Not(HasSubstr("most tokens/s"))) << "both have as many";
    EXPECT_THAT(text, HasSubstr("lowest cost: 16 dgx-h100 (column 2)"));
}

TEST(SideBySide, ShowsTheOthersWhereNothingFitsOnOne) {
    const Said said = compare("--on 8:dgx-h100,memory_gib=10 --on 8:dgx-h100 --tokens 1T --price 2");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(in_one_line(said.out), HasSubstr("no layout fits in"));
    EXPECT_THAT(said.out, HasSubstr("would fit with"));
    const Json both = options("--on 8:dgx-h100,memory_gib=10 --on 8:dgx-h100 --tokens 1T --price 2");
    for (const char* name : {"plan", "iteration_seconds", "adverse_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "days",
                             "cost", "gpu_hours"}) {
        EXPECT_EQ(both[0][name], nullptr) << name;
        EXPECT_NE(both[1][name], nullptr) << name;
    }
    EXPECT_THAT(both[0]["why_not"].get<std::string>(), HasSubstr("; the nearest, tp8"));
    // The remedy is the first that plan names.
    const Json report = Json::parse(say(fmt::format("plan {} --world 8 --cluster dgx-h100,memory_gib=10 --global-batch {} --format json",
                                                    kSmall, both[0]["global_batch"].get<int>()))
                                        .out);
    EXPECT_EQ(both[0]["would_fit_with"], report["nearest"][0]["would_fit_with"][0]["change"]);
}

TEST(SideBySide, EndsWithThreeWhereNothingFitsOnAny) {
    const Said said = compare("--on 8:dgx-h100,memory_gib=9 --on 8:dgx-h100,memory_gib=10");
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(in_one_line(said.out), HasSubstr("no layout fits in"));
    EXPECT_THAT(said.out, Not(HasSubstr("most tokens/s")));
}

TEST(SideBySide, SaysWhyAWorldHasNoLegalLayout) {
    const Json both = options("--on 8:dgx-h100 --on 7:dgx-h100 --tp 2 --global-batch 56");
    EXPECT_NE(both[0]["plan"], nullptr);
    EXPECT_EQ(both[1]["why_not"], "tp = 2 does not divide world = 7; use 1 or 7");
    expect_refused(fmt::format("side-by-side {} --on 5:dgx-h100 --on 7:dgx-h100 --tp 2 --global-batch 35", kSmall),
                   {"--on 5:dgx-h100: tp = 2 does not divide world = 5", "--on 7:dgx-h100: tp = 2 does not divide world = 7"});
}

TEST(SideBySide, TableKeepsToAHundredColumnsAndSentencesToEighty) {
    const std::string pinned = "--tp 8 --pp 2 --recompute full ";
    const std::string one_table =
        compare(pinned + "--on 1536:dgx-h100 --on 16:dgx-h200 --on 16:dgx-h200,precision=fp8,network_kind=roce --tokens 15T --price 2").out;
    bool in_table = false;
    for (const auto& line : split(one_table, '\n')) {
        if (line.starts_with("----")) in_table = true;
        if (line.empty()) in_table = false;
        EXPECT_LE(reports::display_width(line), in_table || line.find("GPUs  ") != std::string::npos ? 100U : 80U) << line;
    }
    for (const char* row : {"cluster ", "precision ", "layout ", "s/step ", "s/step, worst ", "tokens/s per GPU ", "TFLOP/s per GPU ",
                            "peak GiB ", "free GiB ", "days ", "GPU-hours ", "cost ", "accuracy "})
        EXPECT_THAT(one_table, HasSubstr(fmt::format("\n{}", row)));
    EXPECT_THAT(in_one_line(one_table), HasSubstr("most tokens/s: 1,536 dgx-h100 bf16; fewest GPU-hours: "));
    EXPECT_THAT(one_table, HasSubstr("network_kind=roce\n"));
    const std::string two_tables =
        compare(pinned + "--on 16:dgx-h100 --on 16:dgx-h200 --on 16:dgx-b200 --on 16:dgx-b300 --on 32:dgx-b300").out;
    EXPECT_THAT(two_tables, HasSubstr("\n                  32 GPUs\n"));
    EXPECT_THAT(two_tables, Not(HasSubstr("\nprecision"))) << "all have the same, which the first line names";
}

TEST(SideBySide, CsvHasARowForEach) {
    const Said said = compare("--on 8:dgx-h100,memory_gib=10 --on 8:dgx-h100 --tokens 1T --price 2 --format csv");
    EXPECT_EQ(said.code, kDone) << said.err;
    const auto lines = split(said.out, '\n');
    ASSERT_THAT(lines, SizeIs(4)) << "a header, two rows, and nothing after the last";
    EXPECT_THAT(
        lines[0],
        HasSubstr("world,cluster,precision,global_batch,sequence,why_not,would_fit_with,gpu_hour_price,iteration_seconds,adverse_seconds"));
    EXPECT_THAT(lines[1], HasSubstr("no layout fits"));
    EXPECT_THAT(lines[2], ::testing::StartsWith("8,dgx-h100,bf16,1024,4096,,"));
}

TEST(SideBySide, PrintsNotesOfSeveralOptionsOnce) {
    const Said said = compare("--on 8:dgx-h100 --on 8:dgx-h200 --routing natural");
    const auto first = said.err.find("--routing");
    ASSERT_NE(first, std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("--routing", first + 1), std::string::npos) << said.err;
}

TEST(SideBySide, RefusesWhatIsNoOption) {
    const auto refuse = [](const std::string& words, const Parts& parts) {
        expect_refused(fmt::format("side-by-side {} {}", kSmall, words), parts);
    };
    expect_refused("side-by-side --model llama3-8b", {"--on is missing", "--on 512:dgx-h100 --on 128:gb300-nvl72"});
    refuse("--on 8:dgx-h100", {"--on is given once", "mgplan plan"});
    for (const char* pair : {"8", "dgx-h100", "8:", ":dgx-h100", ":"})
        refuse(fmt::format("--on {} --on 8:dgx-h100", pair),
               {fmt::format("--on = '{}' is no WORLD:CLUSTER", pair), "such as 512:dgx-h100"});
    refuse("--on dgx-h100:8 --on 0:dgx-h100",
           {"--on dgx-h100:8: the world = 'dgx-h100' is not a whole number", "--on 0:dgx-h100: the world"});
    refuse("--on 8:dgx-h1000 --on 8:dgx-h100", {"unknown preset 'dgx-h1000'; did you mean dgx-h100"});
    refuse("--on 8:dgx-h100,precisio=fp8 --on 8:dgx-h100",
           {"unknown key 'precisio'; did you mean precision?", "global_batch, precision, price, seq, bf16_tflops", "memory_gib"});
    refuse("--on 8:dgx-h100,precision=fp7 --on 8:dgx-h100", {"--on 8:dgx-h100,precision=fp7: precision = 'fp7' is not known; use bf16"});
    refuse("--on 8:dgx-h100,precision --on 8:dgx-h100", {"precision needs a value; write precision=VALUE"});
    refuse("--on 8:dgx-h100,seq=1k,seq=2k --on 8:dgx-h100", {"seq is given twice"});
    refuse("--on 8:dgx-h100,seq=x,global_batch=0 --on 8:dgx-h100", {"seq = 'x' is not a whole number", "global_batch = 0 is out of range"});
    refuse("--on 8:dgx-h100,memory_gib=x --on 8:dgx-h100", {"memory_gib = 'x' is not a number"});
    refuse("--on 8:dgx-h100,price=-1 --on 8:dgx-h100 --tokens 1T", {"price = '-1' is no number from 0 to 1e9"});
    refuse("--on 8:dgx-h100,price=1 --on 8:dgx-h100", {"--on 8:dgx-h100,price=1: price needs --tokens"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h200 --price 2", {"--price 2 needs --tokens, which is missing"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h200 --price x --tokens 1T", {"--price = 'x' is no number"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h100", {"--on 8:dgx-h100 is given twice"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h100,precision=mxfp8", {"--on 8:dgx-h100,precision=mxfp8: --precision = mxfp8 needs Blackwell"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h200 --world 8 --cluster dgx-h100", {"unknown option --world", "unknown option --cluster"});
    refuse("--on 8:dgx-h100 --on 8:dgx-h200 --global-batch 8 --global-batch-tokens 8k", {"both give the batch"});
    std::string many;
    for (int world = 1; world <= 33; ++world) many += fmt::format("--on {}:dgx-h100 ", world);
    refuse(many + "--seq 4k", {"--on is given 33 times, more than 32"});
}

TEST(SideBySide, ReportsAProblemOfAllOptionsOnce) {
    const Said said = say("side-by-side --on 8:dgx-h100 --on 8:dgx-h200");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, ::testing::StartsWith("mgplan: --model is missing"));
    EXPECT_EQ(said.err.find("--model is missing"), said.err.rfind("--model is missing"));
}

}  // namespace
}  // namespace mgplan::cli::testing::side_by_side_command_test
