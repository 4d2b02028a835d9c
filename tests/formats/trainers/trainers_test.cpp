// Settings of programs that train with Megatron-core become a model, a layout and training options. Files are written after the examples of
// each program's repository (Trainer::source), shortened.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/trainer_source.hpp"
#include "formats/trainers/trainer.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::formats::trainers_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TrainerRead read(const std::string& text, const std::string& name, const MegatronSurroundings& surroundings = {}) {
    auto found = read_trainer_text(text, name, surroundings);
    EXPECT_TRUE(found.has_value()) << text;
    if (found) found->problems.throw_if_any();
    return found.value_or(TrainerRead{});
}

std::string refusal(const std::string& text, const std::string& name, const MegatronSurroundings& surroundings = {}) {
    try {
        if (const auto found = read_trainer_text(text, name, surroundings)) found->problems.throw_if_any();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

const std::string kVerlScript =
    "MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-30B-A3B-Base}\nmax_prompt_length=$((1024 * 2))\nmax_response_length=$((1024 * 8))\n"
    "ACTOR_TP=${ACTOR_TP:-2}\n"
    "python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer' \\\n    data.max_prompt_length=${max_prompt_length} \\\n"
    "    data.max_response_length=${max_response_length} \\\n    actor_rollout_ref.rollout.n=16 \\\n"
    "    actor_rollout_ref.model.path=\"${MODEL_PATH}\" \\\n    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\\n"
    "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n"
    "    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${ACTOR_TP} \\\n"
    "    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null \\\n"
    "    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 \\\n"
    "    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 \\\n    actor_rollout_ref.actor.megatron.param_offload=True \\\n"
    "    +actor_rollout_ref.actor.megatron.override_transformer_config.apply_rope_fusion=True \\\n"
    "    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \\\n"
    "    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform \\\n"
    "    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1 \\\n"
    "    actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\\n    trainer.nnodes=2 trainer.n_gpus_per_node=8\n";

TEST(Trainers, ReadTheActorOfAVerlCommand) {
    const TrainerRead found = read(kVerlScript, "run.sh");
    EXPECT_EQ(found.world, 16);
    EXPECT_EQ(found.job.model.name, "qwen3-30b-a3b");
    EXPECT_EQ(found.job.layout->tp, 2);  // of the actor, not of the rollout
    EXPECT_EQ(found.job.layout->ep, 8);
    EXPECT_EQ(found.job.layout->etp, 1);
    EXPECT_EQ(found.job.layout->micro_batch, 2);
    EXPECT_TRUE(found.job.layout->sequence_parallel);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_EQ(found.job.batch->global_batch, 128 * 16);
    EXPECT_EQ(found.job.batch->sequence, 10240);
    EXPECT_EQ(found.job.training->precision, Precision::bf16);
    EXPECT_EQ(found.job.training->grad_dtype, Dtype::fp32);
    EXPECT_TRUE(found.job.training->distributed_optimizer);
    EXPECT_FALSE(found.job.training->overlap_grad_reduce);
    EXPECT_TRUE(found.job.training->megatron.rope_fusion);              // overridden
    EXPECT_FALSE(found.job.training->megatron.bias_dropout_fusion);     // core's own default
    EXPECT_FALSE(found.job.training->megatron.bias_activation_fusion);  // also of SwiGLU, which has a flag of its own
    EXPECT_TRUE(found.job.flags.unknown.empty());
    EXPECT_THAT(found.job.notes, Contains(HasSubstr("verl: one update of the actor")));
}

TEST(Trainers, ReadTheModelAtTheEndOfAPathOfVerl) {
    std::string script = kVerlScript;
    script.replace(script.find("Qwen/Qwen3-30B-A3B-Base"), 23, "\"${RAY_DATA_HOME}/models/Qwen3-30B-A3B\"");
    EXPECT_EQ(read(script, "run.sh").job.model.name, "qwen3-30b-a3b");
}

TEST(Trainers, ReadTheAdaptersOfVerl) {
    const auto adapters = [](const std::string& more) {
        return read(kVerlScript.substr(0, kVerlScript.size() - 1) +
                        " actor_rollout_ref.actor.megatron.vanilla_mbridge=False actor_rollout_ref.model.lora.rank=8" + more + "\n",
                    "run.sh")
            .job.model.adapters;
    };
    EXPECT_EQ(adapters(""), (Adapters{.rank = 8, .fc1 = false, .fc2 = false})) << "the defaults of its configuration";
    const std::string script = kVerlScript.substr(0, kVerlScript.size() - 1);
    EXPECT_THAT(refusal(script + " actor_rollout_ref.model.lora.rank=8\n", "run.sh", {}),
                HasSubstr("needs actor_rollout_ref.actor.megatron.vanilla_mbridge=False"));
    EXPECT_THAT(refusal(script + " actor_rollout_ref.model.lora.rank=$RANK\n", "run.sh", {}),
                HasSubstr("lora.rank = $RANK: these adapters"));
    EXPECT_FALSE(read_trainer_text(script + " actor_rollout_ref.model.lora_rank=8\n", "run.sh", {})) << "refused by name";
    EXPECT_THAT(refusal(script + " actor_rollout_ref.model.lora.rank=8 actor_rollout_ref.model.lora.dtype=float32\n", "run.sh", {}),
                HasSubstr("lora.dtype = float32: these adapters"));
    EXPECT_EQ(adapters(" actor_rollout_ref.model.lora.alpha=16 actor_rollout_ref.model.lora.target_modules='[\"linear_qkv\"]'"),
              (Adapters{.rank = 8, .alpha = 16, .proj = false, .fc1 = false, .fc2 = false, .experts = false}));
}

TEST(Trainers, LeaveAnUnknownFieldOfVerlOpen) {
    const TrainerRead found = read(kVerlScript.substr(0, kVerlScript.size() - 1) +
                                       " +actor_rollout_ref.actor.megatron.override_transformer_config.other_attention=True\n",
                                   "run.sh");
    EXPECT_THAT(found.job.flags.unknown, ElementsAre("--other-attention"));
}

TEST(Trainers, ReadNemoRlWithTheFileItBuildsOn) {
    const std::string folder = ::testing::TempDir();
    std::ofstream(folder + "grpo_base.yaml")
        << "policy:\n  train_micro_batch_size: 4\n  max_total_sequence_length: 512\n  megatron_cfg:\n"
           "    enabled: false\n    activation_checkpointing: true\n    recompute_granularity: full\n"
           "    apply_rope_fusion: true\n    bias_activation_fusion: true\n    mtp_num_layers: 0\n"
           "    optimizer:\n      optimizer_offload_fraction: 0.0\n      use_distributed_optimizer: true\n"
           "    distributed_data_parallel_config:\n      grad_reduce_in_fp32: false\n"
           "      overlap_grad_reduce: true\n      overlap_param_gather: true\n";
    const std::string text =
        "defaults: grpo_base.yaml\npolicy:\n  model_name: Qwen/Qwen3-30B-A3B\n  train_global_batch_size: 512\n  train_micro_batch_size: 1\n"
        "  max_total_sequence_length: 4096\n  megatron_cfg:\n    enabled: true\n    tensor_model_parallel_size: 2\n"
        "    expert_model_parallel_size: 8\n    expert_tensor_parallel_size: 1\n    sequence_parallel: true\n    pipeline_dtype: "
        "${policy.precision}\ncluster:\n  gpus_per_node: 8\n  num_nodes: 4\n";
    const TrainerRead found = read(text, "grpo.yaml", {.folder = folder});
    EXPECT_EQ(found.world, 32);
    EXPECT_EQ(found.job.layout->tp, 2);
    EXPECT_EQ(found.job.layout->micro_batch, 1);
    EXPECT_EQ(found.job.batch->sequence, 4096);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_TRUE(found.job.training->overlap_grad_reduce);
    EXPECT_EQ(found.job.training->grad_dtype, Dtype::bf16);
    EXPECT_THAT(refusal("defaults: ../other.yaml\n" + text.substr(text.find('\n') + 1), "grpo.yaml", {.folder = folder}),
                HasSubstr("builds on ../other.yaml, which is not in its folder"));
    EXPECT_FALSE(read_trainer_text("policy:\n  megatron_cfg:\n    enabled: false\n", "other.yaml", {}).has_value());
    // Each file is named from the folder of the file that builds on it. What the last one shows, names the program.
    std::filesystem::create_directories(folder + "nemo_rl/recipes");
    std::ofstream(folder + "nemo_rl/recipes/base.yaml") << "defaults: ../../grpo_base.yaml\n" + text.substr(text.find('\n') + 1);
    const MegatronSurroundings above{.folder = folder + "nemo_rl"};
    EXPECT_EQ(read("defaults: recipes/base.yaml\ncluster:\n  num_nodes: 8\n", "more.yaml", above).world, 64);
    EXPECT_EQ(recognise_file("defaults: recipes/base.yaml\n", "more.yaml", above.folder)->framework, "NeMo-RL");
    EXPECT_FALSE(recognise_file("defaults: recipes/base.yaml\n", "more.yaml", folder));
    // fp8 and quantisation have no flag of their own.
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string other = text;
        return other.replace(other.find(from), from.size(), to);
    };
    const std::string fp8 = changed("    pipeline_dtype", "    fp8_cfg:\n      enabled: true\n      fp8: hybrid\n    pipeline_dtype");
    EXPECT_THAT(read(fp8, "grpo.yaml", {.folder = folder}).job.flags.unknown, ElementsAre("--fp8-cfg"));
    const std::string quantised = changed("  model_name", "  quant_cfg: NVFP4\n  model_name");
    EXPECT_THAT(read(quantised, "grpo.yaml", {.folder = folder}).job.flags.unknown, ElementsAre(HasSubstr("--quant-cfg")));
    // Adapters, also of a file that others build on; Megatron-Bridge's experts share them.
    const auto adapted = [&](const std::string& more) {
        return changed("    pipeline_dtype", "    peft:\n      enabled: true\n      dim: 16\n" + more + "    pipeline_dtype");
    };
    const std::string with_adapters = adapted("      target_modules: [linear_qkv]\n");
    std::ofstream(folder + "nemo_rl/recipes/adapters.yaml")
        << "defaults: ../../grpo_base.yaml\n" + with_adapters.substr(with_adapters.find('\n') + 1);
    for (const TrainerRead& one :
         {read(with_adapters, "grpo.yaml", {.folder = folder}), read("defaults: recipes/adapters.yaml\n", "more.yaml", above)}) {
        ASSERT_TRUE(one.job.model.adapters);
        EXPECT_EQ(one.job.model.adapters->rank, 16);
        EXPECT_TRUE(one.job.model.adapters->qkv);
        EXPECT_FALSE(one.job.model.adapters->fc1);
        EXPECT_TRUE(one.job.model.adapters->shared_by_experts);
    }
    EXPECT_THAT(refusal(adapted("      target_modules: [linear_qkv]\n      exclude_modules: [\"*.layers.0.*\"]\n"), "grpo.yaml",
                        {.folder = folder}),
                HasSubstr("exclude_modules = [*.layers.0.*]: these adapters cannot be planned; give the job as options with --lora"));
    EXPECT_THAT(refusal(adapted(""), "grpo.yaml", {.folder = folder}), HasSubstr("target_modules = []: these adapters cannot be planned"));
    EXPECT_THAT(refusal(adapted("      target_modules: [router]\n"), "grpo.yaml", {.folder = folder}),
                HasSubstr("router: adapters of this module cannot be planned"));
    std::filesystem::remove_all(folder + "nemo_rl");
}

TEST(Trainers, ReadRollsActor) {
    const TrainerRead found = read(
        "pretrain: Qwen/Qwen3-30B-A3B-Base\nsequence_length: 8192\nactor_train:\n  training_args:\n    per_device_train_batch_size: 1\n"
        "    gradient_accumulation_steps: 32\n  strategy_args:\n    strategy_name: megatron_train\n    strategy_config:\n"
        "      tensor_model_parallel_size: 2\n      pipeline_model_parallel_size: 2\n      expert_model_parallel_size: 4\n"
        "      sequence_parallel: true\n      use_distributed_optimizer: true\n      recompute_granularity: full\n"
        "  device_mapping: list(range(0,16))\n",
        "rlvr.yaml");
    EXPECT_EQ(found.world, 16);
    EXPECT_EQ(found.job.batch->global_batch, 32 * 4);
    EXPECT_EQ(found.job.batch->sequence, 8192);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_EQ(found.job.training->grad_dtype, Dtype::fp32);  // mcore_adapter sets it with bf16
    EXPECT_TRUE(found.job.training->distributed_optimizer);
}

TEST(Trainers, ReadArealsAllocations) {
    const auto layout = [](const std::string& allocation) {
        return read(
            "actor:\n  backend: \"" + allocation +
                "\"\n  path: Qwen/Qwen3-30B-A3B\n  gradient_checkpointing: true\n  mb_spec:\n    max_tokens_per_mb: 4096\nrollout:\n  "
                "backend: sglang:d4p1t1\nallocation_mode: x\n",
            "areal.yaml");
    };
    const TrainerRead plain = layout("megatron:d4p1t2");
    EXPECT_EQ(plain.world, 8);
    EXPECT_EQ(plain.job.layout->tp, 2);
    EXPECT_EQ(plain.job.layout->recompute, Recompute::full);
    const TrainerRead folded = layout("megatron:(attn:d1p12t4|ffn:d1p12e4)");
    EXPECT_EQ(folded.world, 48);
    EXPECT_EQ(folded.job.layout->pp, 12);
    EXPECT_EQ(folded.job.layout->ep, 4);
    EXPECT_EQ(folded.job.layout->etp, 1);
    EXPECT_THAT(refusal("allocation_mode: megatron:d4x2\nactor:\n  path: Qwen/Qwen3-8B\n", "areal.yaml"),
                HasSubstr("no allocation of AReaL"));
    EXPECT_FALSE(read_trainer_text("allocation_mode: sglang:d4t1+fsdp:d4\nactor:\n  path: Qwen/Qwen3-8B\n", "areal.yaml", {}).has_value());
}

TEST(Trainers, ReadLlamaFactoryWithMegatron) {
    const std::string text =
        "model_name_or_path: Qwen/Qwen3-30B-A3B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 8\nlearning_rate: 3e-6\nbf16: true\ntensor_model_parallel_size: 1\npipeline_model_parallel_size: 4\n"
        "expert_model_parallel_size: 2\nuse_distributed_optimizer: true\noverlap_grad_reduce: true\nrecompute_granularity: full\n";
    const TrainerRead found = read(text, "full.yaml", {.world = 8});
    EXPECT_EQ(found.job.batch->global_batch, 1 * 8 * 2);
    EXPECT_EQ(found.job.layout->pp, 4);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_TRUE(found.job.flags.unknown.empty());
    EXPECT_THAT(refusal("model_name_or_path: me/other\nfinetuning_type: full\ntensor_model_parallel_size: 2\n", "full.yaml"),
                HasSubstr("its model me/other is no preset; name the model by --model NAME|config.json next to the file"));
}

TEST(Trainers, ReadFlagScaleAndPrimus) {
    const TrainerRead scale = read(
        "system:\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n  use_distributed_optimizer: true\n  disable_bias_linear: "
        "true\n"
        "  precision:\n    bf16: true\n    accumulate_allreduce_grads_in_fp32: true\n  logging:\n    log_interval: 1\nmodel:\n  "
        "num_layers: 28\n"
        "  hidden_size: 1024\n  num_attention_heads: 16\n  num_query_groups: 8\n  seq_length: 4096\n  max_position_embeddings: 4096\n"
        "  position_embedding_type: rope\n  swiglu: true\n  no_rope_fusion: true\n  micro_batch_size: 1\n  global_batch_size: 64\ndata:\n"
        "  tokenizer:\n    vocab_size: 151936\n",
        "0_6b.yaml");
    EXPECT_EQ(scale.job.model.layers, 28);
    EXPECT_EQ(scale.job.model.vocab, 151936);
    EXPECT_EQ(scale.job.layout->tp, 2);
    EXPECT_FALSE(scale.job.training->megatron.rope_fusion);
    const TrainerRead primus = read(
        "work_group: amd\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: "
        "${PRIMUS_MODEL:llama3.1_8B}.yaml\n    overrides:\n      train_iters: 50\n      micro_batch_size: 2\n      global_batch_size: 128\n"
        "      seq_length: ${PRIMUS_SEQ_LENGTH:8192}\n      tensor_model_parallel_size: 2\n      overlap_grad_reduce: true\n"
        "      gradient_accumulation_fusion: false\n      use_another_kernel: true\n",
        "pretrain.yaml");
    EXPECT_EQ(primus.job.model.name, "llama3.1-8b");
    EXPECT_EQ(primus.job.batch->sequence, 8192);
    EXPECT_EQ(primus.job.layout->micro_batch, 2);
    EXPECT_FALSE(primus.job.training->megatron.gradient_accumulation_fusion);
    EXPECT_THAT(primus.job.flags.unknown, ElementsAre("--use-another-kernel"));  // leaves the verdict open
}

TEST(Trainers, RefuseOtherNetworksOfFlagScale) {
    const std::string folder = ::testing::TempDir();
    EXPECT_THAT(refusal("defaults:\n  - _self_\nexperiment:\n  task:\n    entrypoint: ./flagscale/train/train_rwkv.py\naction: run\n",
                        "train.yaml", {.folder = folder}),
                HasSubstr("train_rwkv.py trains a recurrent network (RWKV)"));
}

TEST(Trainers, ReadGptNeoxByItsSizes) {
    const std::string pythia =
        "{\n  \"pipe_parallel_size\": 1,\n  \"model_parallel_size\": 2,\n  # sizes\n  \"num_layers\": 32,\n  \"hidden_size\": 4096,\n"
        "  \"num_attention_heads\": 32,\n  \"seq_length\": 2048,\n  \"max_position_embeddings\": 2048,\n  \"norm\": \"layernorm\",\n"
        "  \"pos_emb\": \"rotary\",\n  \"rotary_pct\": 0.25,\n  \"no_weight_tying\": true,\n  \"gpt_j_residual\": true,\n"
        "  \"zero_optimization\": {\"stage\": 1},\n  \"train_micro_batch_size_per_gpu\": 8,\n  \"gradient_accumulation_steps\": 2,\n"
        "  \"checkpoint_activations\": true,\n  \"fp16\": {\"enabled\": true}\n}\n";
    const TrainerRead found = read(pythia, "6-9B.yml", {.vocab = 50432, .world = 16});
    EXPECT_EQ(total_parameters(found.job.model), 6'857'302'016);  // of EleutherAI/pythia-6.9b
    EXPECT_EQ(found.job.layout->tp, 2);
    EXPECT_EQ(found.job.batch->global_batch, 8 * 2 * 8);
    EXPECT_EQ(found.job.training->precision, Precision::fp16);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_THAT(refusal(pythia, "6-9B.yml", {.world = 16}), HasSubstr("--vocab-size 50277"));
    // Gated: 32768 becomes 11008 (ParallelMLP).
    const std::string llama =
        "{\"pipe_parallel_size\": 1, \"num_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 32768, \"num_attention_heads\": 32, "
        "\"norm\": \"rmsnorm\", \"activation\": \"swiglu\", \"pos_emb\": \"rotary\", \"no_weight_tying\": true, \"use_bias_in_mlp\": "
        "False, "
        "\"use_bias_in_attn_linear\": false, \"train_micro_batch_size_per_gpu\": 4}\n";
    EXPECT_EQ(total_parameters(read(llama, "7B.yml", {.vocab = 32000, .world = 8}).job.model), 6'738'415'616);  // of Llama-2-7b
    EXPECT_THAT(refusal("{\"pipe_parallel_size\": 1, \"num_layers\": 2, \"pos_emb\": \"alibi\"}", "x.yml", {.vocab = 8}),
                HasSubstr("pos_emb alibi"));
}

TEST(Trainers, ReadNeMosLanguageModels) {
    const std::string llama =
        "trainer:\n  devices: 8\n  num_nodes: 16\n  precision: bf16\nexp_manager:\n  name: x\nmodel:\n  mcore_gpt: true\n"
        "  micro_batch_size: 1\n  global_batch_size: 2048\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 4\n"
        "  virtual_pipeline_model_parallel_size: 4\n  encoder_seq_length: 8192\n  max_position_embeddings: ${.encoder_seq_length}\n"
        "  num_layers: 32\n  hidden_size: 4096\n  ffn_hidden_size: 14336\n  num_attention_heads: 32\n  num_query_groups: 8\n"
        "  normalization: rmsnorm\n  bias: false\n  activation: fast-swiglu\n  position_embedding_type: rope\n"
        "  share_embeddings_and_output_weights: false\n  hidden_dropout: 0.0\n  attention_dropout: 0.0\n  megatron_amp_O2: true\n"
        "  sequence_parallel: true\n  activations_checkpoint_granularity: full\n  activations_checkpoint_method: uniform\n"
        "  activations_checkpoint_num_layers: 1\n  gradient_accumulation_fusion: true\n  fp8: true\n  fp8_hybrid: true\n"
        "  tokenizer:\n    library: huggingface\n    type: meta-llama/Meta-Llama-3.1-8B\n"
        "  optim:\n    name: mcore_distributed_optim\n    overlap_grad_sync: true\n    grad_sync_dtype: bf16\n";
    const TrainerRead found = read(llama, "llama.yaml", {});
    EXPECT_EQ(found.world, 128);
    EXPECT_EQ(total_parameters(found.job.model), 8'030'261'248);  // of Llama-3.1-8B
    EXPECT_EQ(found.job.layout->tp, 2);
    EXPECT_EQ(found.job.layout->pp, 4);
    EXPECT_EQ(found.job.layout->vpp, 4);
    EXPECT_EQ(found.job.layout->recompute, Recompute::full);
    EXPECT_TRUE(found.job.layout->sequence_parallel);
    EXPECT_EQ(found.job.batch->sequence, 8192);
    EXPECT_EQ(found.job.training->precision, Precision::fp8);
    EXPECT_EQ(found.job.training->grad_dtype, Dtype::bf16);
    EXPECT_TRUE(found.job.training->distributed_optimizer);
    EXPECT_TRUE(found.job.training->overlap_grad_reduce);
    EXPECT_TRUE(found.job.training->megatron.gradient_accumulation_fusion);
    EXPECT_FALSE(found.job.training->megatron.rope_fusion) << "NeMo's default";
    EXPECT_TRUE(found.job.flags.unknown.empty());

    std::string by_file = llama;
    const std::string on_hub = "library: huggingface\n    type: meta-llama/Meta-Llama-3.1-8B\n";
    by_file.replace(by_file.find(on_hub), on_hub.size(),
                    "library: megatron\n    type: GPT2BPETokenizer\n    vocab_file: gpt2-vocab.json\n");
    EXPECT_EQ(read(by_file, "llama.yaml", {}).job.model.vocab, 50257);

    const std::string gpt =
        "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nexp_manager: {name: x}\nmodel:\n  micro_batch_size: 4\n"
        "  global_batch_size: 64\n  encoder_seq_length: 2048\n  max_position_embeddings: 2048\n  num_layers: 12\n  hidden_size: 768\n"
        "  ffn_hidden_size: \"${multiply:4, ${.hidden_size}}\"\n  num_attention_heads: 12\n  optim: {name: fused_adam}\n";
    const TrainerRead small = read(gpt, "gpt.yaml", {.vocab = 50257});
    EXPECT_EQ(small.job.model.ffn, 4 * 768);
    EXPECT_FALSE(small.job.training->distributed_optimizer);
    EXPECT_THAT(small.job.flags.unknown, ElementsAre("--megatron-amp-O2-false")) << "fp32 parameters under autocast";
    const std::string graphed = gpt + "  megatron_amp_O2: true\n  enable_cuda_graph: true\n  transformer_engine: false\n  sharp: false\n";
    EXPECT_FALSE(read(graphed, "gpt.yaml", {.vocab = 50257}).job.layout->cuda_graphs.empty()) << "its name is Megatron-LM's too";
    EXPECT_THAT(read(graphed, "gpt.yaml", {.vocab = 50257}).job.flags.unknown, ElementsAre("--no-transformer-engine"));
    EXPECT_FALSE(read_trainer_text(gpt + "  bert_binary_head: true\n", "bert.yaml", {.vocab = 30522}).has_value());
}

TEST(Trainers, ReadNeMosActivationsOrRefuseThemByName) {
    const auto of = [](const std::string& lines) {
        return "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nexp_manager: {name: x}\nmodel:\n  micro_batch_size: 4\n"
               "  global_batch_size: 64\n  encoder_seq_length: 2048\n  max_position_embeddings: 2048\n  num_layers: 12\n"
               "  hidden_size: 768\n  num_attention_heads: 12\n  megatron_amp_O2: true\n" +
               lines;
    };
    const auto model = [&](const std::string& lines) {
        const Job job = read(of(lines), "gpt.yaml", {.vocab = 50257}).job;
        EXPECT_TRUE(job.flags.unknown.empty()) << lines;
        EXPECT_EQ(job.model.ffn, 4 * 768) << "TransformerConfig's default, gated or not";
        return job.model;
    };
    for (const char* gated : {"geglu", "fast-geglu"}) {
        EXPECT_TRUE(model(fmt::format("  activation: {}\n", gated)).gated_mlp);
        EXPECT_EQ(model(fmt::format("  activation: {}\n", gated)).activation, Activation::gelu);
    }
    for (const char* gated : {"swiglu", "fast-swiglu"}) {
        EXPECT_TRUE(model(fmt::format("  activation: {}\n", gated)).gated_mlp);
        EXPECT_EQ(model(fmt::format("  activation: {}\n", gated)).activation, Activation::silu);
    }
    EXPECT_EQ(model("  activation: squared-relu\n").activation, Activation::squared_relu);
    EXPECT_FALSE(model("").gated_mlp);
    // OpenAI's GELU takes the place of the named function.
    EXPECT_EQ(model("  activation: fast-swiglu\n  openai_gelu: true\n").activation, Activation::gelu);
    EXPECT_TRUE(model("  activation: reglu\n  openai_gelu: true\n").gated_mlp);
    for (const auto& [name, function] :
         {std::pair("reglu", "relu"), std::pair("fast-reglu", "relu"), std::pair("approx-gelu", "quick_gelu")}) {
        const std::string text = refusal(of(fmt::format("  activation: {}\n", name)), "gpt.yaml");
        EXPECT_THAT(text, HasSubstr(fmt::format("gpt.yaml: model.activation = {} cannot be planned: Megatron-LM has no flag", name)));
        EXPECT_THAT(text, HasSubstr(fmt::format("--model config.json (hidden_act {})", function)));
        EXPECT_THAT(text, HasSubstr("--vocab-size is missing")) << "all that is missing is said at once";
    }
    EXPECT_THAT(refusal(of("  activation: swish\n"), "gpt.yaml", {.vocab = 50257}),
                HasSubstr("model.activation = swish is not known to NeMo, which stops at it; use gelu, geglu, fast-geglu"));
}

TEST(Trainers, KeepTheStatedWorldWhateverElseIsWrong) {
    const auto world = [](const std::string& text, const std::string& name) {
        const auto found = read_trainer_text(text, name, {});
        EXPECT_FALSE(found->problems.empty());
        return found->world;
    };
    const std::string nemo = "trainer: {devices: 8, num_nodes: 4}\nexp_manager: {name: x}\nmodel: {num_layers: 2}\n";
    EXPECT_EQ(world(nemo, "gpt.yaml"), 32) << "no vocabulary";
    EXPECT_EQ(world("policy:\n  model_name: me/other\n  megatron_cfg:\n    enabled: true\n    tensor_model_parallel_size: 2\n"
                    "cluster:\n  gpus_per_node: 8\n  num_nodes: 4\n",
                    "grpo.yaml"),
              32)
        << "no preset";
    EXPECT_EQ(world("defaults: other.yaml\npolicy:\n  megatron_cfg:\n    enabled: true\ncluster:\n  gpus_per_node: 8\n  num_nodes: 4\n",
                    "grpo.yaml"),
              32)
        << "no file that it builds on";
    EXPECT_EQ(
        world(kVerlScript.substr(0, kVerlScript.size() - 1) + " actor_rollout_ref.actor.megatron.context_parallel_size=two\n", "run.sh"),
        16);
}

TEST(Trainers, NameFieldsAsTheFileWritesThem) {
    const std::string nemo = refusal(
        "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nexp_manager: {name: x}\nmodel:\n  micro_batch_size: 1x\n"
        "  encoder_seq_length: -5\n  num_layers: twelve\n  hidden_size: 768\n  num_attention_heads: 0\n  num_moe_experts: 8x\n"
        "  virtual_pipeline_model_parallel_size: 2x\n  optim: {name: fused_adam}\n",
        "gpt.yaml");
    for (const char* stated :
         {"model.num_layers = 'twelve' is", "model.num_attention_heads = 0 is", "model.num_moe_experts = '8x'",
          "model.encoder_seq_length = -5", "model.micro_batch_size = '1x'", "model.virtual_pipeline_model_parallel_size = '2x'"})
        EXPECT_THAT(nemo, HasSubstr(stated));
    EXPECT_THAT(nemo, HasSubstr("give its size, as --vocab-size N")) << "mgplan's own option";
    EXPECT_THAT(refusal("trainer: {devices: 8}\nexp_manager: {name: x}\nmodel: {num_layers: 2, encoder_seq_length: 64}\n", "gpt.yaml"),
                AllOf(HasSubstr("model.hidden_size is missing"), Not(HasSubstr("--hidden-size"))))
        << "a field that the file lacks";
    EXPECT_THAT(refusal("system:\n  tensor_model_parallel_size: 2x\n  precision:\n    bf16: true\nmodel:\n  num_layers: 0\n"
                        "  optimizer:\n    lr_scheduler:\n      lr: 1\ndata:\n  data_path: x\n",
                        "0_6b.yaml"),
                AllOf(HasSubstr("system.tensor_model_parallel_size = '2x'"), HasSubstr("model.num_layers = 0 is out of range")));
    EXPECT_THAT(
        refusal(kVerlScript.substr(0, kVerlScript.size() - 1) + " actor_rollout_ref.actor.megatron.context_parallel_size=two\n", "run.sh"),
        HasSubstr("actor_rollout_ref.actor.megatron.context_parallel_size = 'two'"));
    EXPECT_THAT(
        refusal("pretrain: Qwen/Qwen3-30B-A3B-Base\nsequence_length: 0\nactor_train:\n  strategy_args:\n"
                "    strategy_name: megatron_train\n    strategy_config:\n      pipeline_model_parallel_size: x\n",
                "rlvr.yaml"),
        AllOf(HasSubstr("sequence_length = 0"), HasSubstr("actor_train.strategy_args.strategy_config.pipeline_model_parallel_size")));
}

TEST(Trainers, ReadNanotronsConfig) {
    const TrainerRead found = read(
        "model:\n  dtype: bfloat16\n  model_config:\n    hidden_size: 2048\n    intermediate_size: 11008\n    is_llama_config: true\n"
        "    max_position_embeddings: 4096\n    num_attention_heads: 16\n    num_hidden_layers: 28\n    num_key_value_heads: 2\n"
        "    rms_norm_eps: 1.0e-05\n    rope_scaling: null\n    tie_word_embeddings: true\n    vocab_size: 128256\noptimizer:\n"
        "  accumulate_grad_in_fp32: true\n  zero_stage: 0\nparallelism:\n  dp: 4\n  pp: 1\n  tp: 2\n  tp_mode: REDUCE_SCATTER\ntokens:\n"
        "  batch_accumulation_per_replica: 2\n  micro_batch_size: 3\n  sequence_length: 4096\n",
        "tiny.yaml");
    EXPECT_EQ(found.world, 8);
    EXPECT_EQ(found.job.batch->global_batch, 3 * 2 * 4);
    EXPECT_TRUE(found.job.layout->sequence_parallel);
    EXPECT_FALSE(found.job.training->distributed_optimizer);
    // 28 layers of q, o (2048²), k, v (2048 x 256), three of 2048 x 11008 and two norms; one table and a norm.
    EXPECT_EQ(total_parameters(found.job.model),
              28LL * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11008 + 2 * 2048) + 128256LL * 2048 + 2048);
}

TEST(Trainers, BoundAliasesAndDepth) {
    std::string bomb = "actor_train: &a0 {strategy_args: {strategy_name: megatron_train}}\n";
    for (int i = 1; i < 12; ++i) bomb += fmt::format("k{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
    EXPECT_THAT(refusal(bomb, "bomb.yaml"), HasSubstr("holds more than 20000 values"));
    EXPECT_THAT(refusal("actor_train: [\nstrategy_args: x", "bad.yaml"), HasSubstr("not valid YAML"));
}

// ---- docs/what-mgplan-reads.md

std::string page() {
    std::string text =
        "# Which files of other training programs does mgplan read?\n\n"
        "`mgplan check FILE` and `mgplan check -- COMMAND` take the file that a program is started with. This page is generated from the "
        "readers' "
        "tables\n(`formats/trainers`); the test `Trainers.PageNamesEveryReader` compares it.\n\n"
        "| program | model | layout | batch | precision | recompute | optimizer | fields read from |\n|---|---|---|---|---|---|---|---|\n"
        "| Megatron-LM and forks | yes | yes | yes | yes | yes | yes | NVIDIA/Megatron-LM d98e8a64 |\n"
        "| Megatron-Bridge, resolved configuration | yes | yes | yes | yes | yes | yes | NVIDIA-NeMo/Megatron-Bridge 067f987d |\n"
        "| Megatron-Bridge, launch of a recipe | by name | yes | yes | yes | yes | yes | NVIDIA-NeMo/Megatron-Bridge 067f987d |\n"
        "| ms-swift, `megatron sft`, `pt`, `rlhf` | by name | yes | yes | bf16, fp16 | yes | yes | modelscope/ms-swift 006938be |\n"
        "| slime, miles | by name | yes | yes | bf16 | yes | yes | THUDM/slime 1cddc5d3 |\n";
    for (const Trainer* one : trainers())
        text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", one->framework, one->reads_model, one->reads_layout,
                            one->reads_batch, one->reads_precision, one->reads_recompute, one->reads_optimizer, one->source);
    return text +
           "\n\"By name\": the settings name a model that is a preset; else `--model NAME|config.json` next to the file. A field that is "
           "not known "
           "leaves\n`legal` and `fits` open. Adapters (LoRA) are read of ms-swift, NeMo-RL, verl and Megatron-Bridge. Refused by name are "
           "the other "
           "programs that are recognised: "
           "torchtitan, "
           "MaxText, DeepSpeed,\nAccelerate, axolotl and more, each with the options of mgplan that its file answers.\n\n"
           "For reinforcement learning the training of the actor (or policy) is predicted, with sequences of the longest length; "
           "generation, "
           "reference\nand critic are not.\n";
}

TEST(Trainers, PageNamesEveryReader) {
    const std::string path = tests::data_folder() + "/../docs/what-mgplan-reads.md";
    if (std::getenv("MGPLAN_UPDATE_SNAPSHOTS") != nullptr) {
        std::ofstream(path) << page();
        return;
    }
    std::ifstream file(path);
    EXPECT_EQ(page(), std::string(std::istreambuf_iterator<char>(file), {})) << "if intended: MGPLAN_UPDATE_SNAPSHOTS=1 writes it anew";
}

}  // namespace
}  // namespace mgplan::formats::trainers_test
