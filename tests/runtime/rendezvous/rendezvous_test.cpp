// Processes that find each other by files of a folder, and the message of each thing that can go wrong.
#include "runtime/rendezvous/rendezvous.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "tests/support/child_process.hpp"

namespace mgplan::runtime::rendezvous_test {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

class RendezvousOfProcesses : public ::testing::Test {
protected:
    using Child = std::unique_ptr<tests::ChildProcess>;

    RendezvousOfProcesses() : folder(::testing::TempDir() + fmt::format("mgplan_meet_{}_{}", ::getpid(), count_++)) {}
    ~RendezvousOfProcesses() override { files::remove_all(folder); }

    [[nodiscard]] Child start(int rank, int size, const std::string& task) const {
        const Variables variables{{"RANK", std::to_string(rank)},
                                  {"WORLD_SIZE", std::to_string(size)},
                                  {"LOCAL_RANK", std::to_string(rank)},
                                  {"MGPLAN_JOB_FOLDER", folder}};
        return std::make_unique<tests::ChildProcess>(MGPLAN_RANK_PROGRAM, std::vector{task}, variables);
    }
    [[nodiscard]] std::vector<Child> start_all(int size, const std::string& task) const {
        std::vector<Child> children;
        for (int rank = 0; rank < size; ++rank) children.push_back(start(rank, size, task));
        return children;
    }
    static void expect_all_end(const std::vector<Child>& children, int code) {
        for (const auto& child : children) EXPECT_EQ(child->code(), code) << child->err();
    }

    std::string folder;

private:
    static inline int count_ = 0;
};

TEST_F(RendezvousOfProcesses, ExchangeValuesAndLeaveNothingBehind) {
    for (const int size : {1, 3, 8}) {
        expect_all_end(start_all(size, "leave"), 0);
        EXPECT_TRUE(files::is_empty(folder)) << size;
    }
}

// The first of them ended without a word, like a job that was killed; its ranks had all come, and NCCL's id is still there.
TEST_F(RendezvousOfProcesses, TakeNothingFromAnEarlierJobInTheSameFolder) {
    expect_all_end(start_all(2, "die"), 9);
    ASSERT_TRUE(files::exists(folder + "/session"));
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(300ms), -1) << "it waits for rank 0 of its own job: " << one->err();
    const auto zero = start(0, 2, "leave");
    EXPECT_EQ(zero->code(), 0) << zero->err();
    EXPECT_EQ(one->code(), 0) << one->err();
    EXPECT_TRUE(files::is_empty(folder));
}

TEST_F(RendezvousOfProcesses, TakeNoAbortFromAnEarlierJobInTheSameFolder) {
    expect_all_end(start_all(2, "throw"), 4);
    const auto one = start(1, 2, "leave");
    EXPECT_EQ(one->code(300ms), -1) << one->err();
    EXPECT_EQ(start(0, 2, "leave")->code(), 0);
    EXPECT_EQ(one->code(), 0) << one->err();
}

TEST_F(RendezvousOfProcesses, AnAbortReachesEverybodyWithItsReason) {
    const auto children = start_all(3, "throw");
    expect_all_end(children, 4);
    for (const int rank : {0, 2}) {
        EXPECT_THAT(children[static_cast<std::size_t>(rank)]->err(),
                    AllOf(HasSubstr("hears: rank 1 failed: the disk is full\n"),
                          HasSubstr(fmt::format("rank {}, waiting for a value that nobody sets: rank 1 failed", rank))));
    }
}

TEST_F(RendezvousOfProcesses, AValueThatNobodySetsEndsTheWaitAtTheDeadline) {
    const auto zero = start(0, 1, "wait");
    EXPECT_EQ(zero->code(10s), 4);
    EXPECT_THAT(zero->err(), HasSubstr("rank 0: waiting for a value that nobody sets took too long"));
}

TEST_F(RendezvousOfProcesses, MissingRanksAreNamedByAll) {
    const auto zero = start(0, 4, "impatient"), two = start(2, 4, "");
    for (const auto& child : {zero.get(), two.get()}) {
        EXPECT_EQ(child->code(10s), 4);
        EXPECT_THAT(child->err(), HasSubstr("ranks 1, 3 of 4 missing in " + folder + " after 1 s"));
    }
}

