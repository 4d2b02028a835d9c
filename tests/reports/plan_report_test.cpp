// The table of plans: what it says of a search beside its rows.

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_up_search.hpp"
#include "plan/layout/layout_switches.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports::testing::plan_report_test {
namespace {

using ::testing::AllOf;
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

TEST(PlanReport, KeepsTokensPerSecondWhereTheTerminalIsNarrow) {
    PlanReport report = report_of_one_plan();
    PlannedLayout& plan = report.plans.front();
    plan.layout.sizes.tp = plan.layout.sizes.cp = plan.layout.sizes.pp = 16;
    EXPECT_THAT(plan_report_text(report), AllOf(HasSubstr("  dp  "), HasSubstr("  tok/s  "), HasSubstr("  loss\n")));
    LayoutSwitches switches;
    switches.overlap_tp = true;
    plan.layout.switches = std::make_shared<const LayoutSwitches>(switches);
    EXPECT_THAT(plan_report_text(report), AllOf(Not(HasSubstr("  dp  ")), HasSubstr("  tok/s  "), HasSubstr("  loss\n")));
    switches.bf16_gradients = true;
    plan.layout.switches = std::make_shared<const LayoutSwitches>(switches);
    EXPECT_THAT(plan_report_text(report), AllOf(HasSubstr("  dp  "), HasSubstr("  tok/s  "), Not(HasSubstr("loss"))));
    switches.bf16_gradients = false;
    switches.overlap_moe = true;
    switches.dispatcher = TokenDispatcher::hybrid_ep;
    plan.layout.switches = std::make_shared<const LayoutSwitches>(switches);
    EXPECT_THAT(plan_report_text(report), AllOf(Not(HasSubstr("  dp  ")), HasSubstr("  tok/s  "), Not(HasSubstr("loss"))));
    report.detail = Detail::wide;
    EXPECT_THAT(plan_report_text(report), AllOf(HasSubstr("  dp  "), HasSubstr("  tok/s  "), HasSubstr("  loss  ")));
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
