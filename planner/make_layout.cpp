#include <memory>
#include <utility>

#include <fmt/format.h>

#include "plan/layout/layout_schedule.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"

namespace mgplan::planner {
namespace {

void check_ranges(const LayoutRequest& request) {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    Problems problems;
    for (const auto& [name, value] :
         {std::pair{"tp", request.tp}, std::pair{"cp", request.cp}, std::pair{"ep", request.ep}, std::pair{"etp", request.etp.value_or(1)},
          std::pair{"pp", request.pp}, std::pair{"micro-batch", request.micro_batch}}) {
        if (value < 1) problems.add("{} = {} is too small; use 1 or more", name, value);
        if (value > kMost) problems.add("{} = {} is out of range; use 1 to {}", name, value, kMost);
    }
    problems.throw_if_any();
}

Layout check(Layout layout, const Workload& workload) {
    auto messages = broken_messages(workload, layout);
    if (!messages.empty()) throw ConfigError(std::move(messages));
    return layout;
}

/// Megatron-LM builds the grid of experts for models without experts too: etp, the parts of experts' weights and pp must divide the world
/// (parallel_state.py, initialize_model_parallel, at d98e8a64).
void check_idle_expert_grid(const LayoutRequest& request, const Workload& workload) {
    const std::int64_t etp = request.etp.value_or(request.tp), parts = request.idle_expert_shards;
    // Divides one by one, so that no product exceeds 64 bits; pp, and tp as the default of etp, are already checked.
    if (workload.model.moe || request.engine != Engine::megatron || parts == 0) return;
    const std::int64_t stage = workload.world / request.pp;
    // Where pp is not the last axis both grids need the same data parallelism.
    const bool in_order = request.pp == 1 || request.order.ends_in_pp() || etp * parts == request.tp * request.cp;
    if (!in_order)
        throw ConfigError(fmt::format(
            "order = {} (--use-tp-pp-dp-mapping) does not end in pp, which Megatron-LM asks of models without experts too where "
            "cp = {} and etp = {} (that of tp where it is not given); put pp last, or give --expert-tensor-parallel-size {}",
            request.order.text(), request.cp, etp, request.tp * request.cp));
    if (stage % etp == 0 && stage / etp % parts == 0) return;
    throw ConfigError(fmt::format(
        "etp = {} (--expert-tensor-parallel-size){} times pp = {} does not divide world = {}, which Megatron-LM asks of models without "
        "experts too; leave {} out",
        etp, parts > 1 ? fmt::format(" in {} parts of weights (--expert-tensor-parallel-num-weight-shards)", parts) : "", request.pp,
        workload.world, parts > 1 ? "both flags" : "that flag"));
}

/// Model chunks of a pipeline rank: as requested, or from the layers of a chunk.
std::int64_t chunks_asked_for(const LayoutRequest& request, const Workload& workload) {
    if (!request.layers_per_virtual_stage) return request.vpp;
    // Megatron-LM's arguments.py: embedding and loss count as layers if the split counts them.
    std::int64_t counted_layers = workload.model.layers;
    if (request.split && request.split->account_for_embedding) ++counted_layers;
    if (request.split && request.split->account_for_loss) ++counted_layers;
    if (counted_layers % request.pp != 0) {
        throw ConfigError(
            fmt::format("layers per virtual stage = {} needs {} layers (with embedding and loss where they are counted) to "
                        "divide by pp = {}; use a pp out of {}",
                        *request.layers_per_virtual_stage, counted_layers, request.pp, divisors_text(counted_layers, workload.world)));
    }
    const std::int64_t per_rank = counted_layers / request.pp;
    if (*request.layers_per_virtual_stage <= 0 || per_rank % *request.layers_per_virtual_stage != 0) {
        throw ConfigError(fmt::format("layers per virtual stage = {} does not divide the {} layers of a pipeline rank; use {}",
                                      *request.layers_per_virtual_stage, per_rank,
                                      per_rank > 0 ? divisors_text(per_rank, per_rank) : "a smaller pp"));
    }
    return per_rank / *request.layers_per_virtual_stage;
}

}  // namespace

Layout make_layout(const LayoutRequest& request, const Workload& workload) {
    const ModelSpec& model = workload.model;
    check_ranges(request);
    Layout layout;
    layout.sizes = {workload.world,
                    request.tp,
                    request.cp,
                    request.ep,
                    request.etp.value_or(request.tp),
                    request.pp,
                    request.order,
                    request.switches && request.switches->sharding ? request.switches->sharding->replicas
                                                                   : workload.training.distributed_optimizer_instances};
    if (!model.moe) layout.sizes.ep = 1;
    layout.micro_batch = request.micro_batch;
    layout.sequence_parallel = request.sequence_parallel && request.tp > 1;
    layout.cp_comm_type = request.cp > 1 ? request.cp_comm_type : CpCommType::p2p;
    layout.recompute = request.recompute;
    if (request.recompute == Recompute::selective) {
        layout.recompute_modules = request.recompute_modules;
        if (layout.recompute_modules.contains(RecomputeModule::mhc)) layout.recompute_num_layers = request.mhc_recompute_layers;
    }
    if (request.recompute == Recompute::full) {
        layout.recompute_method = request.recompute_method;
        layout.recompute_num_layers = request.recompute_num_layers;
    }
    layout.cuda_graphs = request.cuda_graphs;
    layout.engine = request.engine;
    layout.switches = request.switches;

    // Sizes first: a split needs a valid pipeline.
    for (const Level level : {Level::tensor, Level::context, Level::pipeline, Level::expert}) {
        auto messages = broken_messages(workload, layout, level);
        if (!messages.empty()) {
            const auto others = broken_alone_behind(workload, layout, level);
            messages.insert(messages.end(), others.begin(), others.end());
            throw ConfigError(std::move(messages));
        }
        // tp and cp divide the world by now, so that their product stays small.
        if (level == Level::context && !model.moe) layout.sizes.etp = etp_without_experts(layout.sizes);
    }

    check_idle_expert_grid(request, workload);

    const std::int64_t vpp = chunks_asked_for(request, workload);
    if (vpp < 1 || vpp > 65536)
        throw ConfigError(fmt::format("vpp = {} is out of range; use a whole number from 1 to the layers of a rank", vpp));
    layout.vpp = static_cast<int>(vpp);
    layout.schedule = request.schedule;
    const bool v_shaped = layout.schedule && is_v_shaped(*layout.schedule);
    if (layout.schedule && layout.vpp != chunks_of(*layout.schedule)) throw ConfigError(split_schedule_problems(layout));
    if (request.split) {
        StageSplitRequest split = *request.split;
        split.v_shaped = v_shaped;
        split.layers = model.layers;
        split.mtp_layers = model.mtp_layers;
        split.pp = static_cast<int>(request.pp);
        // A layout string determines the number of chunks; 0 requests that.
        split.vpp = split.pipeline_layout && layout.vpp == 1 ? 0 : layout.vpp;
        layout.split = std::make_shared<const StageSplit>(make_stage_split(split));
        layout.vpp = layout.split->vpp();
    } else if (auto automatic = automatic_stage_split(model.layers, model.mtp_layers, static_cast<int>(request.pp), layout.vpp, v_shaped)) {
        layout.split = std::make_shared<const StageSplit>(std::move(*automatic));
    }
    layout.group_size = request.group_size.value_or(request.pp);
    if (layout.vpp == 1) layout.group_size = request.pp;
    const std::int64_t step = layout.dp() * layout.micro_batch;
    layout.num_microbatches = workload.batch.global_batch / step;
    return check(std::move(layout), workload);
}

}  // namespace mgplan::planner
