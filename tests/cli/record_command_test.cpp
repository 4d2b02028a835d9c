// `mgplan record`: a script is executed with stand-ins for what starts training, and `check --trace` judges what it started.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "formats/megatron/launch_record.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::record_command_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kModel =
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer";

struct Recorded {
    Said said;
    formats::LaunchRecord record;
};

Recorded record(const std::string& script) {
    const TempFile file("recorded.sh", script), out("record.json");
    Said said = say({"record", "--record", out.path(), "--format", "json", "--", "bash", file.path(), "first argument", "2"});
    return {std::move(said), formats::read_launch_record(out.text(), "record")};
}

TEST(RecordCommand, WritesDownWhatLoopsAndQuotesMakeOfTheWords) {
    const auto [said, record] = record_command_test::record(
        "ARGS=( --lr '1 e-4' \"$1\" '' )\n"
        "for TP in 2 4; do\n"
        "  torchrun --nnodes 2 --nproc_per_node $((4 * $2)) " +
        kModel +
        " --tensor-model-parallel-size $TP \"${ARGS[@]}\"\n"
        "done\n"
        "echo said\n"
        "python3 -c 'import torch\nprint(1)'\n");
    ASSERT_EQ(said.code, kDone) << said.err;
    ASSERT_EQ(record.launches.size(), 3U);
    EXPECT_EQ(record.launches[0].program, "torchrun");
    EXPECT_THAT(std::vector(record.launches[0].words.end() - 6, record.launches[0].words.end()),
                ElementsAre("--tensor-model-parallel-size", "2", "--lr", "1 e-4", "first argument", ""));
    EXPECT_THAT(std::vector(record.launches[1].words.begin(), record.launches[1].words.begin() + 5),
                ElementsAre("--nnodes", "2", "--nproc_per_node", "8", "pretrain_gpt.py"));
    EXPECT_THAT(record.launches[2].words, ElementsAre("-c", "import torch\nprint(1)"));
    EXPECT_EQ(record.launches[0].folder, std::filesystem::current_path().string());
    EXPECT_THAT(said.err, HasSubstr("mgplan: executing bash "));
    EXPECT_THAT(said.err, HasSubstr("only write down their words, every other command in it runs for real"));
    EXPECT_EQ(nlohmann::json::parse(said.out)["mgplan_record"], 1) << "what the script printed is not part of the result";
}

TEST(RecordCommand, StandsInWhereAScriptChangesPathAndForLaunchesAtOnce) {
    const TempFile folder("real_programs");
    std::filesystem::create_directories(folder.path());
    std::ofstream(folder.path() + "/srun") << "#!/bin/sh\nexit 1\n";
    std::filesystem::permissions(folder.path() + "/srun", std::filesystem::perms::owner_all);
    const auto [said, record] = record_command_test::record("set -e\nexport PATH=" + folder.path() +
                                                            ":$PATH\nfor i in 1 2 3 4 5 6 7 8; do srun -n $i true & done\nwait\n");
    std::filesystem::remove_all(folder.path());
    EXPECT_EQ(said.code, kDone) << said.err;
    std::vector<std::string> counts;
    for (const auto& launch : record.launches) counts.push_back(launch.words.at(1));
    std::sort(counts.begin(), counts.end());
    EXPECT_THAT(counts, ElementsAre("1", "2", "3", "4", "5", "6", "7", "8"));
}

TEST(RecordCommand, KeepsItsStandInsUntilTheLastProcessHasEnded) {
    const auto [said, record] = record_command_test::record(
        "sh -c 'sleep 0.4; exec python3 late.py' &\n"
        "setsid sh -c 'sleep 0.2; srun setsid.sh' </dev/null &\n"
        "python3 first.py\n"
        "exit 3\n");
    EXPECT_EQ(said.code, kRunFailed);
    EXPECT_EQ(record.exit_code, 3) << "that of the script";
    std::vector<std::string> words;
    for (const auto& launch : record.launches) words.push_back(launch.words.at(0));
    EXPECT_THAT(words, ElementsAre("first.py", "setsid.sh", "late.py"));
}

