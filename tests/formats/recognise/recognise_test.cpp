// Files of other frameworks are told apart by their names, keys and sections, and refused with a way that works.

#include "formats/recognise/recognise.hpp"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/model_source.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::recognise_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Seen {
    std::string_view framework, text, job, model, layout;
};

// Written after the examples of each project, shortened.
constexpr std::array kSeen{
    Seen{"ms-swift", "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-32B --tensor_model_parallel_size 8 --max_length 8192", "SFT",
         "Qwen/Qwen3-32B", "--tp 8 --seq 8192"},
    Seen{"ms-swift", "megatron sft --model Qwen/Qwen3-30B-A3B --tuner_type lora --lora_rank 8 --micro_batch_size 8", "LoRA",
         "Qwen/Qwen3-30B-A3B", "--micro-batch 8"},
    Seen{"verl",
         "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-235B-A22B "
         "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
         "reinforcement learning", "Qwen/Qwen3-235B-A22B", "--tp 4"},
    Seen{"NeMo-RL", "policy:\n  model_name: Qwen/Qwen3-4B\n  megatron_cfg:\n    tensor_model_parallel_size: 2\n", "", "Qwen/Qwen3-4B",
         "--tp 2"},
    Seen{"ROLL", "actor_train:\n  strategy_args:\n    strategy_name: megatron_train\n", "reinforcement learning", "", ""},
    Seen{"AReaL", "allocation_mode: megatron:d1p12t4\nactor:\n  path: Qwen/Qwen3-32B\n", "", "Qwen/Qwen3-32B", ""},
    Seen{"LLaMA-Factory", "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\n", "SFT",
         "Qwen/Qwen2.5-7B", "--seq 4096"},
    Seen{"axolotl", "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 2\n", "", "NousResearch/Llama-3.2-1B",
         "--micro-batch 2 --seq 2048"},
    Seen{"torchtitan",
         "[model]\nname = \"llama3\"\nflavor = \"70B\"\n[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\n", "", "",
         "--tp 8 --seq 8192 --sharding full"},
    Seen{"MaxText", "base_emb_dim: 4096\nbase_num_decoder_layers: 32\nici_tensor_parallelism: 4\n", "", "", "--tp 4"},
    Seen{"nanotron", "parallelism:\n  tp: 4\n  pp: 2\ntokens:\n  sequence_length: 4096\n", "", "", "--tp 4 --pp 2 --seq 4096"},
    Seen{"OLMo-core", R"({"model": {"_CLASS_": "olmo_core.nn.transformer.config.TransformerConfig", "d_model": 4096}})", "", "", ""},
    Seen{"gpt-neox", "{\n \"pipe_parallel_size\": 4,\n \"model_parallel_size\": 2, # tensor\n \"seq_length\": 2048}", "", "",
         "--tp 2 --pp 4 --seq 2048"},
    Seen{"NeMo 1", "trainer:\n  precision: bf16\nexp_manager:\n  name: x\nmodel:\n  tensor_model_parallel_size: 4\n", "", "", "--tp 4"},
    Seen{"Primus", "work_group: AMD\nmodules:\n  pre_trainer:\n    model: llama3_8B.yaml\n", "", "", ""},
    Seen{"FlagScale", "defaults:\n  - train: 7b\nexperiment:\n  task:\n    type: train\naction: run\n", "", "", ""},
    Seen{"Megatron-Bridge", "model:\n  tensor_model_parallel_size: 4\ntrain:\n  micro_batch_size: 1\n", "", "", "--tp 4 --micro-batch 1"},
    Seen{"Hugging Face Accelerate", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n", "", "", ""},
    Seen{"DeepSpeed", R"({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4})", "", "",
         "--micro-batch 4 --sharding full"},
    Seen{"NeMo-RL", "eval:\n  num_tests_per_prompt: 1\ngeneration:\n  model_name: Qwen/Qwen2.5-Math-1.5B-Instruct\n", "",
         "Qwen/Qwen2.5-Math-1.5B-Instruct", ""},
    Seen{"LLaMA-Factory", "model_name_or_path: Qwen/Qwen3-4B\ninfer_backend: vllm\n", "", "Qwen/Qwen3-4B", ""},
    Seen{"MindSpeed-LLM", "torchrun train_fsdp2.py qwen3.yaml --training.per_device_train_batch_size 1", "", "", ""},
    Seen{"ChatLearn", "python chatlearn_entrypoint.py grpo --config-file grpo_megatron.yaml", "GRPO", "", ""},
    Seen{"slime", "python3 train.py --actor-num-nodes 1 --rollout-batch-size 32 --global-batch-size 256", "reinforcement learning", "",
         "--global-batch 256"},
};

TEST(Recognise, NamesFrameworkJobModelAndLayout) {
    for (const Seen& one : kSeen) {
        const auto seen = recognise(one.text);
        ASSERT_TRUE(seen) << one.text;
        EXPECT_EQ(seen->framework, one.framework) << one.text;
        EXPECT_EQ(seen->job, one.job) << one.text;
        EXPECT_EQ(seen->model, one.model) << one.text;
        EXPECT_EQ(seen->layout, one.layout) << one.text;
    }
}

TEST(Recognise, NamesTheShardingOfOtherEngines) {
    const std::string axolotl = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n";
    EXPECT_EQ(recognise(axolotl + "fsdp_version: 2\n")->layout, "--seq 4096 --sharding full");
    EXPECT_EQ(recognise(axolotl + "deepspeed: deepspeed_configs/zero2.json\n")->layout, "--seq 4096 --sharding optimizer_gradients");
    EXPECT_EQ(recognise(axolotl + "deepspeed: examples/ds_z3_offload.json\n")->layout, "--seq 4096 --sharding full");
    EXPECT_EQ(recognise(axolotl + "adapter: qlora\nlora_r: 16\nfsdp_version: 2\n")->layout, "--seq 4096") << "no plan shards adapters";
    EXPECT_EQ(recognise(axolotl + "adapter: qlora\nlora_r: 16\n")->adapters, "rank=16,base=nf4");
}

TEST(Recognise, AsksForTheConfigOfAModelWithoutAPreset) {
    const std::string line = refusal_of(*recognise("base_model: some/Model-3B\nsequence_len: 4096\n"), "a.yml");
    EXPECT_THAT(line, HasSubstr("--model config.json --seq 4096 (config.json of some/Model-3B)"));
}

TEST(Recognise, LeavesOtherTextsAlone) {
    for (const std::string_view text :
         {"torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64", "# verl.trainer.main_ppo is not used\npython train.py", "",
          R"({"model_type": "llama", "hidden_size": 64})", "MODEL_ARGS:\n  --num-layers: 4\n"})
        EXPECT_FALSE(recognise(text)) << text;
}

/// A variable that is not known may hold flags, but none of Megatron-LM's in another program's command.
TEST(Recognise, NamesTheProgramOfACommandWithUnknownVariables) {
    try {
        (void)read_megatron_text("source config.sh\npython3 -m verl.trainer.main_ppo $ARGS actor_rollout_ref.actor.strategy=fsdp\n",
                                 "run.sh", {});
        ADD_FAILURE() << "taken";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("run.sh: verl command"));
    }
}

