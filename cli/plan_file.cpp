#include "cli/plan_file.hpp"

#include <ostream>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/output_file.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text_file.hpp"
#include "planner/constraints.hpp"

namespace mgplan::cli {
namespace {

/// Throws for a layout that breaks a rule of its model.
Plan unbroken(Plan plan) {
    auto broken = planner::broken_messages(workload_of(plan), plan.layout);
    if (!broken.empty()) throw ConfigError(std::move(broken));
    return plan;
}

}  // namespace

Plan read_plan(const std::string& path, const std::string& option) {
    return plan_from_json(parse_json(read_text_file(path, option), path), path);
}

Plan read_priced_plan(const std::string& path, const std::string& option) {
    Plan plan = read_plan(path, option);
    refuse_counted_only(plan.model, path + ": model");
    return plan;
}

Plan read_asked_plan(const Options& options, const std::string& path, const char* text) {
    if (const GivenText* given = options.contents(text)) return plan_from_json(parse_json(given->text, given->name), given->name);
    return read_plan(path);
}

Plan load_plan(const std::string& path) {
    return unbroken(read_plan(path));
}

Plan load_asked_plan(const Options& options, const std::string& path, std::span<const char* const> held, const char* text) {
    Problems problems;
    for (const char* name : held) {
        if (options.given(name)) problems.add("a PLAN holds what --{} says; drop one of them", name);
    }
    problems.throw_if_any();
    return unbroken(read_asked_plan(options, path, text));
}

Plan plan_of(const Workload& work, const Layout& layout, const BatchSchedule& batches) {
    Plan plan{work.model, work.cluster, work.batch, work.training, layout, work.routing, batches};
    if (layout.switches) apply_switches(*layout.switches, plan.model, plan.training);
    plan.layout.switches = nullptr;
    return plan;
}

void hand_over_plan(const Console& console, const Workload& work, const Layout& layout, const BatchSchedule& batches) {
    if (console.plans) console.plans(plan_of(work, layout, batches));
}

void save_plan(const std::string& path, const Plan& plan) {
    const std::string text = plan_to_json(plan).dump(1) + "\n";
    if (!write_output_file(path, [&](std::ostream& out) { out << text; }))
        throw RunError(fmt::format("--save-plan {}: the file cannot be written any more; is the disk full?", path));
}

}  // namespace mgplan::cli
