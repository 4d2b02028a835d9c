#include "cli/calibration_work.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "formats/model_source.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "runtime/training_run/rank_prediction.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kMostModels = 64;

/// One layer of each kind that the model has: shapes repeat.
ModelSpec without_repetition(ModelSpec model) {
    if (model.moe) {
        const auto has = [&](bool mixture) {
            return std::find(model.moe_layers.begin(), model.moe_layers.end(), mixture) != model.moe_layers.end();
        };
        std::vector<bool> kinds;
        for (const bool mixture : {false, true}) {
            if (has(mixture)) kinds.push_back(mixture);
        }
        model.layers = std::ssize(kinds);
        model.moe_layers = std::move(kinds);
    } else {
        model.layers = 1;
    }
    return model;
}

model::TrainingTask task_of(const Workload& work, const Layout& layout) {
    model::TrainingTask task;
    task.model = work.model;
    task.batch = work.batch;
    task.training = work.training;
    task.layout = layout;
    task.layout.cuda_graphs = {};
    return task;
}

}  // namespace

runtime::TracedWork work_of_models(const ShapesToMeasure& asked, const std::vector<Precision>& precisions, const ClusterSpec& cluster,
                                   const model::KernelTraits& traits, std::vector<std::string>& left_out) {
    runtime::TracedWork all;
    if (!asked.models) return all;
    const auto names = split(*asked.models, ',');
    if (std::ssize(names) > kMostModels)
        throw ConfigError(fmt::format("--model names {} models; use at most {}", names.size(), kMostModels));
    Problems problems;
    for (const auto& name : names) {
        std::optional<ModelSpec> model;
        try {
            model = formats::load_model(name).model;
            refuse_unmeasured(*model, name);
            model = without_repetition(*std::move(model));
        } catch (const ConfigError& error) {
            problems.absorb(error, "--model: ");
            continue;
        }
        bool any = false;
        std::string why;
        std::vector<std::pair<std::int64_t, std::int64_t>> shards;  // tp and ep
        for (const auto tp : asked.tp) shards.emplace_back(tp, 1);
        for (const auto ep : asked.ep) {
            if (model->moe && ep > 1) shards.emplace_back(1, ep);
        }
        for (const auto& [tp, ep] : shards) {
            for (const auto precision : precisions) {
                Workload work;
                work.model = *model;
                work.cluster = cluster;
                work.world = tp * ep;
                work.confine_tp = false;
                work.memory_limit = cluster.memory_bytes;
                work.training.precision = precision;
                work.training.grad_dtype = precision == Precision::fp64 ? Dtype::fp64 : Dtype::fp32;
                const std::int64_t longest = model->max_positions > 0 ? model->max_positions : 4096;
                work.batch.sequence = asked.sequence.value_or(model->default_sequence.value_or(std::min<std::int64_t>(longest, 4096)));
                work.batch.global_batch = asked.micro_batch * ep;
                LayoutRequest request;
                request.tp = tp;
                request.ep = ep;
                request.micro_batch = asked.micro_batch;
                request.sequence_parallel = tp > 1;
                try {
                    const Layout layout = planner::make_layout(request, work);
                    all.merge(runtime::traced_work(task_of(work, layout), 0, traits));
                    any = true;
                } catch (const ConfigError& error) {
                    why = error.problems().front();
                }
            }
        }
        if (!any)
            problems.add("--model {}: none of the shards can be computed: {}", name, why);
        else if (!why.empty())
            left_out.push_back(fmt::format("some shards of {}: {}", name, why));
    }
    problems.throw_if_any();
    return all;
}

runtime::TracedWork work_of_plan(const Plan& plan, const model::KernelTraits& traits) {
    const Workload work = workload_of(plan);
    if (auto broken = planner::broken_messages(work, plan.layout); !broken.empty()) throw ConfigError(std::move(broken));
    const model::TrainingTask task = runtime::with_few_microbatches(task_of(work, plan.layout));
    runtime::TracedWork all;
    for (std::int64_t stage = 0; stage < plan.layout.sizes.pp; ++stage)
        all.merge(runtime::traced_work(task, static_cast<int>(first_rank_of_stage(plan.layout.sizes, stage)), traits));
    return all;
}

}  // namespace mgplan::cli
