#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "planner/host_optimizer.hpp"
#include "planner/search.hpp"
#include "planner/search_axes.hpp"

namespace mgplan::planner {
namespace {

/// One workload with its cost functions, to try changed layouts.
class Trial {
public:
    Trial(Workload workload, const CostModelFactory& cost_model) : workload_(std::move(workload)), cost_(cost_model(workload_)) {}
    // The cost functions refer to the workload.
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    /// Returns the change as a remedy if the changed layout is legal and fits.
    [[nodiscard]] std::optional<Remedy> attempt(const LayoutRequest& request, std::string change) const {
        try {
            Layout layout = make_layout(request, workload_);
            const std::int64_t limit = workload_.memory_limit;
            const MemoryNeed need = cost_.memory(layout, limit);
            if (need.bytes > limit || need.host_missing > 0) return std::nullopt;
            // A search may assume less memory than the allocator takes: the result must agree with simulate and check, which replay it.
            const auto bytes = cost_.replayed_bytes ? cost_.replayed_bytes(layout, limit) : need.bytes;
            if (!bytes) return std::nullopt;
            return Remedy{std::move(change), *bytes, std::move(layout), workload_.batch.global_batch, workload_.training.offload};
        } catch (const ConfigError&) {
            return std::nullopt;
        }
    }

