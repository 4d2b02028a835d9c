// The commands groups, schedule and split: formats, notes and bad input. Their numbers are held by tests/golden.

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::layout_commands_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// No line of a table is wider than 100 columns.
void expect_narrow(const std::string& table) {
    for (const auto& line : split(table, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(GroupsCommand, PrintsJsonCsvAndTable) {
    EXPECT_THAT(
        say("groups --world 4 --tp 2 --format json").out,
        StartsWith(
            R"({"world":4,"tp":2,"cp":1,"ep":1,"etp":2,"pp":1,"dp":2,"edp":2,"order":"tp-cp-ep-dp-pp","groups":{"tp":[[0,1],[2,3]],"cp":)"));
    EXPECT_THAT(say("groups --tp 2 --dp 2 --format csv").out, StartsWith("name,group,ranks\ntp,0,0 1\ntp,1,2 3\ncp,0,0\n"));
    const Said table = say("groups --world 4096 --tp 8 --pp 4");
    EXPECT_THAT(table.out, HasSubstr("dense grid   tp 8 x cp 1 x dp 128 x pp 4"));
    EXPECT_THAT(table.out, HasSubstr("more (--format json or csv lists all)"));
    expect_narrow(table.out);
}

TEST(GroupsCommand, RefusesBadInput) {
    expect_refused("groups", "--world is missing");
    expect_refused("groups --world 0", "--world = 0 is out of range");
    expect_refused("groups --world 1000000000", "--world 1000000000 is too large to list its groups; use at most 16777216");
    expect_refused("groups --world 9223372036854775808", "is a whole number out of range");
    expect_refused("groups --world 16 --tp 9223372036854775807 --cp 9223372036854775807", "is larger than world = 16");
    expect_refused("groups --world 16 --dp 3 --tp 2", "tp·cp·dp·pp = 2·1·3·1 = 6 is not --world 16");
    expect_refused("groups --dp 9223372036854775807 --tp 2", "is larger than any world");
    expect_refused("groups --world 16 --order tp-zp-dp", "unknown axis 'zp'");
    expect_refused("groups --world 16 --order tp-dp-tp", "names tp twice");
}

TEST(GroupsCommand, ReportsOrderAndWorldTogether) {
    const Said said = say("groups --order tp-zp");
    EXPECT_THAT(said.err, HasSubstr("unknown axis 'zp'"));
    EXPECT_THAT(said.err, HasSubstr("--world is missing"));
}

TEST(ScheduleCommand, PrintsTheOrderOfEachRankAndAPicture) {
    const Said said = say("schedule --pp 2 --microbatches 3");
    EXPECT_EQ(said.code, kDone);
    EXPECT_EQ(said.out,
              "schedule 1f1b: pp 2, vpp 1, 3 microbatches\n"
              "F3 forward of microbatch 3, B3 its backward\n"
              "\n"
              "rank 0: warm-up 1, peak live 2\n"
              "  F0 F1 B0 F2 B1 B2\n"
              "rank 1: warm-up 0, peak live 1\n"
              "  F0 B0 F1 B1 F2 B2\n"
              "\n"
              "time across, one column a forward; a backward takes two\n"
              "rank 0      F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
              "rank 1      .  F0 B0--- F1 B1--- F2 B2--- .  .\n");
}

TEST(ScheduleCommand, KeepsLargeTablesNarrowAndShort) {
    for (const char* words : {"schedule --pp 64 --vpp 8 --microbatches 4096", "schedule --pp 40000 --microbatches 3",
                              "schedule --pp 2 --vpp 40 --microbatches 2", "schedule --pp 1 --microbatches 1000 --forward-only"}) {
        const Said said = say(words);
        EXPECT_EQ(said.code, kDone) << words;
        expect_narrow(said.out);
        EXPECT_LT(said.out.size(), 40'000U) << words;
    }
}

TEST(ScheduleCommand, PrintsCsvAndNotesAnOptionWithoutEffect) {
    const Said said = say("schedule --pp 2 --microbatches 1 --group-size 7 --format csv");
    EXPECT_EQ(said.out, "rank,step,op,chunk,microbatch\n0,0,F,0,0\n0,1,B,0,0\n1,0,F,0,0\n1,1,B,0,0\n");
    EXPECT_THAT(said.err, HasSubstr("--group-size has no effect: only the interleaved schedule has groups"));
}

TEST(ScheduleCommand, PrintsSplitSchedules) {
    const nlohmann::ordered_json json =
        nlohmann::ordered_json::parse(say("schedule --pp 2 --microbatches 2 --kind zb-h1 --format json").out);
    EXPECT_EQ(json["kind"], "zb-h1");
    EXPECT_EQ(json["ranks"][1]["ops"][0].dump(), R"({"op":"F","chunk":0,"microbatch":0})");
    std::string words;
    for (const nlohmann::ordered_json& op : json["ranks"][1]["ops"])
        words += op["op"].get<std::string>() + std::to_string(op["microbatch"].get<int>()) + " ";
    EXPECT_EQ(words, "F0 B0 F1 B1 W0 W1 ");
    const Said table = say("schedule --pp 3 --microbatches 2 --kind zb-h1");
    EXPECT_THAT(table.out, HasSubstr("rank 0: peak live 2\n"));
    EXPECT_THAT(table.out, HasSubstr("each pass takes one"));
    for (const auto& kind : {"zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"}) {
        const Said said = say(std::string("schedule --pp 64 --microbatches 200 --kind ") + kind);
        EXPECT_EQ(said.code, kDone) << said.err;
        EXPECT_LT(said.out.size(), 40'000U) << kind;
    }
    EXPECT_THAT(say("schedule --pp 2 --microbatches 1 --kind zb-v --format csv").out, HasSubstr("0,0,F,0,0\n0,1,F,1,0\n0,2,B,1,0\n"));
}

TEST(ScheduleCommand, SaysWhatRunsSplitSchedules) {
    const std::string help = in_one_line(say("schedule --help").out);
    EXPECT_THAT(help, HasSubstr("zb-h1 and later ones split the backward pass; mgplan runs them, Megatron-LM does not"));
}

TEST(ScheduleCommand, RefusesBadInput) {
    expect_refused("schedule --pp 2", "--microbatches is missing");
    expect_refused("schedule --pp 4 --vpp 2 --microbatches 8 --group-size 3", "group size = 3 is below pp = 4");
    expect_refused("schedule --pp 1 --microbatches 8 --kind zb-h1", "kind = zb-h1 needs a pipeline, but pp = 1");
    expect_refused("schedule --pp 4 --vpp 3 --microbatches 8 --kind zb-v", "--kind zb-v has vpp = 2, but --vpp 3 is given");
    expect_refused("schedule --pp 4 --kind zb-v", "--microbatches is missing");
    expect_refused("schedule --pp 4 --microbatches 7 --kind dualpipe-v", "use 8 or more");
    expect_refused("schedule --pp 4 --microbatches 9999999 --kind zb-h2", "make more than 8388608 passes of kind zb-h2");
    expect_refused("schedule --pp 4 --microbatches 8 --kind gpipe", "--kind = 'gpipe' is not known");
    expect_refused("schedule --pp 65536 --microbatches 10000000", "entries; use fewer microbatches");
    expect_refused("schedule --pp 2 --vpp 1000 --microbatches 10000000", "use at most 16777 microbatches");
    expect_refused("schedule --pp 2 --microbatches 9223372036854775807", "is out of range");
}

TEST(SplitCommand, PrintsJsonCsvAndTable) {
    EXPECT_EQ(say("split --layers 3 --pp 2 --pipeline-layout Ett|tmL --mtp-layers 1 --format json").out,
              R"({"layers":3,"mtp_layers":1,"pp":2,"vpp":1,"pipeline_layout":"Ett|tmL","num_layers":[[2],[1]],"offset":[[0],[2]],)"
              R"("stages":[[["embedding","decoder","decoder"]],[["decoder","mtp","loss"]]]})"
              "\n");
    EXPECT_EQ(say("split --layers 4 --pp 2 --format csv").out,
              "pp_rank,chunk,embedding,decoders,offset,mtp,loss\n0,0,1,2,0,0,0\n1,0,0,2,2,0,1\n");
    EXPECT_THAT(say("split --layers 8 --pp 2 --vpp 2").out, HasSubstr("      1       4  2-3      6-7 L\n"));
    EXPECT_THAT(say("split --model llama3-8b --pp 4").out, HasSubstr("32 decoder layers over pp 4: even"));
}

TEST(SplitCommand, KeepsLargeTablesNarrow) {
    expect_narrow(say("split --layers 2048 --pp 2 --vpp 64").out);
    const Said said = say("split --layers 65536 --pp 4096 --vpp 16");
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.out, HasSubstr("... 4032 more pipeline ranks"));
    expect_narrow(said.out);
}

TEST(SplitCommand, OffersThePlannersSplitWhereTheEvenOneFails) {
    expect_refused("split --layers 61 --pp 16 --vpp 2 --mtp-layers 1", "the planner would take --pipeline-layout 'Et|t|(tt|)*29tmL'");
}

TEST(SplitCommand, RefusesBadInput) {
    expect_refused("split --pp 2", "--model or --layers is missing");
    expect_refused("split --model llama3-8b --layers 3", "exclude each other");
    expect_refused("split --layers 1000000000 --pp 2", "--layers = 1000000000 is out of range");
    expect_refused("split --layers 4 --pp 8", "8 stages, more than layers = 4");
    expect_refused("split --layers 8 --pp 2 --pipeline-layout Et*4|t*4x|L", "\n    Et*4|t*4x|L\n            ^");
    expect_refused("split --layers 8 --pp 2 --first-stage-layers -1", "--first-stage-layers = -1 is out of range");
    expect_refused("split --layers 8 --pp 2 --vpp 1 --pipeline-layout Ett|tt|tt|ttL", "but vpp = 1");
}

TEST(LayoutCommands, WriteToAFileOrSayWhyNot) {
    EXPECT_EQ(say("groups --world 4 --output /nonexistent/folder/file").code, kBadInput);
    EXPECT_THAT(say("split --help").out, HasSubstr("--pipeline-layout"));
    const TempFile kept("kept.txt", "what was there before");
    EXPECT_EQ(say("groups --world 0 --output " + kept.path()).code, kBadInput);
    EXPECT_EQ(kept.text(), "what was there before");
    EXPECT_EQ(say("groups --world 4 --output " + kept.path()).code, kDone);
    EXPECT_THAT(kept.text(), HasSubstr("tp"));
}

TEST(LayoutCommands, WriteBehindLinksAndLeaveNothingBeside) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(::testing::TempDir()) / ("mgplan_links_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    const auto write = [&](const std::string& name) { return say("groups --world 4 --output " + (folder / name).string()).code; };
    fs::create_symlink("target", folder / "link");
    EXPECT_EQ(write("link"), kDone) << "to a file that is not there yet";
    EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::file_size(folder / "target") > 0);
    fs::permissions(folder / "target", fs::perms::owner_read | fs::perms::owner_write);
    fs::resize_file(folder / "target", 0);
    EXPECT_EQ(write("link"), kDone);
    EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::file_size(folder / "target") > 0);
    EXPECT_EQ(fs::status(folder / "target").permissions(), fs::perms::owner_read | fs::perms::owner_write);
    fs::create_hard_link(folder / "target", folder / "other name");
    fs::resize_file(folder / "target", 0);
    EXPECT_EQ(write("target"), kDone);
    EXPECT_GT(fs::file_size(folder / "other name"), 0U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 3);
    fs::remove_all(folder);
}

TEST(LayoutCommands, HelpOfACommandAndModelsThatAreNoCommands) {
    EXPECT_EQ(say("help split").out, say("split --help").out);
    expect_refused("llama3-8b", {"llama3-8b is a model, no command", "mgplan --world N --model llama3-8b"});
    expect_refused("simulate --world 4 --model llama3-8b --vpp 2", {"vpp = 2 needs pp > 1"});
    EXPECT_THAT(say("simulate --world 4 --model llama3-8b --vpp 2").err, ::testing::Not(HasSubstr("makes 2 chunks of 32")));
}

TEST(LayoutCommands, AResultThatNoFileTakesGoesToStandardOutput) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
    for (const char* word : {"--help", "--version", "plan"}) {
        std::ofstream full("/dev/full");
        std::ostringstream err;
        Console console{full, err};
        EXPECT_EQ(run_mgplan(word == std::string_view("plan") ? std::vector<std::string>{"plan", "--help"} : std::vector<std::string>{word},
                             console),
                  kRunFailed)
            << word;
        EXPECT_THAT(err.str(), HasSubstr("standard output cannot be written"));
    }
    const Said lost = say("groups --world 4 --output /dev/full");
    EXPECT_EQ(lost.code, kRunFailed);
    EXPECT_EQ(lost.out, say("groups --world 4").out);
    EXPECT_THAT(lost.err, HasSubstr("--output /dev/full: the file cannot be written any more"));
}

class LayoutCommandsOfAPlan : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(say("plan --world 16 --model mixtral-8x7b --search plain --tp 2 --ep 4 --etp 1 --pp 2 --vpp 4 --micro-batch 1 "
                      "--global-batch 64 --top 1 --save-plan " +
                      file_.path())
                      .code,
                  kDone);
    }
    const TempFile file_{"layout_commands_plan.json"};
};