TEST_F(RendezvousOfProcesses, ARankZeroThatNeverAnswersIsSaid) {
    const auto one = start(1, 2, "impatient");
    EXPECT_EQ(one->code(10s), 4);
    EXPECT_THAT(one->err(), HasSubstr("rank 1: rank 0 did not answer in " + folder));
}

TEST_F(RendezvousOfProcesses, AnotherWorldAndTwoRanksOfOneNumberEndTheJobForAll) {
    {
        const auto zero = start(0, 2, ""), one = start(1, 3, "");
        for (const auto& child : {zero.get(), one.get()}) {
            EXPECT_EQ(child->code(10s), 2);
            EXPECT_THAT(child->err(), AllOf(HasSubstr("world of 3"), HasSubstr("world of 2"), HasSubstr("WORLD_SIZE")));
        }
    }
    {
        const auto zero = start(0, 3, ""), one = start(1, 3, ""), same = start(1, 3, "");
        for (const auto& child : {zero.get(), one.get(), same.get()}) {
            EXPECT_EQ(child->code(10s), 2);
            EXPECT_THAT(child->err(), HasSubstr("two processes say they are rank 1"));
        }
    }
}

TEST_F(RendezvousOfProcesses, AFolderThatCannotBeMadeIsBadInput) {
    std::ofstream(folder) << "a file";
    const auto zero = start(0, 2, "");
    EXPECT_EQ(zero->code(10s), 2);
    EXPECT_THAT(zero->err(), AllOf(HasSubstr("rank 0 cannot make " + folder), HasSubstr("MGPLAN_JOB_FOLDER")));
}

class FolderOfAJob : public ::testing::Test {
protected:
    [[nodiscard]] std::string folder(RankSource source) const {
        return rendezvous_options({1, 2, std::nullopt, source},
                                  [&](std::string_view name) -> std::optional<std::string> {
                                      const auto found = variables.find(std::string(name));
                                      return found == variables.end() ? std::nullopt : std::optional(found->second);
                                  })
            .folder;
    }
    const std::string own = (files::temp_directory_path() / fmt::format("mgplan-{}", ::getuid())).string();
    Variables variables;
};

TEST_F(FolderOfAJob, IsTheUsersThenTheLaunchers) {
    variables["MGPLAN_JOB_LOGS"] = "/jobs/a/attempt-2";
    EXPECT_EQ(folder(RankSource::slurm), "/jobs/a/attempt-2");
    variables["MGPLAN_JOB_FOLDER"] = "/shared/b";
    EXPECT_EQ(folder(RankSource::slurm), "/shared/b");
}

TEST_F(FolderOfAJob, IsNamedAfterJobAndAttemptWhereAllRanksAreOnThisMachine) {
    variables = {{"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "a/b"}, {"TORCHELASTIC_RESTART_COUNT", "3"}};
    EXPECT_EQ(folder(RankSource::torchrun), own + "/torchrun-a-b-29500-3");
    struct stat status {};
    ASSERT_EQ(::stat(own.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077, 0U) << "others must not write what ranks believe";
    variables = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "1234"}};
    EXPECT_EQ(folder(RankSource::open_mpi), own + "/mpirun-1234");
    variables = {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
    EXPECT_EQ(folder(RankSource::slurm), own + "/slurm-7-0");
}

TEST_F(FolderOfAJob, MustBeSaidWhereRanksMayBeOnSeveralMachines) {
    variables = {{"LOCAL_WORLD_SIZE", "1"}, {"MASTER_PORT", "29500"}};
    try {
        static_cast<void>(folder(RankSource::torchrun));
        FAIL() << "nobody says what both machines see";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("MGPLAN_JOB_FOLDER is not set, and torchrun does not say that all 2 ranks are on this"),
                                        HasSubstr("mgplan launch"), HasSubstr("unset RANK and WORLD_SIZE")));
    }
}

}  // namespace
}  // namespace mgplan::runtime::rendezvous_test
