// Which words of a launch script are the command's.
#include "formats/megatron/shell_script.hpp"

#include <ctime>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "plan/text/errors.hpp"
#include "tests/support/growth.hpp"

namespace mgplan::formats::shell_script_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

Words words(const std::string& script) {
    return script_words(script, "train.sh").words;
}

TEST(ShellScript, TakesWhatItsCommandTakes) {
    const std::string model = "MODEL_ARGS=( --num-layers 32 --hidden-size 4096 )\n";
    EXPECT_THAT(
        words(model +
              "torchrun --nproc_per_node 8 pretrain_gpt.py \"${MODEL_ARGS[@]}\" --bf16 \\\n  --seq-length 64 \"$@\" 2>&1 | tee log\n"),
        ElementsAre("--num-layers", "32", "--hidden-size", "4096", "--bf16", "--seq-length", "64"))
        << "flags with an array, after a continuation, up to the pipe";
    EXPECT_THAT(words(model + "EVAL_ARGS=( --tensor-model-parallel-size 8 )\npython pretrain_gpt.py ${MODEL_ARGS[*]}; echo --done\n"),
                ElementsAre("--num-layers", "32", "--hidden-size", "4096"))
        << "an array that the command does not take";
    EXPECT_THAT(
        words("A=( --hidden-size 8 )\nALL=( --num-layers 4 \"${A[@]}\" )\nALL+=( --bf16 )\npython x.py \"${ALL[@]}\" ${MORE[@]:-}\n"),
        ElementsAre("--num-layers", "4", "--hidden-size", "8", "--bf16"))
        << "arrays of arrays";
    EXPECT_THAT(words("python tools/prepare.py --num-layers 1\npython train.py --num-layers 2 --config my.py\n"),
                ElementsAre("--num-layers", "2", "--config", "my.py"))
        << "the last command counts, and no file that is a flag's value";
    EXPECT_THAT(words("A=( --num-layers 2 )\nOMP_NUM_THREADS=1 python train.py ${A[@]} --bf16\n"),
                ElementsAre("--num-layers", "2", "--bf16"))
        << "behind variables of its own";
    EXPECT_THAT(words(model + "MODEL_ARGS=( --num-layers 2 )\npython train.py ${MODEL_ARGS[@]}"), ElementsAre("--num-layers", "2"));
}

TEST(ShellScript, TakesTextsOfFlags) {
    EXPECT_THAT(
        words(
            "OPTS=\"--num-layers 2 \\\n  --lr 1\"\nTP=4\nOPTS=\"$OPTS --tensor-model-parallel-size $TP\"\npython train.py $OPTS --fp16\n"),
        ElementsAre("--num-layers", "2", "--lr", "1", "--tensor-model-parallel-size", "4", "--fp16"));
    EXPECT_THAT(words("OPTS='--num-layers 2'\nCMD=\"torchrun train.py ${OPTS} --bf16\"\nsrun bash -c \"${CMD}\"\n"),
                ElementsAre("--num-layers", "2", "--bf16"))
        << "a command kept in a variable";
    EXPECT_THAT(words("OPTS='--num-layers 2'\nsrun bash -c \"\n cd it\n torchrun train.py $OPTS --save $CKPT\"\n"),
                ElementsAre("--num-layers", "2", "--save", "$CKPT"))
        << "a quote that other lines open";
}

TEST(ShellScript, ForgetsWhatACommandSets) {
    const std::string command = "python train.py --num-layers 2 --tensor-model-parallel-size $TP\n";
    for (const std::string set : {"TP=$(nvidia-smi -L | wc -l)", "TP=`nproc`", "TP=$((TP * $(nproc)))", "TP=\"$(nproc)\"", "read TP",
                                  "for TP in 1 2; do echo; done", "(( TP *= 2 ))", "let TP=8"}) {
        const auto found = script_words("TP=1\n" + set + "\n" + command, "train.sh");
        EXPECT_THAT(found.words, ElementsAre("--num-layers", "2", "--tensor-model-parallel-size", "$TP")) << set;
        EXPECT_THAT(found.unresolved, testing::ElementsAre(testing::Pair("TP", HasSubstr("line 2 sets it")))) << set;
    }
    EXPECT_THAT(words("TP=1\nTP=\n" + command), ElementsAre("--num-layers", "2", "--tensor-model-parallel-size")) << "set to nothing";
}

