// What `mgplan launch` refuses and prints; that it starts jobs is tested in tests/cluster.
#include <cstdlib>
#include <regex>
#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::launch_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Launch : public ::testing::Test {
protected:
    Launch() : plan("launch.json") {
        EXPECT_EQ(say("--model tiny-llama --world 8 --tp 2 --pp 2 --save-plan " + plan.path()).code, kDone);
        ::setenv("XDG_STATE_HOME", "/nowhere/state", 1);
    }
    ~Launch() override { ::unsetenv("XDG_STATE_HOME"); }
    [[nodiscard]] std::string launch(const std::string& words) const { return "launch " + plan.path() + " " + words; }
    TempFile plan;
};

TEST_F(Launch, TellsOfEverythingThatIsWrongAtOnce) {
    expect_refused("launch --max-restarts 2 --partition main",
                   {"launch needs a PLAN", "--via is missing; use local, mpirun, slurm or torchrun", "--partition is Slurm's",
                    "--max-restarts needs --checkpoint DIR"});
    expect_refused(launch("--via slurm --dry-run --partition a;b"), "--partition = 'a;b' is no name of a partition");
    expect_refused(launch("--via slurm --dry-run --detach"), "--dry-run and --detach exclude each other");
    expect_refused(launch("--via local --job megatron"), "--job megatron needs --script FILE");
    expect_refused(launch("--via local --job megatron --script /no/such.py"), "--script = /no/such.py is no file");
    expect_refused(launch("--via mpirun --dry-run --hostfile /no/such"), "--hostfile = /no/such cannot be read");
    expect_refused(launch("--via torchrun --dry-run"), "--via torchrun with --device cpu: torchrun connects no ranks by MPI");
    EXPECT_EQ(say(launch("--via torchrun --device cuda --dry-run --gpus-per-node 8")).code, kDone);
}

TEST_F(Launch, AsksRunWhetherItKnowsTheWordsBehindTheDashes) {
    expect_refused(launch("--via local --dry-run -- --lrr 3"), "after --: ");
    expect_refused(launch("--via local --dry-run -- --steps 3"), "--steps is given after --; give it before");
    expect_refused(launch("--via local --dry-run -- --rank 3"), "--rank after -- is launch's to decide");
    EXPECT_THAT(say(launch("--via local --dry-run -- --lr 0.5")).out, HasSubstr(" --lr 0.5 "));
}

TEST_F(Launch, RefusesNodesThatTheRanksDoNotFill) {
    expect_refused(launch("--via slurm --dry-run --nodes 3"), "8 ranks do not fill 3 nodes evenly");
    expect_refused(launch("--via slurm --dry-run --nodes 2 --gpus-per-node 2"), "hold 4 ranks, and the plan has 8");
    expect_refused(launch("--via local --dry-run --nodes 2"), "--via local is this machine alone");
}

TEST_F(Launch, PrintsTheScriptAndTouchesNothing) {
    const Said said = say(launch("--via slurm --dry-run --device cuda --nodes 2 --steps 7 --partition main"));
    EXPECT_EQ(said.code, kDone) << said.err;
    // Where lines break depends on how long the program's path is.
    const std::string unbroken = std::regex_replace(said.out, std::regex(R"(\\\n *)"), "");
    EXPECT_THAT(unbroken,
                AllOf(HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks=8\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"),
                      HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=32\n"), HasSubstr("--device cuda --steps 7 --ranks-per-node 4"),
                      HasSubstr("# started by: sbatch --parsable /nowhere/state/mgplan/jobs/")));
    EXPECT_THAT(said.err, HasSubstr("the plan's times are for 8 GPUs a node, and this job has 4"));
    const auto json = nlohmann::json::parse(say(launch("--via mpirun --dry-run --format json")).out);
    EXPECT_EQ(json["nodes"], 1);
    EXPECT_EQ(json["environment"]["OMPI_MCA_mpi_yield_when_idle"], "1");
    EXPECT_FALSE(json["environment"].contains("SLURM_PMIX_FENCE")) << "mpirun has fences of its own";
    const auto slurm = nlohmann::json::parse(say(launch("--via slurm --dry-run --format json")).out);
    EXPECT_EQ(slurm["environment"]["SLURM_PMIX_FENCE"], "ring");
}

TEST_F(Launch, KeepsSegmentsOfNodesInsideARack) {
    const TempFile rack("rack.json");
    ASSERT_EQ(say("--model llama3-8b --cluster gb200-nvl72 --world 256 --tp 1 --pp 1 --cp 1 --save-plan " + rack.path()).code, kDone);
    const std::string words = "launch " + rack.path() + " --via slurm --dry-run --device cuda";
    EXPECT_THAT(say(words).out, HasSubstr("#SBATCH --gpus-per-node=4\n#SBATCH --segment=16\n")) << "64 of a rack's 72 GPUs";
    EXPECT_THAT(say(words + " --segment 8").out, HasSubstr("#SBATCH --segment=8\n"));
    EXPECT_THAT(say(words + " --segment 0").out, Not(HasSubstr("--segment")));
    expect_refused(words + " --segment 18", "--segment = 18 does not divide the job's 64 nodes, as Slurm's segments must; use 16, or 0");
    expect_refused(words + " --segment 1000", "use 64, or 0");
    expect_refused("launch " + rack.path() + " --via mpirun --dry-run --segment 16", "--segment is Slurm's");
    EXPECT_THAT(say(launch("--via slurm --dry-run --device cuda --nodes 2")).out, Not(HasSubstr("--segment"))) << "a node is one domain";
}

TEST_F(Launch, WritesTheSameJobForMegatron) {
    const Said said = say(launch("--via slurm --dry-run --job megatron --steps 9 --checkpoint /c --max-restarts 1 -- --data-path /d"));
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.out,
                AllOf(HasSubstr(" rank --world 8"), HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"), HasSubstr("--torch-variables"),
                      HasSubstr("pretrain_gpt.py"), HasSubstr("--tensor-model-parallel-size 2"), HasSubstr("--train-iters 9"),
                      HasSubstr("--save /c"), HasSubstr("--data-path /d"), HasSubstr("then resume=(--load /c); fi")));
}

TEST_F(Launch, HasNoStatusOfJobsThatAreNot) {
    EXPECT_EQ(say("status").out, "no jobs in /nowhere/state/mgplan/jobs\n");
    EXPECT_EQ(say("status --format json").out, "{\n \"jobs\": []\n}\n");
    expect_refused("status nothing", "there is no job 'nothing' in /nowhere/state/mgplan/jobs");
}

}  // namespace
}  // namespace mgplan::cli::testing::launch_command_test
