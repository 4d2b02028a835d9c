#include "formats/megatron/megatron_job.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/megatron/megatron_hybrid_flags.hpp"
#include "plan/layout/megatron_offload.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"

namespace mgplan::formats {
namespace {

/// Collects one part's flags.
class FlagWriter {
public:
    explicit FlagWriter(std::string title) { part_.title = std::move(title); }

    void flag(std::string_view name, std::vector<std::string> values = {}) {
        part_.flags.push_back({fmt::format("--{}", name), std::move(values)});
    }
    void flag_if(bool wanted, std::string_view name) {
        if (wanted) flag(name);
    }
    void integer(std::string_view name, std::int64_t value) { flag(name, {fmt::format("{}", value)}); }
    void word(std::string_view name, std::string_view value) { flag(name, {std::string(value)}); }
    /// The shortest decimal that reads back the same.
    void real(std::string_view name, double value) { flag(name, {fmt::format("{}", value)}); }
    [[nodiscard]] MegatronFlags take() { return std::move(part_); }

private:
    MegatronFlags part_;
};

void write_attention(FlagWriter& out, const ModelSpec& model) {
    out.integer("num-attention-heads", model.heads);
    if (model.mla) {
        const MlaSpec& mla = *model.mla;
        out.flag("multi-latent-attention");
        if (mla.q_lora_rank > 0) out.integer("q-lora-rank", mla.q_lora_rank);
        out.integer("kv-lora-rank", mla.kv_lora_rank);
        out.integer("qk-head-dim", mla.qk_nope_head_dim);
        out.integer("qk-pos-emb-head-dim", mla.qk_rope_head_dim);
        out.integer("v-head-dim", mla.v_head_dim);
        if (mla.index_heads > 0) {
            out.word("experimental-attention-variant", "dsa");
            out.integer("dsa-indexer-n-heads", mla.index_heads);
            out.integer("dsa-indexer-head-dim", mla.index_head_dim);
            out.integer("dsa-indexer-topk", mla.index_top_k);
        }
    } else {
        if (model.kv_heads != model.heads) {
            out.flag("group-query-attention");
            out.integer("num-query-groups", model.kv_heads);
        }
        out.integer("kv-channels", model.head_dim);
    }
    out.flag_if(model.qk_norm, "qk-layernorm");
    out.flag_if(model.attention_output_gate, "attention-output-gate");
    if (model.sliding_window > 0) {
        // Megatron-LM's window counts the places before the query's own.
        out.flag("window-size", {fmt::format("{},0", model.sliding_window - 1)});
        if (model.full_attention_every > 0) out.integer("window-attn-skip-freq", model.full_attention_every);
    }
    if (model.attention_sinks) out.word("softmax-type", "learnable");
}

void write_positions(FlagWriter& out, const ModelSpec& model, std::int64_t sequence) {
    out.integer("seq-length", sequence);
    out.integer("max-position-embeddings", std::max(sequence, model.max_positions));
    const RotaryScaling& scaling = model.rotary_scaling_values;
    if (model.position == PositionEmbedding::learned) {
        out.word("position-embedding-type", "learned_absolute");
    } else if (model.position == PositionEmbedding::none) {
        out.word("position-embedding-type", "none");
    } else {
        // With multi-latent attention --rope-type names the kind; a kind without flags of its own is still named.
        const bool by_name = !model.mla && (model.rotary_scaling == "yarn" || model.rotary_scaling == "mrope");
        out.word("position-embedding-type", by_name ? std::string_view(model.rotary_scaling) : "rope");
        if (model.rotary_fraction != 1) out.real("rotary-percent", model.rotary_fraction);
        out.real("rotary-base", model.rotary_base);
    }
    if (model.mla) {
        out.word("rope-type", model.rotary_scaling.empty() ? "rope" : std::string_view(model.rotary_scaling));
        if (!model.rotary_scaling.empty()) {
            out.real("rotary-scaling-factor", scaling.factor);
            out.integer("original-max-position-embeddings", scaling.original_positions);
            out.real("beta-fast", scaling.beta_fast);
            out.real("beta-slow", scaling.beta_slow);
            out.real("mscale", scaling.mscale);
            out.real("mscale-all-dim", scaling.mscale_all_dim);
        }
    } else if (model.rotary_scaling == "llama3") {
        out.flag("use-rope-scaling");
        out.real("rope-scaling-factor", scaling.factor);
    } else if (model.rotary_scaling == "linear") {
        // An integer in Megatron-LM.
        out.real("rotary-seq-len-interpolation-factor", scaling.factor);
    }
}

void write_mlp(FlagWriter& out, const ModelSpec& model) {
    out.integer("ffn-hidden-size", model.ffn);
    if (model.gated_mlp)
        out.flag(model.activation == Activation::silu ? "swiglu" : "quick-geglu");
    else
        out.flag_if(model.activation == Activation::squared_relu, "squared-relu");
    // One switch takes all biases of linear layers away; one brings that of q, k and v back.
    const bool linear_bias = model.mlp_bias;
    out.flag_if(!linear_bias, "disable-bias-linear");
    out.flag_if(!linear_bias && model.qkv_bias, "add-qkv-bias");
}

void write_dispatcher(FlagWriter& out, TokenDispatcher dispatcher) {
    switch (dispatcher) {
        case TokenDispatcher::all_gather:
            out.word("moe-token-dispatcher-type", "allgather");
            return;
        case TokenDispatcher::all_to_all:
            out.word("moe-token-dispatcher-type", "alltoall");
            return;
        case TokenDispatcher::deep_ep:
        case TokenDispatcher::hybrid_ep:
            out.word("moe-token-dispatcher-type", "flex");
            out.word("moe-flex-dispatcher-backend", dispatcher == TokenDispatcher::deep_ep ? "deepep" : "hybridep");
            return;
    }
}

void write_mixture(FlagWriter& out, const ModelSpec& model, bool by_pattern) {
    const MoeSpec& moe = *model.moe;
    out.integer("num-experts", moe.experts);
    out.integer("moe-router-topk", moe.top_k);
    out.integer("moe-ffn-hidden-size", moe.expert_ffn);
    if (moe.latent > 0) out.integer("moe-latent-size", moe.latent);
    if (moe.shared_ffn > 0) {
        out.integer("moe-shared-expert-intermediate-size", moe.shared_ffn);
        out.flag_if(moe.shared_gate, "moe-shared-expert-gate");
    }
    const bool all = std::find(model.moe_layers.begin(), model.moe_layers.end(), false) == model.moe_layers.end();
    if (!all && !by_pattern) out.word("moe-layer-freq", fmt::format("({})", layer_pattern_text(model.moe_layers)));
    out.word("moe-router-score-function", moe.score == RouterScore::softmax ? "softmax" : "sigmoid");
    if (moe.auxiliary_loss > 0) {
        out.word("moe-router-load-balancing-type", "aux_loss");
        out.real("moe-aux-loss-coeff", moe.auxiliary_loss);
    } else if (moe.sequence_auxiliary_loss > 0) {
        out.word("moe-router-load-balancing-type", "seq_aux_loss");
        out.real("moe-aux-loss-coeff", moe.sequence_auxiliary_loss);
    } else {
        out.word("moe-router-load-balancing-type", "none");
    }
    out.flag_if(!moe.normalize_top_k && moe.score == RouterScore::softmax, "moe-router-pre-softmax");
    if (moe.routed_scaling != 1) out.real("moe-router-topk-scaling-factor", moe.routed_scaling);
    // Megatron-LM has it for sigmoid scores alone (transformer_config.py).
    if (moe.expert_bias && moe.score == RouterScore::sigmoid) {
        out.flag("moe-router-enable-expert-bias");
        out.real("moe-router-bias-update-rate", moe.expert_bias_update_rate);
    }
    if (moe.groups > 1) {
        out.integer("moe-router-num-groups", moe.groups);
        out.integer("moe-router-group-topk", moe.group_top_k);
    }
    if (moe.capacity_factor > 0) {
        out.real("moe-expert-capacity-factor", moe.capacity_factor);
        out.flag_if(moe.pad_to_capacity, "moe-pad-expert-input-to-capacity");
    }
    out.flag_if(moe.grouped_gemm, "moe-grouped-gemm");
    write_dispatcher(out, moe.dispatcher);
}

/// As main spells them, or branch dev where streams come together by trained weights.
void write_streams(FlagWriter& out, const HyperConnections& streams) {
    out.flag(streams.learned_head ? "enable-hyper-connections" : "enable-mhc-connections");
    out.integer(streams.learned_head ? "num-residual-streams" : "mhc-num-residual-streams", streams.streams);
    out.integer("mhc-sinkhorn-iterations", streams.sinkhorn_iterations);
}

MegatronFlags model_flags(const Plan& plan) {
    const ModelSpec model = with_stated_fields(plan.model);
    const HybridFlags hybrid = hybrid_flags(plan);
    FlagWriter out("model");
    for (const MegatronFlag& flag : hybrid.flags) out.flag(flag.name, flag.values);
    if (!hybrid.by_pattern) out.integer("num-layers", model.layers);
    out.integer("hidden-size", model.hidden);
    write_attention(out, model);
    write_positions(out, model, plan.batch.sequence);
    write_mlp(out, model);
    out.word("normalization", model.normalization == Normalization::rms_norm ? "RMSNorm" : "LayerNorm");
    out.real("norm-epsilon", model.norm_epsilon);
    if (model.init_deviation != ModelSpec{}.init_deviation) out.real("init-method-std", model.init_deviation);
    out.integer("vocab-size", model.vocab);
    if (model.padded_rows > 0) out.integer("padded-vocab-size", model.padded_rows);
    out.integer("make-vocab-size-divisible-by", model.vocab_divisor);
    out.flag_if(!model.tied_embeddings, "untie-embeddings-and-output-weights");
    out.real("attention-dropout", model.attention_dropout);
    out.real("hidden-dropout", model.hidden_dropout);
    if (model.mtp_layers > 0) {
        out.integer("mtp-num-layers", model.mtp_layers);
        out.flag_if(model.mtp_repeated, "mtp-use-repeated-layer");
        out.real("mtp-loss-scaling-factor", model.mtp_loss_factor);
    }
    if (model.hyper_connections) write_streams(out, *model.hyper_connections);
    if (model.moe) write_mixture(out, model, hybrid.by_pattern);
    return out.take();
}

void write_split(FlagWriter& out, const Layout& layout, bool by_pattern) {
    const StageSplitRequest& split = layout.split->request();
    if (by_pattern) {
        if (layout.vpp > 1) out.integer("microbatch-group-size-per-virtual-pipeline-stage", layout.group_size);
        return;
    }
    if (split.first_stage_layers) out.integer("decoder-first-pipeline-num-layers", *split.first_stage_layers);
    if (split.last_stage_layers) out.integer("decoder-last-pipeline-num-layers", *split.last_stage_layers);
    out.flag_if(split.account_for_embedding, "account-for-embedding-in-pipeline-split");
    out.flag_if(split.account_for_loss, "account-for-loss-in-pipeline-split");
    // A layout string says by its number of stages how many chunks a rank has.
    if (split.pipeline_layout)
        out.word("pipeline-model-parallel-layout", *split.pipeline_layout);
    else if (layout.vpp > 1)
        out.integer("num-virtual-stages-per-pipeline-rank", layout.vpp);
    if (layout.vpp > 1) out.integer("microbatch-group-size-per-virtual-pipeline-stage", layout.group_size);
}

void write_recompute(FlagWriter& out, const Layout& layout) {
    if (layout.recompute == Recompute::none) return;
    out.word("recompute-granularity", to_string(layout.recompute));
    if (layout.recompute == Recompute::selective) {
        out.flag("recompute-modules", names_in(layout.recompute_modules));
        if (layout.recompute_modules.contains(RecomputeModule::mhc) && layout.recompute_num_layers > 0)
            out.integer("mhc-recompute-layer-num", layout.recompute_num_layers);
    } else {
        out.word("recompute-method", to_string(layout.recompute_method.value_or(RecomputeMethod::uniform)));
        out.integer("recompute-num-layers", layout.recompute_num_layers);
    }
}

void write_cuda_graphs(FlagWriter& out, EnumSet<CudaGraphScope> scopes) {
    if (scopes.empty()) return;
    if (scopes.contains(CudaGraphScope::full_iteration)) {
        out.word("cuda-graph-impl", "full_iteration");
        return;
    }
    out.word("cuda-graph-impl", "transformer_engine");
    if (!scopes.contains(CudaGraphScope::layer)) out.flag("cuda-graph-scope", names_in(scopes));  // no scope: whole layers
}

std::string_view cp_comm_type_word(CpCommType type) {
    return type == CpCommType::a2a_p2p ? "a2a+p2p" : to_string(type);
}

MegatronFlags layout_flags(const Plan& plan) {
    const Layout& layout = plan.layout;
    const ParallelSizes& sizes = layout.sizes;
    FlagWriter out("layout");
    out.integer("tensor-model-parallel-size", sizes.tp);
    out.flag_if(layout.sequence_parallel, "sequence-parallel");
    out.integer("context-parallel-size", sizes.cp);
    if (sizes.cp > 1) out.word("cp-comm-type", cp_comm_type_word(layout.cp_comm_type));
    out.integer("pipeline-model-parallel-size", sizes.pp);
    write_split(out, layout, hybrid_flags(plan).by_pattern);
    if (plan.model.moe) {
        out.integer("expert-model-parallel-size", sizes.ep);
        out.integer("expert-tensor-parallel-size", sizes.etp);
    }
    out.flag_if(sizes.order.text() == "tp-cp-ep-pp-dp", "use-tp-pp-dp-mapping");
    out.integer("micro-batch-size", layout.micro_batch);
    out.integer("global-batch-size", plan.batch.global_batch);
    write_recompute(out, layout);
    write_cuda_graphs(out, layout.cuda_graphs);
    return out.take();
}

void write_precision(FlagWriter& out, const TrainingSpec& training) {
    switch (training.precision) {
        case Precision::fp64:
            throw ConfigError(
                "plan: precision = fp64, in which Megatron-LM does not train; plan with --precision bf16, fp16, fp32 or fp8 to export");
        case Precision::fp32:
            return;
        case Precision::fp16:
            out.flag("fp16");
            break;
        case Precision::fp8: {
            out.flag("bf16");
            out.word("fp8-format", training.megatron.fp8_gradients_in_e4m3 ? "e4m3" : "hybrid");
            constexpr std::array recipes{"delayed", "tensorwise", "blockwise", "mxfp8"};
            out.word("fp8-recipe", recipes[static_cast<std::size_t>(training.megatron.fp8_recipe)]);
            out.flag_if(training.fp8_parameters, "fp8-param-gather");
            break;
        }
        case Precision::nvfp4:
            out.flag("bf16");
            out.word("fp4-format", "e2m1");
            out.word("fp4-recipe", "nvfp4");
            out.flag_if(training.fp8_parameters, "fp4-param-gather");
            break;
        case Precision::bf16:
            out.flag("bf16");
            break;
    }
    const std::int64_t at_start = training.megatron.bf16_layers_at_start, at_end = training.megatron.bf16_layers_at_end;
    if (quantised(training.precision) && at_start + at_end > 0) {
        out.flag("first-last-layers-bf16");
        out.integer("num-layers-at-start-in-bf16", at_start);
        out.integer("num-layers-at-end-in-bf16", at_end);
    }
    if (training.grad_dtype == Dtype::fp32)
        out.flag("accumulate-allreduce-grads-in-fp32");
    else
        out.flag_if(training.precision != Precision::fp16, "grad-reduce-in-bf16");
}

std::string_view fsdp_dtype(std::optional<Dtype> dtype) {
    return dtype ? to_string(*dtype) : "auto";
}

void write_fully_sharded(FlagWriter& out, const FullyShardedSpec& spec) {
    const FullyShardedSpec defaults;
    if (spec.kind == FullyShardedKind::torch_fsdp2) {
        out.flag("use-torch-fsdp2");
        out.flag_if(!spec.reshard_after_forward, "torch-fsdp2-no-reshard-after-forward");
        return;
    }
    out.flag("use-megatron-fsdp");
    out.word("data-parallel-sharding-strategy", to_string(spec.strategy));
    out.word("ckpt-format", "fsdp_dtensor");
    if (spec.outer_optimizer) out.word("outer-dp-sharding-strategy", "optim");
    out.flag_if(spec.double_buffer, "fsdp-double-buffer");
    out.flag_if(spec.keep_fp8_transposes, "keep-fp8-transpose-cache");
    if (spec.communication_unit > 0) out.integer("suggested-communication-unit-size", spec.communication_unit);
    if (spec.main_params != defaults.main_params) out.word("megatron-fsdp-main-params-dtype", fsdp_dtype(spec.main_params));
    if (spec.main_grads != defaults.main_grads) out.word("megatron-fsdp-main-grads-dtype", fsdp_dtype(spec.main_grads));
    if (spec.communicated_grads != defaults.communicated_grads)
        out.word("megatron-fsdp-grad-comm-dtype", fsdp_dtype(spec.communicated_grads));
}

/// A plan of mgplan's own engine may offload what Megatron-LM does not (plan/layout/megatron_offload.hpp): no flag says that.
bool exports_host_optimizer(const TrainingSpec& training) {
    return training.offload.optimizer > 0 && training.megatron.optimizer == OptimizerKind::adam && training.distributed_optimizer &&
           !training.megatron.fully_sharded.active();
}

/// Likewise of state that waits between updates.
bool states_may_wait(const TrainingSpec& training) {
    TrainingSpec alone = training;
    alone.offload.modules = {};
    return megatron_offload_obstacles(alone, {}).empty();
}

/// The name that every version of it knows, where that says all.
void write_waiting_states(FlagWriter& out, const TrainingSpec& training) {
    const std::int64_t chunk = training.megatron.offload_chunk_mib;
    const bool plain = training.offload.states == 1 && chunk == 0 && training.megatron.optimizer == OptimizerKind::adam;
    out.flag(plain ? "offload-optimizer-states" : "chunked-optimizer-state-offload");
    if (training.offload.states < 1) out.real("optimizer-state-offload-fraction", training.offload.states);
    if (chunk > 0) out.integer("optimizer-state-offload-chunk-size-mb", chunk);
}

void write_offloading(FlagWriter& out, const TrainingSpec& training) {
    const OffloadSpec& offload = training.offload;
    if (exports_host_optimizer(training)) {
        out.flag("optimizer-cpu-offload");
        if (offload.optimizer < 1) out.real("optimizer-offload-fraction", offload.optimizer);
        out.flag_if(training.megatron.overlap_host_update, "overlap-cpu-optimizer-d2h-h2d");
    }
    if (offload.states > 0 && states_may_wait(training)) write_waiting_states(out, training);
    std::vector<std::string> modules;
    for (const OffloadModule module : kOffloadModules) {
        const bool alone = module == OffloadModule::attn_proj && !offload.modules.contains(OffloadModule::core_attn);
        if (offload.modules.contains(module) && !alone) modules.emplace_back(to_string(module));
    }
    if (modules.empty()) return;
    out.flag("fine-grained-activation-offloading");
    out.flag("offload-modules", modules);
    if (training.megatron.least_offloaded != kLeastOffloaded) out.integer("min-offloaded-tensor-size", training.megatron.least_offloaded);
}

void write_optimizer(FlagWriter& out, const TrainingSpec& training) {
    if (training.megatron.optimizer != OptimizerKind::adam) out.word("optimizer", to_string(training.megatron.optimizer));
    if (training.megatron.fully_sharded.active()) write_fully_sharded(out, training.megatron.fully_sharded);
    out.flag_if(training.distributed_optimizer, "use-distributed-optimizer");
    if (training.distributed_optimizer_instances > 1)
        out.integer("num-distributed-optimizer-instances", training.distributed_optimizer_instances);
    const bool narrow =
        training.main_param_dtype != Dtype::fp32 || training.exp_avg_dtype != Dtype::fp32 || training.exp_avg_sq_dtype != Dtype::fp32;
    if (!training.megatron.precision_aware_optimizer && !narrow && !exports_host_optimizer(training)) return;
    out.flag("use-precision-aware-optimizer");
    out.word("main-params-dtype", to_string(training.main_param_dtype));
    out.word("exp-avg-dtype", to_string(training.exp_avg_dtype));
    out.word("exp-avg-sq-dtype", to_string(training.exp_avg_sq_dtype));
}

void write_weight_shards(FlagWriter& out, const Plan& plan) {
    const WeightShards& shards = plan.training.megatron.weight_shards;
    const ParallelSizes& sizes = plan.layout.sizes;
    if (shards.dense > 1) out.integer("tensor-parallel-num-weight-shards", shards.dense * sizes.tp);
    if (shards.experts > 1 && plan.model.moe) out.integer("expert-tensor-parallel-num-weight-shards", shards.experts * sizes.etp);
    if (shards.latent_projections) out.flag("gtp-remat-opt-in-modules", {"moe_latent_proj"});
}

std::string_view attention_word(const TrainingSpec& training) {
    if (training.attention == AttentionBackend::unfused) return "unfused";
    switch (training.megatron.fused_attention) {
        case FusedAttention::flash_attention:
            return "flash";
        case FusedAttention::cudnn:
            return "fused";
        case FusedAttention::automatic:
            break;
    }
    return training.precision == Precision::fp32 ? "flash" : "auto";  // auto takes no fused kernel for fp32
}

void write_expert_buffers(FlagWriter& out, const MegatronSwitches& switches, const ModelSpec& model) {
    const ExpertBuffers& buffers = switches.expert_buffers;
    if (!model.moe || model.moe->dispatcher != TokenDispatcher::hybrid_ep || buffers.capacity == 0) return;
    out.real("moe-expert-rank-capacity-factor", buffers.capacity);
    out.flag_if(!switches.op_fuser, "moe-use-grouped-tensor");  // one of the two is needed
    out.flag_if(buffers.paged_stash, "moe-paged-stash");
    if (buffers.paged_stash && buffers.pages != ExpertBuffers{}.pages) out.real("moe-paged-stash-buffer-size-factor-cuda", buffers.pages);
}

void write_switches(FlagWriter& out, const MegatronSwitches& switches, const ModelSpec& model) {
    if (!switches.transformer_engine) out.word("transformer-impl", "local");
    out.flag_if(!switches.gradient_accumulation_fusion, "no-gradient-accumulation-fusion");
    // Its fused GELU is the form by tanh; without biases there is none.
    const bool by_erf = model.activation == Activation::gelu_exact && !model.gated_mlp && model.mlp_bias;
    if (!switches.bias_activation_fusion || by_erf)
        out.flag(model.gated_mlp && model.activation == Activation::silu ? "no-bias-swiglu-fusion" : "no-bias-gelu-fusion");
    out.flag_if(!switches.bias_dropout_fusion, "no-bias-dropout-fusion");
    out.flag_if(!switches.masked_softmax_fusion, "no-masked-softmax-fusion");
    out.flag_if(!switches.rope_fusion, "no-rope-fusion");
    out.flag_if(!switches.async_tp_reduce, "no-async-tensor-model-parallel-allreduce");
    out.flag_if(switches.moe_permute_fusion, "moe-permute-fusion");
    out.flag_if(switches.permute_in_hybrid_ep, "moe-permute-fusion-into-hybridep");
    write_expert_buffers(out, switches, model);
    if (switches.dispatcher_sms > 0) out.integer("moe-flex-dispatcher-num-sms", switches.dispatcher_sms);
    const bool clamps = model.activation == Activation::clamped_swish;
    if (clamps || switches.activation_clamp > 0) out.real("activation-func-clamp-value", clamps ? 7 : switches.activation_clamp);
    if (clamps) out.real("glu-linear-offset", 1);
    out.flag_if(switches.op_fuser, "use-transformer-engine-op-fuser");
    out.flag_if(switches.fp8_output_projection, "fp8-output-proj");
    out.flag_if(switches.fp8_attention, "fp8-dot-product-attention");
    if (switches.te_cross_entropy) out.word("cross-entropy-fusion-impl", "te");
    out.flag_if(!switches.attention_mask_in_dataloader, "no-create-attention-mask-in-dataloader");
    out.flag_if(switches.query_key_layer_scaling, "apply-query-key-layer-scaling");
    out.flag_if(switches.attention_softmax_in_fp32 && !switches.query_key_layer_scaling, "attention-softmax-in-fp32");
    out.flag_if(switches.fp32_residual_connection, "fp32-residual-connection");
    out.flag_if(switches.deterministic, "deterministic-mode");
    out.flag_if(!switches.gradient_checks, "no-check-for-nan-in-loss-and-grad");
    out.flag_if(switches.log_params_norm, "log-params-norm");
    out.flag_if(switches.log_num_zeros_in_grad, "log-num-zeros-in-grad");
    out.flag_if(switches.defer_embedding_wgrad, "defer-embedding-wgrad-compute");
    if (switches.wgrad_deferral_limit > 0) out.integer("wgrad-deferral-limit", switches.wgrad_deferral_limit);
    out.flag_if(switches.gather_with_optimizer_step, "overlap-param-gather-with-optimizer-step");
    out.flag_if(switches.moe_shared_expert_overlap, "moe-shared-expert-overlap");
    out.flag_if(switches.delay_wgrad, "delay-wgrad-compute");
    if (switches.router_fp32) out.word("moe-router-dtype", "fp32");
    if (switches.bucket_size > 0) out.integer("ddp-bucket-size", switches.bucket_size);
    if (switches.num_buckets > 0) out.integer("ddp-num-buckets", switches.num_buckets);
    out.flag_if(switches.pad_buckets, "ddp-pad-buckets-for-high-nccl-busbw");
    out.flag_if(switches.reuse_grad_buffer, "reuse-grad-buf-for-mxfp8-param-ag");
    if (switches.offloaded_layers > 0) out.integer("cpu-offloading-num-layers", switches.offloaded_layers);
    out.flag_if(switches.fused_streams && model.hyper_connections, "use-fused-mhc");
    out.flag_if(switches.forced_routing && model.moe, "moe-router-force-load-balancing");
}

MegatronFlags training_flags(const Plan& plan) {
    const TrainingSpec& training = plan.training;
    FlagWriter out("training");
    write_precision(out, training);
    write_optimizer(out, training);
    write_weight_shards(out, plan);
    out.flag_if(training.overlap_grad_reduce, "overlap-grad-reduce");
    out.flag_if(training.overlap_param_gather, "overlap-param-gather");
    out.flag_if(!training.overlap_p2p, "no-overlap-p2p-communication");
    out.flag_if(training.overlap_tp, "tp-comm-overlap");
    out.flag_if(training.overlap_moe, "overlap-moe-expert-parallel-comm");
    out.word("attention-backend", attention_word(training));
    out.flag_if(training.fused_cross_entropy, "cross-entropy-loss-fusion");
    write_switches(out, training.megatron, plan.model);
    write_offloading(out, training);
    return out.take();
}

constexpr std::string_view kLeftOpen = "Data, tokenizer, learning rate, iterations and checkpoints are yours to add.";

}  // namespace

std::vector<std::string> MegatronJob::words() const {
    std::vector<std::string> all;
    for (const auto& part : parts) {
        for (const auto& flag : part.flags) {
            all.push_back(flag.name);
            all.insert(all.end(), flag.values.begin(), flag.values.end());
        }
    }
    return all;
}

std::vector<std::pair<std::string, std::string>> megatron_environment(const Plan& plan) {
    // arguments.py, validate_args: asserted for tp, and for cp before Blackwell, so that kernels run in the order in which they are
    // issued; two batches overlapped want several queues instead (it warns otherwise).
    const ParallelSizes& sizes = plan.layout.sizes;
    std::vector<std::pair<std::string, std::string>> environment;
    if (plan.training.overlap_moe)
        environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    else if (sizes.tp > 1 || (sizes.cp > 1 && plan.cluster.compute_capability < 100))
        environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    // Asserted for Transformer Engine from 2.10 on, whose other way would offload weights as well.
    if (!plan.training.offload.modules.empty()) environment.emplace_back("NVTE_CPU_OFFLOAD_V1", "1");
    return environment;
}

MegatronJob megatron_job(const Plan& plan) {
    if (plan.layout.schedule)
        throw ConfigError(fmt::format(
            "layout.schedule = {}: Megatron-LM has no schedule with divided backwards; train the plan with mgplan run, or plan without "
            "--schedule",
            to_string(*plan.layout.schedule)));
    MegatronJob job;
    job.model = plan.model.name;
    job.layout = fmt::format("{} on {} GPUs", summary(plan.layout), plan.layout.sizes.world);
    job.parts = {model_flags(plan), layout_flags(plan), training_flags(plan)};
    job.environment = megatron_environment(plan);
    if (hybrid_flags(plan).by_pattern) job.script = "pretrain_hybrid.py";
    return job;
}

std::string megatron_args_text(const MegatronJob& job) {
    std::string text = fmt::format("# Megatron-LM: {}, {}\n# {}\n", job.model, job.layout, kLeftOpen);
    text += fmt::format("# source this file, then: torchrun ... {} \"${{MEGATRON_ARGS[@]}}\" ...\n", job.script);
    for (const auto& [name, value] : job.environment) text += fmt::format("export {}={}\n", name, value);
    text += "MEGATRON_ARGS=(\n";
    for (const auto& part : job.parts) {
        text += fmt::format("    # {}\n", part.title);
        for (const auto& flag : part.flags) {
            text += "    " + flag.name;
            for (const auto& value : flag.values) text += " " + shell_word(value);
            text += "\n";
        }
    }
    return text + ")\n";
}

std::string megatron_yaml_text(const MegatronJob& job) {
    std::string text = fmt::format("# Megatron-LM: {}, {}\n# {}\n", job.model, job.layout, kLeftOpen);
    if (!job.environment.empty()) text += "ENV_VARS:\n";
    for (const auto& [name, value] : job.environment) text += fmt::format("  {}: {}\n", name, value);
    text += "MODEL_ARGS:\n";
    for (const auto& part : job.parts) {
        text += fmt::format("  # {}\n", part.title);
        for (const auto& flag : part.flags) {
            text += fmt::format("  {}: ", flag.name);
            if (flag.values.empty())
                text += "true\n";
            else if (flag.values.size() == 1)
                text += shell_word(flag.values.front()) + "\n";
            else
                text += fmt::format("[{}]\n", fmt::join(flag.values, ", "));
        }
    }
    return text;
}

}  // namespace mgplan::formats