TEST(Recognise, ReadsOnlyTheBeginningOfALongText) {
    const std::string padding(std::size_t{1} << 20U, 'x');
    EXPECT_FALSE(recognise(padding + "\nallocation_mode: d1\n"));
}

TEST(Recognise, TellsReleasesOfSwiftApart) {
    EXPECT_EQ(recognise("megatron sft --tuner_type full")->version, "4");
    EXPECT_EQ(recognise("megatron sft --train_type full")->version, "3");
    EXPECT_EQ(recognise("megatron sft --load x")->version, "");
}

std::string refusal(std::string_view text, std::string_view name) {
    try {
        (void)read_model_text(std::string(text), std::string(name));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "taken";
}

TEST(Recognise, RefusesInOneLineWithAWayThatWorks) {
    for (const Seen& one : kSeen) {
        const std::string said = refusal(one.text, one.text.starts_with('{') ? "a.json" : "a.txt");
        EXPECT_THAT(said, AllOf(HasSubstr(std::string(one.framework)), HasSubstr("--model "), Not(HasSubstr("\n")))) << one.text;
        EXPECT_THAT(said, AllOf(Not(HasSubstr("MODEL_ARGS")), Not(HasSubstr("is missing")), Not(HasSubstr("not valid JSON")))) << one.text;
    }
    EXPECT_THAT(
        refusal("base_model: NousResearch/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nmicro_batch_size: 2\n", "lora.yml"),
        HasSubstr("--model llama3.2-1b --lora rank=16,alpha=32 --micro-batch 2 (for NousResearch/Llama-3.2-1B"));
    EXPECT_THAT(refusal("[a]\nb = 1\n", "x.toml"), HasSubstr("x.toml")) << "a TOML file of nobody that is known";
}

TEST(Recognise, KnowsNetworksByTheirScripts) {
    const std::array<std::pair<std::string_view, std::string_view>, 15> kScripts{
        {{"pretrain_bert.py", "an encoder (BERT)"},
         {"/opt/Megatron-LM/pretrain_t5.py", "an encoder and a decoder (T5)"},
         {"pretrain_vision_classify.py", "a vision model"},
         {"pretrain_vlm.py", "a vision-language model"},
         {"pretrain_qwen2_vl.py", "a vision-language model"},
         {"examples/multimodal/train.py", "a model of several modalities"},
         {"pretrain_multimodal.py", "a model of several modalities"},
         {"pretrain_hunyuanvideo.py", "a model of pictures or video"},
         {"pretrain_retro.py", "a model with retrieval (Retro)"},
         {"pretrain_gpt.py", ""},
         {"/home/bert/pretrain_gpt.py", ""},
         {"bert/pretrain_qwen.py", ""},
         {"pretrain_mamba.py", ""},
         {"train.py", ""},
         {"examples/gpt3/train.py", ""}}};
    for (const auto& [script, network] : kScripts) EXPECT_EQ(other_network_of_script(script), network) << script;
}

TEST(Recognise, RefusesOtherNetworksOfPlainFlags) {
    const std::string flags =
        " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 "
        "--global-batch-size 8 --vocab-size 100 --bf16";
    const auto read = [&flags](const std::string& script) {
        try {
            (void)read_megatron_text("torchrun --nproc_per_node 8 " + script + flags, "job.sh");
        } catch (const MissingFactError& error) {
            return std::string(error.what());
        }
        return std::string("taken");
    };
    EXPECT_THAT(read("pretrain_bert.py"), AllOf(HasSubstr("pretrain_bert.py trains an encoder (BERT)"), HasSubstr("--model")));
    EXPECT_THAT(read("examples/multimodal/train.py"), HasSubstr("several modalities"));
    EXPECT_EQ(read("pretrain_gpt.py"), "taken");
    EXPECT_EQ(read("my_train.py"), "taken");
}

}  // namespace
}  // namespace mgplan::formats::recognise_test
