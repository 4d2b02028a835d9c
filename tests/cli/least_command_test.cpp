// `mgplan least`: the least number of GPUs, against `plan` on every number below it.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "reports/table.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::least_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

/// Few layouts, so that many searches are fast.
constexpr const char* kSmall = "--model llama3-8b --cp 1 --vpp 1 --micro-batch 1";

Json least(const std::string& words) {
    const Said said = say(fmt::format("least {} --format json", words));
    EXPECT_NE(said.code, kBadInput) << said.err;
    return Json::parse(said.out);
}

/// True if `plan` has a plan on that number of GPUs that leaves the headroom.
bool fits(const std::string& words, std::int64_t world, const Json& answer) {
    const Said said =
        say(fmt::format("plan {} --world {} --global-batch {} --format json", words, world, answer["global_batch"].get<std::int64_t>()));
    if (said.code == kBadInput) return false;  // no layout is legal
    const Json report = Json::parse(said.out);
    return !report["plans"].empty() && report["search"]["headroom_missed"] == false;
}

const Json& row(const Json& list, const char* key, const std::string& change) {
    const auto found = std::ranges::find_if(list, [&](const Json& entry) { return entry[key] == change; });
    EXPECT_NE(found, list.end()) << change << " in " << list;
    return *found;
}

TEST(Least, IsTheFirstNumberOnWhichPlanHasAPlan) {
    for (const std::string job : {"--cluster dgx-h100", "--cluster dgx-a100-40g", "--cluster dgx-h100,memory_gib=30 --headroom 2GiB",
                                  "--cluster gb200-nvl72,memory_gib=20", "--cluster dgx-h100,memory_gib=20 --tp 1 --pp 1"}) {
        const std::string words = fmt::format("{} {}", kSmall, job);
        const Json answer = least(words);
        SCOPED_TRACE(words);
        ASSERT_TRUE(answer["gpus"].is_number());
        const auto gpus = answer["gpus"].get<std::int64_t>();
        EXPECT_TRUE(fits(words, gpus, answer));
        const std::int64_t node = job.find("gb200") != std::string::npos ? 4 : 8;
        for (std::int64_t world = 1; world < gpus; world += world < node ? world : node) EXPECT_FALSE(fits(words, world, answer)) << world;
    }
}

TEST(Least, ShowsALayoutThatPlanKnows) {
    const Json answer = least(fmt::format("{} --cluster dgx-a100-40g", kSmall));
    const Json report =
        Json::parse(say(fmt::format("plan {} --cluster dgx-a100-40g --world {} --global-batch {} --all --top 1000 --format json", kSmall,
                                    answer["gpus"].get<int>(), answer["global_batch"].get<int>()))
                        .out);
    const auto found = std::ranges::find_if(report["plans"], [&](const Json& plan) { return plan["layout"] == answer["plan"]["layout"]; });
    ASSERT_NE(found, report["plans"].end());
    EXPECT_EQ((*found)["predicted"], answer["plan"]["predicted"]);
    for (const char* name : {"iteration_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu"})
        EXPECT_EQ(answer[name], answer["plan"]["predicted"][name]) << name;
    EXPECT_EQ(answer["iteration_seconds"], report["plans"][0]["predicted"]["iteration_seconds"]);
}

TEST(Least, EachChangeIsTheAnswerWithThatOption) {
    const std::string words = fmt::format("{} --cluster dgx-h100", kSmall);
    const Json answer = least(words);
    EXPECT_EQ(answer["gpus"], 2);
    ASSERT_THAT(answer["without"], SizeIs(2));
    ASSERT_THAT(answer["fixes"], SizeIs(2)) << "no headroom saves no GPU";
    const auto expect_same = [&](const char* list, const char* key, const std::string& option) {
        const Json& found = row(answer[list], key, option);
        const Json asked = least(fmt::format("{} {}", words, option));
        for (const char* name : {"gpus", "iteration_seconds", "tokens_per_second_per_gpu", "plan"})
            EXPECT_EQ(found[name], asked[name]) << option << " " << name;
    };
    expect_same("without", "without", "--recompute none");
    expect_same("without", "without", "--sharding optimizer");
    expect_same("fixes", "fix", "--offload optimizer");
    expect_same("fixes", "fix", "--lora default");
    EXPECT_GT(row(answer["without"], "without", "--recompute none")["gpus"], answer["gpus"]);
    EXPECT_LT(row(answer["fixes"], "fix", "--offload optimizer")["gpus"], answer["gpus"]);
}

TEST(Least, NamesTheHeadroomWhereItTakesGpus) {
    const std::string words = fmt::format("{} --cluster dgx-h100", kSmall);
    const Json answer = least(words + " --headroom 40GiB");
    const Json& without = row(answer["fixes"], "fix", "--headroom 0");
    EXPECT_EQ(without["gpus"], least(words + " --headroom 0")["gpus"]);
    EXPECT_LT(without["gpus"], answer["gpus"]);
    EXPECT_EQ(answer["headroom_bytes"], std::int64_t{40} << 30);
}

TEST(Least, LeavesOutChangesThatTheJobHas) {
    const Json answer = least(fmt::format("{} --offload optimizer --recompute none --headroom 0 --lora default", kSmall));
    EXPECT_THAT(answer["fixes"], SizeIs(0));
    EXPECT_THAT(answer["without"], SizeIs(0)) << "FSDP goes with no optimizer in host memory";
    const Json sharded = least(fmt::format("{} --sharding full", kSmall));
    EXPECT_THAT(sharded["without"], SizeIs(1));
    EXPECT_THAT(sharded["fixes"], SizeIs(0)) << "adapters go with no FSDP";
    EXPECT_THAT(least(fmt::format("{} --max-memory 60GiB", kSmall))["fixes"], SizeIs(2));
}