TEST_F(LayoutCommandsOfAPlan, PrintWhatItsSizesDo) {
    for (const auto& [command, sizes] : std::map<std::string, std::string>{
             {"groups", "--world 16 --tp 2 --ep 4 --etp 1 --pp 2"},
             {"schedule", "--pp 2 --vpp 4 --microbatches 16"},
             {"split", "--model mixtral-8x7b --pp 2 --vpp 4"},
             {"buffers", "--model mixtral-8x7b --tp 2 --pp 2 --vpp 4 --ep 4 --etp 1 --dp 4"},
             {"buffers --pp-rank 1 --chunk 3 --shards", "--model mixtral-8x7b --tp 2 --pp 2 --vpp 4 --ep 4 --etp 1 --dp 4"}}) {
        const Said of_plan = say(command + " " + file_.path() + " --format json");
        EXPECT_EQ(of_plan.err, "") << command;
        EXPECT_EQ(of_plan.out, say(command + " " + sizes + " --format json").out) << command;
    }
}

TEST_F(LayoutCommandsOfAPlan, RefuseWhatThePlanStates) {
    for (const auto& [command, option] : std::map<std::string, std::string>{
             {"groups", "world 16"}, {"schedule", "kind 1f1b"}, {"split", "pipeline-layout EL"}, {"buffers", "dtype fp32"}})
        expect_refused(command + " " + file_.path() + " --" + option,
                       {"a PLAN holds what --" + option.substr(0, option.find(' ')) + " says; drop one of them"});
    expect_refused("buffers " + file_.path() + " --pp-rank 2", {"--pp-rank = 2 is not below pp = 2"});
    expect_refused("groups none.json", "none.json");
}

