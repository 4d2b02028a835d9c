#include <array>

#include "formats/recognise/recognise.hpp"

// Signs by which the files of trainers differ. Source: the examples and configuration classes of each project's repository, as seen
// in 2026. The first row that fits counts, so rows with fewer signs come last.

namespace mgplan::formats {
namespace {

constexpr std::string_view kSizesInPython = "the sizes of its model are defined in Python",
                           kFlagsElsewhere = "the flags of its model are in another file";

constexpr std::array kFrameworks{
    FrameworkSigns{"ms-swift", "Megatron command", "", "megatron+sft megatron+pt megatron+rlhf megatron_sft* megatron_pt* megatron_rlhf*",
                   "it takes the sizes of its model from a checkpoint", true},
    FrameworkSigns{"ms-swift", "command", "", "swift+sft swift+pt swift+rlhf swift.cli* swift/cli*", "it trains without Megatron"},
    FrameworkSigns{"verl", "command", "", "verl.trainer* verl.*"},
    FrameworkSigns{"verl", "configuration", "", "actor_rollout_ref= actor_rollout_ref.*"},
    FrameworkSigns{"NeMo-RL", "configuration", "", "megatron_cfg= policy.megatron_cfg* nemo_rl*"},
    FrameworkSigns{"NeMo-RL", "configuration", "policy=", "dtensor_cfg= grpo= loss_fn= max_total_sequence_length="},
    FrameworkSigns{"NeMo-RL", "configuration of an evaluation", "eval= generation=", "num_tests_per_prompt=", "it trains nothing"},
    FrameworkSigns{"ROLL", "configuration", "actor_train= strategy_args=", ""},
    FrameworkSigns{"ROLL", "configuration", "", "start_rlvr_pipeline.py start_agentic_pipeline.py"},
    FrameworkSigns{"AReaL", "configuration", "", "allocation_mode= areal.* areal/*"},
    FrameworkSigns{"OpenRLHF", "command", "", "openrlhf.*"},
    FrameworkSigns{"miles", "command", "", "miles_plugins* miles.*", kFlagsElsewhere, true},
    FrameworkSigns{"slime", "command", "", "--actor-num-nodes --rollout-batch-size --rollout-num-gpus slime_plugins*", kFlagsElsewhere,
                   true},
    FrameworkSigns{"LLaMA-Factory", "command", "", "llamafactory-cli llamafactory*"},
    FrameworkSigns{"LLaMA-Factory", "configuration", "finetuning_type= model_name_or_path=", ""},
    FrameworkSigns{"LLaMA-Factory", "configuration of an inference", "model_name_or_path= infer_backend=", "", "it trains nothing"},
    FrameworkSigns{"LLaMA-Factory", "configuration of version 1", "model=", "kernel_config= dist_config= peft_config="},
    FrameworkSigns{"axolotl", "configuration", "base_model=", "sequence_len= micro_batch_size= datasets= adapter="},
    FrameworkSigns{"axolotl", "command", "", "axolotl+train axolotl.cli*"},
    FrameworkSigns{"torchtune", "configuration", "", "torchtune.* tune+run", kSizesInPython},
    FrameworkSigns{"torchtitan", "TOML configuration", "[model]", "flavor= [parallelism] [experimental]",
                   "its flavors' sizes are defined in Python"},
    FrameworkSigns{"torchtitan", "command", "", "torchtitan.* torchtitan/*", "its flavors' sizes are defined in Python"},
    FrameworkSigns{"MaxText", "configuration", "",
                   "base_emb_dim= base_num_decoder_layers= ici_fsdp_parallelism= ici_tensor_parallelism= dcn_data_parallelism= "
                   "MaxText* maxtext*",
                   "its meshes are those of JAX"},
    FrameworkSigns{"nanotron", "configuration", "parallelism= tokens=", "is_llama_config= model_config= sequence_length="},
    FrameworkSigns{"OLMo-core", "configuration", "", "olmo_core.*"},
    FrameworkSigns{"gpt-neox", "configuration", "", "pipe_parallel_size= pipe-parallel-size= gpt_j_residual= gpt-j-residual= deepy.py"},
    FrameworkSigns{"NeMo 1", "configuration", "exp_manager= trainer=", "model="},
    FrameworkSigns{"NeMo 1", "command", "", "megatron_gpt_pretraining.py megatron_gpt_finetuning.py megatron_gpt_sft.py"},
    FrameworkSigns{"NeMo 2", "recipe", "", "nemo+llm nemo.collections*", kSizesInPython},
    FrameworkSigns{"Primus", "configuration", "work_group= modules=", "", "the sizes of its model are in a file that it includes"},
    FrameworkSigns{"Primus", "command", "", "primus-cli primus/cli* primus/train.py run_pretrain_cli.sh"},
    FrameworkSigns{"FlagScale", "configuration", "experiment= defaults=", "action= hydra= task="},
    FrameworkSigns{"FlagScale", "configuration", "system= model= data=", "tensor_model_parallel_size= pipeline_model_parallel_size="},
    FrameworkSigns{
        "Megatron-Bridge", "command", "",
        "run_recipe.py setup_experiment.py --model_recipe_name -mr megatron.bridge* --recipe finetune_llama3_8b.py pretrain_llama3_8b.py",
        "the sizes of its model come from a recipe in Python (mgplan check --recipe NAME reads those that are shipped)"},
    FrameworkSigns{"Megatron-Bridge", "override", "model= train=", "micro_batch_size= global_batch_size= train_iters=",
                   "the sizes of its model come from a recipe in Python", true},
    FrameworkSigns{"MindSpeed-LLM", "command of its FSDP2 trainer", "", "train_fsdp2.py", "it trains without Megatron"},
    FrameworkSigns{"ChatLearn", "command", "", "chatlearn_entrypoint.py chatlearn*"},
    FrameworkSigns{"MindSpeed-MM", "command", "", "--mm-model --mm-data", "it trains on pictures or video"},
    FrameworkSigns{"LLM Foundry", "configuration", "max_seq_len= fsdp_config=", "model="},
    FrameworkSigns{"Hugging Face Accelerate", "configuration",
                   "distributed_type=", "compute_environment= machine_rank= num_processes=", "it holds no model"},
    FrameworkSigns{"DeepSpeed", "JSON configuration", "", "zero_optimization= train_micro_batch_size_per_gpu=", "it holds no model"},
    FrameworkSigns{"TRL", "command", "", "trl+sft trl+dpo trl+grpo"},
};

}  // namespace

std::span<const FrameworkSigns> framework_table() {
    return kFrameworks;
}

}  // namespace mgplan::formats
