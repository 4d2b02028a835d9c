// The first look at a search: what its table shows, and what it says where nothing fits.

#include <set>

#include <fmt/core.h>

#include "planned.hpp"
#include "reports/table.hpp"

namespace mgplan::cli::testing::plan_first_look_test {
namespace {

using planned::kSmall, planned::plan, planned::rejected;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

TEST(PlanCommand, ListsNearestMissesWhereNothingFits) {
    TempFile file("none.json");
    const Said said = say({"--engine", "mgplan", "--world", "16", "--model", "llama3.1-405b", "--search", "plain", "--format", "json",
                           "--save-plan", file.path()});
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(said.err, HasSubstr("nothing fits, so --save-plan"));
    EXPECT_EQ(file.text(), "");
    const Json report = Json::parse(said.out);
    EXPECT_THAT(report["plans"], IsEmpty());
    ASSERT_THAT(report["nearest"], SizeIs(3)) << "one of each family";
    for (const auto& miss : report["nearest"]) {
        const auto limit = report["cluster"]["memory_bytes"].get<std::int64_t>();
        EXPECT_EQ(miss["missing_bytes"].get<std::int64_t>(), miss["peak_bytes"].get<std::int64_t>() - limit);
        EXPECT_GT(miss["missing_bytes"].get<std::int64_t>(), 0);
        const std::int64_t largest = miss["breakdown"][miss["largest_term"].get<std::string>()];
        std::int64_t sum = 0;
        for (const auto& [name, bytes] : miss["breakdown"].items()) {
            EXPECT_LE(bytes.get<std::int64_t>(), largest) << name;
            sum += bytes.get<std::int64_t>();
        }
        EXPECT_EQ(sum, miss["peak_bytes"].get<std::int64_t>());
        EXPECT_EQ(miss["rank"].get<std::int64_t>(), miss["stage"].get<std::int64_t>() * 16 / miss["layout"]["pp"].get<std::int64_t>());
        ASSERT_THAT(miss["would_fit_with"], Not(IsEmpty()));
        // As a user would try it.
        for (const auto& remedy : miss["would_fit_with"]) {
            const Json& l = remedy["layout"];
            const Said tried =
                say(fmt::format("simulate --engine mgplan --model llama3.1-405b --world {} --global-batch {} --tp {} --cp {} --pp {} --vpp "
                                "{} --micro-batch {} "
                                "--recompute {} --sequence-parallel {} --format json",
                                remedy["world"].get<std::int64_t>(), remedy["global_batch"].get<std::int64_t>(), l["tp"].get<int>(),
                                l["cp"].get<int>(), l["pp"].get<int>(), l["vpp"].get<int>(), l["micro_batch"].get<int>(),
                                l["recompute"].get<std::string>(), l["sequence_parallel"].get<bool>() ? "on" : "off"));
            EXPECT_EQ(tried.code, kDone) << tried.err;
            EXPECT_EQ(Json::parse(tried.out)["predicted"]["memory"]["peak_bytes"], remedy["peak_bytes"]) << remedy["change"];
        }
    }
    // Megatron-LM's allocator is replayed for the misses that are shown, as simulate replays it.
    const std::string job = "--world 64 --model llama3-70b --seq 8192 --global-batch 512 --tp 4 --pp 4 --micro-batch 1 --format json";
    const Json misses =
        Json::parse(say("plan --cp 1 --vpp 1 --recompute none --search plain --sequence-parallel on " + job).out)["nearest"];
    ASSERT_FALSE(misses.empty());
    const Json simulated = Json::parse(say("simulate --sequence-parallel on " + job).out)["predicted"]["memory"];
    EXPECT_EQ(misses[0]["missing_bytes"], simulated["missing_bytes"]);
    const Said table = say("--engine mgplan --world 16 --model llama3.1-405b --search plain");
    EXPECT_EQ(table.code, kNothingFits);
    EXPECT_THAT(table.out, HasSubstr("No layout fits"));
    EXPECT_THAT(table.out, HasSubstr("would fit with 128 GPUs instead of 16"));
    EXPECT_THAT(table.out, ContainsRegex("needs [0-9.]+ GiB, [0-9.]+ GiB more than the limit of 79.2 GiB, on rank 0 \\(stage 0\\):\n"
                                         "    optimizer [0-9.]+ GiB, gradients [0-9.]+ GiB, parameters [0-9.]+ GiB"));
}

TEST(PlanCommand, WhatWouldFitDoesWhenItIsTried) {
    // By what the search assumes of the allocator one layout fits, and half of another's micro-batch; by their replays neither.
    const std::string job = "--world 8 --model qwen3-30b-a3b --global-batch 512 --precision fp8 --search plain";
    const Said table = say(job);
    EXPECT_EQ(table.code, kNothingFits);
    EXPECT_THAT(table.out,
                AllOf(HasSubstr(" legal, 0 fit in "), HasSubstr("would fit with the optimizer on the host (--offload optimizer)")));
    const Json nearest = Json::parse(say(job + " --format json").out)["nearest"];
    ASSERT_GE(nearest.size(), 2U);
    std::set<std::string> families;
    for (std::size_t i = 0; i < nearest.size(); ++i) {
        if (i > 0) {
            EXPECT_GE(nearest[i]["missing_bytes"], nearest[i - 1]["missing_bytes"]);
        }
        const Json& l = nearest[i]["layout"];
        families.insert(
            fmt::format("{} {} {} {} {}", l["tp"].dump(), l["ep"].dump(), l["etp"].dump(), l["pp"].dump(), l["recompute"].dump()));
        for (const Json& remedy : nearest[i]["would_fit_with"]) {
            const Json& to = remedy["layout"];
            const Said tried = say(
                fmt::format("simulate --model qwen3-30b-a3b --precision {} --world {} --global-batch {} --tp {} --cp {} --ep {} --etp {} "
                            "--pp {} --vpp {} --micro-batch {} --recompute {} --sequence-parallel on{} --format json",
                            remedy["change"].get<std::string>().starts_with("bf16") ? "bf16" : "fp8", remedy["world"].get<int>(),
                            remedy["global_batch"].get<int>(), to["tp"].get<int>(), to["cp"].get<int>(), to["ep"].get<int>(),
                            to["etp"].get<int>(), to["pp"].get<int>(), to["vpp"].get<int>(), to["micro_batch"].get<int>(),
                            to["recompute"].get<std::string>(), to["offload"].contains("optimizer") ? " --offload optimizer" : ""));
            EXPECT_EQ(tried.code, kDone) << remedy["change"] << tried.err;
            EXPECT_EQ(Json::parse(tried.out)["predicted"]["memory"]["peak_bytes"], remedy["peak_bytes"]) << remedy["change"];
        }
    }
    EXPECT_EQ(families.size(), nearest.size()) << "one of each family";
}

TEST(PlanCommand, NamesEveryRuleAndSaysWhatItIs) {
    const Json search = plan(std::string(kSmall) + " --tp 2,3 --micro-batch 1,3")["search"];
    ASSERT_EQ(search["rejections"].size(), search["rejected"].size());
    for (const auto& each : search["rejections"]) {
        const std::string rule = each["rule"];
        EXPECT_EQ(rule.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos) << rule;
        EXPECT_EQ(each["candidates"], search["rejected"][rule]);
        EXPECT_FALSE(each["reason"].get<std::string>().empty());
        EXPECT_FALSE(each["example"].get<std::string>().empty());
        if (rule == "tp_divides_world") {
            EXPECT_EQ(each["reason"], "tp does not divide the world");
            EXPECT_THAT(each["example"].get<std::string>(), HasSubstr("tp = 3 does not divide"));
        }
    }
}

TEST(PlanCommand, SaysWhatRejectedLayoutsLackWhereForWhichTerm) {
    const std::string words = "--engine mgplan --world 64 --model llama3-70b";
    const Json report = plan(words + " --headroom 0 --search plain --exhaustive");
    const Json& kinds = report["search"]["too_large"];
    ASSERT_GE(kinds.size(), 2U);
    std::int64_t layouts = 0;
    std::set<std::string> terms;
    for (const auto& kind : kinds) {
        layouts += kind["layouts"].get<std::int64_t>();
        const std::string term = kind["largest_term"];
        terms.insert(term);
        const Json& miss = kind["nearest"];
        EXPECT_GT(miss["missing_bytes"].get<std::int64_t>(), 0);
        EXPECT_EQ(miss["largest_term"], term);
        // Asking for the layout by name gives the same answer, and exit code 3.
        const Json& l = miss["layout"];
        const std::string pinned = fmt::format(
            "simulate {} --tp {} --cp {} --pp {} --vpp {} --micro-batch {} --recompute {} --sequence-parallel {} --cp-comm-type {}", words,
            l["tp"].get<int>(), l["cp"].get<int>(), l["pp"].get<int>(), l["vpp"].get<int>(), l["micro_batch"].get<int>(),
            l["recompute"].get<std::string>(), l["sequence_parallel"].get<bool>() ? "on" : "off", l["cp_comm_type"].get<std::string>());
        const Said json = say(pinned + " --format json");
        EXPECT_EQ(json.code, kNothingFits) << pinned;
        const Json memory = Json::parse(json.out)["predicted"]["memory"];
        EXPECT_EQ(memory["missing_bytes"], miss["missing_bytes"]);
        EXPECT_EQ(memory["largest_term"], term);
        EXPECT_EQ(memory["worst_rank"], miss["rank"]);
        const Said table = say(pinned);
        EXPECT_EQ(table.code, kNothingFits);
        EXPECT_THAT(in_one_line(table.out), ContainsRegex("does not fit: [0-9.]+ [GM]iB over the limit of 79.2 GiB on rank [0-9]+ "
                                                          "\\(stage [0-9]+\\), of which most is " +
                                                          term + ", [0-9.]+ GiB"));
    }
    EXPECT_EQ(terms.size(), kinds.size());
    EXPECT_EQ(layouts, rejected(report, "fits_in_memory"));
    EXPECT_THAT(say(words + " --search plain --wide").out, ContainsRegex("too large +most is +missing at least +on rank +with the layout"));
}

TEST(PlanCommand, ShowsOneRowAFamily) {
    const std::string words = std::string(kSmall) + " --cp 4 --tp 1 --pp 1 --recompute none --sharding optimizer --top 2";
    EXPECT_THAT(say(words).out, AllOf(HasSubstr("Best layout of each group (same tp, cp, pp, rec). Every layout: --all --top "),
                                      ContainsRegex("\n1 "), Not(ContainsRegex("\n2 "))));
    const Said all = say(words + " --all");
    EXPECT_THAT(all.out, AllOf(Not(HasSubstr("Best layout of each group")), ContainsRegex("\n1 "), ContainsRegex("\n2 ")));
    const auto json = nlohmann::ordered_json::parse(say(words + " --format json").out);
    EXPECT_EQ(json["plans"].size(), 2U) << "programs get every rank";
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(json["plans"][i]["rank"], i + 1);
}

TEST(PlanCommand, FirstLookFitsAScreen) {  // 24 lines of 80 columns; of MoE models, whose layouts have two sizes more, 26 of 100
    std::vector<std::string> jobs{"--world 16 --model llama3-8b", "--world 256 --model mixtral-8x7b"};
#ifndef MGPLAN_ADDRESS_SANITIZER  // three minutes there
    jobs.insert(jobs.end(), {"--world 2048 --model llama3.1-405b", "--world 1024 --model deepseek-v3 --cluster gb200",
                             "--world 64 --model gpt-oss-120b --engine megatron"});
#endif
    for (const std::string& job : jobs) {
        const Said said = say(job);
        EXPECT_EQ(said.code, kDone) << job;
        const auto lines = split(said.out, '\n');
        const bool moe = job.find("llama") == std::string::npos;
        EXPECT_LE(lines.size(), moe ? 27U : 25U) << said.out;  // the last one is empty
        for (const auto& line : lines) EXPECT_LE(reports::display_width(line), moe ? 100U : 80U) << line;
        EXPECT_THAT(said.out, AllOf(HasSubstr("assumed: "), HasSubstr(" more: --assumed"), HasSubstr("\naccuracy: "), HasSubstr("\nnext: "),
                                    Not(HasSubstr("Where the time of a step goes")), Not(HasSubstr("rejected  reason"))));
    }
}

TEST(PlanCommand, SaysWhatElseIsThereToKnow) {
    const std::string mixture = "--world 64 --model qwen3-30b-a3b --ep 8 --pp 2 --tp 1 --cp 1 --micro-batch 1";
    EXPECT_THAT(say(mixture).out, HasSubstr("recommended"));
    EXPECT_THAT(say(mixture + " --precision fp8 --wide").out, HasSubstr("MFU: of the fp8 peak"));
    EXPECT_THAT(say("--world 12 --model llama3-8b --tp 1 --pp 1 --assumed").out,
                HasSubstr("global batch of 1,056 sequences (4,325,376 tokens)"));
    EXPECT_THAT(say("--world 16 --model llama3-8b --tp 2 --pp 1 --cp 4 --seq 16k --assumed").out,
                HasSubstr("positions beyond the 8,192 of llama3-8b"));
    EXPECT_THAT(say("--world 16 --model llama3-8b --tp 2 --pp 1 --max-memory 200GiB").err,
                HasSubstr("--max-memory = 200.0 GiB is more than a GPU of dgx-h100 has (79.2 GiB)"));
}

TEST(PlanCommand, ShowsMoreWhereAsked) {
    const Said wide = say(std::string(kSmall) + " --search plain --wide");
    EXPECT_THAT(wide.out, AllOf(HasSubstr("Where the time of a step goes:"), HasSubstr("fullest"), HasSubstr("rejected  reason"),
                                HasSubstr("no CUDA graphs"), Not(HasSubstr("--assumed"))));
    const Said assumed = say(std::string(kSmall) + " --search plain --assumed");
    EXPECT_THAT(assumed.out, AllOf(HasSubstr("no CUDA graphs"), Not(HasSubstr("Where the time of a step goes:"))));
    EXPECT_EQ(plan(kSmall)["plans"].size(), 10U);
}

TEST(PlanCommand, SaysHowFarPredictionsOfThisKindWereOff) {
    EXPECT_THAT(say(kSmall).out,
                ContainsRegex("accuracy: on [0-9]+ dense runs on H100 that nobody had tuned for: [0-9]+ % .bias [+-][0-9]+ %.\n"));
    EXPECT_THAT(say(std::string(kSmall) + " --cluster h800").out,
                ContainsRegex("accuracy: on [0-9]+ dense runs that nobody had tuned for"));
}

TEST(PlanCommand, ExplainsAPlanBeyondTheList) {
    const Said said = say(std::string(kSmall) + " --top 2 --explain 4");
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.out, HasSubstr("plan 4 in detail"));
    EXPECT_THAT(said.out, HasSubstr("op at the peak"));
    EXPECT_THAT(said.out, HasSubstr("over one iteration: "));
    EXPECT_THAT(said.out, HasSubstr("microbatches of"));
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_first_look_test
