// What Megatron-Bridge's configuration says, held against Megatron-LM's flags that say the same.
#include "formats/megatron/bridge_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/json/model_json.hpp"
#include "plan/json/training_json.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::bridge_config_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// As ConfigContainer.to_yaml writes it: keys in alphabetical order, enumerators, functions and types as objects.
const std::string kDense = R"(_target_: megatron.bridge.training.config.ConfigContainer
checkpoint:
  _target_: megatron.bridge.training.config.CheckpointConfig
  ckpt_format: torch_dist
  save: /results
comm_overlap: null
dataset:
  _target_: megatron.bridge.training.config.MockGPTDatasetConfig
  seq_length: 8192
ddp:
  _target_: megatron.bridge.training.config.DistributedDataParallelConfig
  average_in_collective: true
  bucket_size: null
  check_for_nan_in_grad: true
  data_parallel_sharding_strategy: no_shard
  fp8_param_gather: false
  grad_reduce_in_fp32: true
  overlap_grad_reduce: true
  overlap_param_gather: true
  use_distributed_optimizer: true
mixed_precision: null
model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama3ModelProvider8B
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  apply_rope_fusion: true
  attention_backend:
    _args_:
    - 5
    _call_: true
    _name_: auto
    _target_: megatron.core.transformer.enums.AttnBackend
  attention_dropout: 0.0
  bf16: true
  bias_activation_fusion: true
  bias_dropout_fusion: true
  context_parallel_size: 2
  cross_entropy_fusion_impl: te
  cross_entropy_loss_fusion: true
  cuda_graph_impl: none
  deallocate_pipeline_outputs: true
  ffn_hidden_size: 14336
  gated_linear_unit: true
  gradient_accumulation_fusion: true
  hidden_dropout: 0.0
  hidden_size: 4096
  init_method:
    _args_: []
    _partial_: true
    _target_: torch.nn.init.normal_
    mean: 0.0
    std: 0.02
  kitchen_attention_backend: sdpa
  layernorm_epsilon: 1.0e-05
  make_vocab_size_divisible_by: 128
  masked_softmax_fusion: true
  mhc_num_residual_streams: 4
  moe_router_topk: 2
  normalization: RMSNorm
  num_attention_heads: 32
  num_layers: 32
  num_moe_experts: null
  num_query_groups: 8
  overlap_p2p_comm: true
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
  pipeline_model_parallel_size: 4
  position_embedding_type: rope
  recompute_granularity: null
  rotary_base: 500000
  seq_length: 8192
  sequence_parallel: true
  share_embeddings_and_output_weights: false
  should_pad_vocab: true
  tensor_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 2
  vocab_size: 128256
optimizer:
  _target_: megatron.bridge.training.config.OptimizerConfig
  lr: 0.0003
  optimizer: adam
  optimizer_cpu_offload: false
  optimizer_offload_fraction: 0.0
  use_precision_aware_optimizer: false
peft: null
rerun_state_machine:
  check_for_nan_in_loss: true
tokenizer:
  tokenizer_type: NullTokenizer
  vocab_size: 128256
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  empty_unused_memory_level: 0
  global_batch_size: 512
  micro_batch_size: 1
  train_iters: 100
)";

const std::string kDenseFlags =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 "
    "--swiglu --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-5 --position-embedding-type rope --rotary-base 500000 "
    "--untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 128 --attention-dropout 0 --hidden-dropout 0 "
    "--seq-length 8192 --micro-batch-size 1 --global-batch-size 512 --bf16 --tensor-model-parallel-size 4 "
    "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --context-parallel-size 2 --sequence-parallel "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --accumulate-allreduce-grads-in-fp32 "
    "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --attention-backend auto ";

/// The text with one line more at the end of a section.
std::string with(std::string text, const std::string& section, const std::string& line) {
    const auto at = text.find("\n" + section + ":\n");
    return text.insert(at + section.size() + 3, "  " + line + "\n");
}
/// The text with something replaced.
std::string changed(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
}

void expect_same(const Job& job, const std::string& flags) {
    Job same = read_megatron_text(flags, "flags");
    same.model.source = job.model.source;
    same.model.name = job.model.name;
    EXPECT_EQ(model_to_json(job.model).dump(), model_to_json(same.model).dump());
    EXPECT_EQ(training_to_json(*job.training).dump(), training_to_json(*same.training).dump());
    EXPECT_EQ(*job.batch, *same.batch);
    const LayoutRequest &layout = *job.layout, &other = *same.layout;
    EXPECT_EQ(std::tie(layout.tp, layout.cp, layout.pp, layout.ep, layout.etp, layout.vpp, layout.micro_batch, layout.sequence_parallel),
              std::tie(other.tp, other.cp, other.pp, other.ep, other.etp, other.vpp, other.micro_batch, other.sequence_parallel));
    EXPECT_EQ(std::tie(layout.recompute, layout.recompute_modules, layout.cp_comm_type, layout.group_size),
              std::tie(other.recompute, other.recompute_modules, other.cp_comm_type, other.group_size));
    EXPECT_EQ(layout.split->pipeline_layout, other.split->pipeline_layout);
}

