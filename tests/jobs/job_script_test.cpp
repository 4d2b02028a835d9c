// The scripts of jobs, by their text and by what a shell makes of them.
#include "reports/job_script.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/child.hpp"
#include "plan/text/shell_quoting.hpp"

namespace mgplan::jobs::job_script_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Job sixteen_ranks(Via via) {
    Job job;
    job.id = "night-run";
    job.folder = "/jobs/night-run";
    job.working_directory = "/home/me";
    job.title = "tiny-llama: tp2 pp2";
    job.via = via;
    job.world = 16;
    job.nodes = 4;
    job.ranks_per_node = 4;
    job.meeting = Meeting::mpi;
    job.program = "/usr/bin/mgplan";
    job.command = {"/usr/bin/mgplan", "run", "/jobs/night-run/plan.json", "--steps", "3"};
    return job;
}

TEST(JobScript, AsksSlurmForNodesTasksAndGpusAndEndsAllWithTheFirstThatFails) {
    Job job = sixteen_ranks(Via::slurm);
    const std::string cpu = reports::job_script(job);
    EXPECT_THAT(cpu, StartsWith("#!/bin/bash\n#SBATCH --job-name=mgplan-night-run\n#SBATCH --nodes=4\n#SBATCH --ntasks=16\n"
                                "#SBATCH --ntasks-per-node=4\n#SBATCH --no-requeue\n"));
    EXPECT_THAT(cpu, HasSubstr("srun -K1 --mpi=pmix --nodes=4 --ntasks=16 --ntasks-per-node=4 --distribution=block:block \\\n"
                               "  /usr/bin/mgplan rank --world 16 --ranks-per-node 4 --logs \"$logs\" -- \\\n"
                               "    /usr/bin/mgplan run /jobs/night-run/plan.json --steps 3 \"${resume[@]}\"\n"));
    EXPECT_THAT(cpu, Not(HasSubstr("gpus")));
    job.gpus = true;
    job.meeting = Meeting::address;
    job.partition = "main";
    job.environment = {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
    const std::string gpu = reports::job_script(job);
    EXPECT_THAT(
        gpu, AllOf(HasSubstr("#SBATCH --gpus-per-node=4\n#SBATCH --partition=main\n"), HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"),
                   HasSubstr("MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"),
                   HasSubstr("srun -K1 --mpi=none ")));
    job.meeting = Meeting::folder;
    EXPECT_THAT(reports::job_script(job),
                AllOf(HasSubstr("srun -K1 --mpi=none "), HasSubstr("rank --world 16"), Not(HasSubstr("MASTER_"))));
}

TEST(JobScript, LetsMpirunFillNodesOneAfterTheOther) {
    Job job = sixteen_ranks(Via::mpirun);
    EXPECT_THAT(reports::job_script(job),
                HasSubstr("exec mpirun -n 16 --map-by ppr:4:node --rank-by slot --oversubscribe --bind-to none \\\n"));
    job.hostfile = "/home/me/my hosts";
    job.gpus = true;
    job.meeting = Meeting::address;
    job.weak_environment = {{"NCCL_DEBUG", "WARN"}};
    EXPECT_THAT(reports::job_script(job),
                AllOf(HasSubstr("[ -n \"${NCCL_DEBUG+set}\" ] || export NCCL_DEBUG=WARN\n"),
                      HasSubstr("--hostfile '/home/me/my hosts' --bind-to none -x NCCL_DEBUG -x MASTER_ADDR -x MASTER_PORT \\\n"),
                      Not(HasSubstr("--oversubscribe"))));
}

TEST(JobScript, StartsTorchrunOnceOnEachNode) {
    Job job = sixteen_ranks(Via::torchrun);
    job.meeting = Meeting::address;
    EXPECT_TRUE(reports::needs_a_start_on_each_node(job));
    EXPECT_THAT(reports::job_script(job), HasSubstr("torchrun --nnodes=4 --nproc_per_node=4 --node_rank=\"$NODE_RANK\""));
    job.nodes = 1;
    EXPECT_FALSE(reports::needs_a_start_on_each_node(job));
    EXPECT_THAT(reports::job_script(job), HasSubstr("exec torchrun --nnodes=1 --nproc_per_node=16 --master_addr=127.0.0.1"));
}

TEST(JobScript, AddsTheWordsOfARestartFromTheSecondAttemptOn) {
    Job job = sixteen_ranks(Via::slurm);
    EXPECT_THAT(reports::job_script(job), HasSubstr("\nresume=()\nsrun"));
    job.resume_words = {"--resume"};
    EXPECT_THAT(reports::job_script(job), HasSubstr("resume=()\nif ((attempt > 1)); then resume=(--resume); fi\n"));
    EXPECT_THAT(reports::start_command(job, 3), ::testing::ElementsAre("sbatch", "--parsable", "/jobs/night-run/job.sh", "3"));
}

TEST(JobScript, PassesHostileNamesToTheRanksByteByByte) {
    const std::filesystem::path folder =
        ::testing::TempDir() + fmt::format("mgplan {} it's $(touch pwned) `touch pwned`\n;&|*%j \\ \"x\"", ::getpid());
    std::filesystem::create_directories(folder);
    const std::string echo = folder / "say words.sh";
    std::ofstream(echo) << "#!/bin/bash\nprintf '<%s>' \"$@\"\nprintf '[%s][%s]' \"$NAME\" \"$PWD\"\n";
    ASSERT_EQ(::chmod(echo.c_str(), 0755), 0);
    const std::string bad = "a'b\"c $(touch pwned) `touch pwned` \n#SBATCH --wrap=x\n ${HOME} \\ *!~";
    Job job;
    job.folder = folder;
    job.working_directory = folder;
    job.title = "name\ntouch pwned";
    job.program = echo;  // stands for mgplan: says what it was given
    job.command = {bad, "", "--data", "-n"};
    job.environment = {{"NAME", bad}};
    job.resume_words = {bad};
    std::ofstream(script_file(job)) << reports::job_script(job);
    const Answer answer = ask(reports::start_command(job, 2), 20s);
    EXPECT_EQ(answer.code, 0) << answer.text;
    EXPECT_EQ(answer.text, fmt::format("<rank><--world><1><--ranks-per-node><1><--logs><{}/attempt-2><--><{}><><--data><-n><{}>[{}][{}]",
                                       folder.string(), bad, bad, bad, folder.string()));
    EXPECT_FALSE(std::filesystem::exists(folder / "pwned"));
    EXPECT_FALSE(std::filesystem::exists("pwned"));
    std::filesystem::remove_all(folder);
}

TEST(JobScript, KeepsWhatItTellsSlurmOnOneLineAndHarmless) {
    Job job = sixteen_ranks(Via::slurm);
    job.id = "a b\n#SBATCH --wrap=x%j";
    job.title = "x\n#SBATCH --account=other";
    const std::string script = reports::job_script(job);
    EXPECT_THAT(script, HasSubstr("#SBATCH --job-name=mgplan-a_b__SBATCH_--wrap_x_j\n"));
    EXPECT_THAT(script, Not(HasSubstr("\n#SBATCH --account")));
}

TEST(ShellWords, AreQuotedOnlyWhereTheyMustBe) {
    EXPECT_EQ(shell_word("--steps"), "--steps");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_words(std::vector<std::string>{"a", "b c"}), "a 'b c'");
}

}  // namespace
}  // namespace mgplan::jobs::job_script_test
