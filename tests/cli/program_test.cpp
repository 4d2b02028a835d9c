// The program as a process: what the system does to it from outside.
#include <filesystem>

#include "tests/cli/say.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/child_process.hpp"

namespace mgplan::cli::testing::program_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::ChildProcess;

/// Under a limit of so many KiB for each file it writes.
ChildProcess limited(int kib, const std::string& words, const std::map<std::string, std::string>& variables = {}) {
    return {"/bin/bash", {"-c", "ulimit -f " + std::to_string(kib) + "; exec " MGPLAN_PROGRAM " " + words}, variables};
}

TEST(Program, EndsWithAWordWhereAFileMayNotGrow) {
    const tests::TemporaryFolder folder;
    const std::string plan = folder.path() + "/plan.json", saved = folder.path() + "/saved";
    ASSERT_EQ(say("--world 1 --model tiny-llama --seq 32 --global-batch 2 --save-plan " + plan).code, kDone);
    ChildProcess run = limited(64, "run " + plan + " --steps 1 --checkpoint " + saved);
    EXPECT_EQ(run.code(), kRunFailed) << "128 + 25 would be SIGXFSZ";
    EXPECT_THAT(run.err(), AllOf(HasSubstr("mgplan: "), HasSubstr(saved + "/step-000000000001/rank-00000.safetensors"),
                                 HasSubstr("File too large; raise the limit of a file's size (ulimit -f)")));
    const std::string table = folder.path() + "/table";
    ChildProcess groups = limited(8, "groups --world 4096 --tp 8 --format json > " + table);
    EXPECT_EQ(groups.code(), kRunFailed);
    EXPECT_THAT(groups.err(), HasSubstr("mgplan: standard output cannot be written"));
    ChildProcess file = limited(8, "groups --world 4096 --tp 8 --format json --output " + table + " > /dev/null");
    EXPECT_EQ(file.code(), kRunFailed);
    EXPECT_THAT(file.err(), HasSubstr("mgplan: --output " + table));
}

TEST(Program, EndsWithAWordWhereMemoryIsShort) {
    // Limits of address space, in KiB. The loader ends with 127 below the libraries' needs, which differ by machine.
    int said = 0;
    for (const int kib : {50'000, 60'000, 80'000}) {
        ChildProcess plan{"/bin/bash",
                          {"-c", "ulimit -c 0; ulimit -v " + std::to_string(kib) +
                                     "; exec " MGPLAN_PROGRAM " plan --world 2048 --model deepseek-v3 > /dev/null"},
                          {}};
        const int code = plan.code();
        EXPECT_THAT(code, ::testing::AnyOf(kRunFailed, 127, 128 + SIGSEGV)) << kib << plan.err();
        if (code != kRunFailed) continue;
        EXPECT_THAT(plan.err(), HasSubstr("mgplan: out of memory on this machine"));
        ++said;
    }
    EXPECT_GT(said, 0);
}

TEST(Program, LetsWhatItStartsHaveTheLimitsSignal) {
    const tests::TemporaryFolder folder;
    std::filesystem::create_directory(folder.path() + "/logs");
    // `mgplan rank` starts a command that is not ours: it ends by the signal, as it would by itself.
    ChildProcess rank = limited(8, "rank --world 1 --ranks-per-node 1 --logs " + folder.path() +
                                       "/logs -- bash -c 'head -c 100000 /dev/zero > " + folder.path() + "/big'");
    EXPECT_EQ(rank.code(), 128 + SIGXFSZ) << rank.err();
}

}  // namespace
}  // namespace mgplan::cli::testing::program_test
