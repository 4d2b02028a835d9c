#include "plan/plan.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/cluster_json.hpp"
#include "plan/json/layout_json.hpp"
#include "plan/json/model_json.hpp"
#include "plan/json/training_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

/// Refuses what is no plan, or one of another version, before anything else in it is looked at.
void check_version(const Json& json, const std::string& where) {
    const auto found = json.is_object() ? json.find("mgplan_plan") : json.end();
    if (!json.is_object() || found == json.end())
        throw ConfigError(
            fmt::format("{}: this is no plan: it has no field 'mgplan_plan'; mgplan plan … --save-plan FILE writes one", where));
    if (!found->is_number_integer() || *found != kPlanVersion) {
        const std::string version =
            found->is_structured() ? "of an unknown kind" : found->dump(-1, ' ', true, Json::error_handler_t::replace);
        throw ConfigError(
            fmt::format("{}: plan version {} cannot be read, only version {}; write the plan again with mgplan plan … "
                        "--save-plan FILE",
                        where, version.substr(0, 40), kPlanVersion));
    }
}

/// Reads one part of the plan; its problems join the others.
template <class Part>
void read_part(JsonReader& reader, const char* field, Problems& problems, Part (*read)(const Json&, const std::string&), Part& part) {
    const Json* json = reader.member(field);
    if (json == nullptr) {
        problems.add("{}: field '{}' is missing; mgplan plan … --save-plan FILE writes whole plans", reader.where(), field);
        return;
    }
    try {
        part = read(*json, fmt::format("{}: {}", reader.where(), field));
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
}

/// Sizes that two parts state must agree.
void check_agreement(const Plan& plan, const std::string& where, Problems& problems) {
    const Layout& layout = plan.layout;
    const StageSplitRequest& split = layout.split->request();
    if (split.layers != plan.model.layers)
        problems.add("{}: layout.split.layers = {} contradicts model.layers = {}; write the model's", where, split.layers,
                     plan.model.layers);
    if (split.mtp_layers != plan.model.mtp_layers)
        problems.add("{}: layout.split.mtp_layers = {} contradicts model.mtp_layers = {}; write the model's", where, split.mtp_layers,
                     plan.model.mtp_layers);
    if (layout.sizes.optimizer_instances != plan.training.distributed_optimizer_instances)
        problems.add("{}: layout.optimizer_instances = {} contradicts training.distributed_optimizer_instances = {}; write the same", where,
                     layout.sizes.optimizer_instances, plan.training.distributed_optimizer_instances);
    // Divided step by step: the product of the three could leave 64 bits.
    std::int64_t rest = plan.batch.global_batch;
    bool whole = true;
    for (const std::int64_t factor : {layout.dp(), layout.micro_batch, layout.num_microbatches}) {
        whole = whole && rest % factor == 0;
        rest /= factor;
    }
    if (!whole || rest != 1)
        problems.add("{}: dp = {}, micro_batch = {} and num_microbatches = {} do not multiply to batch.global_batch = {}; change one",
                     where, layout.dp(), layout.micro_batch, layout.num_microbatches, plan.batch.global_batch);
}

}  // namespace

Workload workload_of(const Plan& plan, const ClusterSpec& cluster) {
    Workload work;
    work.model = plan.model;
    work.cluster = cluster;
    work.batch = plan.batch;
    work.training = plan.training;
    work.world = plan.layout.sizes.world;
    work.confine_tp = false;
    work.memory_limit = cluster.memory_bytes;
    work.routing = plan.routing;
    return work;
}

Workload workload_of(const Plan& plan) {
    return workload_of(plan, plan.cluster);
}

bool operator==(const Plan& a, const Plan& b) {
    return a.model == b.model && a.cluster == b.cluster && a.batch == b.batch && a.training == b.training && a.layout == b.layout &&
           a.routing == b.routing && a.batches == b.batches;
}

Json plan_to_json(const Plan& plan) {
    Json json{
        {"mgplan_plan", kPlanVersion},        {"model", model_to_json(plan.model)},          {"cluster", cluster_to_json(plan.cluster)},
        {"batch", batch_to_json(plan.batch)}, {"training", training_to_json(plan.training)}, {"layout", layout_to_json(plan.layout)}};
    if (plan.routing != RoutingSkew{}) json["routing_skew"] = routing_skew_to_json(plan.routing);
    if (plan.batches.stated()) json["batch_schedule"] = batch_schedule_to_json(plan.batches);
    return json;
}

Plan plan_from_json(const Json& json, const std::string& where) {
    check_version(json, where);
    Problems problems;
    JsonReader reader(json, where, problems);
    reader.ignore("mgplan_plan");
    for (const auto* field : {"routing_skew", "batch_schedule"}) reader.ignore(field);  // older plans have none
    Plan plan;
    read_part(reader, "model", problems, model_from_json, plan.model);
    read_part(reader, "cluster", problems, cluster_from_json, plan.cluster);
    read_part(reader, "batch", problems, batch_from_json, plan.batch);
    read_part(reader, "training", problems, training_from_json, plan.training);
    read_part(reader, "layout", problems, layout_from_json, plan.layout);
    if (reader.has("routing_skew")) read_part(reader, "routing_skew", problems, routing_skew_from_json, plan.routing);
    if (reader.has("batch_schedule")) read_part(reader, "batch_schedule", problems, batch_schedule_from_json, plan.batches);
    reader.finish();
    problems.throw_if_any();
    refuse_counted_only(plan.model, where + ": model");
    check_agreement(plan, where, problems);
    problems.throw_if_any();
    validate(plan.routing, plan.model, where + ": routing_skew");
    return plan;
}

}  // namespace mgplan
