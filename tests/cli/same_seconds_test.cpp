// plan, simulate, check and verify say the same seconds of the same job, and a refit's are those of its cluster file.
#include <fstream>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::same_seconds_test {
namespace {

using Json = nlohmann::ordered_json;

Json answer(const std::string& words) {
    const Said said = say(words + " --format json");
    EXPECT_FALSE(said.out.empty()) << words << "\n" << said.err;
    return said.out.empty() ? Json() : Json::parse(said.out);
}

/// Steady iterations of a job, as Megatron-LM prints them.
std::string log_of(std::int64_t global_batch, double seconds) {
    std::string text;
    for (int iteration = 1; iteration < 6; ++iteration)
        text += fmt::format(
            " [2026-01-02 03:04:05] iteration {:8d}/{:8d} | elapsed time per iteration (ms): {:.6f} | global batch size: {:5d} | lm loss: "
            "1.034512E+01 |\n",
            iteration, 100, seconds * 1000, global_batch);
    return text;
}

/// One job, whose only layout is given.
struct Job {
    std::string name, cluster, model;
    std::int64_t world = 0, batch = 0;
    std::string layout;
};

/// Pipelines with one chunk a rank and with several, even and uneven, in which the closed form and the events differ; and one without.
const std::vector<Job> kJobs{
    {"NoPipeline", "dgx-h100", "llama3-8b", 16, 64, "--tp 4 --pp 1 --vpp 1 --micro-batch 1 --cp 1 --recompute none"},
    {"OneChunk", "dgx-h100", "llama3-70b", 64, 128, "--tp 8 --pp 4 --vpp 1 --micro-batch 1 --cp 1 --recompute none"},
    {"Interleaved", "dgx-h100", "llama3-70b", 64, 128, "--tp 8 --pp 4 --vpp 4 --micro-batch 1 --cp 1 --recompute none"},
    {"Mixture", "gb200-nvl72", "qwen3-30b-a3b", 32, 64, "--tp 1 --pp 4 --vpp 3 --ep 8 --etp 1 --micro-batch 1 --cp 1 --recompute full"}};

class SameSeconds : public ::testing::TestWithParam<Job> {};

TEST_P(SameSeconds, OfPlanSimulateCheckAndVerify) {
    const Job& job = GetParam();
    const TempFile plan(job.name + "_plan.json"), flags(job.name + ".args"), log(job.name + ".log", log_of(job.batch, 10));
    const std::string on = fmt::format(" --world {} --cluster {}", job.world, job.cluster);
    const Json planned =
        answer(fmt::format("plan --search plain --headroom 0 --model {} --global-batch {} --sequence-parallel auto {}{} --save-plan {}",
                           job.model, job.batch, job.layout, on, plan.path()));
    ASSERT_FALSE(planned["plans"].empty());
    const double seconds = planned["plans"][0]["predicted"]["iteration_seconds"];
    EXPECT_EQ(answer("simulate " + plan.path())["predicted"]["iteration_seconds"], seconds);
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + flags.path()).code, kDone);
    const std::string command = " --megatron-args " + flags.path() + on;
    EXPECT_EQ(answer("simulate" + command)["predicted"]["iteration_seconds"], seconds);
    EXPECT_EQ(answer("check --top 0" + command)["predicted"]["iteration_seconds"], seconds);
    const Json verified = answer("verify --megatron-log " + log.path() + command);
    EXPECT_EQ(verified["time"]["predicted_seconds"], seconds);
    double parts = 0;
    for (const auto& part : verified["time"]["parts"]) {
        EXPECT_GE(part["predicted_seconds"].get<double>(), -1e-9 * seconds) << part;
        parts += part["predicted_seconds"].get<double>();
    }
    EXPECT_NEAR(parts, seconds, 1e-9 * seconds);
}

TEST_P(SameSeconds, OfARefitAndOfItsClusterFile) {
    const Job& job = GetParam();
    const TempFile plan(job.name + "_refitted.json"), flags(job.name + "_refit.args"), log(job.name + "_refit.log"),
        refit(job.name + "_refit.json");
    const std::string world = fmt::format(" --world {}", job.world);
    const std::string planned = fmt::format("plan --headroom 0 --model {} --global-batch {} --sequence-parallel auto {}{} --save-plan {}",
                                            job.model, job.batch, job.layout, world, plan.path());
    const double before = answer(planned + " --cluster " + job.cluster)["plans"][0]["predicted"]["iteration_seconds"];
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + flags.path()).code, kDone);
    const double measured = 1.1 * before;
    std::ofstream(log.path()) << log_of(job.batch, measured);
    const std::string command = " --megatron-args " + flags.path() + world;
    const Json fitted = answer("verify --megatron-log " + log.path() + command + " --cluster " + job.cluster + " --refit " + refit.path());
    const Json& found = fitted["refit"];
    EXPECT_EQ(found["at_bound"], false);
    EXPECT_EQ(found["predicted_seconds_before"], before);
    const double after = found["predicted_seconds_after"];
    EXPECT_NEAR(after, measured, 1e-5 * measured) << "the factor is right by the time that is said";
    for (const std::string& words : {"simulate" + command, "check --top 0" + command})
        EXPECT_EQ(answer(words + " --cluster " + refit.path())["predicted"]["iteration_seconds"], after) << words;
    EXPECT_EQ(answer("simulate " + plan.path() + " --cluster " + refit.path())["predicted"]["iteration_seconds"], after);
}

INSTANTIATE_TEST_SUITE_P(Jobs, SameSeconds, ::testing::ValuesIn(kJobs), [](const auto& job) { return job.param.name; });

TEST(SameSeconds, OfAPlanThatRuns) {
    const TempFile plan("runs.json");
    for (const std::string layout : {"--pp 2 --tp 1", "--pp 2 --vpp 2 --tp 1", "--pp 1 --tp 2", "--pp 2 --tp 1 --schedule zb-h1"}) {
        const Json planned = answer("plan --engine mgplan --world 2 --model tiny-llama --seq 32 --global-batch 8 --micro-batch 1 " +
                                    layout + " --save-plan " + plan.path());
        const double seconds = planned["plans"][0]["predicted"]["iteration_seconds"];
        EXPECT_EQ(answer("simulate " + plan.path())["predicted"]["iteration_seconds"], seconds) << layout;
        EXPECT_EQ(answer("verify " + plan.path() + " --steps 2")["time"]["predicted_seconds"], seconds) << layout;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::same_seconds_test
