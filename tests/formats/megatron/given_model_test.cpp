// A command that states a layout and no model, next to a model that is named by itself.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/model_source.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::given_model_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

MegatronSurroundings beside(const std::string& model) {
    MegatronSurroundings surroundings;
    surroundings.model = load_model(model).model;
    surroundings.script.model_is_given = true;
    return surroundings;
}

const std::string kLayout =
    "python3 train.py --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16";

std::string refusal(const std::string& text, const MegatronSurroundings& surroundings) {
    try {
        (void)read_megatron_text(text, "job.sh", surroundings);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "taken";
}

TEST(GivenModel, KeepsItsNetworkWhateverFlagsCanSay) {
    // Presets of every kind of layer: plain, latent attention, mixtures, hybrids, layers that no flag describes.
    for (const std::string model : {"llama3-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "nemotron-3-nano-30b-a3b", "gemma3-27b"}) {
        const ModelSpec alone = load_model(model).model;
        const Job job = read_megatron_text(kLayout + " --no-bias-dropout-fusion", "job.sh", beside(model));
        EXPECT_EQ(total_parameters(job.model), total_parameters(alone)) << model;
        EXPECT_EQ(job.model.name, alone.name);
        EXPECT_EQ(job.layout->tp, 2);
        EXPECT_EQ(job.batch->global_batch, 64);
        EXPECT_EQ(job.batch->sequence, 4096);
        EXPECT_THAT(job.flags.used, Contains("--bf16"));
        EXPECT_THAT(job.flags.used, ::testing::Not(Contains("--num-layers"))) << "the file does not state it";
    }
}

TEST(GivenModel, TakesWhatACommandMaySayOfAnyNetwork) {
    const Job job = read_megatron_text(kLayout + " --moe-token-dispatcher-type allgather --moe-expert-capacity-factor 1.5", "job.sh",
                                       beside("qwen3-30b-a3b"));
    EXPECT_EQ(job.model.moe->dispatcher, TokenDispatcher::all_gather);
    EXPECT_EQ(job.model.moe->capacity_factor, 1.5);
}

TEST(GivenModel, RefusesTwoModels) {
    EXPECT_THAT(refusal(kLayout + " --num-layers 4", beside("llama3-8b")),
                HasSubstr("--model and --num-layers of job.sh both name a model"));
    EXPECT_THAT(refusal(kLayout + " --swiglu --moe-router-topk 2", beside("qwen3-30b-a3b")), HasSubstr("another network than --model"));
    EXPECT_THAT(refusal(kLayout, {}), HasSubstr("--num-layers is missing"));
}

TEST(GivenModel, StandsNextToAnOverrideOfARecipe) {
    const std::string yaml =
        "model:\n  seq_length: 4096\n  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 2\n  sequence_parallel: true\n"
        "train:\n  micro_batch_size: 1\n  global_batch_size: 128\n";
    const Job job = read_bridge_config(yaml, "override.yaml", beside("qwen3-30b-a3b"));
    EXPECT_EQ(total_parameters(job.model), 30'532'122'624) << "transformers, Qwen3MoeForCausalLM";
    EXPECT_EQ(job.layout->tp, 4);
    EXPECT_EQ(job.layout->pp, 2);
    try {
        (void)read_bridge_config(yaml, "override.yaml");
        FAIL() << "no model";
    } catch (const MissingFactError& error) {
        EXPECT_THAT(error.what(), HasSubstr("name the recipe by --recipe NAME, or the model by --model NAME|config.json"));
    }
}

TEST(GivenModel, ReadsCommandsOfSwift) {
    const std::string sft =
        "NPROC_PER_NODE=8 \\\nmegatron sft \\\n --model Qwen/Qwen3-32B --tensor_model_parallel_size 8 --max_length 8192 "
        "--sequence_parallel true --packing false --recompute_granularity full --recompute_method uniform --recompute_num_layers 1";
    const Job job = read_megatron_text(sft, "sft.sh", beside("qwen3-32b"));
    EXPECT_EQ(job.layout->tp, 8);
    EXPECT_TRUE(job.layout->sequence_parallel);
    EXPECT_EQ(job.layout->recompute, Recompute::full);
    EXPECT_EQ(job.batch->sequence, 8192);
    EXPECT_EQ(job.batch->global_batch, 16) << "its default";
    EXPECT_TRUE(job.training->distributed_optimizer) << "its default";
    EXPECT_THAT(job.assumptions, Contains(HasSubstr("--bf16 --use-distributed-optimizer")));
}

TEST(GivenModel, SetsWhatSwiftSetsByItsOwnCode) {
    const std::string sft =
        "megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 --expert_model_parallel_size 4 --max_length 4096";
    const Job job = read_megatron_text(sft, "sft.sh", beside("qwen3-30b-a3b"));
    EXPECT_EQ(job.layout->ep, 4);
    EXPECT_EQ(job.layout->etp, 1) << "Megatron-LM's own default is tp";
    EXPECT_EQ(job.layout->recompute, Recompute::selective);
    const Job muon = read_megatron_text(sft + " --optimizer muon", "sft.sh", beside("qwen3-30b-a3b"));
    EXPECT_FALSE(muon.training->distributed_optimizer);
}

TEST(GivenModel, TakesSwitchesOfSwift) {
    const std::string sft = "megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 2 --max_length 4096";
    const auto read = [&](const std::string& more) { return read_megatron_text(sft + more, "sft.sh", beside("qwen3-8b")); };
    const TrainingSpec own = *read("").training;
    EXPECT_FALSE(own.megatron.rope_fusion) << "its default";
    EXPECT_TRUE(own.fused_cross_entropy) << "its default";
    const Job other = read(
        " --apply_rope_fusion true --cross_entropy_loss_fusion false --masked_softmax_fusion false "
        "--bias_dropout_fusion=false --gradient_accumulation_fusion true");
    EXPECT_TRUE(other.training->megatron.rope_fusion);
    EXPECT_FALSE(other.training->fused_cross_entropy);
    EXPECT_FALSE(other.training->megatron.bias_dropout_fusion);
    EXPECT_THAT(other.flags.unknown, ::testing::IsEmpty());
    EXPECT_TRUE(own.megatron.bias_dropout_fusion);
    const std::string experts = "megatron sft --model openai/gpt-oss-20b --tensor_model_parallel_size 1 --max_length 4096";
    EXPECT_FALSE(read_megatron_text(experts, "sft.sh", beside("gpt-oss-20b")).training->megatron.bias_dropout_fusion);
    EXPECT_TRUE(read(" --no_initialization true --max_epochs 1").training->megatron.rope_fusion) << "flags of ms-swift 3";
    EXPECT_EQ(read(" --recompute_granularity none").layout->recompute, Recompute::none);
    EXPECT_THAT(read(" --gradient_accumulation_fusion --micro_batch_size 1").flags.unknown, ::testing::IsEmpty())
        << "a switch without a value";
    EXPECT_THAT(read(" --vllm_mode colocate").flags.unknown, Contains(HasSubstr("--vllm_mode"))) << "beside --rlhf_type alone";
    EXPECT_TRUE(read(" --train_type full").training->megatron.rope_fusion) << "ms-swift 3 has Megatron-LM's defaults";
}

TEST(GivenModel, SaysWhatOfSwiftsPreferenceTrainingIsNotPredicted) {
    const Job job = read_megatron_text(
        "megatron rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --max_length 4096 --beta 0.1 --use_vllm true --vllm_mode colocate "
        "--vllm_gpu_memory_utilization 0.4 --num_generations 8 --reward_funcs accuracy format --temperature 1.0 --offload_model true",
        "grpo.sh", beside("qwen3-8b"));
    EXPECT_THAT(job.flags.unknown, ::testing::IsEmpty());
    EXPECT_THAT(job.flags.not_computed,
                Contains(::testing::Field(&FlagNotComputed::feature, HasSubstr("another model next to the trained one"))));
}

TEST(GivenModel, TakesLayersOfMultiTokenPrediction) {
    const ModelSpec plain = read_megatron_text(kLayout, "job.sh", beside("llama3-8b")).model;
    const ModelSpec predicting =
        read_megatron_text(kLayout + " --mtp-num-layers 2 --mtp-use-repeated-layer", "job.sh", beside("llama3-8b")).model;
    EXPECT_EQ(plain.mtp_layers, 0);
    EXPECT_EQ(predicting.mtp_layers, 2);
    EXPECT_TRUE(predicting.mtp_repeated);
}

TEST(GivenModel, IsHeldAgainstNoParserThatSwiftDoesNotRun) {
    // arguments.py refuses multi-token prediction of gated delta nets, and asks for CUDA_DEVICE_MAX_CONNECTIONS, which ms-swift sets.
    const Job job =
        read_megatron_text("megatron sft --model Qwen/Qwen3.5-35B-A3B --tensor_model_parallel_size 2 --max_length 4096 --mtp_num_layers 1",
                           "sft.sh", beside("qwen3.5-35b-a3b"));
    EXPECT_EQ(job.model.mtp_layers, 1);
    EXPECT_THAT(job.flags.of_environment, ::testing::IsEmpty());
}

/// Flags of ms-swift on the vision encoder, which is not planned; a frozen language model would decide memory and time.
TEST(GivenModel, TakesSwiftsFlagsOnAVisionEncoder) {
    const std::string sft =
        "megatron sft --model Qwen/Qwen3-VL-8B-Instruct --tensor_model_parallel_size 2 --max_length 4096 --freeze_vit true "
        "--freeze_aligner true --vit_gradient_checkpointing false --freeze_llm ";
    EXPECT_THAT(read_megatron_text(sft + "false", "sft.sh", beside("qwen3-8b")).flags.unknown, ::testing::IsEmpty());
    EXPECT_THAT(read_megatron_text(sft + "true", "sft.sh", beside("qwen3-8b")).flags.unknown, Contains(HasSubstr("--freeze_llm")));
}

TEST(GivenModel, SetsWhatSlimeSetsByItsOwnCode) {
    const std::string slime =
        "python3 train.py --actor-num-nodes 1 --rollout-batch-size 32 --tensor-model-parallel-size 2 --micro-batch-size 1 "
        "--global-batch-size 64";
    const Job job = read_megatron_text(slime, "run.sh", beside("llama3-8b"));
    EXPECT_EQ(job.training->precision, Precision::bf16);
    EXPECT_TRUE(job.training->distributed_optimizer);
    EXPECT_EQ(job.batch->sequence, 4096);
    const Job half = read_megatron_text(slime + " --fp16", "run.sh", beside("llama3-8b"));
    EXPECT_EQ(half.training->precision, Precision::fp16);
}

TEST(GivenModel, ReadsRolloutsOfSlimeAsABatchOfTheLongestSequences) {
    const std::string slime =
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /root/Qwen3-4B/ --rollout-batch-size "
        "32 "
        "--n-samples-per-prompt 8 --num-steps-per-rollout 2 --rollout-max-response-len 3072 --rollout-max-prompt-len 1024 "
        "--sglang-mem-fraction-static 0.7 --context-parallel-size 2 --use-dynamic-batch-size --max-tokens-per-gpu ";
    const Job job = read_megatron_text(slime + "3072", "run.sh", beside("llama3-8b"));
    EXPECT_EQ(job.batch->sequence, 4096);
    EXPECT_EQ(job.layout->micro_batch, 1) << "packs of 6,144 tokens on two ranks hold one";
    EXPECT_EQ(job.batch->global_batch, 128) << "256 answers in two steps";
    EXPECT_THAT(job.flags.unknown, ::testing::IsEmpty());
    const auto named = [](const Job& one) {
        std::vector<std::string> flags;
        for (const auto& flag : one.flags.not_computed) flags.push_back(flag.flag + (flag.decides == Decides::fit ? " decides" : ""));
        return flags;
    };
    EXPECT_THAT(named(job), ::testing::ElementsAre("--use-dynamic-batch-size"));
    EXPECT_THAT(job.assumptions, Contains(HasSubstr("sequences of the longest length (4096 tokens)")));
    EXPECT_THAT(named(read_megatron_text(slime + "4096", "run.sh", beside("llama3-8b"))), Contains("--max-tokens-per-gpu decides"))
        << "packs of two sequences";
    EXPECT_THAT(read_megatron_text(slime + "9216 --custom-loss-function-path x.y", "run.sh", beside("llama3-8b")).flags.unknown,
                Contains("--custom-loss-function-path x.y"));
}

TEST(Underscores, AreHyphensInKnownFlags) {
    const std::string flags =
        "--num_layers 4 --hidden_size 64 --num_attention_heads 4 --seq_length 64 --max_position_embeddings 64 --micro_batch_size 1 "
        "--global_batch_size 8 --vocab_size 100 --bf16 --sequence_parallel true --swiglu false --no_such_flag 1";
    const Job job = read_megatron_text("torchrun finetune.py " + flags, "job.sh");
    EXPECT_EQ(job.model.layers, 4);
    EXPECT_FALSE(job.model.gated_mlp) << "false leaves a switch out";
    EXPECT_THAT(job.flags.used, Contains("--num_layers")) << "as the command spells it";
    EXPECT_THAT(job.flags.unknown, Contains("--no_such_flag 1"));
    EXPECT_TRUE(job.flags.stray.empty());
}

TEST(YamlConfiguration, ReplacesTheFlags) {
    const std::string command = "torchrun pretrain_gpt.py --yaml-cfg gpt.yaml --num-layers 2";
    EXPECT_THAT(refusal(command, {}), HasSubstr("--yaml-cfg gpt.yaml replaces every flag"));
    const std::string folder = ::testing::TempDir() + "yaml_configuration";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/gpt.yaml")
        << "language_model:\n  num_layers: 24\n  hidden_size: 1024\n  num_attention_heads: 16\n  num_query_groups: null\n"
           "  activation_func: swiglu\n  gated_linear_unit: False\n  add_bias_linear: False\n  bias_dropout_fusion: True\n"
           "  bias_activation_fusion: False\n"
           "  apply_rope_fusion: False\n  layernorm_epsilon: 1.e-5\n"
           "model_parallel:\n  tensor_model_parallel_size: 2\n  sequence_parallel: True\n  timers: null\n"
           "micro_batch_size: 2\nglobal_batch_size: 128\nseq_length: 2048\nmax_position_embeddings: 4096\nvocab_size: 50257\nbf16: True\n"
           "fp16: False\nuse_distributed_optimizer: True\n";
    MegatronSurroundings surroundings;
    surroundings.folder = folder;
    const Job job = read_megatron_text(command, "job.sh", surroundings);
    EXPECT_EQ(job.model.layers, 24) << "not the flag's 2";
    EXPECT_TRUE(job.model.gated_mlp);
    EXPECT_FALSE(job.model.mlp_bias);
    EXPECT_FALSE(job.training->megatron.bias_activation_fusion);
    EXPECT_EQ(job.layout->tp, 2);
    EXPECT_TRUE(job.layout->sequence_parallel);
    EXPECT_EQ(job.batch->global_batch, 128);
    EXPECT_TRUE(job.flags.unknown.empty()) << job.flags.unknown.front();
}

TEST(MixtureLayers, OfMinusOneAreAll) {
    const std::string flags =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 "
        "--global-batch-size 8 --vocab-size 100 --num-experts 4 --moe-layer-freq ";
    const auto layers = [&flags](const std::string& frequency) { return read_megatron_text(flags + frequency, "job.sh").model.moe_layers; };
    EXPECT_EQ(layers("-1"), std::vector<bool>(4, true));
    EXPECT_EQ(layers("-2"), layers("2"));
    EXPECT_THAT(refusal(flags + "0", {}), HasSubstr("--moe-layer-freq = 0 divides by zero"));
}

}  // namespace
}  // namespace mgplan::formats::given_model_test