TEST(Least, HoldsTheBatchOnAllNumbersOfGpus) {
    const Json dense = least(kSmall);
    EXPECT_EQ(dense["batch_source"], "assumed");
    EXPECT_EQ(dense["global_batch"], 1024);
    const Json given = least(fmt::format("{} --global-batch 48", kSmall));
    EXPECT_EQ(given["batch_source"], "given");
    EXPECT_EQ(given["global_batch"], 48);
    for (const Json& entry : given["without"]) {
        if (entry["plan"].is_null()) continue;
        const Json& layout = entry["plan"]["layout"];
        EXPECT_EQ(layout["dp"].get<int>() * layout["micro_batch"].get<int>() * layout["num_microbatches"].get<int>(), 48);
    }
    EXPECT_EQ(least(fmt::format("{} --global-batch-tokens 1M", kSmall))["global_batch"], 256);
    EXPECT_THAT(in_one_line(say(fmt::format("least {}", kSmall)).out), HasSubstr("assumed for one node, the same on every number of GPUs"));
    EXPECT_THAT(say(fmt::format("least {} --global-batch 48", kSmall)).out, Not(HasSubstr("batch: ")));
}

TEST(Least, EndsWithThreeAndTheNearestMissWhereNothingFits) {
    const std::string words = fmt::format("least {} --cluster dgx-h100,memory_gib=16 --up-to 8", kSmall);
    const Said said = say(words);
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(in_one_line(said.out),
                AllOf(HasSubstr("No layout fits on up to 8 GPUs; on 8 GPUs: no layout fits in 16.0 GiB; the nearest, tp8"),
                      HasSubstr("It would fit with"), HasSubstr("as given > 8"), Not(HasSubstr("next: "))));
    const Json answer = Json::parse(say(words + " --format json").out);
    for (const char* name : {"gpus", "iteration_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "plan"})
        EXPECT_EQ(answer[name], nullptr) << name;
    EXPECT_THAT(answer["why_not"].get<std::string>(), HasSubstr("; the nearest, tp8"));
    EXPECT_EQ(answer["tried_up_to"], 8);
    EXPECT_NE(row(answer["fixes"], "fix", "--offload optimizer")["gpus"], nullptr);
}

TEST(Least, TableHasARowForEachChange) {
    const Said said = say(fmt::format("least {}", kSmall));
    EXPECT_EQ(said.code, kDone);
    EXPECT_EQ(said.err, "");
    for (const char* text :
         {"llama3-8b on dgx-h100, batch of 1,024 x 4,096 tokens, bf16\n", "2 GPUs at least, with 4.0 GiB of 79.2 GiB free", "\nas given ",
          "\n--recompute none ", "\n--sharding optimizer ", "\n--offload optimizer ", "\n--lora default ",
          "next: plan --world 2 --cluster dgx-h100 --seq 4096 --global-batch 1024 "})
        EXPECT_THAT(in_one_line(said.out) + said.out, HasSubstr(text));
    for (const auto& line : split(said.out, '\n')) EXPECT_LE(reports::display_width(line), 100U) << line;
    EXPECT_THAT(said.out, HasSubstr("\nlayout: the fastest; "));
    EXPECT_THAT(say(fmt::format("least {} --objective memory", kSmall)).out, HasSubstr("\nlayout: the smallest; "));
    const Said csv = say(fmt::format("least {} --format csv", kSmall));
    const auto lines = split(csv.out, '\n');
    ASSERT_THAT(lines, SizeIs(7)) << "a header, five rows, and nothing after the last";
    EXPECT_THAT(lines[0],
                ::testing::StartsWith("change,gpus,iteration_seconds,tokens_per_second_per_gpu,model_tflops_per_gpu,peak_bytes,tp,"));
    EXPECT_THAT(lines[1], ::testing::StartsWith(",2,"));
    EXPECT_THAT(lines[4], ::testing::StartsWith("--offload optimizer,1,"));
    EXPECT_THAT(lines[5], ::testing::StartsWith("--lora default,1,"));
}

TEST(Least, RefusesWhatItCannotSearch) {
    const auto refuse = [](const std::string& words, const Parts& parts) { expect_refused("least " + words, parts); };
    refuse("--up-to 8", {"--model is missing"});
    refuse("--model llama3-80b", {"unknown model 'llama3-80b'; did you mean llama3-70b, llama3-8b"});
    refuse(fmt::format("{} --world 8", kSmall), {"unknown option --world"});
    refuse(fmt::format("{} --up-to 0", kSmall), {"--up-to = 0 is out of range"});
    refuse(fmt::format("{} --cluster dgx-h1000", kSmall), {"unknown preset 'dgx-h1000'"});
    refuse(fmt::format("{} --global-batch 8 --global-batch-tokens 8k", kSmall), {"both give the batch"});
    refuse(fmt::format("{} --tp 3 --up-to 64", kSmall), {"on 64 GPUs: tp = 3 does not divide world = 64"});
    refuse(fmt::format("{} --headroom 100%", kSmall), {"--headroom = '100%'"});
}

}  // namespace
}  // namespace mgplan::cli::testing::least_command_test
