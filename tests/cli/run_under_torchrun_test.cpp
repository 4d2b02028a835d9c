// Commands in torchrun's environment without MPI: CPU ranks that are several processes are refused, one process is all ranks.
#include <array>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::run_under_torchrun_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The variables of rank 0 of a torchrun, for as long as this lives.
class UnderTorchrun : public ::testing::Test {
protected:
    UnderTorchrun() : plan("torchrun.json") {}
    ~UnderTorchrun() override {
        for (const char* name : kVariables) ::unsetenv(name);
    }
    void make_plan(const std::string& options) {
        const Said said = say("--model tiny-llama --precision fp32 --seq 32 --global-batch 8 " + options + " --save-plan " + plan.path());
        ASSERT_EQ(said.code, kDone) << said.err;
    }
    static void start(const char* world) {
        for (const auto& [name, value] : {std::pair{kVariables[0], "0"}, {kVariables[1], world}, {kVariables[2], "0"}})
            ::setenv(name, value, 1);
    }
    TempFile plan;

private:
    static constexpr std::array kVariables{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
};

TEST_F(UnderTorchrun, RefusesCpuRanksThatNoMpiConnects) {
    make_plan("--world 2 --tp 2 --micro-batch 1");
    start("2");
    const auto message = AllOf(HasSubstr("RANK = 0 and WORLD_SIZE = 2 say that this process is one of several CPU ranks"),
                               HasSubstr("start them with mpirun -n 2 …, or unset both"));
    for (const std::string& words :
         {"run " + plan.path() + " --steps 1", "calibrate --output " + ::testing::TempDir() + "never_written.json --plan " + plan.path()}) {
        const Said said = say(words);
        EXPECT_EQ(said.code, kBadInput) << words;
        EXPECT_THAT(said.err, message) << words;
        EXPECT_EQ(said.out, "") << words;
    }
}

TEST_F(UnderTorchrun, OneProcessIsAllRanks) {
    make_plan("--world 2 --tp 2 --micro-batch 1");
    start("1");
    const Said said = say("run " + plan.path() + " --steps 1 --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto report = nlohmann::json::parse(said.out);
    EXPECT_EQ(report["transport"], "threads of one process");
    EXPECT_EQ(report["as_predicted"], true);
}

}  // namespace
}  // namespace mgplan::cli::testing::run_under_torchrun_test
