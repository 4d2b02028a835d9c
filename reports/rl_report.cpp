#include "reports/rl_report.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/json/enum_words.hpp"
#include "plan/text/text.hpp"
#include "reports/figures.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::RlOffload;
using planner::RlPhase;
using planner::RlPlan;
using planner::RlRole;
using planner::RlRolePlan;

std::string phase_name(const RlPhase& phase) {
    return phase.name + (phase.beside ? " (own GPUs)" : "");
}

std::string phases_text(const RlPlan& plan) {
    Table table({{"phase", Align::left}, {"seconds"}, {"GiB"}});
    for (const RlPhase& phase : plan.phases)
        table.add_row({phase_name(phase), amount(phase.seconds), phase.peak_bytes > 0 ? gib(phase.peak_bytes) : "-"});
    return table.to_text();
}

std::string offloaded_text(const RlRolePlan& role) {
    if (role.host_bytes == 0) return "";
    const std::string_view what = role.offload == RlOffload::optimizer ? "optimizer state"
                                  : role.optimizer_bytes > 0           ? "all state"
                                                                       : "weights";
    return fmt::format(", {} in host memory while it waits ({} of a GPU)", what, human_bytes(role.host_bytes));
}

std::string roles_text(const RlPlan& plan) {
    std::string text;
    for (const RlRolePlan& role : plan.roles) {
        if (!role.layout) continue;
        const std::string on =
            role.shared || role.role == RlRole::actor ? "" : fmt::format("{} on {} of its own, ", role.model, counted(role.gpus, "GPU"));
        text += in_lines(fmt::format("{}: {}{}{}\n", word_of(role.role), on, short_layout(*role.layout), offloaded_text(role)), 2);
    }
    return text;
}

std::string engine_text(const RlPlan& plan) {
    const auto& layout = plan.engine.layout;
    if (plan.engines == 0) return "";
    const std::int64_t each = plan.concurrency / plan.engines;
    return in_lines(
        fmt::format("rollout: {} {} tp {}{}{}, utilization {:.2f}: {} for keys and values on a GPU, {} blocks, {} of {} tokens at once\n",
                    plan.engines / layout.dp, word_of(plan.engine.engine), layout.tp, layout.dp > 1 ? fmt::format(" dp {}", layout.dp) : "",
                    layout.expert_parallel ? fmt::format(" ep {}", layout.gpus()) : "", plan.engine_memory.utilisation,
                    human_bytes(plan.engine_memory.cache), with_thousands(plan.engine_memory.blocks), counted(each, "sequence"),
                    with_thousands(plan.batch.prompt + plan.batch.response)),
        2);
}

std::string split_text(const RlPlan& plan) {
    if (!plan.best_split) return "";
    return in_lines(fmt::format("best split: {} + {} GPUs for trainer and rollout, one step apart: {} per step\n", plan.best_split->trainer,
                                plan.best_split->rollout, human_seconds(plan.best_split->seconds)),
                    2);
}

std::string answer_text(const RlPlan& plan) {
    if (!plan.fits()) return in_lines(fmt::format("Does not fit: {}.\n", fmt::join(plan.why_not, "; ")), 0);
    const std::string how = plan.colocated    ? "rollout and trainer share their GPUs"
                            : plan.overlapped ? "the rollout is one step behind the trainer"
                                              : "rollout and trainer take turns";
    std::string text =
        fmt::format("{} per step, {} tokens/s per GPU; {}.", human_seconds(plan.step_seconds),
                    with_thousands(std::llround(plan.batch.tokens() / plan.step_seconds / static_cast<double>(plan.world))), how);
    if (plan.host_bytes_per_node > 0)
        text += fmt::format(" Host memory of a node: {}{}.", human_bytes(plan.host_bytes_per_node),
                            plan.host_limit_bytes > 0 ? fmt::format(" of {}", human_bytes(plan.host_limit_bytes)) : "");
    return in_lines(text + "\n", 0);
}

Json role_json(const RlReport& report, const RlRolePlan& role) {
    return Json{{"model", role.model},
                {"gpus", role.gpus},
                {"shared", role.shared},
                {"layout", role.layout ? layout_fields(report.workload, *role.layout) : Json()},
                {"weight_bytes", role.weight_bytes},
                {"gradient_bytes", role.gradient_bytes},
                {"optimizer_bytes", role.optimizer_bytes},
                {"residue_bytes", role.residue_bytes},
                {"offload", word_of(role.offload)},
                {"host_bytes", role.host_bytes}};
}

}  // namespace

