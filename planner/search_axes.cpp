#include "planner/search_axes.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "plan/cluster/nvlink_domains.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/text.hpp"
#include "plan/training/data_sharding.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {
namespace {

/// By enumerator.
constexpr std::array<std::string_view, 10> kAxisWords{"stages", "sharding",   "vpp",         "dispatcher", "recompute",
                                                      "block",  "tp-overlap", "moe-overlap", "optimizer",  "cuda-graphs"};
static_assert(static_cast<std::size_t>(SearchAxis::cuda_graphs) + 1 == kAxisWords.size());

std::vector<SearchAxis> all_axes() {
    std::vector<SearchAxis> axes;
    for (std::size_t i = 0; i < kAxisWords.size(); ++i) axes.push_back(static_cast<SearchAxis>(i));
    return axes;
}

using Modules = EnumSet<RecomputeModule>;

/// Adds a copy of each set of switches with the given choice.
template <class Choose>
void multiply(std::vector<LayoutSwitches>& all, Choose choose) {
    const std::size_t before = all.size();
    for (std::size_t i = 0; i < before; ++i) {
        LayoutSwitches switches = all[i];
        choose(switches);
        all.push_back(switches);
    }
}

std::vector<LayoutSwitches> switches_of(const SearchAxes& axes, const Workload& workload) {
    std::vector<LayoutSwitches> all{{}};
    const TrainingSpec& training = workload.training;
    if (workload.model.moe && axes.contains(SearchAxis::dispatcher)) {
        for (const auto other : {TokenDispatcher::all_to_all, TokenDispatcher::deep_ep, TokenDispatcher::hybrid_ep}) {
            if (other == workload.model.moe->dispatcher) continue;
            all.emplace_back().dispatcher = other;
        }
    }
    if (workload.model.moe && axes.contains(SearchAxis::moe_overlap) && !training.overlap_moe && !layers_by_pattern(workload.model))
        multiply(all, [](LayoutSwitches& switches) { switches.overlap_moe = true; });
    if (axes.contains(SearchAxis::tp_overlap) && !training.overlap_tp)
        multiply(all, [](LayoutSwitches& switches) { switches.overlap_tp = true; });
    if (axes.contains(SearchAxis::optimizer)) {
        const bool wide_moments = training.exp_avg_dtype == Dtype::fp32 && training.exp_avg_sq_dtype == Dtype::fp32;
        std::vector<LayoutSwitches> narrower;
        for (const LayoutSwitches& one : all) {
            LayoutSwitches switches = one;
            if (kept_gradient_dtype(training) == Dtype::fp32 && training.compute_dtype() == Dtype::bf16) {
                switches.bf16_gradients = true;
                narrower.push_back(switches);
            }
            if (!wide_moments || training.compute_dtype() != Dtype::bf16) continue;
            switches.bf16_moments = true;
            narrower.push_back(switches);
        }
        all.insert(all.end(), narrower.begin(), narrower.end());
    }
    return all;
}

/// Seconds of the parts of a model on one rank that holds all of it. Shares of ranks differ little from them.
StageLoads stage_loads(const Workload& workload, Engine engine) {
    const ModelSpec& model = workload.model;
    Layout whole;
    whole.sizes.world = workload.world;
    whole.engine = engine;
    whole.split = std::make_shared<const StageSplit>(*automatic_stage_split(model.layers, model.mtp_layers, 1, 1));
    simulator::CostModel costs(workload);
    const auto seconds = [&](StageChunk chunk) {
        chunk.embedding = chunk.loss = true;  // a chunk without them waits for a transfer
        return costs.chunk_seconds(whole, chunk);
    };
    StageLoads loads;
    loads.loss = seconds({});
    if (model.mtp_layers > 0) loads.mtp = seconds({.mtp = model.mtp_layers}) - loads.loss;
    const LayerKinds kinds = layer_kinds(model, workload.training.megatron);
    std::map<std::uint16_t, double> by_kind;
    for (std::size_t layer = 0; layer < kinds.of_layer.size(); ++layer) {
        const auto [known, fresh] = by_kind.try_emplace(kinds.of_layer[layer], 0.0);
        if (fresh) known->second = seconds({.decoders = 1, .first_decoder = static_cast<std::int64_t>(layer)}) - loads.loss;
        loads.layers.push_back(known->second);
    }
    return loads;
}

/// Sets the space's switches without repetitions; null for the empty set.
void set_switches(SearchSpace& space, const std::vector<LayoutSwitches>& all) {
    space.switches.clear();
    std::vector<LayoutSwitches> seen;
    for (const LayoutSwitches& switches : all) {
        if (std::find(seen.begin(), seen.end(), switches) != seen.end()) continue;
        seen.push_back(switches);
        const bool none = switches == LayoutSwitches{};
        space.switches.push_back(none ? nullptr : std::make_shared<const LayoutSwitches>(switches));
    }
}

}  // namespace

