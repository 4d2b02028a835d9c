// The table of plans: what it says of a search beside its rows.

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_up_search.hpp"
#include "plan/layout/layout_switches.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports::testing::plan_report_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

PlanReport report_of_one_plan() {
    PlanReport report = made_up_report();
    report.plans.push_back(made_up_points(1).front().plan);
    report.plans.front().rank = 1;
    report.search.replayed = 4;
    return report;
}

TEST(PlanReport, SaysWhereTheFastestIsNotProven) {
    PlanReport report = report_of_one_plan();
    report.search.fastest_is_proven = false;
    EXPECT_THAT(plan_report_text(report), HasSubstr("\n4 layouts ranked event by event; others might be as fast by their bounds.\n"));
    report.search.fastest_is_proven = true;
    EXPECT_THAT(plan_report_text(report), Not(HasSubstr("event by event")));
}

TEST(PlanReport, CountsWhatFitsWhateverIsShown) {
    PlanReport report = report_of_one_plan();
    report.search.feasible = 3790;
    report.search.too_large_replayed.count = 10;  // looked at, of those that were shown
    EXPECT_THAT(plan_report_text(report), HasSubstr("5,000 legal, 3,800 fit in "));
}

TEST(PlanReport, CountsNothingAsFittingWhereReplaysLeaveNothing) {
    PlanReport report = made_up_report();
    report.search.feasible = 0;
    report.search.too_large_replayed.count = 1;
    EXPECT_THAT(plan_report_text(report), AllOf(HasSubstr("5,000 legal, 0 fit in "), HasSubstr("No layout fits")));
}

PlanReport report_of_two_plans() {
    PlanReport report = report_of_one_plan();
    report.plans.push_back(report.plans.front());
    report.plans.back().rank = 2;
    for (PlannedLayout& plan : report.plans) plan.layout.sizes.tp = plan.layout.sizes.cp = plan.layout.sizes.pp = 16;
    return report;
}

void switch_on(PlannedLayout& plan, const LayoutSwitches& switches) {
    plan.layout.switches = std::make_shared<const LayoutSwitches>(switches);
}

TEST(PlanReport, SaysAboveTheTableWhatAllRowsShare) {
    PlanReport report = report_of_two_plans();
    const auto text = [&] { return plan_report_text(report); };
    EXPECT_THAT(text(), AllOf(HasSubstr("all rows: dp 1, overhead idle 12%\n"), HasSubstr("  tok/s  TFLOP/s  "), Not(HasSubstr("  dp  "))));
    report.plans.back().layout.sizes.world *= 2;
    EXPECT_THAT(text(), AllOf(HasSubstr("all rows: overhead idle 12%\n"), HasSubstr("  dp  ")));
    LayoutSwitches switches;
    switches.overlap_tp = true;
    switch_on(report.plans.front(), switches);
    switches.bf16_gradients = true;
    switch_on(report.plans.back(), switches);
    EXPECT_THAT(text(),
                AllOf(HasSubstr("all rows: features ov:tp, overhead idle 12%\n"), HasSubstr("  features  "), HasSubstr("  bf16:g  ")));
    report.detail = Detail::wide;
    EXPECT_THAT(text(), AllOf(HasSubstr("  ov:tp bf16:g  "), HasSubstr("  overhead  "), HasSubstr("  MFU  "), Not(HasSubstr("all rows"))));
}

TEST(PlanReport, KeepsTokensPerSecondWhereTheTerminalIsNarrow) {
    PlanReport report = report_of_two_plans();
    PlannedLayout& plan = report.plans.back();
    plan.layout.sizes.world *= 2;
    plan.prediction.time.bubble_seconds *= 2;
    LayoutSwitches switches;
    switches.overlap_tp = switches.bf16_gradients = switches.overlap_moe = true;
    switch_on(plan, switches);
    const auto header = [&] {
        const std::string text = plan_report_text(report);
        const auto begin = text.find("\n#") + 1;
        return text.substr(begin, text.find('\n', begin) - begin);
    };
    plan.why = {planner::PlanReason::simplest};
    EXPECT_THAT(header(),
                AllOf(Not(HasSubstr("overhead")), Not(HasSubstr(" dp ")), HasSubstr(" tok/s "), HasSubstr(" TFLOP/s "), HasSubstr(" why")));
    plan.why = {planner::PlanReason::like_nvidia_recipe};
    EXPECT_THAT(header(), AllOf(HasSubstr(" tok/s "), Not(HasSubstr("TFLOP/s"))));
}

TEST(PlanReport, MarksAPlanBeyondTheList) {
    PlanReport report = report_of_two_plans();
    report.plans.back().rank = 0;
    report.plans.back().why = {planner::PlanReason::like_nvidia_recipe};
    report.recipe = "made_up_pretrain_4096gpu";
    EXPECT_THAT(plan_report_text(report), AllOf(ContainsRegex("\n- 16.sp .* like-nvidia-recipe\n"),
                                                HasSubstr("\nrecipe: mgplan check --recipe made_up_pretrain_4096gpu\n")));
}

TEST(PlanReport, NamesDispatchersThatARowStandsFor) {
    PlanReport report = report_of_one_plan();
    report.workload.model.moe.emplace();
    LayoutSwitches switches;
    switches.dispatcher = TokenDispatcher::deep_ep;
    PlannedLayout& plan = report.plans.front();
    plan.layout.switches = std::make_shared<const LayoutSwitches>(switches);
    report.search.best = {{plan.layout, 1, 1}, {plan.layout, 1, 1}, {plan.layout, 1, 1}};
    plan.others = {2, 3};
    EXPECT_THAT(plan_report_text(report), Not(HasSubstr("not listed")));
    switches.dispatcher = TokenDispatcher::hybrid_ep;
    report.search.best[2].layout.switches = std::make_shared<const LayoutSwitches>(switches);
    EXPECT_THAT(plan_report_text(report), HasSubstr("hybridep: as fast, not listed;"));
    // A row of its own beside it: the note is the first's.
    PlannedLayout listed = plan;
    listed.layout.switches = report.search.best[2].layout.switches;
    listed.rank = 4;
    listed.others = {};
    report.plans.push_back(listed);
    EXPECT_THAT(plan_report_text(report), AllOf(HasSubstr("hybridep: as fast in row 1, not listed;"), Not(HasSubstr("as fast, not"))));
    PlannedLayout third = report.plans.front();
    third.rank = 5;
    report.plans.push_back(third);
    EXPECT_THAT(plan_report_text(report), HasSubstr("hybridep: as fast in rows 1, 5, not listed;"));
    for (third.rank = 6; third.rank < 11; ++third.rank) report.plans.push_back(third);
    EXPECT_THAT(plan_report_text(report), HasSubstr("hybridep: as fast in 7 rows, not listed;"));
}

TEST(PlanReport, SaysWhatToDoWithAPlanThatIsSaved) {
    PlanReport report = report_of_one_plan();
    EXPECT_THAT(plan_report_text(report), HasSubstr("--save-plan FILE (keep it)"));
    report.saved_as = "my plan.json";
    EXPECT_THAT(plan_report_text(report),
                AllOf(HasSubstr("mgplan export 'my plan.json' --to megatron-args"), Not(HasSubstr("--save-plan"))));
}

}  // namespace
}  // namespace mgplan::reports::testing::plan_report_test
