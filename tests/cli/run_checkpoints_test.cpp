// Checkpoints of `mgplan run`: what is saved and gone on from, and who may save into a folder.
#include <filesystem>
#include <functional>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/folder_lock.hpp"
#include "tests/cli/planned_file.hpp"
#include "tests/cli/say.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"

namespace mgplan::cli::testing::run_checkpoints_test {
namespace {

using planned_file::PlanFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunCheckpoints, SavesAndGoesOnUnderAnotherLayout) {
    const tests::TemporaryFolder folder;
    const PlanFile four("save4.json", "--world 4 --tp 2 --pp 2 --precision fp32 --global-batch 4"),
        one("save1.json", "--world 1 --precision fp32 --global-batch 4");
    const std::string saved = " --format json --checkpoint " + folder.path();
    const auto run = [&](const std::string& options) {
        const Said said = say("run " + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return std::pair(nlohmann::json::parse(said.out), said.err);
    };
    const auto whole = run(one.path() + " --steps 4 --format json").first;
    const auto begun = run(four.path() + " --steps 3 --checkpoint-every 2 --resume" + saved);
    EXPECT_THAT(begun.second, AllOf(HasSubstr("no complete checkpoint in " + folder.path() + ": begins at the first step"),
                                    HasSubstr("mgplan: step 2 saved: "), HasSubstr("mgplan: step 3 saved: ")));
    EXPECT_TRUE(begun.first["as_predicted"]);
    expect_refused(split("run " + one.path() + saved, ' '), {"holds a checkpoint of step 3 already; add --resume"});
    const auto rest = run(one.path() + " --steps 4 --resume" + saved);
    EXPECT_THAT(rest.second, HasSubstr("mgplan: continues after step 3 of " + folder.path() + "/step-000000000003, saved by tp2"));
    ASSERT_EQ(rest.first["steps"].size(), 1U);
    EXPECT_EQ(rest.first["steps_before"], 3);
    EXPECT_FALSE(rest.first["interrupted"]);
    EXPECT_NEAR(rest.first["steps"][0]["loss"].get<double>() / whole["steps"][3]["loss"].get<double>(), 1, 1e-6);
    // Nothing left to do is done, in every form of the report.
    for (const char* format : {"json", "csv", "table"}) {
        const Said again = say("run " + four.path() + " --steps 4 --resume --checkpoint " + folder.path() + " --format " + format);
        EXPECT_EQ(again.code, kDone) << again.err;
        EXPECT_THAT(again.err, HasSubstr("--steps = 4 are done"));
    }
    expect_refused(split("run " + one.path() + " --steps 5 --resume --seed 7" + saved, ' '),
                   {"is of another training: dropout seed = 1235, here 8 (--seed); other tokens in its first sequences (--data, --seed)"});
}

TEST(RunCheckpoints, LetsOneJobAtATimeSaveIntoAFolder) {
    const tests::TemporaryFolder folder;
    const PlanFile plan("locked.json", "--world 2 --global-batch 2");
    const std::string words = "run " + plan.path() + " --steps 1 --checkpoint " + folder.path();
    {
        const runtime::FolderLock other(folder.path());
        expect_refused(split(words, ' '), {"checkpoint folder " + folder.path() + " is in use by another job (process "});
        EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-000000000001"));
    }
    const Said said = say(words);
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_NO_THROW(runtime::FolderLock(folder.path(), {})) << "a run that is over holds nothing";
}

TEST(RunCheckpoints, EndsWhereAnotherJobHasSavedBehindARemovedLock) {
    const tests::TemporaryFolder folder;
    const PlanFile plan("unlocked.json", "--world 2 --global-batch 2");
    const std::string words = "run " + plan.path() + " --checkpoint " + folder.path();
    ASSERT_EQ(say(words + " --steps 2").code, kDone);
    // A stream that acts between two saves of the run as somebody at another terminal would.
    class Meddler : public std::stringbuf {
    public:
        explicit Meddler(std::function<void()> act) : act_(std::move(act)) {}
        int sync() override {
            if (str().find("step 3 saved") != std::string::npos && act_) std::exchange(act_, nullptr)();
            return 0;
        }

    private:
        std::function<void()> act_;
    };
    const auto run_while = [&](int steps, const std::function<void()>& act) {
        std::ostringstream out;
        Meddler buffer(act);
        std::ostream err(&buffer);
        Console console{out, err};
        const int code = run_mgplan(split(words + " --resume --checkpoint-every 1 --steps " + std::to_string(steps), ' '), console);
        return std::pair(code, buffer.str());
    };
    const auto [done, said] = run_while(4, [&] { std::filesystem::remove(folder.path() + "/lock"); });
    EXPECT_EQ(done, kDone) << said;
    EXPECT_THAT(said, HasSubstr("was removed while this job ran; it is there again"));
    std::filesystem::remove_all(folder.path() + "/step-000000000003");
    std::filesystem::remove_all(folder.path() + "/step-000000000004");
    const auto [failed, reason] = run_while(5, [&] {
        std::filesystem::remove(folder.path() + "/lock");
        std::filesystem::copy(folder.path() + "/step-000000000003", folder.path() + "/step-000000000009");
    });
    EXPECT_EQ(failed, kRunFailed) << reason;
    EXPECT_THAT(reason, HasSubstr("and another job has saved step 9 there since: nothing more is saved"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-000000000004"));
}

TEST(RunCheckpoints, RefusesACheckpointFolderWithLinks) {
    const tests::TemporaryFolder folder, other;
    const PlanFile plan("linked.json", "--world 1 --global-batch 2");
    ASSERT_EQ(say("run " + plan.path() + " --steps 1 --checkpoint " + other.path()).code, kDone);
    std::filesystem::create_directory_symlink(other.path() + "/step-000000000001", folder.path() + "/step-000000000001");
    for (const char* resume : {"", " --resume"}) {
        expect_refused("run " + plan.path() + " --steps 2 --checkpoint " + folder.path() + resume,
                       {folder.path() + "/step-000000000001 is a symbolic link (to " + other.path() + "/step-000000000001)"});
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::run_checkpoints_test