    [[nodiscard]] const Workload& workload() const { return workload_; }

private:
    Workload workload_;
    LayoutCost cost_;
};

void take_full_recompute(LayoutRequest& request) {
    request.recompute = Recompute::full;
    request.recompute_method = RecomputeMethod::uniform;
    request.recompute_num_layers = 1;
}

/// Another pipeline needs another split and other groups.
void take_pipeline(LayoutRequest& request, std::int64_t pp, std::int64_t vpp) {
    request.pp = pp;
    request.vpp = vpp;
    request.split.reset();
    request.group_size.reset();
}

std::optional<Remedy> full_recompute(const Trial& trial, const LayoutRequest& base) {
    if (base.recompute == Recompute::full) return std::nullopt;
    LayoutRequest request = base;
    take_full_recompute(request);
    return trial.attempt(request, "full recompute");
}

std::optional<Remedy> narrower_gradients(const Trial& trial, const LayoutRequest& base) {
    if (base.engine != Engine::megatron) return std::nullopt;
    LayoutSwitches switches = base.switches ? *base.switches : LayoutSwitches{};
    switches.bf16_gradients = true;
    LayoutRequest request = base;
    request.switches = switches_beyond(switches, trial.workload().model, trial.workload().training);
    if (!request.switches || (base.switches && *base.switches == *request.switches)) return std::nullopt;
    return trial.attempt(request, "gradients in bf16 (--grad-dtype bf16)");
}

/// The smallest set of modules of selective recompute that makes the layout fit.
std::optional<Remedy> recomputed_modules(const Trial& trial, const LayoutRequest& base) {
    if (base.recompute == Recompute::full) return std::nullopt;
    std::vector<EnumSet<RecomputeModule>> sets = useful_module_sets(trial.workload(), false);
    std::stable_sort(sets.begin(), sets.end(), [](auto a, auto b) { return names_in(a).size() < names_in(b).size(); });
    for (EnumSet<RecomputeModule> modules : sets) {
        LayoutRequest request = base;
        request.recompute = Recompute::selective;
        if (base.recompute == Recompute::selective) {
            for (const std::string& name : names_in(base.recompute_modules)) modules.add(*parse_recompute_module(name));
            if (modules == base.recompute_modules) continue;
        }
        request.recompute_modules = modules;
        if (auto found = trial.attempt(request, fmt::format("selective recompute of {}", fmt::join(names_in(modules), ",")))) return found;
    }
    return std::nullopt;
}

/// The smallest number of layers of each chunk that makes the layout fit, by bisection: more layers never need more memory.
std::optional<Remedy> recomputed_layers(const Trial& trial, const LayoutRequest& base) {
    if (base.recompute == Recompute::full) return std::nullopt;
    std::optional<Remedy> best;
    std::int64_t enough = trial.workload().model.layers / (base.pp * base.vpp), too_few = 0;
    while (enough - too_few > 1) {
        const std::int64_t layers = too_few + (enough - too_few) / 2;
        LayoutRequest request = base;
        request.recompute = Recompute::full;
        request.recompute_method = RecomputeMethod::block;
        request.recompute_num_layers = layers;
        if (auto found = trial.attempt(request, fmt::format("full recompute of {} of each chunk", counted(layers, "layer")))) {
            best = std::move(found);
            enough = layers;
        } else {
            too_few = layers;
        }
    }
    return best;
}

std::optional<Remedy> smaller_micro_batch(const Trial& trial, const LayoutRequest& base) {
    for (std::int64_t smaller = base.micro_batch / 2; smaller >= 1; smaller /= 2) {
        LayoutRequest request = base;
        request.micro_batch = smaller;
        if (auto found = trial.attempt(request, fmt::format("micro-batch {} instead of {}", smaller, base.micro_batch))) return found;
    }
    return std::nullopt;
}

std::optional<Remedy> more_stages(const Trial& trial, const LayoutRequest& base) {
    for (const std::int64_t pp : divisors(trial.workload().world / (base.tp * base.cp))) {
        if (pp <= base.pp) continue;
        const std::string change = fmt::format("pp {} instead of {}", pp, base.pp);
        LayoutRequest request = base;
        take_pipeline(request, pp, base.vpp);
        if (auto found = trial.attempt(request, change)) return found;
        if (base.vpp == 1) continue;
        take_pipeline(request, pp, 1);
        if (auto found = trial.attempt(request, fmt::format("{} and vpp 1 instead of {}", change, base.vpp))) return found;
    }
    return std::nullopt;
}

/// bf16 instead of quantised weights, whose copies take memory in addition to the weights.
std::optional<Remedy> not_quantised(const Workload& workload, const LayoutRequest& base, const CostModelFactory& cost_model) {
    if (!quantised(workload.training.precision)) return std::nullopt;
    Workload changed = workload;
    changed.training.precision = Precision::bf16;
    const std::string change = fmt::format("bf16 instead of {} (--precision bf16)", precision_text(workload.training));
    return Trial(changed, cost_model).attempt(base, change);
}

std::optional<Remedy> optimizer_on_host(const Workload& workload, const LayoutRequest& base, const CostModelFactory& cost_model) {
    const auto training = with_optimizer_on_host(workload.training, base.engine);
    if (!training) return std::nullopt;
    Workload changed = workload;
    changed.training = *training;
    return Trial(changed, cost_model).attempt(base, "the optimizer on the host (--offload optimizer)");
}

/// `factor` times the number of GPUs: for data parallelism, which shards the optimizer further, or for larger expert groups or more
/// pipeline stages.
std::optional<Remedy> more_gpus(const Trial& trial, const LayoutRequest& base, std::int64_t factor) {
    const Workload& work = trial.workload();
    const std::string gpus = fmt::format("{} GPUs instead of {}", work.world, work.world / factor);
    for (std::int64_t pp = 1; pp <= factor; pp *= 2) {
        for (std::int64_t ep = 1; ep <= (work.model.moe ? factor / pp : 1); ep *= 2) {
            LayoutRequest request = base;
            if (pp > 1) take_pipeline(request, base.pp * pp, 1);
            request.ep *= ep;
            std::string change = gpus;
            if (pp > 1) change += fmt::format(", pp {} instead of {}", request.pp, base.pp);
            if (ep > 1) change += fmt::format(", ep {} instead of {}", request.ep, base.ep);
            if (auto found = trial.attempt(request, change)) return found;
            if (base.recompute == Recompute::full) continue;
            take_full_recompute(request);
            if (auto found = trial.attempt(request, change + ", full recompute")) return found;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<TrainingSpec> with_optimizer_on_host(TrainingSpec training, Engine engine) {
    if (training.offload.active()) return std::nullopt;
    training.offload.optimizer = 1;
    if (engine == Engine::megatron) {
        if (!training.distributed_optimizer) return std::nullopt;
        training.megatron.precision_aware_optimizer = true;
    }
    return training;
}

std::vector<Remedy> remedies(const Workload& workload, const Layout& layout, const CostModelFactory& cost_model) {
    std::vector<Remedy> found;
    const auto keep = [&found](std::optional<Remedy> remedy) {
        if (!remedy) return false;
        found.push_back(std::move(*remedy));
        return true;
    };
    const Trial here(workload, cost_model);
    const LayoutRequest base = request_of(layout);
    keep(narrower_gradients(here, base));
    keep(recomputed_modules(here, base));
    keep(recomputed_layers(here, base));
    keep(full_recompute(here, base));
    keep(smaller_micro_batch(here, base));
    keep(more_stages(here, base));
    keep(not_quantised(workload, base, cost_model));
    keep(optimizer_on_host(workload, base, cost_model));

    for (std::int64_t factor = 2; factor <= 4096 && workload.world * factor <= (std::int64_t{1} << 24); factor *= 2) {
        Workload larger = workload;
        larger.world *= factor;
        if (keep(more_gpus(Trial(larger, cost_model), base, factor))) break;
        // The batch may have too few sequences for that number of ranks.
        larger.batch.global_batch *= factor;
        if (auto remedy = more_gpus(Trial(larger, cost_model), base, factor)) {
            remedy->change += fmt::format(", global batch {}", larger.batch.global_batch);
            keep(std::move(remedy));
            break;
        }
    }
    return found;
}

}  // namespace mgplan::planner
