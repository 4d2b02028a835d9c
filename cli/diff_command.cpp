#include <fmt/core.h>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/errors.hpp"
#include "reports/plan_difference.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Each plan is predicted for its own model, batch and cluster; its words name what these have switched on.
reports::ComparedPlan predicted(const Plan& plan, const std::string& name) {
    const Workload work = workload_of(plan);
    return {1, with_all_switches(plan.layout, plan.model, plan.training), simulator::CostModel(work).predict_exactly(plan.layout), name};
}

}  // namespace

int run_diff(const std::vector<std::string>& args, Console& console) {
    Options options("diff A B", "Says what two plans say differently, and what that does to time and memory, term by term.");
    std::vector<std::string> files;
    options.positional("PLAN", files, 2, "two plans written by --save-plan");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;
    if (files.size() != 2)
        throw ConfigError(
            fmt::format("diff compares two plans, and {} given; mgplan --world 16 --model llama3-8b --save-plan FILE writes one",
                        files.empty() ? "none is" : "one is"));
    const Plan a = load_asked_plan(options, files[0], {}, "PLAN 1"), b = load_asked_plan(options, files[1], {}, "PLAN 2");
    for (const auto& [plan, file] : {std::pair{&a, files[0]}, std::pair{&b, files[1]}}) refuse_counted_only(plan->model, file + ": model");
    const reports::PlanDifference difference{reports::differing_fields(a, b), {predicted(a, files[0]), predicted(b, files[1])}};
    switch (options.format()) {
        case Format::json:
            options.write(console, reports::plan_difference_json(difference));
            break;
        case Format::csv:
            options.write(console, reports::plan_difference_csv(difference));
            break;
        case Format::table:
            options.write(console, reports::plan_difference_text(difference));
            break;
    }
    return kDone;
}

}  // namespace mgplan::cli