/// The last parts of a path name a model, whatever the folder is.
TEST(ShellScript, KeepsTheKnownEndOfAPath) {
    const auto value = [](const std::string& set) { return words(set + "\npython train.py --num-layers 2 --load $P\n").back(); };
    EXPECT_EQ(value("P=${P:-\"${ROOT}/models/Qwen3-8B\"}"), "${ROOT}/models/Qwen3-8B") << "a default in quotes";
    EXPECT_EQ(value("ROOT=${ROOT:-\"${HOME}/data\"}\nP=$ROOT/Qwen3-8B"), "${HOME}/data/Qwen3-8B");
    EXPECT_EQ(value("P=${ROOT}/$NAME"), "$P") << "its end is not known";
    EXPECT_EQ(value("P=$(pwd)/Qwen3-8B"), "$P");
    EXPECT_EQ(value("P=$N/2"), "$P") << "a number, no path";
    EXPECT_EQ(value("P=$ROOT/--bf16"), "$P") << "a flag, no path";
    EXPECT_EQ(value("P=${P:-\"7\"}"), "7");
}

TEST(ShellScript, ComputesArithmeticOfKnownVariables) {
    const auto batch = [](const std::string& set) {
        return words(set + "\npython train.py --num-layers 2 --global-batch-size $B\n").back();
    };
    EXPECT_EQ(batch("B=1024\nB=$((B / 16))"), "64");
    EXPECT_EQ(batch("N=4\nB=\"$(( ${N} * 8 ))\""), "32");
    EXPECT_EQ(batch("B=$((UNSET * 2))"), "$B");
    EXPECT_EQ(words("N=4\npython train.py --num-layers $(( N + 2 )) --bf16\n"), (Words{"--num-layers", "6", "--bf16"}));
    EXPECT_EQ(batch("B=4\nB+=8"), "48");
    EXPECT_EQ(batch(": ${B:=16}"), "16");
    EXPECT_EQ(batch("B=${A:-${C:-8}}"), "8");
    EXPECT_EQ(batch("A=Bf16\nB=${A,,}"), "bf16");
    EXPECT_EQ(batch("A=Bf16\nB=${A^^}"), "BF16");
    EXPECT_EQ(batch("A=4\nB=${A:?not set}"), "4");
    EXPECT_EQ(batch("B=${A:?not set}"), "$B");
    EXPECT_EQ(batch("#SBATCH --nodes=32\n#SBATCH --ntasks-per-node=8\nB=$((SLURM_JOB_NUM_NODES * 2 + SLURM_NTASKS))"), "320");
}

TEST(ShellScript, SaysWhichFlagsMayBeMissing) {
    const std::string command = "python train.py $COMMON_ARGS --num-layers 2 --bf16\n";
    EXPECT_THAT(script_words(command, "train.sh").notes,
                ElementsAre(HasSubstr("train.sh takes COMMON_ARGS, which it sets nowhere that is read")));
    EXPECT_THAT(script_words("source ./common.sh\n" + command, "train.sh").missing,
                ElementsAre(testing::AllOf(HasSubstr("train.sh takes $COMMON_ARGS"), HasSubstr("line 1: ./common.sh"))));
    EXPECT_THAT(script_words("COMMON_ARGS=$(cat flags)\n" + command, "train.sh").missing,
                ElementsAre(HasSubstr("line 1 sets it by a command, which is not run")));
    EXPECT_THAT(script_words("source ./common.sh\npython train.py --num-layers 2\n", "train.sh").missing, IsEmpty())
        << "a sourced file that the command needs nothing of";
    EXPECT_THAT(script_words("source data.sh\npython train.py --num-layers 2 --data-path ${DATA[@]} --bf16\n", "train.sh").missing,
                IsEmpty())
        << "values, and no flags";
    EXPECT_THAT(script_words("source ./common.sh\nARGS=\"--num-layers 2\"\n", "model.sh").missing,
                ElementsAre(HasSubstr("model.sh runs no command with its flags, and sources a missing file")));
    EXPECT_THAT(script_words("source venv/bin/activate\nARGS=\"--num-layers 2\"\n", "model.sh").missing, IsEmpty());
}