std::string rl_text(const RlReport& report) {
    const RlPlan& plan = report.plan;
    const planner::RlBatch& batch = plan.batch;
    std::string text = in_lines(
        fmt::format("{} on {} ({}), {} prompts of {} tokens x {} responses of at most {}, {}\n", report.workload.model.name,
                    counted(plan.world, "GPU"), report.workload.cluster.name, with_thousands(batch.prompts), with_thousands(batch.prompt),
                    batch.samples, with_thousands(batch.response), precision_text(report.workload.training)),
        0);
    text += assumed_text(report.assumed) + answer_text(plan);
    if (!plan.phases.empty()) text += "\n" + phases_text(plan) + "\n";
    text += roles_text(plan) + engine_text(plan) + split_text(plan);
    text += in_lines(fmt::format("GiB: of the fullest GPU. {}weight sync: links, or the loading of each tensor.\n",
                                 plan.measured_rate ? "rollout: the measured rate; "
                                                    : "rollout: a roofline without the engine's scheduler and sampler, at "
                                                      "least this long; "),
                     0);
    return text;
}

std::string rl_json(const RlReport& report) {
    const RlPlan& plan = report.plan;
    Json phases = Json::array(), roles = Json::object();
    for (const RlPhase& phase : plan.phases)
        phases.push_back({{"name", phase.name}, {"seconds", phase.seconds}, {"peak_bytes", phase.peak_bytes}, {"own_gpus", phase.beside}});
    for (const RlRolePlan& role : plan.roles) roles[word_of(role.role)] = role_json(report, role);
    const auto& engine = plan.engine;
    if (roles.contains("rollout")) {
        const auto& memory = plan.engine_memory;
        roles["rollout"]["engine"] = Json{{"name", word_of(engine.engine)},
                                          {"tp", engine.layout.tp},
                                          {"dp", engine.layout.dp},
                                          {"ep", engine.layout.expert_parallel ? engine.layout.gpus() : 1},
                                          {"utilization", memory.utilisation},
                                          {"activation_bytes", memory.activations},
                                          {"outside_bytes", memory.outside},
                                          {"graph_bytes", memory.graphs},
                                          {"context_bytes", memory.context},
                                          {"tokens_per_second_per_gpu", plan.generation.decode_tokens_per_second},
                                          {"measured", plan.measured_rate}};
    }
    const Json json{{"model", report.workload.model.name},
                    {"cluster", report.workload.cluster.name},
                    {"world", plan.world},
                    {"colocated", plan.colocated},
                    {"async", plan.overlapped},
                    {"assumed", report.assumed},
                    {"phases", phases},
                    {"roles", roles},
                    {"kv_bytes", plan.engine_memory.cache},
                    {"kv_blocks", plan.engine_memory.blocks},
                    {"concurrency", plan.concurrency},
                    {"host_bytes_per_node", plan.host_bytes_per_node},
                    {"offload_bytes", plan.offload_bytes},
                    {"offload_seconds", plan.offload_seconds},
                    {"weight_sync_seconds", plan.weight_sync_seconds},
                    {"split", plan.best_split ? Json{{"trainer", plan.best_split->trainer},
                                                     {"rollout", plan.best_split->rollout},
                                                     {"step_seconds", plan.best_split->seconds}}
                                              : Json()},
                    {"step_seconds", plan.step_seconds > 0 ? Json(plan.step_seconds) : Json()},
                    {"tokens_per_second_per_gpu",
                     plan.step_seconds > 0 ? Json(plan.batch.tokens() / plan.step_seconds / static_cast<double>(plan.world)) : Json()},
                    {"fits", plan.fits()},
                    {"why_not", plan.why_not}};
    return json.dump(1) + "\n";
}

std::string rl_csv(const RlReport& report) {
    Table table({{"phase"}, {"seconds"}, {"peak_bytes"}, {"own_gpus"}});
    for (const RlPhase& phase : report.plan.phases)
        table.add_row(
            {phase.name, fmt::format("{:.6g}", phase.seconds), std::to_string(phase.peak_bytes), phase.beside ? "true" : "false"});
    return table.to_csv();
}

}  // namespace mgplan::reports
