#include "formats/megatron/bridge_overrides.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plan/layout/pipeline_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"

// Source: NVIDIA-NeMo/Megatron-Bridge 067f987d: training/utils/omegaconf_utils.py (Hydra's grammar of overrides), training/config.py,
// training/comm_overlap.py (CommOverlapConfig.setup writes over model and ddp, so that it is set to null here).

namespace mgplan::formats {
namespace {

/// A field and the flag that says the same.
struct OverriddenField {
    std::string_view field, flag;
    std::string_view otherwise;  ///< the value without the flag
};

constexpr std::array kValues{
    OverriddenField{"model.tensor_model_parallel_size", "--tensor-model-parallel-size", "1"},
    OverriddenField{"model.pipeline_model_parallel_size", "--pipeline-model-parallel-size", "1"},
    OverriddenField{"model.virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank", "null"},
    OverriddenField{"model.microbatch_group_size_per_vp_stage", "--microbatch-group-size-per-virtual-pipeline-stage", "null"},
    OverriddenField{"model.num_layers_in_first_pipeline_stage", "--decoder-first-pipeline-num-layers", "null"},
    OverriddenField{"model.num_layers_in_last_pipeline_stage", "--decoder-last-pipeline-num-layers", "null"},
    OverriddenField{"model.pipeline_model_parallel_layout", "--pipeline-model-parallel-layout", "null"},
    OverriddenField{"model.context_parallel_size", "--context-parallel-size", "1"},
    OverriddenField{"model.cp_comm_type", "--cp-comm-type", "null"},
    OverriddenField{"model.expert_model_parallel_size", "--expert-model-parallel-size", "1"},
    OverriddenField{"model.expert_tensor_parallel_size", "--expert-tensor-parallel-size", "null"},
    OverriddenField{"model.recompute_granularity", "--recompute-granularity", "null"},
    OverriddenField{"model.recompute_method", "--recompute-method", "null"},
    OverriddenField{"model.recompute_num_layers", "--recompute-num-layers", "null"},
    OverriddenField{"model.cuda_graph_impl", "--cuda-graph-impl", "none"},
    OverriddenField{"model.seq_length", "--seq-length", "null"},
    OverriddenField{"dataset.seq_length", "--seq-length", "null"},
    OverriddenField{"train.micro_batch_size", "--micro-batch-size", "1"},
    OverriddenField{"train.global_batch_size", "--global-batch-size", "null"},
    OverriddenField{"model.cpu_offloading_num_layers", "--cpu-offloading-num-layers", "0"},
    OverriddenField{"optimizer.optimizer_offload_fraction", "--optimizer-offload-fraction", "1.0"},
};

constexpr std::array kLists{
    OverriddenField{"model.recompute_modules", "--recompute-modules", "null"},
    OverriddenField{"model.cuda_graph_modules", "--cuda-graph-scope", "full"},
    OverriddenField{"model.offload_modules", "--offload-modules", "[]"},
};

constexpr std::array kSwitches{
    OverriddenField{"model.sequence_parallel", "--sequence-parallel", "false"},
    OverriddenField{"model.account_for_embedding_in_pipeline_split", "--account-for-embedding-in-pipeline-split", "false"},
    OverriddenField{"model.account_for_loss_in_pipeline_split", "--account-for-loss-in-pipeline-split", "false"},
    OverriddenField{"model.tp_comm_overlap", "--tp-comm-overlap", "false"},
    OverriddenField{"model.overlap_moe_expert_parallel_comm", "--overlap-moe-expert-parallel-comm", "false"},
    OverriddenField{"ddp.overlap_grad_reduce", "--overlap-grad-reduce", "false"},
    OverriddenField{"ddp.overlap_param_gather", "--overlap-param-gather", "false"},
    OverriddenField{"optimizer.overlap_param_gather", "--overlap-param-gather", "false"},
    OverriddenField{"dist.use_tp_pp_dp_mapping", "--use-tp-pp-dp-mapping", "false"},
    OverriddenField{"model.cpu_offloading", "--cpu-offloading-num-layers", "false"},
    OverriddenField{"model.fine_grained_activation_offloading", "--fine-grained-activation-offloading", "false"},
    OverriddenField{"optimizer.optimizer_cpu_offload", "--optimizer-cpu-offload", "false"},
    OverriddenField{"optimizer.overlap_cpu_optimizer_d2h_h2d", "--overlap-cpu-optimizer-d2h-h2d", "false"},
};

/// Written where they are set, and else not: Megatron-LM has some in its branch dev alone, and Hydra refuses a field that is not there.
/// `otherwise`: the value of a switch that is on.
constexpr std::array kWhereSet{
    OverriddenField{"model.hybrid_layer_pattern", "--hybrid-layer-pattern", ""},  // its stages
    OverriddenField{"model.tensor_parallel_num_weight_shards", "--tensor-parallel-num-weight-shards", ""},
    OverriddenField{"model.expert_tensor_parallel_num_weight_shards", "--expert-tensor-parallel-num-weight-shards", ""},
    OverriddenField{"rerun_state_machine.check_for_nan_in_loss", "--no-check-for-nan-in-loss-and-grad", "false"},
    OverriddenField{"ddp.check_for_nan_in_grad", "--no-check-for-nan-in-loss-and-grad", "false"},
    OverriddenField{"model.min_offloaded_tensor_size", "--min-offloaded-tensor-size", ""},
    OverriddenField{"optimizer.use_precision_aware_optimizer", "--optimizer-cpu-offload", "true"},
    OverriddenField{"optimizer.offload_optimizer_states", "--offload-optimizer-states", "true"},
    OverriddenField{"optimizer.chunked_optimizer_state_offload", "--chunked-optimizer-state-offload", "true"},
    OverriddenField{"optimizer.optimizer_state_offload_fraction", "--optimizer-state-offload-fraction", ""},
    OverriddenField{"optimizer.optimizer_state_offload_chunk_size_mb", "--optimizer-state-offload-chunk-size-mb", ""},
};

const MegatronFlag* find_in(const MegatronJob& job, std::string_view name) {
    for (const MegatronFlags& part : job.parts) {
        const auto found = std::find_if(part.flags.begin(), part.flags.end(), [&](const MegatronFlag& flag) { return flag.name == name; });
        if (found != part.flags.end()) return &*found;
    }
    return nullptr;
}

std::int64_t whole_of(const MegatronJob& job, std::string_view name) {
    const MegatronFlag* flag = find_in(job, name);
    return flag == nullptr || flag->values.empty() ? 1 : parse_integer(flag->values.front()).value_or(1);
}

/// Megatron-LM's validate_args and Bridge's CommOverlapConfig overlap messages of interleaved schedules alone.
bool overlaps_messages(const MegatronJob& job) {
    const MegatronFlag* layout = find_in(job, "--pipeline-model-parallel-layout");
    const bool interleaved = layout != nullptr && !layout->values.empty() ? std::ssize(parse_pipeline_layout(layout->values.front())) >
                                                                                whole_of(job, "--pipeline-model-parallel-size")
                                                                          : whole_of(job, "--num-virtual-stages-per-pipeline-rank") > 1;
    return interleaved && find_in(job, "--no-overlap-p2p-communication") == nullptr;
}

/// validate_args turns the distributed optimizer off for optimizers other than Adam and SGD, and so do Bridge's recipes with dist_muon.
bool shards_optimizer(const MegatronJob& job) {
    const MegatronFlag* optimizer = find_in(job, "--optimizer");
    const bool of_elements =
        optimizer == nullptr || optimizer->values.empty() || optimizer->values.front() == "adam" || optimizer->values.front() == "sgd";
    return of_elements && find_in(job, "--use-distributed-optimizer") != nullptr;
}

/// HybridModelProvider (models/hybrid/hybrid_provider.py, provide(), of 0.6.2) takes no virtual stages.
void refuse_chunks_of_patterns(const MegatronJob& job) {
    const MegatronFlag* pattern = find_in(job, "--hybrid-layer-pattern");
    if (pattern == nullptr || pattern->values.empty()) return;
    const auto chunks = 1 + std::count(pattern->values.front().begin(), pattern->values.front().end(), '|');
    const std::int64_t ranks = whole_of(job, "--pipeline-model-parallel-size");
    if (chunks > ranks)
        throw ConfigError(fmt::format(
            "{}: {} chunks of layers on {} pipeline ranks, and Megatron-Bridge takes hybrids without virtual stages; plan with --vpp 1, or "
            "export megatron-args",
            job.model, chunks, ranks));
}

/// A text that Hydra would read as more than one word gets quotes of its own.
std::string hydra_value(const std::string& value) {
    const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    });
    return plain ? value : fmt::format("\"{}\"", value);
}

