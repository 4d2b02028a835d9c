// Jobs of scripts that stand for engines: how they are followed, ended, begun anew and remembered.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/child.hpp"
#include "jobs/engine.hpp"
#include "jobs/job_folder.hpp"
#include "jobs/rank_failure.hpp"
#include "jobs/rank_process.hpp"
#include "jobs/supervisor.hpp"
#include "plan/text/errors.hpp"
#include "runtime/launch/placement.hpp"

namespace mgplan::jobs::jobs_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Jobs : public ::testing::Test {
protected:
    Jobs() : jobs(::testing::TempDir() + fmt::format("mgplan_jobs_{}", ::getpid())), folder(jobs + "/one") {
        std::filesystem::create_directory(jobs);
        make_folder(folder);
        job.id = record.id = "one";
        job.folder = record.folder = folder;
        record.launcher = this_process();
        watch.say = [this](const std::string& line) { said += line + "\n"; };
        watch.rank_0 = [this](std::string_view text) { rank_0 += text; };
    }
    ~Jobs() override { std::filesystem::remove_all(jobs); }

    /// A bash text in place of the job's script; $1 is the attempt, $logs its folder.
    void follow(const std::string& text) {
        supervise(
            job, record,
            [&](int attempt) {
                return std::vector<std::string>{"bash", "-c", fmt::format("logs='{}'\n{}", logs_folder(folder, attempt), text), "job",
                                                std::to_string(attempt)};
            },
            watch);
    }
    static std::string failure(int rank, int code) {
        return fmt::format(R"(echo '{{"rank":{},"node":"n1","code":{},"reason":"fell","log":""}}' >"$logs/first_failure.json"
)",
                           rank, code);
    }

    std::string jobs;  // all jobs' folder, of this test alone
    std::string folder;
    Job job;
    Record record;
    Watch watch;
    std::string said, rank_0;
};

TEST_F(Jobs, PassOnWhatRankZeroSays) {
    follow("echo 'mgplan: step 1 of 2: loss 5' >\"$logs/rank-00000.log\"; echo not this >\"$logs/rank-00001.log\"");
    EXPECT_EQ(record.state, State::finished);
    EXPECT_EQ(record.exit_code, 0);
    EXPECT_EQ(rank_0, "mgplan: step 1 of 2: loss 5\n");
    EXPECT_EQ(progress(folder, 1), "step 1 of 2: loss 5");
}

TEST_F(Jobs, NameTheRankThatFailedFirst) {
    follow(failure(3, 137) + "exit 1");
    EXPECT_EQ(record.state, State::failed);
    EXPECT_EQ(record.exit_code, 4);
    EXPECT_EQ(said, "rank 3 on n1: fell\n");
    const auto kept = read_record(folder);
    ASSERT_TRUE(kept && kept->failure);
    EXPECT_EQ(kept->failure->rank, 3);
}

TEST_F(Jobs, ShowTheEnginesWordsWhereNoRankLeftAny) {
    follow("echo no such interface; exit 3");
    EXPECT_EQ(record.exit_code, 4);
    EXPECT_THAT(said, HasSubstr("  no such interface\n"));
    EXPECT_THAT(record.reason, HasSubstr("ended with exit code 3"));
}

TEST_F(Jobs, BeginAnewWhileRestartsAreLeft) {
    record.max_restarts = 5;
    follow("if (($1 < 3)); then " + failure(1, 4) + "exit 1; fi");
    EXPECT_EQ(record.state, State::finished);
    EXPECT_EQ(record.attempt, 3);
    EXPECT_FALSE(record.failure);
    EXPECT_THAT(said, HasSubstr("restart 2 of 5: rank 1 on n1: fell\n"));
}

TEST_F(Jobs, GiveUpWhenNoneIsLeft) {
    record.max_restarts = 2;
    follow("exit 1");
    EXPECT_EQ(record.state, State::failed);
    EXPECT_EQ(record.attempt, 3);
}

TEST_F(Jobs, AreNotBegunAnewWhereRanksRefusedTheirInput) {
    record.max_restarts = 2;
    follow(failure(0, 2) + "exit 1");
    EXPECT_EQ(record.attempt, 1);
    EXPECT_EQ(record.exit_code, 2);
}

TEST_F(Jobs, LeaveNoProcessBehind) {
    follow("sleep 300 & echo $! >\"$logs/pid\"; exit 1");
    const auto pid = last_lines(logs_folder(folder, 1) + "/pid", 1);
    ASSERT_EQ(pid.size(), 1U);
    // Killed, and at most waiting for its new parent to notice: what is left of a process has no command line.
    const auto runs = [&] { return std::ifstream(fmt::format("/proc/{}/cmdline", pid.front())).get() != EOF; };
    for (int turn = 0; turn < 2000 && runs(); ++turn) ::usleep(5000);
    EXPECT_FALSE(runs());
}

