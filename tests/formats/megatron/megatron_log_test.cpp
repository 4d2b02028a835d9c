// Logs of Megatron-LM: what is read, and what is said of broken ones. Lines are in the format of training.py's training_log()
// and utils.py's report_memory(), written for this test.
#include "formats/megatron/megatron_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::formats::megatron_log_test {
namespace {

using ::testing::HasSubstr;

std::string line(int iteration, double milliseconds, int batch = 256, int skipped = 0) {
    return fmt::format(
        " [2026-01-02 03:04:05] iteration {:8d}/{:8d} | consumed samples: {:12d} | elapsed time per iteration (ms): {:.1f} | throughput "
        "per "
        "GPU (TFLOP/s/GPU): {:.1f} | learning rate: 1.000000E-04 | global batch size: {:5d} | lm loss: 1.034512E+01 | loss scale: 1.0 | "
        "grad norm: 2.345 | number of skipped iterations: {:3d} | number of nan iterations:   0 |\n",
        iteration, 100, iteration * batch, milliseconds, 400.0, batch, skipped);
}

std::string problem_of(const std::string& text) {
    try {
        static_cast<void>(read_megatron_log(text, "job.log"));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(MegatronLog, ReadsTimesThroughputAndMemoryBetweenOtherLines) {
    const std::string text =
        "using world size: 16, data-parallel size: 8\n" + line(1, 9000.5) +
        "[Rank 8] (after 1 iterations) memory (MB) | allocated: 1024.50 | max allocated: 2048.00 | reserved: 3072.00 | max reserved: "
        "4096.00\n"
        "12: [Rank 0] (after 1 iterations) memory (MB) | allocated: 1000.0 | max allocated: 2000.0 | reserved: 3000.0\r\n" +
        line(2, 1500) + "(min, max) time across ranks (ms):\n" + line(3, 1600.25);
    const MegatronLog log = read_megatron_log(text, "job.log");
    ASSERT_EQ(log.iterations.size(), 3U);
    EXPECT_EQ(log.iterations[2].iteration, 3);
    EXPECT_NEAR(log.iterations[2].seconds, 1.6002, 1e-3);
    EXPECT_EQ(log.iterations[2].tflops_per_gpu, 400.0);
    EXPECT_EQ(log.iterations[2].global_batch, 256);
    ASSERT_EQ(log.memory.size(), 2U);
    EXPECT_EQ(log.memory[0].rank, 8);
    EXPECT_EQ(log.memory[0].after_iterations, 1);
    EXPECT_EQ(log.memory[0].allocated, 1074266112);
    EXPECT_EQ(log.memory[0].max_allocated, std::int64_t{2} << 30);
    EXPECT_EQ(log.memory[0].max_reserved, std::int64_t{4} << 30);
    EXPECT_EQ(log.memory[1].rank, 0);
    EXPECT_EQ(log.memory[1].max_reserved, 3000 * (std::int64_t{1} << 20));
}

TEST(MegatronLog, TakesTheMedianWithoutStartsSkippedUpdatesAndOtherBatches) {
    // 9000: a start; 1: another batch; 7000: a skipped update; 8000: started again.
    const std::string text =
        line(1, 9000) + line(2, 1400) + line(3, 1, 128) + line(4, 1500) + line(5, 7000, 256, 1) + line(2, 8000) + line(3, 1700);
    const SteadyIterations steady = steady_iterations(read_megatron_log(text, "job.log"), 256, "job.log");
    EXPECT_EQ(steady.lines, 3);
    EXPECT_DOUBLE_EQ(steady.median_seconds, 1.5);
    EXPECT_DOUBLE_EQ(steady.lower_quartile, 1.45);
    EXPECT_DOUBLE_EQ(steady.upper_quartile, 1.6);
    EXPECT_EQ(steady.median_tflops_per_gpu, 400.0);
}

TEST(MegatronLog, ReadsOldLinesWithoutThroughputAndBatch) {
    const std::string text =
        " iteration        1/     100 | elapsed time per iteration (ms): 10.0 | lm loss: 1E+01 |\n"
        " iteration        2/     100 | elapsed time per iteration (ms): 20.0 | lm loss: 1E+01 |";
    const SteadyIterations steady = steady_iterations(read_megatron_log(text, "old.log"), 4, "old.log");
    EXPECT_EQ(steady.lines, 1);
    EXPECT_DOUBLE_EQ(steady.median_seconds, 0.02);
    EXPECT_FALSE(steady.median_tflops_per_gpu.has_value());
}

TEST(MegatronLog, SaysWhichLineIsBroken) {
    EXPECT_THAT(problem_of(""), HasSubstr("job.log: no line has 'elapsed time per iteration (ms):'"));
    EXPECT_THAT(problem_of(std::string("\0\xff\n", 3)), HasSubstr("no line has"));
    const std::string iteration = " iteration 1/ 2 | elapsed time per iteration (ms): ";
    for (const char* wrong : {"nan", "inf", "-1.0", "0", "", "12x", "1e300"}) {
        EXPECT_THAT(problem_of("first\n" + iteration + wrong + " |\n"), HasSubstr("job.log:2: elapsed time per iteration (ms): '"))
            << wrong;
    }
    EXPECT_THAT(problem_of("| elapsed time per iteration (ms): 5.0 |"), HasSubstr("no 'iteration N/ALL |'"));
    EXPECT_THAT(problem_of(" iteration x/5 | elapsed time per iteration (ms): 5.0 |"), HasSubstr("no 'iteration N/ALL |'"));
    EXPECT_THAT(problem_of(" iteration 1/ 5 elapsed time per iteration (ms): 5.0"), HasSubstr("has no | before it"));
    EXPECT_THAT(problem_of(line(1, 5) + "[Rank 0] (after 1 iterations) memory (MB) | allocated: 5\n"),
                HasSubstr("job.log:2: a report of memory without 'max allocated:'"));
    EXPECT_THAT(problem_of("[Rank ?] memory (MB) | allocated: 5\n"), HasSubstr("names no rank"));
    // A thousand broken lines say it three times.
    std::string many;
    for (int i = 0; i < 1000; ++i) many += iteration + "? |\n";
    EXPECT_LT(problem_of(many).size(), 600U);
}

TEST(MegatronLog, SaysWhyNothingIsLeftToCompare) {
    const MegatronLog log = read_megatron_log(line(1, 9000) + line(2, 1400, 64), "job.log");
    try {
        static_cast<void>(steady_iterations(log, 256, "job.log"));
        FAIL() << "nothing is left";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("of 2 lines with times none is left to compare: 1 begin a job"));
        EXPECT_THAT(error.what(), HasSubstr("1 another global batch size than 256"));
    }
}

}  // namespace
}  // namespace mgplan::formats::megatron_log_test