std::string_view to_string(SearchAxis axis) {
    return kAxisWords[static_cast<std::size_t>(axis)];
}

bool SearchAxes::contains(SearchAxis axis) const {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

void SearchAxes::pin(SearchAxis axis) {
    std::erase(axes, axis);
}

SearchAxes usual_axes() {
    SearchAxes axes{all_axes(), false};
    axes.pin(SearchAxis::optimizer);
    return axes;
}

SearchAxes read_search_axes(std::string_view text, Problems& problems) {
    if (text == "plain") return {};
    if (text == "wide") return {all_axes(), false};
    if (text == "recipe") return {{SearchAxis::dispatcher, SearchAxis::recompute, SearchAxis::tp_overlap, SearchAxis::moe_overlap}, true};
    SearchAxes asked;
    asked.all_graph_sets = true;
    const std::vector<std::string> words = split(std::string(text), ',');
    std::vector<std::string> known{"plain", "recipe", "wide"};
    for (const auto word : kAxisWords) known.emplace_back(word);
    if (words.empty()) problems.add("--search is empty; use {}", any_of_text(known));
    for (const std::string& word : words) {
        const auto found = std::find(kAxisWords.begin(), kAxisWords.end(), word);
        if (found == kAxisWords.end()) {
            const bool alone = word == "plain" || word == "wide" || word == "recipe";
            problems.add("--search = '{}' {}; use {}", word.substr(0, 60),
                         alone ? "is a whole set of axes and cannot be combined with others" : "is no axis of the search",
                         any_of_text(known));
            break;
        }
        const auto axis = static_cast<SearchAxis>(found - kAxisWords.begin());
        if (!asked.contains(axis)) asked.axes.push_back(axis);
    }
    return asked;
}

std::vector<DataShardingChoice> more_shardings(const Workload& workload) {
    const TrainingSpec& training = workload.training;
    const OptimizerKind optimizer = training.megatron.optimizer;
    const bool divides = (optimizer == OptimizerKind::adam || optimizer == OptimizerKind::sgd) && !training.offload.active() &&
                         !training.megatron.weight_shards.active() && training.overlap_grad_reduce && training.overlap_param_gather;
    if (workload.world == 1 || !divides || data_sharding_choice(training) != DataShardingChoice{}) return {};
    std::vector<DataShardingChoice> found{{DataSharding::full, 1}};
    const std::int64_t domains = workload.world / used_gpus_of_domain(workload.cluster, workload.world);
    if (domains > 1 && domains <= kMostReplicas) found.push_back({DataSharding::hybrid, static_cast<int>(domains)});
    return found;
}

std::vector<Modules> useful_module_sets(const Workload& workload, bool few) {
    using Module = RecomputeModule;
    const ModelSpec& model = workload.model;
    const TrainingSpec& training = workload.training;
    const bool delayed = training.precision == Precision::fp8 && training.megatron.fp8_recipe == Fp8Recipe::delayed;
    // Published recipes of models with these layers take precedence.
    if (const auto published = published_recompute_sets(model); !published.empty()) {
        std::vector<Modules> sets;
        for (const Modules& modules : published) {
            if (!delayed || !modules.contains(Module::moe_act)) sets.push_back(modules);
        }
        return sets;
    }
    const bool act = model.moe && model.moe->grouped_gemm && !delayed, norm = !delayed;
    const bool up = model.mla.has_value(), mlp = has_dense_mlp(model), moe = model.moe.has_value();
    const bool core = training.attention == AttentionBackend::unfused;

    std::vector<Modules> sets;
    const auto add = [&sets](std::initializer_list<std::pair<bool, RecomputeModule>> wanted) {
        Modules modules;
        for (const auto& [there, module] : wanted) {
            if (there) modules.add(module);
        }
        if (!modules.empty() && std::find(sets.begin(), sets.end(), modules) == sets.end()) sets.push_back(modules);
    };
    add({{core, Module::core_attn}});
    add({{model.hyper_connections.has_value(), Module::mhc}});
    // As published: DeepSeek-V3 mla_up_proj or mlp or both, gpt-oss layernorm and moe_act (Megatron-Bridge, recipes of 25.09 to 26.08),
    // Qwen3-235B moe with layernorm (XTuner's study on 256 H800).
    add({{up, Module::mla_up_proj}});
    add({{act, Module::moe_act}, {norm, Module::layernorm}});
    add({{mlp && moe, Module::mlp}});
    add({{up, Module::mla_up_proj}, {mlp && moe, Module::mlp}});
    add({{moe && norm && !up, Module::moe}, {moe && norm && !up, Module::layernorm}});
    add({{up, Module::mla_up_proj}, {act, Module::moe_act}, {norm, Module::layernorm}, {mlp && moe, Module::mlp}});
    if (few) return sets;
    add({{norm, Module::layernorm}});
    add({{act, Module::moe_act}});
    add({{up, Module::mla_up_proj}, {act, Module::moe_act}});
    add({{up, Module::mla_up_proj}, {act, Module::moe_act}, {norm, Module::layernorm}});
    add({{mlp, Module::mlp}, {norm && !moe, Module::layernorm}});
    add({{moe, Module::moe}});
    add({{moe, Module::moe}, {up, Module::mla_up_proj}, {norm, Module::layernorm}});
    return sets;
}

std::vector<EnumSet<CudaGraphScope>> graph_sets(const Workload& workload, Engine engine) {
    using Scope = CudaGraphScope;
    const ModelSpec& model = workload.model;
    // Not captured (model/training/training_task.cpp).
    if (engine == Engine::mgplan && (model.mtp_layers > 0 || !model.kinds.empty())) return {};
    Problems problems;
    check_scopes_of_model(usual_graph_scopes(model), model, problems);
    if (!problems.empty() || model.streams() > 1) return {};
    std::vector<EnumSet<Scope>> sets;
    // As in MoE recipes; with overlapped exchanges Megatron-LM captures no MLP.
    const bool dropless = model.moe && model.moe->capacity_factor == 0;
    if (dropless) {
        if (has_mamba_layers(model)) {
            sets.push_back({Scope::attn, Scope::mamba, Scope::moe_router, Scope::moe_preprocess});
            sets.push_back({Scope::attn, Scope::mamba});
        } else {
            sets.push_back({Scope::attn, Scope::moe_router, Scope::moe_preprocess});
            sets.push_back({Scope::moe_router, Scope::moe_preprocess});
        }
    } else {
        sets.push_back(usual_graph_scopes(model));
    }
    if (engine == Engine::megatron) sets.push_back({Scope::full_iteration});
    return sets;
}

void widen(SearchSpace& space, const SearchAxes& axes, const Workload& workload) {
    if (axes.contains(SearchAxis::stages) && !space.pipeline_layout)
        space.stage_loads = std::make_shared<const StageLoads>(stage_loads(workload, space.engine));
    if (axes.contains(SearchAxis::sharding) && space.engine == Engine::megatron) space.shardings = more_shardings(workload);
    if (axes.contains(SearchAxis::vpp)) space.unequal_chunks = true;
    if (axes.contains(SearchAxis::block)) space.recompute_blocks = true;
    if (axes.contains(SearchAxis::recompute)) {
        std::vector<Modules> sets = useful_module_sets(workload, axes.few_module_sets);
        if (axes.own_modules) sets.insert(sets.begin(), *axes.own_modules);
        if (!sets.empty()) {
            space.recompute_modules = sets.front();
            space.more_recompute_modules.assign(sets.begin() + 1, sets.end());
        }
    }
    if (axes.contains(SearchAxis::cuda_graphs) && space.cuda_graphs.empty()) {
        space.more_cuda_graphs = graph_sets(workload, space.engine);
        if (!axes.all_graph_sets && space.more_cuda_graphs.size() > 1) space.more_cuda_graphs.resize(1);
    }
    if (space.engine == Engine::megatron) set_switches(space, switches_of(axes, workload));
}

SearchSpace first_choices(SearchSpace space) {
    space.stage_loads.reset();
    space.unequal_chunks = space.recompute_blocks = false;
    space.more_recompute_modules.clear();
    space.more_cuda_graphs.clear();
    space.switches.resize(1);
    return space;
}

void choose_dispatchers(SearchSpace& space, const std::vector<TokenDispatcher>& dispatchers, const Workload& workload) {
    std::vector<LayoutSwitches> all;
    for (const TokenDispatcher dispatcher : dispatchers) {
        for (const auto& others : space.switches) {
            LayoutSwitches& switches = all.emplace_back(others ? *others : LayoutSwitches{});
            switches.dispatcher.reset();
            if (dispatcher != workload.model.moe->dispatcher) switches.dispatcher = dispatcher;
        }
    }
    set_switches(space, all);
}

}  // namespace mgplan::planner