TEST(RecordCommand, RemovesItsFolderAndEndsTheScriptWhenItIsToldToEnd) {
    const TempFile folder("record_tmp"), script("sleeping.sh", "sleep 60 & echo $! > \"$TMPDIR/background\"\nsleep 60\n");
    for (const int number : {SIGTERM, SIGHUP, SIGINT}) {
        std::filesystem::create_directories(folder.path());
        const pid_t process = ::fork();
        if (process == 0) {
            ::setenv("TMPDIR", folder.path().c_str(), 1);
            const TempFile out("ended.json");
            std::_Exit(say({"record", "--record", out.path(), "--", "bash", script.path()}).code);
        }
        const std::string note = folder.path() + "/background";
        pid_t background = 0;
        for (int tries = 0; tries < 2000 && background == 0; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            std::ifstream(note) >> background;
        }
        ASSERT_GT(background, 0);
        ::kill(process, number);
        int status = 0;
        ASSERT_EQ(::waitpid(process, &status, 0), process);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kRunFailed) << number << " " << status;
        EXPECT_EQ(::kill(background, 0), -1) << "nothing that the script started lives on without stand-ins";
        std::filesystem::remove(note);
        EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << number;
        std::filesystem::remove_all(folder.path());
    }
}

TEST(RecordCommand, NumbersLaunchesWithoutCountingFromOne) {
    const auto [said, record] =
        record_command_test::record("for i in $(seq 30); do srun $i; done\n[ \"$(cat \"$MGPLAN_RECORD/last\")\" = 30 ] || exit 9\n");
    ASSERT_EQ(said.code, kDone) << said.err;
    ASSERT_EQ(record.launches.size(), 30U);
    for (std::size_t i = 0; i < record.launches.size(); ++i) EXPECT_THAT(record.launches[i].words, ElementsAre(std::to_string(i + 1)));
}

TEST(RecordCommand, SaysWhereALaunchWasNotWrittenDown) {
    const auto [said, record] = record_command_test::record("(ulimit -f 0; srun lost.py)\nsrun kept.py\n");
    EXPECT_THAT(said.err, HasSubstr("mgplan: launch 1 was not written down; is the disk of "));
    EXPECT_THAT(said.err, Not(HasSubstr("launch 2 was not")));
}

TEST(RecordCommand, SaysWhenTheScriptFails) {
    const auto [said, record] = record_command_test::record("sbatch job.sh\nexit 7\n");
    EXPECT_EQ(said.code, kRunFailed);
    EXPECT_THAT(said.err, HasSubstr("the command ended with exit code 7, behind 1 launch; what it started until then is recorded"));
    EXPECT_EQ(record.exit_code, 7);
    ASSERT_EQ(record.launches.size(), 1U);
    expect_refused("record bash train.sh", {"unexpected word 'bash'"});
    EXPECT_THAT(say("record -- no-such-program-here").err, HasSubstr("no-such-program-here cannot be started: No such file"));
    expect_refused("record --", {"the command is missing; give it after --, as in mgplan record -- bash train.sh"});
}

TEST(RecordCommand, KeepsTheVariablesThatWordsName) {
    const auto [said, record] =
        record_command_test::record("export TP=4 SECRET=x\nsrun -N 2 bash -c 'torchrun --nnodes 2 --nproc_per_node 8 " + kModel +
                                    " --tensor-model-parallel-size $TP'\n");
    ASSERT_EQ(record.launches.size(), 1U);
    EXPECT_EQ(record.launches[0].variables, (std::map<std::string, std::string>{{"TP", "4"}}));
}

