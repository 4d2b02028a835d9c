#include "reports/layout_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/layout_words.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/plan.hpp"
#include "plan/text/text.hpp"
#include "plan/training/data_sharding.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json layout_fields(const Workload& workload, const Layout& layout) {
    ModelSpec model = workload.model;
    TrainingSpec training = workload.training;
    if (layout.switches) apply_switches(*layout.switches, model, training);
    Json json = layout_to_json(layout);
    json["dispatcher"] = model.moe ? Json(dispatcher_word(model.moe->dispatcher)) : Json();
    json["overlap"] = overlap_words(training);
    json["sharding"] = to_string(data_sharding(training));
    const WeightShards& shards = training.megatron.weight_shards;
    if (layout.engine == Engine::megatron && shards.active())
        json["weight_shards"] = Json{{"dense", shards.dense}, {"experts", shards.experts}};
    json["offload"] = Json::object();
    const bool offloads = layout.engine == Engine::megatron && layout.sizes.pp == 1;  // other layouts are predicted without offloading
    if (offloads && training.megatron.offloaded_layers > 0) json["offload"]["activation_layers"] = training.megatron.offloaded_layers;
    if (training.offload.optimizer > 0) json["offload"]["optimizer"] = training.offload.optimizer;
    if (training.offload.states > 0) json["offload"]["optimizer_states"] = training.offload.states;
    if (!training.offload.modules.empty()) {
        for (const OffloadModule module : kOffloadModules) {
            if (training.offload.modules.contains(module)) json["offload"]["modules"].push_back(to_string(module));
        }
    }
    json["optimizer"] = to_string(training.megatron.optimizer);
    json["optimizer_dtypes"] = Json{{"main_params", to_string(training.main_param_dtype)},
                                    {"exp_avg", to_string(training.exp_avg_dtype)},
                                    {"exp_avg_sq", to_string(training.exp_avg_sq_dtype)},
                                    {"gradients", to_string(kept_gradient_dtype(training))}};
    return json;
}

std::string recompute_cell(const Layout& layout) {
    if (layout.recompute_method == RecomputeMethod::block) return fmt::format("blk{}", layout.recompute_num_layers);
    if (layout.recompute != Recompute::selective) return std::string(to_string(layout.recompute));
    if (layout.recompute_modules == EnumSet<RecomputeModule>{RecomputeModule::core_attn}) return "sel";
    std::vector<std::string_view> names;
    for (const auto& [module, name] : kModulesInShort) {
        if (layout.recompute_modules.contains(module)) names.push_back(name);
    }
    return fmt::format("{}", fmt::join(names, "+"));
}

std::string switches_cell(const Layout& layout, bool graphs) {
    std::vector<std::string> words;
    if (layout.switches) {
        const LayoutSwitches& on = *layout.switches;
        if (on.sharding) words.push_back(sharding_word(*on.sharding));
        if (on.dispatcher) words.emplace_back(dispatcher_word(*on.dispatcher));
        if (on.overlap_tp || on.overlap_moe)
            words.emplace_back(on.overlap_tp && on.overlap_moe ? "ov:tp,moe" : on.overlap_tp ? "ov:tp" : "ov:moe");
        if (on.bf16_gradients || on.bf16_moments)
            words.emplace_back(on.bf16_gradients && on.bf16_moments ? "bf16:g,m" : on.bf16_gradients ? "bf16:g" : "bf16:m");
    }
    // The sets of a search (planner/search_axes.hpp, graph_sets()): of layers; of their routers alone; of the iteration.
    using Scope = CudaGraphScope;
    const EnumSet<Scope> scopes = layout.cuda_graphs;
    if (graphs && !scopes.empty())
        words.emplace_back(scopes.contains(Scope::full_iteration)                                ? "graphs:all"
                           : scopes.contains(Scope::moe_router) && !scopes.contains(Scope::attn) ? "graphs:router"
                                                                                                 : "graphs");
    return words.empty() ? "-" : fmt::format("{}", fmt::join(words, " "));
}

std::string recompute_text(const Layout& layout) {
    std::string kind(to_string(layout.recompute));
    if (layout.recompute == Recompute::selective) return fmt::format("{} ({})", kind, fmt::join(names_in(layout.recompute_modules), "+"));
    if (layout.recompute != Recompute::full || !layout.recompute_method) return kind;
    const std::string layers = counted(layout.recompute_num_layers, "layer");
    if (layout.recompute_method == RecomputeMethod::block) return fmt::format("{} ({} a chunk)", kind, layers);
    return layout.recompute_num_layers == 1 ? kind : fmt::format("{} ({} at a time)", kind, layers);
}