TEST(ShellScript, ReadsSourcedFilesBesideIt) {
    const std::string folder = testing::TempDir() + "mgplan_sourced_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/common.sh") << "COMMON_ARGS=\"--bf16 --tensor-model-parallel-size $TP\"\n";
    for (const std::string path : {"./common.sh", "$(dirname \"$0\")/common.sh", "\"${HERE}/common.sh\""}) {
        const auto found = script_words("TP=4\nsource " + path + "\npython train.py $COMMON_ARGS --num-layers 2\n", "train.sh", folder);
        EXPECT_THAT(found.words, ElementsAre("--bf16", "--tensor-model-parallel-size", "4", "--num-layers", "2")) << path;
        EXPECT_THAT(found.missing, IsEmpty());
    }
    std::filesystem::create_directories(folder + "/models");
    std::ofstream(folder + "/models/small.sh") << "COMMON_ARGS=\"--bf16 --hidden-size 64\"\n";
    for (const char* path : {"\"${SCRIPT_DIR}/models/small.sh\"", "$(cd -- \"$(dirname -- \"$0\")\" &>/dev/null && pwd)/models/small.sh"}) {
        const std::string script = std::string("source ") + path + "\npython train.py $COMMON_ARGS --num-layers 2\n";
        EXPECT_THAT(script_words(script, "train.sh", folder).words, testing::Contains("--hidden-size")) << path;
    }
    std::ofstream(folder + "/loop.sh") << "source loop.sh\n";
    EXPECT_THAT(script_words("source loop.sh\npython train.py --num-layers 2\n", "train.sh", folder).words,
                ElementsAre("--num-layers", "2"))
        << "a file that sources itself";
    std::filesystem::remove_all(folder);
}

TEST(ShellScript, CountsAllListsWhereNoCommandIsFound) {
    EXPECT_THAT(words("A=( --num-layers 2 )\nB=\"--bf16\"\n"), ElementsAre("--num-layers", "2", "--bf16"));
    EXPECT_THAT(words("PRECISION='--bf16'\nmy-trainer --num-layers 2 $PRECISION\n"), testing::Contains("--bf16"));
}

TEST(ShellScript, SaysWhatHangsOnACondition) {
    const auto notes = [](const std::string& script) { return script_words(script, "train.sh").notes; };
    const std::string branches = "if [ -n \"$BIG\" ]; then\n  TP=8; A=( --bf16 )\nelse\n  TP=2\nfi\nB=( --fp16 )\n";
    EXPECT_THAT(notes(branches + "python train.py --num-layers 2 --tensor-model-parallel-size $TP ${A[@]} ${B[@]}\n"),
                ElementsAre(HasSubstr("train.sh sets A, TP in an if, case or loop, read as if every branch ran, the last one last")));
    EXPECT_THAT(words(branches + "python train.py --num-layers 2 --tensor-model-parallel-size $TP\n"), testing::Contains("2"));
    EXPECT_THAT(notes(branches + "python train.py --num-layers 2 ${B[@]}\n"), IsEmpty()) << "after the branches, and what is not used";
    EXPECT_THAT(notes("if true; then echo; fi\nB=( --fp16 )\npython train.py --num-layers 2 ${B[@]}\n"), IsEmpty());
    EXPECT_THAT(notes("for n in 1 2; do A=( --bf16 ); done\npython train.py --num-layers 2 ${A[@]} ${B[@]:-}\n"),
                ElementsAre(HasSubstr("train.sh takes A, which it sets nowhere that is read")));
}

TEST(ShellScript, RefusesListsThatGrowWithoutEnd) {
    std::string script = "A=( --num-layers 2 )\n";
    for (int i = 0; i < 40; ++i) script += "A=( \"${A[@]}\" \"${A[@]}\" )\n";
    try {
        (void)words(script + "python train.py ${A[@]}\n");
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("its lists, put in, are more than 1 MiB"));
    }
}

TEST(ShellScript, ReadsTheArmOfACaseThatRuns) {
    const std::string arms =
        "case \"${SCALE}\" in\n  \"small\" | tiny)\n    TP=1\n    ;;\n  (big)\n    TP=8 ;;\n  *)\n    echo wrong\n    exit 1\n    "
        ";;\nesac\n"
        "python train.py --num-layers 2 --tensor-model-parallel-size $TP\n";
    const auto read = [&](const std::string& scale) { return script_words(scale + arms, "train.sh"); };
    EXPECT_THAT(read("SCALE=small\n").words, testing::Contains("1"));
    EXPECT_THAT(read("SCALE=tiny\n").words, testing::Contains("1"));
    EXPECT_THAT(read("SCALE=big\n").words, testing::Contains("8"));
    EXPECT_THAT(read("SCALE=small\n").notes, IsEmpty()) << "nothing is in doubt";
    EXPECT_THAT(read("SCALE=$1\n").words, testing::Contains("8")) << "the last one, where the word is not known";
    EXPECT_THAT(
        words("S=b\ncase $S in\n  a) TP=1 ;;\n  b) TP=2 ;;\nesac\npython train.py --num-layers 2 --tensor-model-parallel-size $TP\n"),
        testing::Contains("2"));
    EXPECT_THAT(read("SCALE=$1\n").notes, ElementsAre(HasSubstr("sets TP in an if, case or loop")));
    EXPECT_THAT(read("if [ -d data ]; then\n  SCALE=small\nfi\n").notes, testing::Contains(HasSubstr("in an if, case or loop")));
}

