#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/trainers/trainer.hpp"
#include "plan/text/text.hpp"

// NeMo 1: a language model on Megatron-core under PyTorch Lightning.
// Source: NVIDIA/NeMo r2.0.0, nemo/collections/nlp/models/language_modeling/megatron_base_model.py and megatron_gpt_model.py (defaults,
// precision, optimizers); NVIDIA/NeMo-Framework-Launcher 26e42fa9, launcher_scripts/conf/training (the fields people set).

namespace mgplan::formats {
namespace {

constexpr std::array kNemoSettings{TrainerSetting{"model.optim.overlap_grad_sync", "overlap_grad_reduce"},
                                   TrainerSetting{"model.optim.overlap_param_sync", "overlap_param_gather"},
                                   TrainerSetting{"model.override_vocab_size", "vocab_size"},
                                   TrainerSetting{"model.encoder_seq_length", "seq_length"},
                                   TrainerSetting{"model.rotary_percentage", "rotary_percent"},
                                   TrainerSetting{"model.seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor"},
                                   TrainerSetting{"model.activations_checkpoint_granularity", "recompute_granularity"},
                                   TrainerSetting{"model.activations_checkpoint_method", "recompute_method"},
                                   TrainerSetting{"model.activations_checkpoint_num_layers", "recompute_num_layers"},
                                   TrainerSetting{"model.ub_tp_comm_overlap", "tp_comm_overlap"},
                                   TrainerSetting{"model.num_moe_experts", "num_experts"},
                                   TrainerSetting{"model.fp8_params", "fp8_param_gather"}};

struct NemoActivation {
    std::string_view name;        ///< in NeMo's files; one that ends in "glu" has a gate
    std::string_view field;       ///< Megatron-LM's switch of the same network; "": none is needed
    std::string_view hidden_act;  ///< Hugging Face's name where Megatron-LM has no such network; "" where it has
};
// Source: activation_to_func in megatron/utils.py, build_transformer_config in megatron_base_model.py.
constexpr std::array<NemoActivation, 9> kActivations{{{"gelu", "", ""},
                                                      {"geglu", "quick_geglu", ""},
                                                      {"fast-geglu", "quick_geglu", ""},
                                                      {"swiglu", "swiglu", ""},
                                                      {"fast-swiglu", "swiglu", ""},
                                                      {"squared-relu", "squared_relu", ""},
                                                      {"reglu", "", "relu"},
                                                      {"fast-reglu", "", "relu"},
                                                      {"approx-gelu", "", "quick_gelu"}}};

constexpr std::array kNemoComputed{TrainerSetting{"model.activation", "swiglu"},
                                   TrainerSetting{"model.activation", "quick_geglu"},
                                   TrainerSetting{"model.activation", "squared_relu"},
                                   TrainerSetting{"model.bias", "disable_bias_linear"},
                                   TrainerSetting{"model.qkv_bias", "add_qkv_bias"},
                                   TrainerSetting{"model.share_embeddings_and_output_weights", "untie_embeddings_and_output_weights"},
                                   TrainerSetting{"model.bias_dropout_add_fusion", "bias_dropout_fusion"},
                                   TrainerSetting{"model.num_query_groups", "group_query_attention"},
                                   TrainerSetting{"trainer.precision", "bf16"},
                                   TrainerSetting{"trainer.precision", "fp16"},
                                   TrainerSetting{"model.fp8", "fp8_format"},
                                   TrainerSetting{"model.optim.name", "use_distributed_optimizer"},
                                   TrainerSetting{"model.optim.grad_sync_dtype", "grad_reduce_in_bf16"}};

bool is_off(const std::string& text) {
    const std::string word = lower_case(text);
    return word == "false" || word == "none" || word == "null" || word == "0";
}

/// The field's text, taken out of the job; "" where it is not set.
std::string take(TrainerJob& job, std::string_view field) {
    const auto found = job.fields.find(field);
    if (found == job.fields.end()) return "";
    std::string value = std::move(found->second);
    job.fields.erase(found);
    return value;
}

/// "${.name}" and "${multiply:4, ${.name}}" of the model's own section; other text as it is.
std::string computed(const Settings& settings, const std::string& text) {
    constexpr std::string_view kProduct = "${multiply:";
    const auto named = [&](std::string_view reference) {
        std::string name(reference.substr(2, reference.size() - 3));
        return settings.get(name.starts_with('.') ? "model" + name : name).value_or(std::string(reference));
    };
    if (text.starts_with(kProduct) && text.ends_with('}')) {
        const auto comma = text.find(',');
        if (comma == std::string::npos) return text;
        std::string second = text.substr(comma + 1, text.size() - comma - 2);
        second.erase(0, second.find_first_not_of(' '));
        const auto one = parse_integer(text.substr(kProduct.size(), comma - kProduct.size()));
        const auto other = parse_integer(second.starts_with("${") ? named(second) : second);
        constexpr std::int64_t kLimit = std::int64_t{1} << 30;
        if (one && other && *one > 0 && *other > 0 && *one < kLimit && *other < kLimit) return std::to_string(*one * *other);
        return text;
    }
    return text.starts_with("${.") && text.ends_with('}') ? named(text) : text;
}

void read_activation(const Settings& settings, TrainerJob& job) {
    std::string name = take(job, "activation");
    if (name.empty()) name = "gelu";
    const auto* const row = std::find_if(kActivations.begin(), kActivations.end(), [&](const auto& one) { return one.name == name; });
    if (row == kActivations.end()) {
        std::vector<std::string> names;
        for (const auto& one : kActivations) {
            if (one.hidden_act.empty()) names.emplace_back(one.name);
        }
        job.problems.add("model.activation = {} is not known to NeMo, which stops at it; use {}", name.substr(0, 40), any_of_text(names));
        return;
    }
    // OpenAI's GELU takes the place of the function; the gate stays.
    const bool replaced = settings.is_true("model.openai_gelu");
    if (!replaced && !row->hidden_act.empty()) {
        job.problems.add_missing_fact(
            "model.activation = {} cannot be planned: Megatron-LM has no flag for that network; give the model as --model config.json "
            "(hidden_act {}) and the layout as options (mgplan simulate --help)",
            name, row->hidden_act);
        return;
    }
    const std::string_view gated_gelu = name.ends_with("glu") ? "quick_geglu" : "", field = replaced ? gated_gelu : row->field;
    if (!field.empty()) job.fields[std::string(field)] = "True";
    if (field == "quick_geglu") job.notes.push_back(fmt::format("{} counted as Megatron-LM's only gated GELU, --quick-geglu", name));
    // TransformerConfig's own default, where Megatron-LM's command line has 8/3 of the hidden size for SwiGLU.
    const std::int64_t hidden = field_or(job, "hidden_size", 0);
    if (!job.fields.contains("ffn_hidden_size") && hidden > 0 && hidden < (1 << 30))
        job.fields["ffn_hidden_size"] = std::to_string(4 * hidden);
}

void read_network(const Settings& settings, TrainerJob& job) {
    read_activation(settings, job);
    const std::string norm = take(job, "normalization");
    job.fields["normalization"] = norm == "rmsnorm" ? "RMSNorm" : "LayerNorm";
    if (norm == "layernorm1p") job.fields["apply_layernorm_1p"] = "True";
    if (is_off(take(job, "bias"))) job.fields["disable_bias_linear"] = "True";
    if (lower_case(take(job, "qkv_bias")) == "true") job.fields["add_qkv_bias"] = "True";
    if (is_off(take(job, "share_embeddings_and_output_weights"))) job.fields["untie_embeddings_and_output_weights"] = "True";
    if (std::string fused = take(job, "bias_dropout_add_fusion"); !fused.empty()) job.fields["bias_dropout_fusion"] = std::move(fused);
    if (job.fields.contains("num_query_groups")) job.fields["group_query_attention"] = "True";
    const std::string block = take(job, "transformer_block_type");
    if (!block.empty() && block != "pre_ln") job.fields["transformer_block_type_" + block] = "True";
    const std::string attention = take(job, "attention_type");
    if (!attention.empty() && attention != "multihead") job.fields["attention_type_" + attention] = "True";
}

void read_precision(const Settings& settings, TrainerJob& job) {
    const std::string precision = lower_case(settings.get("trainer.precision").value_or(take(job, "precision")));
    if (precision.starts_with("bf16")) job.fields["bf16"] = "True";
    if (precision.starts_with("16")) job.fields["fp16"] = "True";
    take(job, "precision");
    const bool fp8 = !is_off(job.fields.contains("fp8") ? take(job, "fp8") : "false"),
               hybrid = lower_case(take(job, "fp8_hybrid")) == "true";
    take(job, "fp8_e4m3");
    if (fp8) job.fields["fp8_format"] = hybrid ? "hybrid" : "e4m3";
    if (!fp8) take(job, "fp8_param_gather");
    // Without it parameters are fp32 under autocast, for which Megatron-LM has no flag.
    const std::string half = take(job, "megatron_amp_O2");
    if ((half.empty() || is_off(half)) && !precision.starts_with("32")) job.fields["megatron_amp_O2_false"] = "True";
}

void read_optimizer(const Settings& settings, TrainerJob& job) {
    const std::string name = settings.get("model.optim.name").value_or("fused_adam");
    if (name == "mcore_distributed_optim" || name == "distributed_fused_adam")
        job.fields["use_distributed_optimizer"] = "True";
    else if (name != "fused_adam" && name != "adam" && name != "adamw")
        job.fields["optim_" + name] = "True";
    if (name == "distributed_fused_adam") job.notes.emplace_back("Apex's distributed Adam counted as Megatron-LM's distributed optimizer");
    if (settings.get("model.optim.grad_sync_dtype") == "bf16") job.fields["grad_reduce_in_bf16"] = "True";
    for (const char* overlap : {"overlap_grad_reduce", "overlap_param_gather"}) {
        if (!job.fields.contains("use_distributed_optimizer")) take(job, overlap);
    }
}

/// The vocabulary by the tokenizer's name on the hub, or by its files.
void read_tokenizer(const Settings& settings, TrainerJob& job) {
    const auto library = settings.get("model.tokenizer.library"), type = settings.get("model.tokenizer.type");
    if (job.fields.contains("vocab_size") || !type) return;
    job.fields["tokenizer_type"] = library == "huggingface" ? "HuggingFaceTokenizer" : *type;
    const auto model = library == "huggingface" ? type : settings.get("model.tokenizer.model"),
               file = library == "huggingface" ? std::nullopt : settings.get("model.tokenizer.vocab_file");
    if (model && *model != "null") job.fields["tokenizer_model"] = *model;
    if (file && *file != "null") job.fields["vocab_file"] = *file;
}

void finish_nemo(const Settings& settings, TrainerJob& job) {
    for (auto& [field, value] : job.fields) value = computed(settings, value);
    for (const TrainerSetting& row : kNemoSettings) {
        if (const auto found = job.fields.find(row.field); found != job.fields.end() && is_off(found->second)) job.fields.erase(found);
    }
    if (!job.fields.contains("recompute_granularity") || job.fields["recompute_granularity"] == "selective") {
        take(job, "recompute_method");
        take(job, "recompute_num_layers");
    }
    // Recomputation that differs by microbatch or by stage has no flag: it leaves the fit open.
    for (const char* partial : {"num_micro_batches_with_partial_activation_checkpoints", "activations_checkpoint_layers_per_pipeline"}) {
        if (const auto found = job.fields.find(partial); found != job.fields.end() && is_off(found->second)) job.fields.erase(found);
    }
    // Off they are as in Megatron-LM. On they have no flag, or another meaning there, and leave the verdict open.
    for (const char* other : {"enable_cuda_graph", "rampup_batch_size", "use_emha", "sharp", "ffn_dropout"}) {
        if (const auto found = job.fields.find(other); found != job.fields.end() && (is_off(found->second) || found->second == "0.0"))
            job.fields.erase(found);
    }
    for (const char* kernels : {"transformer_engine", "use_flash_attention"}) {
        if (const std::string value = take(job, kernels); !value.empty() && is_off(value))
            job.fields[fmt::format("no_{}", kernels)] = "True";
    }
    if (is_off(take(job, "cpu_offloading"))) take(job, "cpu_offloading_num_layers");
    if (take(job, "fsdp") == "True" || settings.is_true("model.fsdp")) job.fields["fsdp_of_nemo"] = "True";
    if (std::string window = take(job, "window_size"); window.starts_with('[') && window.ends_with(']')) {
        std::erase(window, ' ');
        job.fields["window_size"] = window.substr(1, window.size() - 2);
    }
    read_network(settings, job);
    read_precision(settings, job);
    read_optimizer(settings, job);
    read_tokenizer(settings, job);
    settle_world(job, settings.whole("trainer.num_nodes"), settings.whole("trainer.devices"));
    job.notes.emplace_back("NeMo's job with the kernels and schedule of today's Megatron-core");
}

}  // namespace

const Trainer kNemo{
    .framework = "NeMo 1",
    .source = "NVIDIA/NeMo r2.0.0",
    .sections = "model",
    .settings = kNemoSettings,
    .computed = kNemoComputed,
    .fixed = "gradient_accumulation_fusion=False apply_rope_fusion=False hidden_dropout=0.1 attention_dropout=0.1",
    .own =
        "name mcore_gpt restore_from_path resume_from_checkpoint pre_process post_process persist_layer_norm do_layer_norm_weight_decay "
        "headscale openai_gelu normalize_attention_scores scale_positional_embedding native_amp_init_scale native_amp_growth_interval "
        "hysteresis grad_allreduce_chunk_size_mb grad_div_ar_fusion gradient_as_bucket_view sync_batch_comm seed use_cpu_initialization "
        "onnx_safe apex_transformer_log_level gc_interval dist_ckpt_format dist_ckpt_load_on_device dist_ckpt_parallel_save "
        "enable_megatron_timers get_attention_mask_from_fusion nccl_communicator_config_path use_scaled_init_method "
        "init_method_std layernorm_epsilon fp8_margin fp8_interval fp8_amax_history_len fp8_amax_compute_algo fp8_wgrad reduce_amax "
        "validation_param_sync_overlap batch_p2p_comm ub_tp_comm_overlap_cfg tp_comm_overlap_ag "
        "tp_comm_overlap_rs deterministic_mode deteministic_mode use_te_rng_tracker "
        "cpu_offloading_activations cpu_offloading_weights fsdp_grad_reduce_dtype fsdp_sharded_checkpoint fsdp_sharding_strategy "
        "layernorm_zero_centered_gamma apply_query_key_layer_scaling",
    .reads =
        [](const Settings& settings) {
            const bool other = settings.has_below("model.peft.") || settings.has_below("model.bert_") ||
                               settings.has_below("model.encoder.") || settings.has_below("model.vision") ||
                               settings.has_below("model.mm_cfg.");
            return settings.get("model.num_layers").has_value() && !other;
        },
    .finish = finish_nemo,
    .reads_model = "yes",
    .reads_layout = "yes",
    .reads_batch = "yes",
    .reads_precision = "bf16, fp16, fp32, fp8",
    .reads_recompute = "yes",
    .reads_optimizer = "Adam, distributed or not"};

}  // namespace mgplan::formats