TEST_F(LayoutCommandsOfAPlan, FollowItsScheduleAndItsStages) {
    const TempFile file("layout_commands_own.json");
    ASSERT_EQ(say("plan --world 4 --model llama3-8b --engine mgplan --schedule zb-h1 --search plain --tp 1 --pp 4 --micro-batch 1 "
                  "--global-batch 8 --max-memory 1TB --save-plan " +
                  file.path())
                  .code,
              kDone);
    EXPECT_EQ(say("schedule " + file.path() + " --format json").out,
              say("schedule --kind zb-h1 --pp 4 --microbatches 8 --format json").out);
    ASSERT_EQ(say("plan --world 4 --model llama3-8b --pipeline-layout Et*9|t*9|t*9|t*5L --search plain --tp 1 --pp 4 --micro-batch 1 "
                  "--global-batch 8 --max-memory 1TB --save-plan " +
                  file.path())
                  .code,
              kDone);
    EXPECT_THAT(say("split " + file.path()).out, HasSubstr("layout string: Et*9|t*9|t*9|t*5L"));
}

TEST(LayoutCommands, BuffersOfPlansThatKeepNoneAreRefused) {
    const TempFile file("layout_commands_fsdp.json");
    ASSERT_EQ(say("plan --world 8 --model llama3-8b --sharding full --tp 1 --pp 1 --search plain --save-plan " + file.path()).code, kDone);
    expect_refused("buffers " + file.path(), {"buffers of parameters sharded by FSDP are not listed; save a plan without"});
}

