// What a record of launches says about the training among them.
#include "formats/megatron/launch_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::formats::launch_record_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Words = std::vector<std::string>;

const Words kModel{"pretrain_gpt.py",
                   "--num-layers",
                   "2",
                   "--hidden-size",
                   "512",
                   "--num-attention-heads",
                   "8",
                   "--vocab-size",
                   "1000",
                   "--seq-length",
                   "128",
                   "--micro-batch-size",
                   "1",
                   "--global-batch-size",
                   "8",
                   "--bf16"};

Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

LaunchRecord record_of(std::vector<RecordedLaunch> launches) {
    return {{"bash", "train.sh"}, 0, std::move(launches)};
}

TrainingLaunch training_of(const std::string& program, const Words& words, const std::map<std::string, std::string>& variables = {}) {
    const auto found = training_launches(record_of({{"python", "/", {"-c", "import torch"}, {}}, {program, "/", words, variables}}));
    EXPECT_EQ(found.size(), 1U) << program;
    return found.empty() ? TrainingLaunch{} : found.front();
}

std::string refusal(const LaunchRecord& record, std::optional<std::int64_t> number = std::nullopt) {
    try {
        (void)read_traced_job(record, "record.json", number);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(LaunchRecord, IsTheSameWhenWrittenAndRead) {
    LaunchRecord record = record_of({{"torchrun", "/a b", {"--x", "", "two\nlines", "\"quoted\""}, {{"TP", "8"}}}});
    record.exit_code = 3;
    EXPECT_EQ(read_launch_record(launch_record_json(record), "record.json"), record);
    record.launches[0].words.emplace_back("\xff");
    EXPECT_NO_THROW((void)read_launch_record(launch_record_json(record), "record.json")) << "bytes that are no UTF-8";
}

TEST(LaunchRecord, TellsTheWorldByTheWordsOfTheLauncher) {
    const auto world = [](const std::string& program, const Words& words) {
        return training_of(program, joined(words, kModel)).world.ranks;
    };
    EXPECT_EQ(world("torchrun", {"--nnodes", "2", "--nproc_per_node=8"}), 16);
    EXPECT_EQ(world("torchrun", {"--nproc-per-node", "4"}), 4);
    EXPECT_EQ(world("torchrun", {"--nnodes", "1:4", "--nproc-per-node", "4"}), std::nullopt) << "elastic";
    EXPECT_EQ(world("torchrun", {"--nproc-per-node", "gpu"}), std::nullopt);
    EXPECT_EQ(world("python3", {"-m", "torch.distributed.run", "--nnodes=4", "--nproc_per_node", "8"}), 32);
    EXPECT_EQ(world("srun", {"-N", "4", "--ntasks-per-node=8", "python"}), 32);
    EXPECT_EQ(world("srun", {"-n64", "python"}), 64);
    EXPECT_EQ(world("srun", {"-N4", "torchrun", "--nnodes", "4", "--nproc-per-node", "2"}), 8) << "torchrun starts the ranks";
    EXPECT_EQ(world("mpirun", {"-np", "24", "python"}), 24);
    EXPECT_EQ(world("deepspeed", {"--num_nodes", "2", "--num_gpus", "4"}), 8);
    EXPECT_EQ(world("accelerate", {"launch", "--num_processes", "8"}), 8);
    EXPECT_EQ(world("python", {}), std::nullopt);
}

TEST(LaunchRecord, ReadsTheTextThatAShellIsGiven) {
    std::string text = "cd /x && torchrun --nnodes $NODES --nproc_per_node 8";
    for (const auto& word : kModel) text += " " + word;
    const TrainingLaunch launch =
        training_of("srun", {"-l", "bash", "-c", text + " --tensor-model-parallel-size $TP --lr $UNKNOWN"}, {{"NODES", "2"}, {"TP", "4"}});
    EXPECT_EQ(launch.world.ranks, 16);
    EXPECT_EQ(launch.world.source, "torchrun: 2 nodes of 8");
    EXPECT_THAT(launch.words, Contains("--num-layers"));
    EXPECT_THAT(launch.words, Contains("4"));
    EXPECT_THAT(launch.words, Contains("$UNKNOWN"));
}

TEST(LaunchRecord, IsJudgedByOneOfItsLaunches) {
    const RecordedLaunch one{"torchrun", "/", joined({"--nproc-per-node", "8"}, kModel), {}};
    RecordedLaunch other = one;
    other.words.insert(other.words.end(), {"--tensor-model-parallel-size", "2"});
    EXPECT_EQ(read_traced_job(record_of({one, one}), "record.json", std::nullopt).layout->tp, 1) << "equal ones are one";
    EXPECT_THAT(refusal(record_of({one, {"sbatch", "/", {"x.sh"}, {}}, other})),
                HasSubstr("record.json: holds 2 launches that train, and differ; choose one by --launch 1 or 3"));
    EXPECT_EQ(read_traced_job(record_of({one, other}), "record.json", 2).layout->tp, 2);
    EXPECT_THAT(refusal(record_of({one}), 2), HasSubstr("--launch = 2 is none of the launches of record.json that train; use 1"));
    EXPECT_THAT(
        refusal(record_of({{"sbatch", "/", {"--nodes=2", "job.sh"}, {}}})),
        HasSubstr("none of its 1 launch trains a Megatron-LM model; it submits job.sh, so record that: mgplan record -- bash job.sh"));
    EXPECT_THAT(refusal(record_of({})), HasSubstr("none of its 0 launches trains a Megatron-LM model"));
}

TEST(LaunchRecord, RefusesWhatIsNone) {
    for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
             {"{}", "is no record"},
             {"[1]", "is no record"},
             {R"({"mgplan_record": 2})", "is a record of another version"},
             {R"({"mgplan_record": 1})", "field 'command' is no list"},
             {R"({"mgplan_record": 1, "command": [1]})", "field 'command' holds what is no text"},
             {R"({"mgplan_record": 1, "command": []})", "field 'launches' is no list"},
             {R"({"mgplan_record": 1, "command": [], "launches": [1]})", "a launch without a program"},
             {R"({"mgplan_record": 1, "command": [], "launches": [{"program": "x"}]})", "field 'words' is no list"}}) {
        try {
            (void)read_launch_record(text, "record.json");
            FAIL() << text;
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), HasSubstr("record.json: " + reason + "; give a file that mgplan record wrote")) << text;
        }
    }
}

}  // namespace
}  // namespace mgplan::formats::launch_record_test
