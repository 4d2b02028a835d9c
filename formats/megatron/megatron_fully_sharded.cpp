#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"

// FSDP of either kind.

namespace mgplan::formats {
namespace {

bool asks_for_megatron(const FlagReader& flags) {
    return flags.has("--use-megatron-fsdp") || flags.has("--use-custom-fsdp");
}

bool is_torch_fsdp(const Job& job) {
    return job.training->megatron.fully_sharded.kind == FullyShardedKind::torch_fsdp2;
}

bool is_megatron_fsdp(const Job& job) {
    return job.training->megatron.fully_sharded.kind == FullyShardedKind::megatron_fsdp;
}

void read_kind(FlagReader& flags, Job& job) {
    FullyShardedKind& kind = job.training->megatron.fully_sharded.kind;
    if (asks_for_megatron(flags)) kind = FullyShardedKind::megatron_fsdp;
    if (flags.has("--use-torch-fsdp2")) kind = FullyShardedKind::torch_fsdp2;
}

void write_kind(FlagWriter& out, const Job& job) {
    out.flag_if(is_torch_fsdp(job), "use-torch-fsdp2");
    out.flag_if(is_megatron_fsdp(job), "use-megatron-fsdp");
}

/// Rules: arguments.py, validate_args, at d98e8a64.
void read_checkpoint_format(FlagReader& flags, Job& job) {
    if (!job.training->megatron.fully_sharded.active()) return;
    const std::string format = flags.text("--ckpt-format").value_or(is_megatron_fsdp(job) ? "fsdp_dtensor" : "torch_dist");
    if (is_torch_fsdp(job) && format != "torch_dist" && format != "torch_dcp")
        flags.problem("--use-torch-fsdp2 needs --ckpt-format torch_dist or torch_dcp, not {}", FlagReader::shown(format));
    if (is_megatron_fsdp(job) && format != "fsdp_dtensor")
        flags.problem("--use-megatron-fsdp needs --ckpt-format fsdp_dtensor, not {}", FlagReader::shown(format));
}

void write_checkpoint_format(FlagWriter& out, const Job& job) {
    if (is_megatron_fsdp(job)) out.word("ckpt-format", "fsdp_dtensor");
}

void read_double_buffer(FlagReader& flags, Job& job) {
    bool& twice = job.training->megatron.fully_sharded.double_buffer;
    for (const auto* flag : {"--fsdp-double-buffer", "--use-nccl-ub", "--nccl-ub", "--megatron-fsdp-max-pool-double-buffer"})
        twice = twice || flags.has(flag);
}

void write_double_buffer(FlagWriter& out, const Job& job) {
    out.flag_if(is_megatron_fsdp(job) && job.training->megatron.fully_sharded.double_buffer, "fsdp-double-buffer");
}

using Type = std::optional<Dtype>;
constexpr std::array<std::pair<std::string_view, ShardingStrategy>, 4> kStrategies{
    {{"no_shard", ShardingStrategy::no_shard},
     {"optim", ShardingStrategy::optim},
     {"optim_grads", ShardingStrategy::optim_grads},
     {"optim_grads_params", ShardingStrategy::optim_grads_params}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kOuterStrategies{{{"no_shard", false}, {"optim", true}}};
constexpr std::array<std::pair<std::string_view, Type>, 4> kTypes{
    {{"auto", Type()}, {"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}}};

constexpr std::array kShardingFlags{
    FlagRow{"use-torch-fsdp2 use-megatron-fsdp use-custom-fsdp", Both{read_kind, write_kind}},
    FlagRow{"torch-fsdp2-no-reshard-after-forward", Switch{MGPLAN_FIELD(training->megatron.fully_sharded.reshard_after_forward), false},
            Written::changed, is_torch_fsdp},
    FlagRow{"data-parallel-sharding-strategy",
            Word<ShardingStrategy>{MGPLAN_FIELD(training->megatron.fully_sharded.strategy), ShardingStrategy::no_shard, kStrategies},
            Written::always, is_megatron_fsdp},
    FlagRow{"ckpt-format=", Both{read_checkpoint_format, write_checkpoint_format}},
    FlagRow{"outer-dp-sharding-strategy",
            Word<bool>{MGPLAN_FIELD(training->megatron.fully_sharded.outer_optimizer), false, kOuterStrategies}, Written::changed,
            is_megatron_fsdp},
    FlagRow{"fsdp-double-buffer megatron-fsdp-max-pool-double-buffer", Both{read_double_buffer, write_double_buffer}},
    FlagRow{"keep-fp8-transpose-cache", Switch{MGPLAN_FIELD(training->megatron.fully_sharded.keep_fp8_transposes)}, Written::changed,
            is_megatron_fsdp},
    FlagRow{"suggested-communication-unit-size",
            Whole{MGPLAN_FIELD(training->megatron.fully_sharded.communication_unit), 0, 1, std::int64_t{1} << 50}, Written::changed,
            is_megatron_fsdp},
    FlagRow{"megatron-fsdp-main-params-dtype", Word<Type>{MGPLAN_FIELD(training->megatron.fully_sharded.main_params), Dtype::fp32, kTypes},
            Written::changed, is_megatron_fsdp},
    FlagRow{"megatron-fsdp-main-grads-dtype", Word<Type>{MGPLAN_FIELD(training->megatron.fully_sharded.main_grads), Type(), kTypes},
            Written::changed, is_megatron_fsdp},
    FlagRow{"megatron-fsdp-grad-comm-dtype", Word<Type>{MGPLAN_FIELD(training->megatron.fully_sharded.communicated_grads), Type(), kTypes},
            Written::changed, is_megatron_fsdp},
};

}  // namespace

constinit const FlagTopic kShardingTopic{kShardingFlags};

/// FSDP of either kind. Rules: arguments.py, validate_args, at d98e8a64.
void read_fully_sharded(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    FullyShardedSpec& spec = training.megatron.fully_sharded;
    read_topic(flags, kShardingTopic, job);
    if (flags.integer_or("--megatron-fsdp-version", 1, 1, 2) == 2)
        flags.not_computed("--megatron-fsdp-version", "the second version of Megatron FSDP, predicted as the first", Decides::fit);
    const bool torch = flags.has("--use-torch-fsdp2"), megatron = asks_for_megatron(flags);
    if (!torch && !megatron) {
        spec = {};
        return;
    }
    const bool emerging = training.megatron.optimizer != OptimizerKind::adam && training.megatron.optimizer != OptimizerKind::sgd;
    if (torch && megatron) flags.problem("--use-torch-fsdp2 and --use-megatron-fsdp exclude each other; keep one");
    if (emerging)
        flags.problem("--optimizer {} cannot be sharded by {}; use adam or sgd, or leave FSDP out", to_string(training.megatron.optimizer),
                      torch ? "PyTorch FSDP2" : "Megatron FSDP");
    if (torch) {
        FullyShardedSpec all;
        all.kind = FullyShardedKind::torch_fsdp2;
        all.strategy = ShardingStrategy::optim_grads_params;
        all.reshard_after_forward = spec.reshard_after_forward;
        spec = all;
        if (training.distributed_optimizer)
            flags.problem("--use-torch-fsdp2 shards the optimizer's state itself; drop --use-distributed-optimizer");
        if (training.megatron.gradient_accumulation_fusion)
            flags.problem("--use-torch-fsdp2 needs --no-gradient-accumulation-fusion; add it");
        if (job.model.tied_embeddings) flags.problem("--use-torch-fsdp2 needs --untie-embeddings-and-output-weights; add it");
        if (training.precision == Precision::fp16) flags.problem("--use-torch-fsdp2 does not train in fp16; use --bf16");
        // Megatron-LM turns it off with a warning: Transformer Engine 2.0 gathers 16 bits.
        training.fp8_parameters = false;
    } else {
        if (spec.outer_optimizer && training.distributed_optimizer_instances > 1 && !spec.shards_parameters())
            flags.problem("--outer-dp-sharding-strategy optim needs --data-parallel-sharding-strategy optim_grads_params, not {}",
                          to_string(spec.strategy));
        // Set by validate_args whatever the command says.
        training.distributed_optimizer = true;
    }
    if (spec.shards_gradients()) training.overlap_grad_reduce = true;
    if (spec.shards_parameters()) training.overlap_param_gather = true;
}

}  // namespace mgplan::formats