TEST_F(Jobs, EndWhenTheyAreAskedTo) {
    int asked = 0;
    watch.stopped = [&] { return ++asked > 3; };
    record.max_restarts = 3;
    follow("sleep 300");
    EXPECT_EQ(record.state, State::cancelled);
    EXPECT_EQ(record.exit_code, 4);
    EXPECT_EQ(record.attempt, 1);
}

TEST_F(Jobs, AreRefusedWhereTheEngineIsMissing) {
    EXPECT_THROW(supervise(
                     job, record, [](int) { return std::vector<std::string>{"/no/such/engine"}; }, watch),
                 RunError);
    EXPECT_EQ(read_record(folder)->state, State::failed);
}

TEST_F(Jobs, AreCalledLostWhenTheirLauncherIsGone) {
    record.state = State::running;
    record.via = "local";
    EXPECT_EQ(seen_now(record).state, State::running);  // it is this process
    record.launcher.started += 1;                       // another process of the same number
    EXPECT_EQ(seen_now(record).state, State::lost);
    record.launcher.host = "elsewhere";
    EXPECT_EQ(seen_now(record).state, State::running);
    EXPECT_THAT(seen_now(record).reason, HasSubstr("watched on elsewhere"));
}

TEST_F(Jobs, AreReadBackAsTheyWereWritten) {
    record.title = "it's \"x\"\n\xff";
    record.state = State::waiting;
    record.engine_job = "17";
    write_record(record);
    const auto kept = read_record(folder);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->state, State::waiting);
    EXPECT_EQ(kept->engine_job, "17");
    EXPECT_EQ(kept->launcher, record.launcher);
    std::ofstream(folder + "/record.json") << "{\"mgplan_job\": 1, \"id\": 3}";
    EXPECT_THROW(static_cast<void>(read_record(folder)), RunError);
    std::ofstream(folder + "/record.json") << "{\"mgplan_job\": 9}";
    EXPECT_THROW(static_cast<void>(read_record(folder)), RunError);
    std::ofstream(folder + "/record.json") << "[[[";
    std::vector<std::string> unreadable;
    EXPECT_THAT(read_records(jobs, unreadable), ::testing::IsEmpty());
    ASSERT_THAT(unreadable, ::testing::SizeIs(1));
    EXPECT_THAT(unreadable[0],
                ::testing::AllOf(HasSubstr("is no record of a job: parse error"), ::testing::Not(HasSubstr("json.exception"))));
}

TEST_F(Jobs, AreReadWithoutWaitingForAPipe) {
    write_record(record);
    for (const std::string& name : {std::string("/two"), std::string("/three")}) make_folder(jobs + name);
    ASSERT_EQ(::mkfifo((jobs + "/two/record.json").c_str(), 0600), 0);
    std::filesystem::create_directory(jobs + "/three/record.json");
    std::vector<std::string> unreadable;
    EXPECT_THAT(read_records(jobs, unreadable), ::testing::SizeIs(1));
    ASSERT_THAT(unreadable, ::testing::SizeIs(2));
    for (const std::string& problem : unreadable) EXPECT_THAT(problem, HasSubstr("is a pipe, a device or a folder and no record of a job"));
    // What else status looks at.
    make_folder(logs_folder(folder, 1));
    for (const char* name : {"/rank-00000.log", "/first_failure.json", "/exit_code", "/job.log"})
        ASSERT_EQ(::mkfifo((logs_folder(folder, 1) + name).c_str(), 0600), 0) << name;
    EXPECT_EQ(progress(folder, 1), "");
    EXPECT_FALSE(first_failure(logs_folder(folder, 1)));
    record.state = State::running;
    record.via = "local";
    record.attempt = 1;
    record.launcher.started += 1;
    EXPECT_EQ(seen_now(record).state, State::lost);
}

/// Slurm's commands as scripts that say what a test wants, first on PATH.
class JobsOfSlurm : public Jobs {
protected:
    JobsOfSlurm() : path(std::getenv("PATH")) {
        job.via = Via::slurm;
        record.via = "slurm";
        std::filesystem::create_directory(jobs + "/bin");
        ::setenv("PATH", (jobs + "/bin:" + path).c_str(), 1);
        command("scancel", "");
    }
    ~JobsOfSlurm() override { ::setenv("PATH", path.c_str(), 1); }
    void command(const std::string& name, const std::string& says) const {
        const std::string file = jobs + "/bin/" + name;
        std::ofstream(file) << "#!/bin/bash\ncat <<'END'\n" << says << "\nEND\n";
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    }
    void job_is(const std::string& state) const {
        command("scontrol", "JobId=17 JobName=x JobState=" + state + " Reason=None ExitCode=1:0 NodeList=n[1-4] Next=1");
    }
    std::string path;
};

