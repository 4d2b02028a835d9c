#include "reports/memory_timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/text.hpp"
#include "reports/table.hpp"
#include "small_timeline.hpp"

namespace mgplan::reports::memory_timeline_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SmallTimeline;

TEST(MemoryTimelineText, DrawsHeldAndPassingBytesUnderTheLimit) {
    // F0 F1 B0 F2 B1 F3 B2 B3 and the ends: ten steps; the peak is 1,250 bytes and 30 of context.
    const SmallTimeline small;
    const std::string text = memory_timeline_text(small.curve(1400), {.columns = 20, .rows = 7, .unicode = false});
    EXPECT_EQ(text,
              "\n"
              "memory of rank 16 (stage 2) over one iteration: 8 forwards and backwards\n"
              "   limit 1.4 KiB +--------------------\n"
              "                 |  ################\n"
              "                 |::::::::::::::::::::\n"
              "           800 B +::::::::::::::::::::\n"
              "                 |::::::::::::::::::::\n"
              "                 |::::::::::::::::::::\n"
              "                 |::::::::::::::::::::\n"
              "               0 +--------------------\n"
              "                  0                  9\n"
              "                         ^\n"
              "    peak 1.2 KiB  backward of chunk 0, microbatch 0: scratch\n"
              "                  # comes and goes\n"
              "                  : held all the time: parameters, gradients, optimizer, context\n");
}

TEST(MemoryTimelineText, DrawsPartsOfCellsWhereTheTerminalCan) {
    const SmallTimeline small;
    const std::string text = memory_timeline_text(small.curve(1400), {.columns = 20, .rows = 7});
    EXPECT_THAT(text, HasSubstr("limit 1.4 KiB ┤────▁▁▃▃▁▁▃▃▁▁▃▃────\n"
                                "                 │▁▁▅▅████████████▇▇▂▂\n"
                                "                 │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒\n"));
    EXPECT_THAT(text, HasSubstr("▲"));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    for (const auto& line : split(text, '\n')) EXPECT_LE(display_width(line), 100U) << line;
}

TEST(MemoryTimelineText, LeavesALimitOutThatIsFarAbove) {
    const SmallTimeline small;
    const std::string text = memory_timeline_text(small.curve(1 << 20), {});
    EXPECT_THAT(text, HasSubstr("limit 1.0 MiB, far above"));
    EXPECT_THAT(text, Not(HasSubstr("limit 1.0 MiB ┤")));
}

TEST(MemoryTimelineText, RisesAboveTheLimitWhereItDoesNotFit) {
    const SmallTimeline small;
    const auto lines = split(memory_timeline_text(small.curve(1000), {.columns = 20, .rows = 8, .unicode = false}), '\n');
    EXPECT_THAT(lines[2], HasSubstr("#"));
    EXPECT_THAT(lines[3], HasSubstr("|"));
    EXPECT_THAT(lines[3], HasSubstr("#"));
    EXPECT_THAT(lines[3], Not(HasSubstr("limit")));
    EXPECT_THAT(lines[2], Not(HasSubstr("-")));
}

TEST(MemoryTimelineText, NumbersTheCoolDownWhereItsNumberWouldMeetTheLast) {
    const SmallTimeline small(512, 3);
    const auto lines = split(memory_timeline_text(small.curve(1000), {.columns = 72, .rows = 8, .unicode = false}), '\n');
    const auto axis =
        std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.find(" 0 +--") != std::string::npos; });
    ASSERT_NE(axis, lines.end());
    const std::string& numbers = *(axis + 1);
    const CurveSteps drawn = fullest_steps(small.timeline, 72);
    const std::string last = with_thousands(std::ssize(small.timeline.schedule.ops) + 1);
    const std::string cool_down = with_thousands(drawn.steps[drawn.cuts[1]].first);
    EXPECT_THAT(numbers, ::testing::EndsWith(last));
    const std::size_t tick = axis->rfind('+');
    ASSERT_GT(tick + cool_down.size() + last.size(), numbers.size()) << "no room to the right of the tick";
    EXPECT_EQ(numbers.find(cool_down) + cool_down.size() - 1, tick) << *axis << "\n" << numbers;
}

TEST(FullestSteps, AreAllOfThemWhereThereIsRoom) {
    const SmallTimeline small;
    const CurveSteps drawn = fullest_steps(small.timeline, 10);
    EXPECT_TRUE(drawn.every_op);
    EXPECT_TRUE(drawn.cuts.empty());
    ASSERT_EQ(drawn.steps.size(), 10U);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(drawn.steps[i].place, static_cast<std::int64_t>(i));
    EXPECT_EQ(step_text(small.timeline, drawn.steps[0]), "begin of the step");
    EXPECT_EQ(step_text(small.timeline, drawn.steps[1]), "forward of chunk 0, microbatch 0");
    EXPECT_EQ(step_text(small.timeline, drawn.steps[9]), "end of the step");
}