/// The way in which slime's model files write the layers with experts.
TEST(ShellScript, CountsTheTurnsOfALoop) {
    const std::string filled =
        "N=4\nF=1\narr=()\nfor ((i=0; i<N; i++)); do\n  if (( i < F )); then\n    arr+=(0)\n  else\n    arr+=(1)\n  fi\ndone\n";
    const std::string command = "python train.py --num-layers 4 --moe-layer-freq \"$FREQ\"\n";
    const auto frequency = [&](const std::string& lines) {
        const Words found = words(lines + command);
        return found.size() == 4 ? found[3] : "";
    };
    const std::string joined = "printf -v FREQ \"[%s]\" \"$(IFS=', '; echo \"${arr[*]}\")\"\n";
    EXPECT_EQ(frequency(filled + joined), "[0,1,1,1]");
    EXPECT_EQ(frequency(filled + "printf -v FREQ \"([%s])\" \"$(IFS=,; echo \"${arr[*]}\")\"\n"), "([0,1,1,1])");
    EXPECT_EQ(words("for ((i = 8; i > 2; i -= 3)); do B=$i; done\npython train.py --num-layers $B\n"), (Words{"--num-layers", "5"}));
    // Bounds, lists and ends that only running the script would tell.
    EXPECT_EQ(frequency("N=$(nproc)\n" + filled.substr(4) + joined), "$FREQ");
    EXPECT_EQ(frequency("if grep -q x y; then\n" + filled + "fi\n" + joined), "$FREQ");
    EXPECT_EQ(frequency("for ((i=0; i>=0; i++)); do\n  arr+=(1)\ndone\n" + joined), "$FREQ") << "a loop without end";
    EXPECT_EQ(frequency(joined), "$FREQ");
    EXPECT_EQ(frequency(filled + "printf -v FREQ \"[%s]\" \"$(IFS=; echo \"${arr[*]}\")\"\n"), "$FREQ") << "no character between";
    EXPECT_THAT(
        words("B=8\nfor ((i=0;i<4;i++)); do\nif [ $i -ge 1 ]; then\ncontinue\nfi\nB=$((B*2))\ndone\npython train.py --num-layers $B\n"),
        testing::Not(testing::Contains("128")));
    EXPECT_EQ(words("B=1\nfor ((i=0;i<2;i++)); do\nbreakdown=$i\nB=$((B*2))\ndone\npython train.py --num-layers $B\n"),
              (Words{"--num-layers", "4"}));
}