std::string short_layout(const Layout& l) {
    const ParallelSizes& s = l.sizes;
    std::string text = fmt::format("tp{}{}", s.tp, l.sequence_parallel ? "+sp" : "");
    if (s.cp > 1)
        text += fmt::format(" cp{}{}", s.cp, l.cp_comm_type == CpCommType::p2p ? "" : fmt::format(" {}", to_string(l.cp_comm_type)));
    if (s.ep > 1) text += fmt::format(" ep{}", s.ep);
    if (s.ep > 1 || s.etp != s.tp) text += fmt::format(" etp{}", s.etp);
    text += fmt::format(" dp{}", l.dp());
    if (s.pp > 1) text += fmt::format(" pp{}", s.pp);
    if (l.vpp > 1) text += fmt::format(" vpp{}", l.vpp);
    if (l.schedule) text += fmt::format(" {}", schedule_name(l));
    text += fmt::format(" mbs{}", l.micro_batch);
    const std::string repeated = recompute_cell(l);
    if (l.recompute != Recompute::none) text += fmt::format(" {} recompute", repeated == "sel" ? to_string(l.recompute) : repeated);
    if (const std::string on = switches_cell(l, true); on != "-") text += " " + on;
    return text;
}

std::string all_switches_text(const Workload& workload, const Layout& layout) {
    std::string on = switches_cell(with_all_switches(layout, workload.model, workload.training), false);
    if (layout.cuda_graphs.empty()) return on;
    const std::string graphs = fmt::format("graphs={}", fmt::join(names_in(layout.cuda_graphs), "+"));
    return on == "-" ? graphs : on + " " + graphs;
}

std::vector<std::string> other_choices(const Workload& workload, const Layout& layout) {
    TrainingSpec training = workload.training;
    ModelSpec model = workload.model;
    if (layout.switches) apply_switches(*layout.switches, model, training);
    std::vector<std::string> choices, hidden;
    if (layout.engine != Engine::megatron) choices.push_back(fmt::format("engine {}", to_string(layout.engine)));
    if (layout.sizes.cp > 1 && layout.cp_comm_type != CpCommType::p2p)
        choices.push_back(fmt::format("cp by {}", to_string(layout.cp_comm_type)));
    if (layout.vpp > 1 && !layout.schedule && layout.group_size != layout.sizes.pp)
        choices.push_back(fmt::format("groups of {}", counted(layout.group_size, "microbatch", "es")));
    const bool reduces = layout.dp() * layout.sizes.cp > 1;
    if (!training.overlap_grad_reduce && reduces) hidden.emplace_back("grad-reduce");
    if (!training.overlap_param_gather && training.distributed_optimizer && reduces) hidden.emplace_back("param-gather");
    if (!training.overlap_p2p && layout.sizes.pp > 1) hidden.emplace_back("p2p");
    if (!hidden.empty()) choices.push_back(fmt::format("no overlap of {}", fmt::join(hidden, " and ")));
    if (layout.switches && layout.switches->sharding) {  // among the switches
    } else if (const DataSharding sharding = data_sharding(training); sharding == DataSharding::hybrid)
        choices.push_back(fmt::format("sharding {}:{}", to_string(sharding), training.distributed_optimizer_instances));
    else if (sharding != DataSharding::optimizer)
        choices.push_back(fmt::format("sharding {}", to_string(sharding)));
    if (const WeightShards& shards = training.megatron.weight_shards; layout.engine == Engine::megatron && shards.active())
        choices.push_back(fmt::format("weight shards of {} (dense) and {} (experts)", shards.dense, shards.experts));
    if (layout.engine == Engine::megatron && training.fused_cross_entropy)
        choices.push_back(fmt::format("loss fusion {}", training.megatron.te_cross_entropy ? "te" : "native"));
    if (training.megatron.optimizer != OptimizerKind::adam)
        choices.push_back(fmt::format("optimizer {}", to_string(training.megatron.optimizer)));
    if (training.main_param_dtype != Dtype::fp32)
        choices.push_back(fmt::format("main parameters in {}", to_string(training.main_param_dtype)));
    const bool both_bf16 = training.exp_avg_dtype == Dtype::bf16 && training.exp_avg_sq_dtype == Dtype::bf16;
    if (!both_bf16 && (training.exp_avg_dtype != Dtype::fp32 || training.exp_avg_sq_dtype != Dtype::fp32))
        choices.push_back(fmt::format("moments in {} and {}", to_string(training.exp_avg_dtype), to_string(training.exp_avg_sq_dtype)));
    if (training.grad_dtype != Dtype::fp32 && training.grad_dtype != Dtype::bf16)
        choices.push_back(fmt::format("gradients in {}", to_string(training.grad_dtype)));
    if (training.fp8_parameters) choices.push_back(fmt::format("{} parameters", to_string(training.precision)));
    if (training.offload.active()) choices.push_back(fmt::format("offload {}", fmt::join(offload_words(training.offload), ",")));
    if (training.attention != AttentionBackend::flash) choices.push_back(fmt::format("attention {}", to_string(training.attention)));
    if (training.software != kNewestSoftware) choices.push_back(fmt::format("software {}", to_string(training.software)));
    return choices;
}

}  // namespace mgplan::reports
