#include "cli/state_options.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "plan/text/text.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/training/offload.hpp"

namespace mgplan::cli {

namespace {

std::vector<std::string> split_list(const std::string& given) {
    return split(given, ',');
}

}  // namespace

std::vector<DataShardingChoice> further_shardings(const std::string& given) {
    std::vector<DataShardingChoice> found;
    for (const std::string& word : split_list(given)) found.push_back(parse_data_sharding(word).value_or(DataShardingChoice{}));
    found.erase(found.begin());
    return found;
}

void declare_state_options(Options& options, WorkloadOptions& values, bool several_shardings) {
    const auto check = [several_shardings](const std::string& given, Problems& problems) {
        const std::vector<std::string> words = several_shardings ? split_list(given) : std::vector<std::string>{given};
        for (const std::string& word : words.empty() ? std::vector<std::string>{given} : words) {
            if (!parse_data_sharding(word))
                problems.add("--sharding = '{}' is not known; use one of {}", word.substr(0, 40), any_of_text(data_sharding_words()));
        }
    };
    options.checked(
        "sharding", values.sharding, several_shardings ? "KIND[,...]" : "KIND", check,
        several_shardings
            ? "state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with "
              "parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas); several are all searched. Gradients keep "
              "their dtype (default: the command's, else optimizer, full, and hybrid with a replica per NVLink domain)"
            : "state sharded over data-parallel ranks: none, optimizer (distributed optimizer), optimizer_gradients or full (with "
              "parameters; both Megatron-FSDP), or hybrid:N (full inside each of N replicas). Gradients keep their dtype (default: the "
              "command's, else optimizer)");
    std::vector<std::string> kinds;
    for (const OptimizerKind kind : kOptimizerKinds) kinds.emplace_back(to_string(kind));
    options.choice("optimizer", values.optimizer, kinds,
                   "optimizer; engine mgplan lacks ademamix (default: the command's, else adam (AdamW))");
    const auto check_offload = [](const std::string& given, Problems& problems) {
        if (given.empty() || !parse_offload(split_list(given)))
            problems.add(
                "--offload = '{}' is no list of optimizer, optimizer:SHARE with a share above 0 and at most 1, or instead "
                "optimizer_states or optimizer_states:SHARE, attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1 and "
                "moe_act, each once; use such a list",
                given.substr(0, 60));
    };
    options.checked("offload", values.offload, "WORD[,...]", check_offload,
                    "state kept in host memory: optimizer (main parameters and moments, updated there) or a share, optimizer:0.5; "
                    "optimizer_states, moved to the GPU for the update, or a share; and inputs of modules between forward and backward: "
                    "attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act (default: the command's, else none)");
}

void apply_state_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems) {
    if (values.optimizer) {
        for (const OptimizerKind kind : kOptimizerKinds) {
            if (*values.optimizer == to_string(kind)) training.megatron.optimizer = kind;
        }
    }
    if (values.offload) training.offload = parse_offload(split_list(*values.offload)).value_or(OffloadSpec{});
    if (!values.sharding) return;
    const DataShardingChoice choice = parse_data_sharding(split_list(*values.sharding).front()).value_or(DataShardingChoice{});
    if (values.no_distributed_optimizer && choice.kind != DataSharding::none)
        problems.add("--no-distributed-optimizer divides nothing, and --sharding {} does; drop one of the two", *values.sharding);
    const bool fully_shards = choice.kind != DataSharding::none && choice.kind != DataSharding::optimizer;
    if (fully_shards && training.megatron.weight_shards.active())
        problems.add(
            "--sharding {} does not go with the command's weights in parts (--tensor-parallel-num-weight-shards, "
            "--expert-tensor-parallel-num-weight-shards); drop one of the two",
            *values.sharding);
    const Dtype asked = training.grad_dtype;
    set_data_sharding_alone(choice, training);
    FullyShardedSpec& fully_sharded = training.megatron.fully_sharded;
    if (values.grad_dtype && fully_sharded.kind == FullyShardedKind::megatron_fsdp) fully_sharded.main_grads = asked;
    training.grad_dtype = kept_gradient_dtype(training);
    const OptimizerKind optimizer = training.megatron.optimizer;
    if (training.megatron.fully_sharded.active() && optimizer != OptimizerKind::adam && optimizer != OptimizerKind::sgd)
        problems.add(
            "--sharding {} is Megatron-FSDP's, which does not divide the state of {}; use --optimizer adam or sgd, or --sharding "
            "optimizer",
            *values.sharding, to_string(optimizer));
}

void refuse_state_that_contradicts(const WorkloadOptions& values, const TrainingSpec& training, Problems& problems) {
    const auto names = [](const std::vector<std::string>& words, std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    const DataSharding sharding = data_sharding(training);
    if (values.sharding && sharding == DataSharding::none && names(values.overlap, "param-gather"))
        problems.add(
            "--overlap param-gather hides the gather of divided parameters, and --sharding none divides none; drop one of the two");
    const bool own_engine = values.engine == "mgplan";  // which shards without overlap, too
    if (values.sharding && training.megatron.fully_sharded.kind == FullyShardedKind::megatron_fsdp && !own_engine) {
        for (const std::string_view overlap : {"grad-reduce", "param-gather"}) {
            const bool gathers = overlap == "param-gather";
            if (names(values.no_overlap, overlap) && (!gathers || sharding != DataSharding::optimizer_gradients))
                problems.add("--no-overlap {} does not go with --sharding {}: Megatron-FSDP overlaps what it divides; drop one of the two",
                             overlap, *values.sharding);
        }
    }
    const bool narrow = training.exp_avg_dtype != Dtype::fp32 || training.exp_avg_sq_dtype != Dtype::fp32;
    const bool sharded_adam = training.distributed_optimizer && training.megatron.optimizer == OptimizerKind::adam;
    if ((values.sharding || values.optimizer) && narrow && !sharded_adam)
        problems.add(
            "{} does not go with the command's --use-precision-aware-optimizer, which needs Adam with the distributed optimizer; drop one "
            "of the two",
            values.optimizer ? "--optimizer " + *values.optimizer : "--sharding " + *values.sharding);
}

}  // namespace mgplan::cli