TEST(LayoutCommands, BucketsOfAPlanAreCutByTheElementsOfAllChunks) {
    const TempFile flags("layout_commands_buckets.args",
                         "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096 "
                         "--max-position-embeddings 4096 --swiglu --untie-embeddings-and-output-weights --padded-vocab-size 32000 "
                         "--vocab-size 32000 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 2 "
                         "--num-layers-per-virtual-pipeline-stage 4 --use-distributed-optimizer --overlap-grad-reduce --bf16 "
                         "--ddp-num-buckets 4\n");
    const TempFile file("layout_commands_buckets.json");
    ASSERT_EQ(
        say("plan --world 16 --model " + flags.path() + " --tp 1 --pp 2 --vpp 4 --search plain --max-memory 1TB --save-plan " + file.path())
            .code,
        kDone);
    const auto json = nlohmann::ordered_json::parse(say("buffers " + file.path() + " --format json").out);
    std::int64_t of_chunks = 0;
    for (const char* chunk : {"0", "1", "2", "3"}) {
        const auto one = nlohmann::ordered_json::parse(say("buffers " + file.path() + " --chunk " + chunk + " --format json").out);
        for (const auto& parameter : one["buffers"][0]["params"])
            of_chunks += parameter["end"].get<std::int64_t>() - parameter["start"].get<std::int64_t>();
    }
    EXPECT_EQ(json["bucket_size"], of_chunks / 4);
}

}  // namespace
}  // namespace mgplan::cli::testing::layout_commands_test