TEST_F(JobsOfSlurm, NameTheNodeThatSlurmLostBeforeTheRankThatFellByIt) {
    job_is("NODE_FAIL");
    command("sinfo", "n1 allocated\nn3 down*\nn3 down*\nn4 idle");
    follow(failure(3, 137) + "echo 17");
    EXPECT_EQ(record.state, State::failed);
    EXPECT_EQ(record.exit_code, 4);
    EXPECT_EQ(record.reason, "Slurm lost one of the job's nodes (n3); first seen as: rank 3 on n1: fell");
}

TEST_F(JobsOfSlurm, NameALostNodeWhateverStateTheJobHas) {
    job_is("FAILED");
    command("sinfo", "n1 allocated\nn2 allocated*\nn4 idle");  // it does not answer
    follow("echo 17");
    EXPECT_THAT(record.reason, ::testing::StartsWith("Slurm lost one of the job's nodes (n2); by Slurm the job is FAILED"));
    // What srun wrote is surer than how nodes are later.
    command("sinfo", "n1 idle");
    follow("echo 'srun: error: Node failure on n4' >>\"$logs/job.log\"\necho 17");
    EXPECT_THAT(record.reason, ::testing::StartsWith("Slurm lost one of the job's nodes (n4); by Slurm the job is FAILED"));
}

TEST_F(JobsOfSlurm, BlameNoNodeWhereAllAreThere) {
    job_is("FAILED");
    command("sinfo", "n1 idle\nn2 allocated");
    follow(failure(3, 137) + "echo 17");
    EXPECT_EQ(record.reason, "rank 3 on n1: fell");
    // Bad input stays bad input.
    job_is("NODE_FAIL");
    follow(failure(3, 2) + "echo 17");
    EXPECT_EQ(record.exit_code, 2);
}

TEST_F(JobsOfSlurm, WithoutALauncherNameTheLostNodeToo) {
    job_is("NODE_FAIL");
    command("sinfo", "n3 down");
    record.state = State::running;
    record.engine_job = "17";
    record.attempt = 1;
    record.launcher.started += 1;
    make_folder(logs_folder(folder, 1));
    const Record now = seen_now(record);
    EXPECT_EQ(now.state, State::failed);
    EXPECT_EQ(now.reason, "Slurm lost one of the job's nodes (n3)");
}