TEST(ShellScript, TakesTheWorldFromTheLauncher) {
    const auto world = [](const std::string& script) {
        return script_words(script + " --num-layers 2 --hidden-size 64\n", "train.sh").world.ranks;
    };
    EXPECT_EQ(world("GPUS=8\nNODES=${NODES:-2}\ntorchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py"), 16);
    EXPECT_EQ(world("DISTRIBUTED_ARGS=\"--nproc_per_node 8 --nnodes 2\"\ntorchrun $DISTRIBUTED_ARGS pretrain_gpt.py"), 16);
    EXPECT_EQ(world("DISTRIBUTED_ARGS=(\n  --nproc_per_node 8\n  --nnodes 4\n)\ntorchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py"), 32);
    EXPECT_EQ(world("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun python pretrain_gpt.py"), 32);
    EXPECT_EQ(world("#SBATCH --nodes=4\nsrun --ntasks-per-node=8 python pretrain_gpt.py"), 32);
    EXPECT_EQ(world("PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\\nNPROC_PER_NODE=4 \\\nmegatron sft"), 4);
    EXPECT_EQ(world("NPROC_PER_NODE=8\nNNODES=2\nmegatron sft"), 16);
    EXPECT_EQ(world("python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8"), 16);
    // Only a run would tell these.
    EXPECT_EQ(world("torchrun --nproc_per_node $GPUS pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("if [ -f x ]; then\nGPUS=8\nfi\ntorchrun --nproc_per_node gpu pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("torchrun $DISTRIBUTED_ARGS pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("torchrun $DIST --nproc_per_node 8 pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("torchrun --nproc_per_node=8 $@ pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("srun -N 4 --ntasks-per-node=8 $LAUNCH pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("source env.sh\nsrun -N 4 --ntasks-per-node=8 ${LAUNCHER[@]} pretrain_gpt.py"), std::nullopt);
    EXPECT_EQ(world("DIST=(--nproc_per_node 8)\nif ping -c1 other; then\nDIST+=(--nnodes 4)\nfi\ntorchrun \"${DIST[@]}\" pretrain_gpt.py"),
              std::nullopt);
    EXPECT_EQ(world("N=1\nif ping -c1 other; then\nN=4\nfi\nDIST=\"--nproc_per_node 8 --nnodes $N\"\ntorchrun $DIST pretrain_gpt.py"),
              std::nullopt);
    EXPECT_EQ(world("DIST=\"--nproc_per_node 8\"\nif ping -c1 other; then\nDIST=\"$DIST --nnodes 4\"\nfi\ntorchrun $DIST pretrain_gpt.py"),
              std::nullopt);
    // One task on a node starts the ranks itself.
    EXPECT_EQ(world("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nsrun python run.py pretrain_gpt.py"),
              std::nullopt);
    EXPECT_EQ(world("srun -N 4 -n 4 python pretrain_gpt.py"), std::nullopt);
    // Only the launcher's own words count.
    EXPECT_EQ(world("export NPROC_PER_NODE=8\nmpirun -np 16 -N 8 python pretrain_gpt.py --wandb-project megatron"), 16);
    EXPECT_EQ(world("export NPROC_PER_NODE=8\npython3 train.py --actor-num-nodes 4 --actor-num-gpus-per-node 8 --train-backend megatron"),
              32);
    EXPECT_EQ(world("srun -N 4 --ntasks-per-node=8 python pretrain_gpt.py --wandb-project accelerate --wandb-entity deepspeed"), 32);
    EXPECT_EQ(world("srun -N 4 --ntasks-per-node=8 nice -n 16 python pretrain_gpt.py"), 32);
    EXPECT_EQ(world("mpirun -npernode 8 -np 16 python pretrain_gpt.py"), 16);
    EXPECT_EQ(world("torchrun --nproc_per_node 8 --nnodes 2 --node_rank $RANK --master_addr $(hostname) pretrain_gpt.py"), 16);
    EXPECT_EQ(world("CUDA_VISIBLE_DEVICES=$GPUS NPROC_PER_NODE=4 megatron sft"), 4);
    EXPECT_THAT(script_words("torchrun ${UNKNOWN[@]} pretrain_gpt.py --num-layers 2\n", "train.sh").missing, IsEmpty());
    EXPECT_EQ(world("python pretrain_gpt.py"), std::nullopt);
}

TEST(ShellScript, SplitsVariablesWithoutQuotesWhereverTheyStand) {
    const std::string script = "TYPE='rope --rotary-percent 0.5'\nMODS=\"core_attn mlp\"\nNONE=' '\n";
    EXPECT_THAT(words(script + "python train.py --num-layers 2 --recompute-modules $MODS $NONE --position-embedding-type $TYPE\n"),
                ElementsAre("--num-layers", "2", "--recompute-modules", "core_attn", "mlp", "--position-embedding-type", "rope",
                            "--rotary-percent", "0.5"));
    EXPECT_THAT(words(script + "python train.py --num-layers 2 --lr \"$MODS\"\n"), testing::Contains("core_attn mlp"))
        << "quotes keep it whole";
    EXPECT_THAT(words(script + "ARGS=\"--num-layers 2 --lr $MODS\"\npython train.py $ARGS\n"), testing::IsSupersetOf({"core_attn", "mlp"}));
}

TEST(ShellScript, TakesTimeInProportionToTheLines) {
    const auto lines_of = [](const char* form, int count) {
        std::string lines = "V0=x\n";
        for (int i = 1; i <= count; ++i) lines += fmt::format(fmt::runtime(form), i, i - 1);
        return lines;
    };
    for (const char* form : {"((i++))\n", "V{}=$V{}x\n", "V{}=${{V{}}}\n"}) {
        const auto seconds = [&](int count) {
            const std::string script = lines_of(form, count) + "python train.py --num-layers 2\n";
            const std::clock_t begin = std::clock();
            EXPECT_THAT(words(script), ElementsAre("--num-layers", "2"));
            return std::clock() - begin;
        };
        EXPECT_LT(tests::growth_of_time(4'000, seconds), 10) << form;
    }
    EXPECT_THAT(script_words(lines_of("((i++))\n", 40'000) + "TP=$(tp)\npython train.py --num-layers 2 --tensor-model-parallel-size $TP\n",
                             "train.sh")
                    .unresolved,
                testing::Contains(testing::Pair("TP", HasSubstr("line 40002 "))));
}

}  // namespace
}  // namespace mgplan::formats::shell_script_test
