// Lines of programs that train with Megatron-LM: NeMo, ms-swift, verl, Megatron-Bridge, and Megatron-LM's timers. Written for this test in
// the formats that megatron_log.hpp names.
#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_log.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::training_log_test {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

std::string line(int iteration, double milliseconds) {
    return fmt::format(" iteration {:8d}/     100 | elapsed time per iteration (ms): {:.1f} | global batch size:   256 |\n", iteration,
                       milliseconds);
}

TEST(TrainingLog, ReadsNemosLinesAndItsProgressBar) {
    const MegatronLog lines = read_megatron_log(
        "Training epoch 0, iteration 0/99 | lr: 3e-06 | global_batch_size: 512 | global_step: 0 | reduced_train_loss: 11 | "
        "train_step_timing in "
        "s: 60.5\n"
        "Training epoch 0, iteration 1/99 | lr: 3e-06 | global_batch_size: 512 | global_step: 1 | train_step_timing in s: 15.9 | "
        "consumed_samples: 1024\n",
        "nemo.log");
    EXPECT_EQ(lines.framework, "NeMo");
    ASSERT_EQ(lines.iterations.size(), 2U);
    EXPECT_EQ(lines.iterations[1].iteration, 2);
    EXPECT_EQ(lines.iterations[1].seconds, 15.9);
    EXPECT_EQ(lines.iterations[1].global_batch, 512);
    // A bar draws a step again and again, after carriage returns.
    const MegatronLog bar = read_megatron_log(
        "Epoch 0: :   1%|  | 1/100 [00:20<30:00, global_step=0.000, train_step_timing in s=20.00]\rEpoch 0: :   1%|  | 1/100 [00:20<30:00, "
        "global_step=0.000, train_step_timing in s=20.00]\rEpoch 0: :   2%|  | 2/100 [00:35<25:21, global_step=1.000, "
        "consumed_samples=512.0, "
        "train_step_timing in s=14.90]\n",
        "nemo1.log");
    ASSERT_EQ(bar.iterations.size(), 2U);
    EXPECT_EQ(bar.iterations[1].seconds, 14.9);
}

TEST(TrainingLog, ReadsTheStepsOfMsSwiftFromItsMeanSpeed) {
    // Steps of 10 s after a start of 20 s; the second job went on at step 50.
    const auto step = [](int at, double elapsed, int since) {
        return fmt::format(
            "{{'loss': 1.6, 'iteration': '{}/100', 'elapsed_time': '{}m {}s', 'memory(GiB)': 60.25, 'train_speed(s/it)': {:.6f}}}\n", at,
            static_cast<int>(elapsed) / 60, static_cast<int>(elapsed) % 60, elapsed / since);
    };
    const MegatronLog log = read_megatron_log(step(1, 30, 1) + step(2, 40, 2) + step(4, 60, 4), "swift.log");
    EXPECT_EQ(log.framework, "ms-swift");
    ASSERT_EQ(log.iterations.size(), 3U);
    EXPECT_NEAR(log.iterations[1].seconds, 10, 1e-3);
    EXPECT_NEAR(log.iterations[2].seconds, 10, 1e-3);
    ASSERT_EQ(log.memory.size(), 3U);
    EXPECT_FALSE(log.memory[0].rank.has_value());
    EXPECT_EQ(log.memory[0].max_reserved, 60 * kGib + kGib / 4);
    EXPECT_EQ(log.memory[0].max_allocated, 0);
    const MegatronLog resumed = read_megatron_log(step(51, 30, 1) + step(52, 40, 2) + step(53, 50, 3), "resumed.log");
    EXPECT_NEAR(resumed.iterations[2].seconds, 10, 1e-3);
    const MegatronLog older = read_megatron_log(
        "{'loss': 1.6, 'memory(GiB)': 2.44, 'train_speed(iter/s)': 0.1, 'global_step/max_steps': '1/9060', 'elapsed_time': '10s'}\n",
        "swift3.log");
    EXPECT_NEAR(older.iterations[0].seconds, 10, 1e-9);
}