TEST(CheckTrace, JudgesWhatWasRecorded) {
    const TempFile script("judged.sh", "TP=2\nfor PP in 1 2; do\ntorchrun --nnodes 2 --nproc_per_node 8 " + kModel +
                                           " --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP\ndone\n");
    const TempFile trace("judged.json");
    ASSERT_EQ(say({"record", "--record", trace.path(), "--", "bash", script.path()}).code, kDone);
    expect_refused("check --trace " + trace.path(), {"holds 2 launches that train, and differ; choose one by --launch 1 or 2"});
    const Said said = say("check --trace " + trace.path() + " --launch 2 --top 0 --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto json = nlohmann::json::parse(said.out);
    EXPECT_EQ(json["layout"]["tp"], 2);
    EXPECT_EQ(json["layout"]["pp"], 2);
    EXPECT_EQ(json["layout"]["dp"], 4);
    EXPECT_THAT(json["assumed"].dump(), HasSubstr("world of 16 GPUs (torchrun: 2 nodes of 8)"));
    EXPECT_EQ(
        nlohmann::json::parse(say("check --trace " + trace.path() + " --launch 2 --world 4 --top 0 --format json").out)["layout"]["dp"], 1)
        << "a world that is given counts";
    // Sizes are held against the world that the words tell, beside what is wrong with the model.
    const TempFile wrong("wrong.sh",
                         "torchrun --nnodes 2 --nproc_per_node 8 " + kModel + " --tensor-model-parallel-size 3 --normalization Norm\n");
    const TempFile of_wrong("wrong.json");
    ASSERT_EQ(say({"record", "--record", of_wrong.path(), "--", "bash", wrong.path()}).code, kDone);
    expect_refused("check --trace " + of_wrong.path(),
                   {"--normalization = 'Norm'", "tp = 3 does not divide world = 16; use 1, 2, 4, 8 or 16"});
    expect_refused("check --world 9 --trace " + of_wrong.path(), "--normalization = 'Norm'");
    EXPECT_THAT(say("check --world 9 --trace " + of_wrong.path()).err, ::testing::Not(HasSubstr("does not divide")));
    expect_refused("check --trace " + trace.path() + " --megatron-args x --world 2", {"--megatron-args and --trace both name a model"});
    expect_refused("check --launch 1 --megatron-args x --world 2", {"--launch is for the record of --trace"});
}

TEST(CheckTrace, ReadingAScriptGivesTheWordsThatBashGivesIt) {
    // What formats/megatron/shell_script.cpp reads is what bash does.
    const std::string cases =
        "MODE=${MODE_OF_NOBODY:-big}\ncase $MODE in\n  sm*) N=1 ;;\n  b?g) N=8 ;;\nesac\n"
        "if [ $N -gt 4 ]; then L=2; else L=3; fi\npython train.py --num-layers $L --lr $N\n";
    const std::string loop =
        "while [ $# -gt 0 ]; do\n  case $1 in\n    2) TWO=yes; shift ;;\n    *) shift ;;\n  esac\ndone\n"
        "if [[ $TWO == yes ]]; then N=5; fi\npython train.py --num-layers ${N}\n";
    const std::vector<std::string> scripts{
        "A=( --lr \"1 2\" )\nB=\"--bf16 --seed $((3 * 4))\"\npython train.py --num-layers 2 \"${A[@]}\" $B\n",
        "f() { local n=$1; shift; python train.py --num-layers $n \"$@\"; }\nf 4 --bf16 --lr '1'\n",
        cases,
        loop,
        "P=a/b/c.d\npython train.py --num-layers 2 --save ${P##*/} --load ${P%.d} --data-path ${P#*/}\n",
        "set -- --bf16 8\npython train.py --num-layers $2 $1\n"};
    for (const auto& script : scripts) {
        const auto [said, record] = record_command_test::record(script);
        ASSERT_EQ(record.launches.size(), 1U) << script << said.err;
        formats::ScriptInputs inputs;
        inputs.arguments = {"first argument", "2"};
        std::vector<std::string> read = formats::argument_words(script, "train.sh", "", inputs).words;
        read.insert(read.begin(), "train.py");
        EXPECT_EQ(read, record.launches[0].words) << script;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::record_command_test
