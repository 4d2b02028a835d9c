// One job at a time in a checkpoint folder.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/launch/node_name.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"

namespace mgplan::runtime::folder_lock_test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& folder, std::chrono::milliseconds patience = 0ms) {
    try {
        const FolderLock lock(folder, patience);
        return lock.problem();
    } catch (const ConfigError& error) {
        return error.what();
    }
}

class FolderLocks : public testing::Test {
protected:
    const tests::TemporaryFolder temporary;
    const std::string folder = temporary.path();
};

TEST_F(FolderLocks, RefuseTheSecondAndNameTheFirst) {
    std::optional<FolderLock> first(folder);
    EXPECT_EQ(first->problem(), "");
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr(folder + " is in use by another job"),
                                       HasSubstr(fmt::format("process {} on {}, since 20", ::getpid(), node_name(process_environment()))),
                                       HasSubstr("end it, or name another folder")));
    first.reset();
    EXPECT_EQ(refusal(folder), "");
}

TEST_F(FolderLocks, OfWeightsLeaveNoFile) {
    std::optional<FolderLock> first(std::in_place, folder, 0ms, FilePurpose::weights);
    EXPECT_TRUE(std::filesystem::exists(folder + "/lock"));
    EXPECT_THAT(refusal(folder), HasSubstr(folder + " is in use by another job"));
    first.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    EXPECT_EQ(refusal(folder), "");
}

TEST_F(FolderLocks, WaitForAJobThatIsJustEnding) {
    std::optional<FolderLock> first(folder);
    std::thread ending([&] {
        std::this_thread::sleep_for(200ms);
        first.reset();
    });
    EXPECT_EQ(refusal(folder, 20s), "");
    ending.join();
}

TEST_F(FolderLocks, GoWithAProcessThatIsKilled) {
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const FolderLock lock(folder);
        if (::write(ready[1], "x", 1) == 1) ::pause();
        ::_exit(1);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_THAT(refusal(folder), HasSubstr(fmt::format("process {} on", child)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(refusal(folder), "");
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_F(FolderLocks, HoldTheNameAndNotARemovedFile) {
    std::optional<FolderLock> first(folder);
    std::filesystem::remove(folder + "/lock");
    const FolderLock second(folder);
    first.reset();
    EXPECT_THAT(refusal(folder), HasSubstr("is in use by another job"));
}

TEST_F(FolderLocks, AreTakenAnewWhereTheirFileWasRemoved) {
    FolderLock lock(folder);
    EXPECT_FALSE(lock.keep());
    std::filesystem::remove(folder + "/lock");
    EXPECT_TRUE(lock.keep());
    EXPECT_FALSE(lock.keep());
    EXPECT_THAT(refusal(folder), HasSubstr(fmt::format("in use by another job (process {} on", ::getpid())));
}

TEST_F(FolderLocks, ToldToTheFirstThatASecondCameIn) {
    FolderLock first(folder);
    std::filesystem::remove(folder + "/lock");
    std::optional<FolderLock> second(folder);
    const auto kept = [&] {
        try {
            first.keep();
            return std::string();
        } catch (const RunError& error) {
            return std::string(error.what());
        }
    };
    EXPECT_THAT(kept(), AllOf(HasSubstr("checkpoint folder " + folder + ": its file lock was removed while this job ran"),
                              HasSubstr(fmt::format("has taken the folder since (process {} on ", ::getpid())),
                              HasSubstr("nothing more is saved")));
    EXPECT_FALSE(second->keep());
    std::filesystem::remove_all(folder);
    EXPECT_THAT(kept(), HasSubstr("cannot be made anew (No such file or directory)"));
}

TEST_F(FolderLocks, ShowOnlyPlainTextOfWhatTheFileSays) {
    const FolderLock lock(folder);
    std::ofstream(folder + "/lock") << "\x1b[2J" << std::string(5000, 'x') << "\nmore";
    const std::string text = refusal(folder);
    EXPECT_THAT(text, HasSubstr("(?[2Jxxx"));
    EXPECT_LT(text.size(), 1000U);
    std::ofstream(folder + "/lock").flush();
    EXPECT_THAT(refusal(folder), HasSubstr("has not said yet which it is"));
}

TEST_F(FolderLocks, AreRefusedWhereTheirFileCannotBeMade) {
    std::filesystem::create_symlink("elsewhere", folder + "/lock");
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr(folder + ": its file lock cannot be opened"), HasSubstr("choose a folder")));
}

}  // namespace
}  // namespace mgplan::runtime::folder_lock_test
