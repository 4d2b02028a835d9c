#include "planner/numeric_changes.hpp"

#include <string>
#include <utility>

#include <fmt/core.h>

#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {
namespace {

/// Calls `take` with an option and the workload under it.
template <class Take>
void for_each_change(const Workload& workload, Take take) {
    const TrainingSpec& training = workload.training;
    if (training.precision == Precision::bf16 || training.precision == Precision::fp16) {
        // From compute capability 10 on the tensor cores themselves scale blocks of 32 values.
        const char* word = workload.cluster.compute_capability >= 100 ? "mxfp8" : "fp8-current";
        const PrecisionChoice choice = parse_precision_choice(word).value_or(PrecisionChoice{});
        Workload changed = workload;
        changed.training.precision = choice.precision;
        changed.training.megatron.fp8_recipe = choice.recipe;
        if (workload.cluster.peak(choice.precision) > 0) take(fmt::format("--precision {}", word), changed);
    }
    if (training.grad_dtype == Dtype::fp32 && training.precision != Precision::fp32) {
        Workload changed = workload;
        changed.training.grad_dtype = Dtype::bf16;
        take("--grad-dtype bf16", changed);
    }
}

}  // namespace

std::vector<JobChange> numeric_changes(const Workload& workload, const Layout& layout, const simulator::Prediction& usual) {
    std::vector<JobChange> found;
    if (layout.engine != Engine::megatron) return found;  // mgplan's own engine trains few layouts in 8 bits
    for_each_change(workload, [&](std::string option, const Workload& changed) {
        if (!broken_messages(changed, layout).empty()) return;
        simulator::CostModel model(changed);
        const double seconds = model.exact_seconds(layout);
        const std::int64_t bytes = model.replayed_memory(layout).deciding_bytes();
        const bool faster = seconds < (1 - kLeastGain) * usual.time.iteration_seconds;
        const bool smaller = static_cast<double>(bytes) < (1 - kLeastGain) * static_cast<double>(usual.memory.deciding_bytes());
        if (bytes <= workload.memory_limit && (faster || smaller)) found.push_back({std::move(option), seconds, bytes});
    });
    return found;
}

}  // namespace mgplan::planner