TEST(FullestSteps, GiveTheSlopesOfALongScheduleRoomOfTheirOwn) {
    const SmallTimeline small(5000, 20);
    for (const std::size_t most : {8U, 72U, 1200U}) {
        const CurveSteps drawn = fullest_steps(small.timeline, most);
        EXPECT_FALSE(drawn.every_op);
        EXPECT_LE(drawn.steps.size(), most);
        EXPECT_GE(drawn.steps.size(), most / 2);
        ASSERT_EQ(drawn.cuts.size(), 2U);
        // Warm-up of 20 forwards and as much again in front of the first cut, the same behind the second.
        EXPECT_GT(drawn.steps[drawn.cuts[0]].place, 40);
        EXPECT_LT(drawn.steps[drawn.cuts[0]].place, 42 + 10000 / static_cast<std::int64_t>(most / 4));
        EXPECT_GE(drawn.steps[drawn.cuts[1]].place, 10001 - 42);
        EXPECT_GE(drawn.cuts[0], std::min<std::size_t>(42, most * 3 / 8));
        EXPECT_EQ(drawn.steps[fullest_of(drawn)].op->peak, small.timeline.memory.use.peak);
        for (std::size_t i = 1; i < drawn.steps.size(); ++i) EXPECT_LT(drawn.steps[i - 1].place, drawn.steps[i].place);
    }
}

TEST(StageMemoryText, ShowsEveryCategoryThatIsThereAndTheOpAtThePeak) {
    const SmallTimeline small;
    StageMemory other = small.stage;
    other.exact = false;
    other.peak_op.reset();
    other.stage = 3;
    const std::string text = stage_memory_text({small.stage, other}, 2048);
    EXPECT_THAT(text, HasSubstr("memory of each stage's ranks at the peak (KiB)"));
    EXPECT_THAT(text, HasSubstr("stage  param  optim  activ  work  context  peak"));
    EXPECT_THAT(text, HasSubstr("    2   0.59   0.39   0.20  0.05     0.03  1.25"));
    EXPECT_THAT(text, HasSubstr("    2    16  1.25       1.22      1.22   2.00      1.17  backward of chunk 0,\n"));
    EXPECT_THAT(text, HasSubstr("not known"));
    EXPECT_THAT(text, Not(HasSubstr("Exact")));
    EXPECT_THAT(stage_memory_text({small.stage}, 2048), HasSubstr("Exact"));
}

TEST(StageMemoryText, ShowsWhatRoutingAdds) {
    SmallTimeline small;
    const std::int64_t peak = small.stage.memory.peak_bytes();
    small.stage.memory.routing = simulator::RoutedPeaks{"uniform", peak + 100, peak + 512, peak + 1024};
    const std::string text = stage_memory_text({small.stage}, 2048);
    EXPECT_THAT(text, HasSubstr("stage  rank  peak   p99  framework"));
    EXPECT_THAT(text, HasSubstr("    2    16  1.25  1.75  "));
    EXPECT_THAT(text, HasSubstr("estimate: what the search judges by, at p99 of the routing skew. peak: with even\nrouting."));
    // The quantiles lie as far above an exact peak as they did above the estimate.
    simulator::RankMemory estimate = small.stage.memory;
    estimate.breakdown.activations += 700;
    estimate.shift_routing(700);
    EXPECT_EQ(simulator::exact_memory(estimate, small.timeline.memory).routing, small.stage.memory.routing);
}

TEST(PeakOp, SaysWhatRunsAtThePeakWhereverThatIs) {
    SmallTimeline small;
    EXPECT_EQ(small.stage.peak_op->kind, "backward");
    EXPECT_EQ(small.stage.peak_op->chunk, 0);
    EXPECT_EQ(small.stage.peak_op->microbatch, 0);
    auto& memory = small.timeline.memory;
    memory.peak_op = -1;
    memory.peak_part = simulator::StepPart::end;
    memory.peak_tensor = "fp32 gradients";
    EXPECT_EQ(peak_op_of(small.timeline).kind, "step_end");
    EXPECT_FALSE(peak_op_of(small.timeline).chunk);
    EXPECT_EQ(peak_op_of(small.timeline).text(), "end of the step: fp32 gradients");
    memory.peak_part = simulator::StepPart::begin;
    EXPECT_EQ(peak_op_of(small.timeline).kind, "step_begin");
    memory.peak_part = simulator::StepPart::held;
    EXPECT_EQ(peak_op_of(small.timeline).kind, "held");
    EXPECT_THAT(peak_op_of(small.timeline).text(), HasSubstr("all the time"));
}

}  // namespace
}  // namespace mgplan::reports::memory_timeline_test