/// Modules of the adapters' targets (peft/lora.py); those of an MLP's products are those of experts too.
std::vector<std::string> modules_of_adapters(const MegatronJob& job) {
    const Adapters& adapters = *job.adapters;
    if (job.experts && (adapters.fc1 != adapters.experts || adapters.fc2 != adapters.experts))
        throw ConfigError(
            "model.adapters: linear_fc1 and linear_fc2 of Megatron-Bridge are those of experts too; plan with fc1, fc2 and experts among "
            "the "
            "targets of --lora, or with none of them");
    if (!adapters.shared_by_experts && adapters.experts)
        throw ConfigError(
            "model.adapters: experts have an adapter each, as in ms-swift, and Megatron-Bridge's share one; plan with --lora for "
            "Megatron-Bridge");
    if (adapters.base != FrozenStorage::own)
        throw ConfigError(
            "model.adapters: base = nf4 cannot be said to Megatron-Bridge, which has no frozen weights in 4 bits; plan without base=nf4");
    std::vector<std::string> modules;
    const auto add = [&](bool wanted, std::initializer_list<const char*> names) {
        if (wanted) modules.insert(modules.end(), names.begin(), names.end());
    };
    add(adapters.qkv, {"linear_qkv"});
    add(adapters.proj, {"linear_proj"});
    add(adapters.fc1, {"linear_fc1"});
    add(adapters.fc2, {"linear_fc2"});
    add(adapters.in_proj, {"in_proj"});
    add(adapters.out_proj, {"out_proj"});
    add(adapters.latent, {"linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj"});
    return modules;
}

}  // namespace

