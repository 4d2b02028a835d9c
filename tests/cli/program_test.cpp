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

/// mgplan with so many KiB of address space.
ChildProcess with_memory(int kib, const std::string& words) {
    return {
        "/bin/bash", {"-c", "ulimit -c 0; ulimit -v " + std::to_string(kib) + "; exec " MGPLAN_PROGRAM " " + words + " > /dev/null"}, {}};
}

TEST(Program, EndsWithAWordWhereMemoryIsShort) {
    // The loader ends with 127 below the libraries' needs, which differ by machine. Their static values are made before the program's
    // handler is there: the default one says "terminate called".
    int said = 0;
    for (const std::string model : {"deepseek-v3", "tiny-llama"}) {
        for (int kib = 44'000; kib <= 80'000; kib += kib < 56'000 ? 1000 : 8000) {
            ChildProcess plan = with_memory(kib, "plan --world 2048 --model " + model);
            const int code = plan.code();
            if (code == 128 + SIGABRT)
                EXPECT_THAT(plan.err(), ::testing::StartsWith("terminate called")) << model << " " << kib;
            else
                EXPECT_THAT(code, ::testing::AnyOf(kRunFailed, 127, 128 + SIGSEGV)) << model << " " << kib << plan.err();
            if (code != kRunFailed) continue;
            EXPECT_THAT(plan.err(), HasSubstr("mgplan: out of memory on this machine"));
            ++said;
        }
    }
    EXPECT_GT(said, 0);
}

TEST(Program, EndsARunWhereMatrixProductsLackMemory) {
    const tests::TemporaryFolder folder;
    const std::string plan = folder.path() + "/plan.json";
    ASSERT_EQ(say("plan --world 2 --model tiny-llama --save-plan " + plan).code, kDone);
    for (const int kib : {200'000, 400'000}) {
        ChildProcess run = with_memory(kib, "run " + plan + " --steps 1");
        EXPECT_EQ(run.code(), kRunFailed) << kib;
        EXPECT_THAT(run.err(), HasSubstr("out of memory")) << kib;
    }
}

TEST(Program, RecordsNothingWithoutItsStandIns) {
    const tests::TemporaryFolder folder;
    ChildProcess record{"/bin/bash",
                        {"-c", "set -o pipefail; (ulimit -f 0; exec " MGPLAN_PROGRAM " record --record " + folder.path() +
                                   "/r.json -- srun a.py) 2>&1 | cat"},
                        {}};
    EXPECT_EQ(record.code(), kRunFailed) << record.out();
    EXPECT_THAT(record.out(), HasSubstr("cannot be written: File too large; set TMPDIR to a folder with room"));
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
