// Ranks under mpirun that die, throw or go silent: all stop, soon, with a message and a code.
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mpirun_job.hpp"

namespace mgplan::runtime::mpi_faults_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Ended {
    int code = -1;  ///< mpirun's; meaningless where it hung
    bool hung = false;
    std::string said;
    std::chrono::duration<double> took{};  ///< until the last rank was gone
};

Ended run_with(const std::string& fault) {
    const auto begin = std::chrono::steady_clock::now();
    tests::MpirunJob job(MGPLAN_MPIRUN, 3, MGPLAN_FAULT_PROGRAM, {fault});
    const int code = job.code();
    return {code, job.hung(), job.out() + job.err(), job.ranks_ended() - begin};
}

int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// The whole mpirun, start included; the five seconds of the promise start with the fault.
constexpr double kSoon = 20;

TEST(MpiFaults, NothingIsSaidWhenNothingIsWrong) {
    const Ended run = run_with("none");
    EXPECT_EQ(run.code, 0) << run.said;
    EXPECT_THAT(run.said, Not(HasSubstr("mgplan"))) << "MPI's own remarks on the machine are its own";
}

TEST(MpiFaults, ARankThatThrowsStopsAllAndIsNamedOnce) {
    const Ended run = run_with("throw");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_LT(run.took.count(), kSoon);
    EXPECT_EQ(count(run.said, "mgplan: rank 1 failed: the disk is full; after all_reduce in group tp (ranks 0, 1, 2)\n"), 1) << run.said;
}

TEST(MpiFaults, AnErrorThatDestroysARunningOperationDoesNotWaitForPartners) {
    const Ended run = run_with("throw-pending");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_LT(run.took.count(), kSoon);
    EXPECT_THAT(run.said, HasSubstr("mgplan: rank 1 failed: the loss is NaN;"));
}

TEST(MpiFaults, AKilledRankStopsTheOthersWhichSayWhereTheyWere) {
    for (const auto& [fault, code] : {std::pair{"kill", 128 + 9}, std::pair{"crash", 128 + 11}}) {
        const Ended run = run_with(fault);
        if (!run.hung) {
            EXPECT_EQ(run.code, code) << run.said;
        }
        EXPECT_LT(run.took.count(), kSoon);
        // mpirun gives the others a second to speak, and on a busy machine not each of them gets to it.
        EXPECT_THAT(run.said, ContainsRegex("mgplan: rank [02], (in|after) all_reduce in group tp \\(ranks 0, 1, 2\\): stopped from "
                                            "outside; another rank may have died"));
    }
}

TEST(MpiFaults, ASilentRankStopsTheOthersAtTheDeadline) {
    const Ended run = run_with("silent");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_LT(run.took.count(), kSoon);
    EXPECT_THAT(run.said, HasSubstr(", all_reduce in group tp (ranks 0, 1, 2): no progress within the deadline of 700 ms"));
}

TEST(MpiFaults, ARankThatFinishesEarlyIsNoticedAtTheDeadline) {
    const Ended run = run_with("leave");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_LT(run.took.count(), kSoon);
    EXPECT_THAT(run.said, HasSubstr("no progress within the deadline of 700 ms"));
}

TEST(MpiFaults, AnAbortSaysItsReasonOnce) {
    const Ended run = run_with("abort");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_EQ(count(run.said, "mgplan: rank 1 was told to stop\n"), 1) << run.said;
}

TEST(MpiFaults, RanksThatAskForOtherGroupsAreTold) {
    const Ended run = run_with("other-group");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_THAT(run.said, HasSubstr("for another one: all ranks ask for their groups in one order"));
}

TEST(MpiFaults, AWorldOfAnotherSizeThanLaunchedIsRefused) {
    const Ended run = run_with("wrong-size");
    EXPECT_EQ(run.code, 2) << run.said;
    EXPECT_THAT(run.said, HasSubstr("by the launcher there are 64 ranks, and MPI connects 3; use mpirun of the same MPI"));
}

}  // namespace
}  // namespace mgplan::runtime::mpi_faults_test
