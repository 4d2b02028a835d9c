#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/training/kernel_fusions.hpp"

// Kernels, overlaps, buckets and checks: mostly switches.

namespace mgplan::formats {
namespace {

void read_attention_kernel(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    // auto: Transformer Engine takes a fused kernel for 16-bit types; the local implementation has none of its own.
    const bool fused = training.megatron.transformer_engine ? training.precision != Precision::fp32 : flags.has("--use-flash-attn");
    training.attention = fused ? AttentionBackend::flash : AttentionBackend::unfused;
    if (flags.has("--use-flash-attn") && training.precision != Precision::fp32) training.attention = AttentionBackend::flash;
    training.attention = flags.choice<AttentionBackend>("--attention-backend", training.attention,
                                                        {{"flash", AttentionBackend::flash},
                                                         {"fused", AttentionBackend::flash},
                                                         {"auto", training.attention},
                                                         {"unfused", AttentionBackend::unfused},
                                                         {"local", AttentionBackend::unfused}});
    training.megatron.fused_attention = flags.choice<FusedAttention>("--attention-backend", FusedAttention::automatic,
                                                                     {{"flash", FusedAttention::flash_attention},
                                                                      {"fused", FusedAttention::cudnn},
                                                                      {"auto", FusedAttention::automatic},
                                                                      {"unfused", FusedAttention::automatic},
                                                                      {"local", FusedAttention::automatic}});
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

void write_attention_kernel(FlagWriter& out, const Job& job) {
    out.word("attention-backend", attention_word(*job.training));
}

std::string_view bias_fusion_flag(const ModelSpec& model) {
    return model.gated_mlp && model.activation == Activation::silu ? "no-bias-swiglu-fusion" : "no-bias-gelu-fusion";
}

void read_rope_fusion(FlagReader& flags, Job& job) {
    if (flags.has("--no-rope-fusion")) job.training->megatron.rope_fusion = false;
}

void write_rope_fusion(FlagWriter& out, const Job& job) {
    out.flag_if(!may_fuse_rotation(job.model) || !job.training->megatron.rope_fusion, "no-rope-fusion");
}

void write_dropout_fusion(FlagWriter& out, const Job& job) {
    out.flag_if(!may_fuse_dropout(job.model) || !job.training->megatron.bias_dropout_fusion, "no-bias-dropout-fusion");
}

void read_dropout_fusion(FlagReader& flags, Job& job) {
    job.training->megatron.bias_dropout_fusion = !flags.has("--no-bias-dropout-fusion");
}

void read_bias_fusion(FlagReader& flags, Job& job) {
    job.training->megatron.bias_activation_fusion = !flags.has(fmt::format("--{}", bias_fusion_flag(job.model)));
}

void write_bias_fusion(FlagWriter& out, const Job& job) {
    out.flag_if(!job.training->megatron.bias_activation_fusion || !may_fuse_activation(job.model), bias_fusion_flag(job.model));
}

void read_dispatcher_sms(FlagReader& flags, Job& job) {
    std::int64_t& sms = job.training->megatron.dispatcher_sms;
    for (const char* flag : {"--moe-deepep-num-sms", "--moe-hybridep-num-sms", "--moe-flex-dispatcher-num-sms", "--turbo-deepep-num-cu"})
        sms = flags.integer_or(flag, sms, 0, 1024);
}

void write_dispatcher_sms(FlagWriter& out, const Job& job) {
    const std::int64_t sms = job.training->megatron.dispatcher_sms;
    if (sms > 0) out.integer("moe-flex-dispatcher-num-sms", sms);
}

void read_clamp(FlagReader& flags, Job& job) {
    job.training->megatron.activation_clamp = flags.real_or("--activation-func-clamp-value", 0, 0, 1e6);
}

void write_clamp(FlagWriter& out, const Job& job) {
    const bool clamps = job.model.activation == Activation::clamped_swish;
    const double limit = clamps ? 7 : job.training->megatron.activation_clamp;
    if (limit > 0) out.real("activation-func-clamp-value", limit);
    if (clamps) out.real("glu-linear-offset", 1);
}

constexpr std::array<std::pair<std::string_view, bool>, 3> kImplementations{
    {{"transformer_engine", true}, {"local", false}, {"inference_optimized", true}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kRouterTypes{{{"fp32", true}, {"fp64", true}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kLossKernels{{{"native", false}, {"te", true}}};

void read_gradient_checks(FlagReader& flags, Job& job) {
    job.training->megatron.gradient_checks = !flags.has("--no-check-for-nan-in-loss-and-grad");
}

/// A graph of the whole iteration has no room for the checks, and Megatron-LM stops at both.
void write_gradient_checks(FlagWriter& out, const Job& job) {
    const bool whole = job.layout->cuda_graphs.contains(CudaGraphScope::full_iteration);
    out.flag_if(whole || !job.training->megatron.gradient_checks, "no-check-for-nan-in-loss-and-grad");
}

constexpr std::array kOverlapFlags{
    FlagRow{"overlap-grad-reduce", Switch{MGPLAN_FIELD(training->overlap_grad_reduce)}},
    FlagRow{"overlap-param-gather", Switch{MGPLAN_FIELD(training->overlap_param_gather)}},
    FlagRow{"no-overlap-p2p-communication", Switch{MGPLAN_FIELD(training->overlap_p2p), false}},
    // On one tensor rank there is nothing to overlap, and Megatron-LM stops at the flag.
    FlagRow{"tp-comm-overlap", Switch{MGPLAN_FIELD(training->overlap_tp)}, Written::changed,
            [](const Job& job) { return job.layout->tp > 1; }},
    // Nor without experts.
    FlagRow{"overlap-moe-expert-parallel-comm", Switch{MGPLAN_FIELD(training->overlap_moe)}, Written::changed, is_mixture},
};

constexpr std::array kAttentionKernelFlags{
    FlagRow{"attention-backend= use-flash-attn", Both{read_attention_kernel, write_attention_kernel}},
};

constexpr std::array kKernelFlags{
    FlagRow{"cross-entropy-loss-fusion", Switch{MGPLAN_FIELD(training->fused_cross_entropy)}},
    FlagRow{"transformer-impl", Word<bool>{MGPLAN_FIELD(training->megatron.transformer_engine), true, kImplementations}},
    FlagRow{"no-gradient-accumulation-fusion", Switch{MGPLAN_FIELD(training->megatron.gradient_accumulation_fusion), false}},
    FlagRow{"no-bias-swiglu-fusion no-bias-gelu-fusion", Both{read_bias_fusion, write_bias_fusion}},
    FlagRow{"no-bias-dropout-fusion", Both{read_dropout_fusion, write_dropout_fusion}},
    FlagRow{"no-masked-softmax-fusion", Switch{MGPLAN_FIELD(training->megatron.masked_softmax_fusion), false}},
    FlagRow{"no-rope-fusion", Both{read_rope_fusion, write_rope_fusion}},
    FlagRow{"no-async-tensor-model-parallel-allreduce", Switch{MGPLAN_FIELD(training->megatron.async_tp_reduce), false}},
    FlagRow{"moe-permute-fusion", Switch{MGPLAN_FIELD(training->megatron.moe_permute_fusion)}, Written::changed, nullptr, is_mixture},
    FlagRow{"moe-permute-fusion-into-hybridep", Switch{MGPLAN_FIELD(training->megatron.permute_in_hybrid_ep)}},
};

constexpr std::array kSwitchFlags{
    FlagRow{"moe-flex-dispatcher-num-sms= moe-deepep-num-sms= moe-hybridep-num-sms= turbo-deepep-num-cu=",
            Both{read_dispatcher_sms, write_dispatcher_sms}},
    FlagRow{"activation-func-clamp-value= glu-linear-offset=", Both{read_clamp, write_clamp}},
    FlagRow{"use-transformer-engine-op-fuser", Switch{MGPLAN_FIELD(training->megatron.op_fuser)}},
    FlagRow{"fp8-output-proj", Switch{MGPLAN_FIELD(training->megatron.fp8_output_projection)}},
    FlagRow{"fp8-dot-product-attention", Switch{MGPLAN_FIELD(training->megatron.fp8_attention)}},
    FlagRow{"cross-entropy-fusion-impl", Word<bool>{MGPLAN_FIELD(training->megatron.te_cross_entropy), false, kLossKernels}},
    FlagRow{"no-create-attention-mask-in-dataloader", Switch{MGPLAN_FIELD(training->megatron.attention_mask_in_dataloader), false}},
    FlagRow{"apply-query-key-layer-scaling", Switch{MGPLAN_FIELD(training->megatron.query_key_layer_scaling)}},
    FlagRow{"attention-softmax-in-fp32", Switch{MGPLAN_FIELD(training->megatron.attention_softmax_in_fp32)}, Written::changed,
            [](const Job& job) { return !job.training->megatron.query_key_layer_scaling; }},
    FlagRow{"fp32-residual-connection", Switch{MGPLAN_FIELD(training->megatron.fp32_residual_connection)}},
    FlagRow{"deterministic-mode", Switch{MGPLAN_FIELD(training->megatron.deterministic)}},
    FlagRow{"no-check-for-nan-in-loss-and-grad", Both{read_gradient_checks, write_gradient_checks}},
    FlagRow{"log-params-norm", Switch{MGPLAN_FIELD(training->megatron.log_params_norm)}},
    FlagRow{"log-num-zeros-in-grad", Switch{MGPLAN_FIELD(training->megatron.log_num_zeros_in_grad)}},
    FlagRow{"defer-embedding-wgrad-compute", Switch{MGPLAN_FIELD(training->megatron.defer_embedding_wgrad)}},
    FlagRow{"wgrad-deferral-limit", Whole{MGPLAN_FIELD(training->megatron.wgrad_deferral_limit), 0, 0, kSizeLimit}},
    FlagRow{"overlap-param-gather-with-optimizer-step", Switch{MGPLAN_FIELD(training->megatron.gather_with_optimizer_step)}},
    FlagRow{"moe-shared-expert-overlap", Switch{MGPLAN_FIELD(training->megatron.moe_shared_expert_overlap)}, Written::changed, nullptr,
            is_mixture},
    FlagRow{"delay-wgrad-compute", Switch{MGPLAN_FIELD(training->megatron.delay_wgrad)}},
    FlagRow{"moe-router-dtype", Word<bool>{MGPLAN_FIELD(training->megatron.router_fp32), false, kRouterTypes, true}, Written::changed,
            nullptr, is_mixture},
    FlagRow{"ddp-bucket-size", Whole{MGPLAN_FIELD(training->megatron.bucket_size), 0, 0, std::int64_t{1} << 50}},
    FlagRow{"ddp-num-buckets", Whole{MGPLAN_FIELD(training->megatron.num_buckets), 0, 0, kSizeLimit}},
    FlagRow{"ddp-pad-buckets-for-high-nccl-busbw", Switch{MGPLAN_FIELD(training->megatron.pad_buckets)}},
    FlagRow{"reuse-grad-buf-for-mxfp8-param-ag", Switch{MGPLAN_FIELD(training->megatron.reuse_grad_buffer)}},
    FlagRow{"cpu-offloading-num-layers", Whole{MGPLAN_FIELD(training->megatron.offloaded_layers), 0, 0, ModelLimits::layers}},
    FlagRow{"use-fused-mhc", Switch{MGPLAN_FIELD(training->megatron.fused_streams)}, Written::changed,
            [](const Job& job) { return job.model.hyper_connections.has_value(); }},
    FlagRow{"moe-router-force-load-balancing", Switch{MGPLAN_FIELD(training->megatron.forced_routing)}, Written::changed, is_mixture},
};

}  // namespace

bool may_fuse_rotation(const ModelSpec& model) {
    if (!model.mla) return true;
    const bool known = model.position != PositionEmbedding::rope || !model.rotary_scaling.empty();
    return known && model.mla->index_heads == 0;
}

constinit const FlagTopic kOverlapTopic{kOverlapFlags};
constinit const FlagTopic kAttentionKernelTopic{kAttentionKernelFlags};
constinit const FlagTopic kKernelTopic{kKernelFlags};
constinit const FlagTopic kSwitchTopic{kSwitchFlags};

}  // namespace mgplan::formats
