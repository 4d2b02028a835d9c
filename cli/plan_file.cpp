#include "cli/plan_file.hpp"

#include <ostream>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/output_file.hpp"
#include "importers/model_source.hpp"
#include "plan/errors.hpp"
#include "plan/json_reader.hpp"
#include "planner/constraints.hpp"

namespace mgplan::cli {

Plan read_plan(const std::string& path, const std::string& option) {
    return plan_from_json(parse_json(importers::read_text_file(path, option), path), path);
}

Plan load_plan(const std::string& path) {
    Plan plan = read_plan(path);
    Workload work;
    work.model = plan.model;
    work.cluster = plan.cluster;
    work.batch = plan.batch;
    work.training = plan.training;
    work.world = plan.layout.sizes.world;
    work.confine_tp = false;
    work.memory_limit = plan.cluster.memory_bytes;
    work.routing = plan.routing;
    auto broken = planner::broken_messages(work, plan.layout);
    if (!broken.empty()) throw ConfigError(std::move(broken));
    return plan;
}

Plan plan_of(const Workload& work, const Layout& layout) {
    return {work.model, work.cluster, work.batch, work.training, layout, work.routing};
}

void save_plan(const std::string& path, const Plan& plan) {
    const std::string text = plan_to_json(plan).dump(1) + "\n";
    if (!write_output_file(path, [&](std::ostream& out) { out << text; }))
        throw RunError(fmt::format("--save-plan {}: the file cannot be written any more; is the disk full?", path));
}

}  // namespace mgplan::cli