TEST(RankProcess, RefusesAnotherWorldOrPlaceThanPlanned) {
    using runtime::LaunchedRank;
    using runtime::RankSource;
    RankProcessOptions options;
    options.world = 16;
    options.ranks_per_node = 4;
    std::map<std::string, std::string, std::less<>> variables;
    const runtime::Environment environment = [&](std::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    const auto problem = [&](const LaunchedRank& launched) { return start_problem(options, launched, environment); };
    EXPECT_EQ(problem({5, 16, 1, RankSource::slurm}), "");
    EXPECT_THAT(problem({0, 1, std::nullopt, RankSource::none}), HasSubstr("jobs of one rank each"));
    EXPECT_THAT(problem({0, 1, 0, RankSource::pmi}), HasSubstr("PMI started 1 (so there are perhaps many jobs of one rank each)"));
    EXPECT_THAT(problem({5, 8, 1, RankSource::open_mpi}), HasSubstr("Open MPI started 8; start as many"));
    EXPECT_THAT(problem({5, 16, 2, RankSource::slurm}), HasSubstr("rank 5 on node 1 as local rank 1 of 4, and Slurm made it local rank 2"));
    variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "8";
    EXPECT_THAT(problem({5, 16, 1, RankSource::open_mpi}), HasSubstr("4 ranks on a node, and Open MPI started 8 on this one"));
}

/// What is written of a rank that a signal ends, and that is told to end, or is not, as soon as the process that watches it knows.
std::optional<RankFailure> word_of(const std::string& signal, bool told_to_end) {
    const std::string logs = ::testing::TempDir() + fmt::format("mgplan_rank_{}", ::getpid());
    std::filesystem::remove_all(logs);
    make_folder(logs);
    RankProcessOptions options;
    options.logs = logs;
    // It is there, as a zombie, until it was waited for.
    const std::string tell = "watcher=$PPID; (while kill -0 $$ 2>/dev/null; do :; done; kill -TERM $watcher) & ";
    options.command = {"bash", "-c", fmt::format("ulimit -c 0; {}kill -{} $$", told_to_end ? tell : "", signal)};
    const pid_t watcher = ::fork();
    if (watcher == 0) ::_exit(run_rank_process(options));
    int status = 0;
    EXPECT_EQ(::waitpid(watcher, &status, 0), watcher);
    EXPECT_GT(exit_code_of(status), 128);
    auto word = first_failure(logs);
    std::filesystem::remove_all(logs);
    return word;
}

TEST(RankProcess, LeavesNoWordOfACrashBehindWhichItIsToldToEnd) {
    for (const std::string signal : {"PIPE", "SEGV", "TERM"}) {
        EXPECT_FALSE(word_of(signal, true)) << signal << ": another rank's end breaks connections";
        EXPECT_TRUE(word_of(signal, false)) << signal;
    }
    const auto killed = word_of("KILL", true);
    ASSERT_TRUE(killed);
    EXPECT_EQ(killed->reason, "was killed by signal 9 (Killed)");
}

TEST(Placement, IsRightWhereNodesHoldConsecutiveRanks) {
    const auto problem = [](const std::vector<std::string>& nodes, int each) { return runtime::placement_problem(nodes, each); };
    EXPECT_EQ(problem({"a", "a", "b", "b"}, 2), "");
    EXPECT_EQ(problem({"a", "a", "a", "a"}, 4), "");
    EXPECT_THAT(problem({"a", "b", "a", "b"}, 2), HasSubstr("of ranks 0 to 1 rank 0 is on a but rank 1 on b"));
    EXPECT_THAT(problem({"a", "a", "a", "a"}, 2), HasSubstr("a holds rank 2 with ranks 0 to 1"));
    EXPECT_THAT(problem({"a", "b", "b", "c"}, 2), HasSubstr("rank 1 on b"));
}

TEST(Slurm, SaysHowAJobIs) {
    const auto status = [](const std::string& fields) { return status_of(read_slurm_job("JobId=17 JobName=x " + fields + " Next=1\n")); };
    using Phase = EngineStatus::Phase;
    EXPECT_EQ(status("JobState=PENDING Reason=Resources ExitCode=0:0").phase, Phase::waiting);
    EXPECT_EQ(status("JobState=PENDING Reason=Resources ExitCode=0:0").text, "Resources");
    EXPECT_EQ(status("JobState=RUNNING Reason=None ExitCode=0:0").phase, Phase::running);
    EXPECT_EQ(status("JobState=COMPLETING Reason=None ExitCode=0:0").phase, Phase::running);
    EXPECT_EQ(status("JobState=COMPLETED Reason=None ExitCode=0:0").code, 0);
    EXPECT_EQ(status("JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9").code, 137);
    EXPECT_EQ(status("JobState=FAILED Reason=NonZeroExitCode ExitCode=4:0").code, 4);
    EXPECT_TRUE(status("JobState=CANCELLED Reason=None ExitCode=0:15").cancelled);
    EXPECT_THAT(status("JobState=NODE_FAIL Reason=None ExitCode=0:0").text, HasSubstr("lost one of the job's nodes"));
    EXPECT_NE(status("JobState=NODE_FAIL Reason=None ExitCode=0:0").code, 0);
    EXPECT_NE(status("JobState=TIMEOUT Reason=None ExitCode=0:0").code, 0);
    EXPECT_EQ(read_slurm_job("slurm_load_jobs error: Invalid job id specified").state, "");
}

TEST(Ask, GivesUpOnWhatDoesNotEnd) {
    EXPECT_EQ(ask({"sleep", "60"}, 50ms).code, 124);
    EXPECT_EQ(ask({"bash", "-c", "echo out; echo err >&2; exit 3"}, 20s).text, "out\nerr\n");
    EXPECT_THROW(static_cast<void>(ask({"/no/such/program"}, 1s)), RunError);
}

TEST_F(Jobs, OfTheSameSecondHaveFoldersOfTheirOwn) {
    const std::string first = claim_job_id(folder + "/a/b", "it's a/model");
    const std::string second = claim_job_id(folder + "/a/b", "it's a/model");
    EXPECT_NE(first, second);
    EXPECT_TRUE(std::filesystem::is_directory(folder + "/a/b/" + second));
    EXPECT_THAT(first, HasSubstr("-it_s_a_model"));
}

TEST(JobsFolder, FollowsTheUsersVariables) {
    const auto folder = [](const std::map<std::string, std::string>& variables) {
        return jobs_folder([variables](std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(std::string(name));
            return found == variables.end() ? std::nullopt : std::optional(found->second);
        });
    };
    EXPECT_EQ(folder({{"HOME", "/home/me"}}), "/home/me/.local/state/mgplan/jobs");
    EXPECT_EQ(folder({{"HOME", "/home/me"}, {"XDG_STATE_HOME", "/state"}}), "/state/mgplan/jobs");
    EXPECT_EQ(folder({{"HOME", "/home/me"}, {"XDG_STATE_HOME", "relative"}}), "/home/me/.local/state/mgplan/jobs");
    EXPECT_THROW(folder({}), ConfigError);
}

}  // namespace
}  // namespace mgplan::jobs::jobs_test
