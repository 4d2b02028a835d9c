#include "cli/state_options.hpp"

#include <string>
#include <vector>

#include "plan/text/text.hpp"
#include "plan/training/data_sharding.hpp"

namespace mgplan::cli {

void declare_state_options(Options& options, WorkloadOptions& values) {
    const auto check = [](const std::string& given, Problems& problems) {
        if (!parse_data_sharding(given))
            problems.add("--sharding = '{}' is not known; use one of {}", given.substr(0, 40), any_of_text(data_sharding_words()));
    };
    options.checked("sharding", values.sharding, "KIND", check,
                    "what data-parallel ranks divide: none, optimizer (Megatron-LM's distributed optimizer), optimizer_gradients, full "
                    "(parameters too; both by Megatron-FSDP), or hybrid:N (full inside each of N replicas); without it optimizer");
    std::vector<std::string> kinds;
    for (const OptimizerKind kind : kOptimizerKinds) kinds.emplace_back(to_string(kind));
    options.choice("optimizer", values.optimizer, kinds,
                   "whose state is kept, and whose step is taken; engine mgplan has all but ademamix; without it adam (AdamW)");
}

void apply_state_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems) {
    if (values.optimizer) {
        for (const OptimizerKind kind : kOptimizerKinds) {
            if (*values.optimizer == to_string(kind)) training.megatron.optimizer = kind;
        }
    }
    if (!values.sharding) return;
    const DataShardingChoice choice = parse_data_sharding(*values.sharding).value_or(DataShardingChoice{});
    if (values.no_distributed_optimizer && choice.kind != DataSharding::none)
        problems.add("--no-distributed-optimizer divides nothing, and --sharding {} does; drop one of the two", *values.sharding);
    set_data_sharding(choice, training);
    const OptimizerKind optimizer = training.megatron.optimizer;
    if (training.megatron.fully_sharded.active() && optimizer != OptimizerKind::adam && optimizer != OptimizerKind::sgd)
        problems.add(
            "--sharding {} is Megatron-FSDP's, which does not divide the state of {}; use --optimizer adam or sgd, or --sharding "
            "optimizer",
            *values.sharding, to_string(optimizer));
}

void refuse_state_of_other_engines(const WorkloadOptions& values, const ResolvedWorkload& resolved, Problems& problems) {
    if (resolved.engine != Engine::mgplan) return;
    const TrainingSpec& training = resolved.workload.training;
    const DataSharding sharding = data_sharding(training);
    if (values.sharding && sharding != DataSharding::none && sharding != DataSharding::optimizer)
        problems.add("--sharding {} is a choice of Megatron-LM, not of engine mgplan; use --engine megatron, or none or optimizer",
                     to_string(sharding));
    if (values.optimizer && training.megatron.optimizer == OptimizerKind::ademamix)
        problems.add(
            "--optimizer ademamix is a choice of Megatron-LM's forks, not of engine mgplan; use adam, sgd, lion or muon, or --engine "
            "megatron");
}

}  // namespace mgplan::cli