TEST(TrainingLog, ReadsTheActorsUpdatesOfVerl) {
    const std::string text =
        "(TaskRunner pid=7) step:1 - training/global_step:1 - perf/max_memory_allocated_gb:np.float64(60.5) - "
        "perf/max_memory_reserved_gb:70.25 - "
        "timing_s/gen:100.0 - timing_s/update_actor:320.5 - timing_s/step:400.0\n"
        "(TaskRunner pid=7) step:2 - actor/perf/max_memory_allocated_gb:61.0 - actor/perf/max_memory_reserved_gb:71.0 - "
        "timing_s/update_actor:300.25 - critic/perf/max_memory_reserved_gb:9.0\n";
    const MegatronLog log = read_megatron_log(text, "verl.log");
    EXPECT_EQ(log.framework, "verl");
    ASSERT_EQ(log.iterations.size(), 2U);
    EXPECT_EQ(log.iterations[0].iteration, 1);
    EXPECT_EQ(log.iterations[0].seconds, 320.5);
    ASSERT_EQ(log.memory.size(), 2U);
    EXPECT_EQ(log.memory[0].max_allocated, 60 * kGib + kGib / 2);
    EXPECT_EQ(log.memory[1].max_reserved, 71 * kGib);
}

TEST(TrainingLog, ReadsMegatronBridgesMemoryInGigabytes) {
    const MegatronLog log = read_megatron_log(
        line(1, 500) +
            "[Rank 8] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 30.5 | mem-active-gigabytes: 31.0 | "
            "mem-reserved-gigabytes: 38.0 | "
            "mem-max-allocated-gigabytes: 36.618 | mem-max-reserved-gigabytes: 38.9 | mem-alloc-retires: 3 | mem-allocated-count: 571\n",
        "bridge.log");
    EXPECT_EQ(log.framework, "Megatron-Bridge");
    ASSERT_EQ(log.memory.size(), 1U);
    EXPECT_EQ(log.memory[0].rank, 8);
    EXPECT_EQ(log.memory[0].max_allocated, 36'618'000'000);
    EXPECT_EQ(log.memory[0].retries, 3);
}

TEST(TrainingLog, AveragesTimersOverLines) {
    const auto timers = [](double least, double most) {
        return fmt::format(
            "(min, max) time across ranks (ms):\n    forward-compute ................................: ({:.2f}, {:.2f})\n"
            "0:     batch-generator ................................: ({:.2f}, {:.2f})\n",
            least, most, least / 10, most / 10);
    };
    const MegatronLog log = read_megatron_log(line(1, 500) + timers(100, 120) + line(2, 500) + timers(200, 240), "timers.log");
    ASSERT_EQ(log.timers.size(), 2U);
    EXPECT_EQ(log.timers[0].name, "forward-compute");
    EXPECT_NEAR(log.timers[0].least, 0.15, 1e-12);
    EXPECT_NEAR(log.timers[0].most, 0.18, 1e-12);
    EXPECT_EQ(log.timers[1].name, "batch-generator");
    EXPECT_NEAR(log.timers[1].most, 0.018, 1e-12);
}

TEST(TrainingLog, TellsDriftAndPauses) {
    std::string text = line(1, 9000);
    for (int i = 2; i < 8; ++i) text += line(i, 2000);
    for (int i = 8; i < 20; ++i) text += line(i, i == 10 ? 7000 : 1000);
    const SteadyIterations steady = steady_iterations(read_megatron_log(text, "drift.log"), 256, "drift.log");
    EXPECT_DOUBLE_EQ(steady.median_seconds, 1);
    EXPECT_DOUBLE_EQ(steady.early_seconds, 2);
    EXPECT_DOUBLE_EQ(steady.late_seconds, 1);
    EXPECT_EQ(steady.pauses, 7);  // of the start, and the step of 7 s
    EXPECT_NEAR(steady.mean_seconds, (6 * 2 + 11 * 1 + 7) / 18.0, 1e-12);
}

TEST(TrainingLog, OtherLinesAreNoSteps) {
    for (const char* text : {"wandb:     train_step_timing in s ▄▂▅█\n", "{'train_speed(iter/s)': 0.0, 'iteration': '1/2'}\n",
                             "timing_s/update_actor:1200.0 - timing_s/step:1600.0\n"})
        EXPECT_THROW(static_cast<void>(read_megatron_log(text, "other.log")), ConfigError) << text;
}

}  // namespace
}  // namespace mgplan::formats::training_log_test