std::string refusal(const std::string& yaml) {
    try {
        (void)read_bridge_config(yaml, "run_config.yaml");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(BridgeConfig, SaysWhatMegatronsFlagsSay) {
    const Job job = read_bridge_config(kDense, "run_config.yaml");
    expect_same(job, kDenseFlags);
    EXPECT_EQ(job.model.name, "Llama3ModelProvider8B");
    EXPECT_THAT(job.flags.used, AllOf(Contains("model.num_layers"), Contains("model.num_query_groups"), Contains("ddp.overlap_grad_reduce"),
                                      Contains("train.global_batch_size"), Not(Contains(HasSubstr("--")))));
    EXPECT_TRUE(job.flags.not_computed.empty()) << job.flags.not_computed[0].flag;
    EXPECT_TRUE(job.flags.unknown.empty()) << job.flags.unknown[0];
}

TEST(BridgeConfig, TakesAVocabularyThatIsNotPaddedAsTheRowsOfItsTable) {
    const std::string unpadded = changed(changed(kDense, "should_pad_vocab: true", "should_pad_vocab: false"),
                                         "tensor_model_parallel_size: 4\n  virtual_pipeline_model_parallel_size: 2\n  vocab_size: 128256",
                                         "tensor_model_parallel_size: 4\n  virtual_pipeline_model_parallel_size: 2\n  vocab_size: 151669");
    const Job job = read_bridge_config(unpadded, "run_config.yaml");
    EXPECT_EQ(job.model.vocab, 151669);
    for (const int tp : {1, 4}) EXPECT_EQ(job.model.padded_vocab(tp), 151669) << "which a rule of layouts refuses over 4";
    EXPECT_THAT(job.flags.used, AllOf(Contains("model.vocab_size"), Contains("model.should_pad_vocab"), Not(Contains(HasSubstr("--")))));
}

TEST(BridgeConfig, ReadsTheNewerFormOfModels) {
    // GPTModelConfig keeps what TransformerConfig has in a mapping of its own.
    std::string yaml = kDense;
    const auto begin = yaml.find("  activation_func:"), end = yaml.find("optimizer:\n");
    std::string inner;
    for (std::size_t at = begin; at < end;) {
        const auto stop = yaml.find('\n', at) + 1;
        inner += "  " + yaml.substr(at, stop - at);
        at = stop;
    }
    yaml.replace(begin, end - begin, "  transformer:\n" + inner);
    expect_same(read_bridge_config(yaml, "run_config.yaml"), kDenseFlags);
}

TEST(BridgeConfig, ReadsStateThatWaitsOnTheHost) {
    const std::string off =
        with(with(kDense, "optimizer", "chunked_optimizer_state_offload: false"), "optimizer", "optimizer_state_offload_fraction: 0.5");
    expect_same(read_bridge_config(off, "run_config.yaml"), kDenseFlags);
    const std::string on =
        with(changed(off, "state_offload: false", "state_offload: true"), "optimizer", "optimizer_state_offload_chunk_size_mb: 64");
    expect_same(read_bridge_config(on, "run_config.yaml"), kDenseFlags +
                                                               "--chunked-optimizer-state-offload --optimizer-state-offload-fraction 0.5 "
                                                               "--optimizer-state-offload-chunk-size-mb 64");
}

TEST(BridgeConfig, ReadsMixturesAndLayouts) {
    std::string yaml = changed(kDense, "num_moe_experts: null", "num_moe_experts: 64");
    for (const std::string line :
         {"moe_ffn_hidden_size: 1408", "expert_model_parallel_size: 8", "expert_tensor_parallel_size: 1", "moe_token_dispatcher_type: flex",
          "moe_flex_dispatcher_backend: hybridep", "moe_grouped_gemm: true", "moe_layer_freq: [0, 1, 1, 1, 1, 1, 1, 1]",
          "recompute_modules: [moe_act, layernorm]", "cp_comm_type: a2a"})
        yaml = with(yaml, "model", line);
    yaml = with(yaml, "model",
                "pipeline_model_parallel_layout: [[embedding, decoder], [decoder], [decoder], [decoder], [decoder], [decoder], [decoder], "
                "[decoder, loss]]");
    yaml = changed(changed(yaml, "num_layers: 32", "num_layers: 8"), "recompute_granularity: null", "recompute_granularity: selective");
    const std::string chunks = "--num-virtual-stages-per-pipeline-rank 2";
    std::string flags = kDenseFlags;
    flags.erase(flags.find(chunks), chunks.size());
    expect_same(
        read_bridge_config(yaml, "run_config.yaml"),
        flags +
            "--num-layers 8 --num-experts 64 --moe-ffn-hidden-size 1408 --expert-model-parallel-size 8 "
            "--expert-tensor-parallel-size 1 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
            "--moe-grouped-gemm --moe-layer-freq [0,1,1,1,1,1,1,1] --recompute-granularity selective --recompute-modules moe_act layernorm "
            "--cp-comm-type a2a --pipeline-model-parallel-layout Et|t|t|t|t|t|t|tL");
}

TEST(BridgeConfig, AppliesPrecisionAndOverlapAsBridgeDoes) {
    const std::string plain = changed(kDense, "  bf16: true\n", "");
    const std::string fp8 = changed(plain, "mixed_precision: null", "mixed_precision: bf16-with-fp8-delayed-scaling-mixed");
    expect_same(read_bridge_config(fp8, "run_config.yaml"), kDenseFlags + "--fp8-format hybrid --fp8-recipe delayed --fp8-param-gather");
    const std::string fields = changed(plain, "mixed_precision: null",
                                       "mixed_precision:\n  bf16: true\n  fp16: false\n  fp8: e4m3\n  fp8_recipe: blockwise\n  "
                                       "grad_reduce_in_fp32: false\n  fp8_param_gather: false\n  num_layers_at_start_in_bf16: 0");
    std::string flags = kDenseFlags;
    flags.erase(flags.find("--accumulate-allreduce-grads-in-fp32"), std::string("--accumulate-allreduce-grads-in-fp32").size());
    expect_same(read_bridge_config(fields, "run_config.yaml"), flags + "--grad-reduce-in-bf16 --fp8-format e4m3 --fp8-recipe blockwise");
    const Job overlapped = read_bridge_config(
        changed(kDense, "comm_overlap: null", "comm_overlap:\n  tp_comm_overlap: true\n  overlap_grad_reduce: null\n  bucket_size: null"),
        "run_config.yaml");
    EXPECT_TRUE(overlapped.training->overlap_tp);
    EXPECT_EQ(overlapped.training->megatron.bucket_size, 128 << 20) << "CommOverlapConfig's own";
    EXPECT_THAT(refusal(changed(kDense, "mixed_precision: null", "mixed_precision: bf16_with_magic")),
                HasSubstr("mixed_precision = 'bf16_with_magic' is no recipe that is known"));
}

TEST(BridgeConfig, NamesFieldsInWhatItLeavesOpen) {
    const Job job =
        read_bridge_config(with(with(kDense, "model", "use_kitchen_attention: true"), "model", "shiny_new_field: 3"), "run_config.yaml");
    ASSERT_EQ(job.flags.not_computed.size(), 1U);
    EXPECT_EQ(job.flags.not_computed[0].flag, "model.use_kitchen_attention");
    const Job streams = read_bridge_config(with(kDense, "model", "enable_hyper_connections: true"), "run_config.yaml");
    EXPECT_EQ(streams.model.hyper_connections.value().streams, 4) << "its switch is on";
    EXPECT_THAT(job.flags.unknown, ElementsAre("model.shiny_new_field 3"));
    const Job single = read_bridge_config(changed(kDense, "  micro_batch_size: 1\n", ""), "run_config.yaml");
    EXPECT_THAT(single.assumptions, Contains("train.micro_batch_size not given: 1 taken"));
}

TEST(BridgeConfig, ReadsFieldsOfYarnWithAndWithoutTheirPrefix) {
    const std::string yarn = with(changed(kDense, "position_embedding_type: rope", "position_embedding_type: yarn"), "model",
                                  "yarn_rotary_scaling_factor: 32.0");
    const Job job = read_bridge_config(with(yarn, "model", "yarn_beta_fast: 16.0"), "run_config.yaml");
    EXPECT_THAT(job.flags.unknown, ElementsAre());
    EXPECT_EQ(job.model.rotary_scaling, "yarn");
    EXPECT_EQ(job.model.rotary_scaling_values.factor, 32);
    EXPECT_EQ(job.model.rotary_scaling_values.beta_fast, 16);
}

TEST(BridgeConfig, RefusesSectionsOfMoreFieldsThanAConfigurationHas) {
    std::string text = "model:\n";
    for (int i = 0; i < 5000; ++i) text += "  a" + std::to_string(i) + ": 1\n";
    try {
        (void)read_bridge_config(text, "run.yaml", {});
        ADD_FAILURE();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("run.yaml: model has 5000 fields, of 4096 at most"));
    }
}

TEST(BridgeConfig, ReadsAdapters) {
    const auto adapters = [](const std::string& section) {
        return read_bridge_config(changed(kDense, "peft: null", "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n" + section),
                                  "run.yaml", {})
            .model.adapters;
    };
    EXPECT_EQ(adapters("  dim: 8\n"), (Adapters{.rank = 8, .experts = false})) << "the other defaults of peft/lora.py";
    EXPECT_EQ(adapters("  dim: 16\n  alpha: 64\n  target_modules: [linear_qkv]\n"),
              (Adapters{.rank = 16, .alpha = 64, .proj = false, .fc1 = false, .fc2 = false, .experts = false}));
}

TEST(BridgeConfig, RefusesByField) {
    EXPECT_THAT(refusal(changed(kDense, "  hidden_size: 4096\n", "")), HasSubstr("run_config.yaml: model.hidden_size is missing"));
    EXPECT_THAT(refusal(changed(kDense, "num_attention_heads: 32", "num_attention_heads: many")), HasSubstr("model.num_attention_heads"));
    EXPECT_THAT(refusal(changed(kDense, "peft: null", "peft:\n  _target_: megatron.bridge.peft.dora.DoRA\n  dim: 8")),
                HasSubstr("peft: megatron.bridge.peft.dora.DoRA cannot be planned; give peft.lora.LoRA"));
    EXPECT_THAT(refusal(changed(kDense, "peft: null", "peft: lora")), HasSubstr("peft is no section; give the fields of peft.lora.LoRA"));
    const std::string adapters = "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dropout: 0.1\n  normalize_moe_lora: ";
    EXPECT_THAT(refusal(changed(kDense, "peft: null", adapters + "true")), HasSubstr("peft.normalize_moe_lora cannot be planned"));
    EXPECT_THAT(refusal(changed(kDense, "peft: null", adapters + "false\n  lora_dtype: torch.float32")),
                HasSubstr("peft.lora_dtype cannot be planned; remove it"));
    EXPECT_NO_THROW((void)read_bridge_config(changed(kDense, "peft: null", adapters + "false"), "run.yaml", {}));
    EXPECT_THAT(refusal(changed(kDense, "model:\n", "model:\n  kd_config:\n    logit_layers: [output_layer, output_layer]\n")),
                HasSubstr("model.kd_config: distillation cannot be planned"));
    EXPECT_THAT(refusal(changed(kDense, "llama_provider.Llama3ModelProvider8B", "T5ModelProvider")),
                HasSubstr("T5ModelProvider cannot be planned"));
    EXPECT_THAT(refusal(changed(kDense, "  seq_length: 8192", "  seq_length: 4096")),
                HasSubstr("dataset.seq_length = 4096 is not model.seq_length = 8192; make them equal"));
    EXPECT_THAT(refusal(changed(kDense, "cuda_graph_impl: none", "cuda_graph_impl: full_iteration")),
                HasSubstr("rerun_state_machine.check_for_nan_in_loss; set the latter to false"));
    const std::string mxfp8 = changed(kDense, "mixed_precision: null",
                                      "mixed_precision:\n  bf16: true\n  fp8: e4m3\n  fp8_recipe: mxfp8\n  fp8_param_gather: true");
    EXPECT_THAT(refusal(mxfp8), HasSubstr("needs ddp.reuse_grad_buf_for_mxfp8_param_ag; set it to true"));
    EXPECT_EQ(refusal(mxfp8 + "\n"), refusal(mxfp8));
    EXPECT_THAT(refusal(changed(kDense, "torch.nn.functional.silu", "torch.nn.functional.tanh")),
                HasSubstr("model.activation_func = tanh with gated_linear_unit cannot be planned"));
    EXPECT_THAT(refusal(with(kDense, "model", "pipeline_model_parallel_layout: [[embedding, vision], [loss]]")),
                HasSubstr("holds more than lists of embedding, decoder, mtp and loss"));
    EXPECT_THAT(refusal("MODEL_ARGS:\n  --num-layers: 2\n"), HasSubstr("is no configuration of Megatron-Bridge"));
    EXPECT_THAT(refusal("model: [1, 2"), HasSubstr("not valid YAML"));
}

}  // namespace
}  // namespace mgplan::formats::bridge_config_test