std::vector<std::string> bridge_overrides(const MegatronJob& job) {
    refuse_chunks_of_patterns(job);
    std::vector<std::string> overrides;
    const auto set = [&](std::string_view field, std::string_view value) { overrides.push_back(fmt::format("{}={}", field, value)); };
    for (const OverriddenField& one : kValues) {
        const MegatronFlag* flag = find_in(job, one.flag);
        set(one.field, flag != nullptr && !flag->values.empty() ? hydra_value(flag->values.front()) : std::string(one.otherwise));
    }
    for (const OverriddenField& one : kLists) {
        const MegatronFlag* flag = find_in(job, one.flag);
        set(one.field, flag != nullptr ? fmt::format("[{}]", fmt::join(flag->values, ",")) : std::string(one.otherwise));
    }
    for (const OverriddenField& one : kSwitches) set(one.field, find_in(job, one.flag) != nullptr ? "true" : one.otherwise);
    for (const OverriddenField& one : kWhereSet) {
        const MegatronFlag* flag = find_in(job, one.flag);
        if (flag != nullptr) set(one.field, flag->values.empty() ? std::string(one.otherwise) : hydra_value(flag->values.front()));
    }
    for (const std::string_view section : {"ddp", "optimizer"})
        set(fmt::format("{}.use_distributed_optimizer", section), shards_optimizer(job) ? "true" : "false");
    const bool overlaps = overlaps_messages(job);
    set("model.overlap_p2p_comm", overlaps ? "true" : "false");
    set("model.batch_p2p_comm", overlaps ? "false" : "true");
    set("comm_overlap", "null");
    if (job.adapters) {
        set("peft.dim", std::to_string(job.adapters->rank));
        set("peft.alpha", fmt::format("{:g}", job.adapters->alpha));
        set("peft.target_modules", fmt::format("[{}]", fmt::join(modules_of_adapters(job), ",")));
    }
    return overrides;
}

std::string bridge_overrides_text(const MegatronJob& job) {
    std::string text = fmt::format(
        "# Megatron-Bridge: {}, {}\n# Overrides for a recipe of this model; model, precision and optimizer stay the recipe's.\n"
        "MEGATRON_BRIDGE_OVERRIDES=(\n",
        job.model, job.layout);
    for (const auto& [name, value] : job.environment) {
        // Bridge sets CUDA's own itself.
        if (!name.starts_with("CUDA_")) text = fmt::format("# In the environment: {}={}\n", name, value) + text;
    }
    for (const std::string& one : bridge_overrides(job)) text += fmt::format("    {}\n", shell_word(one));
    return text + ")\n";
}

}  // namespace mgplan::formats
