// Launches that name a recipe of Megatron-Bridge: which recipe, and which fields of it their options change.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/bridge_launch.hpp"
#include "formats/megatron/shell_words.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> words_of(const std::string& command) {
    std::vector<std::string> words;
    Variables none;
    add_words(words, command, none, "the command");
    return words;
}

BridgeLaunch launch(const std::string& options) {
    const auto found = read_bridge_launch(words_of("--gpu gb200 --num_gpus 256 --model_recipe_name qwen3_235b_a22b " + options), "run.sh");
    EXPECT_TRUE(found);
    return found.value_or(BridgeLaunch{});
}

std::string refusal(const std::string& command) {
    try {
        (void)read_bridge_launch(words_of(command), "run.sh");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(BridgeLaunch, IsThatOfTheRecipeItNames) {
    const auto found = read_bridge_launch(words_of("--recipe vanilla_gpt_pretrain train.micro_batch_size=2 --dataset llm=mock"), "run.sh");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->recipe, "vanilla_gpt_pretrain");
    EXPECT_THAT(found->overrides, ElementsAre("train.micro_batch_size=2"));
    EXPECT_FALSE(read_bridge_launch(words_of("--model_name gpt --model_size 7b"), "run.sh")) << "another program's";
    EXPECT_FALSE(read_bridge_launch(words_of("--num-layers 32 --hidden-size 4096"), "run.sh"));
}

TEST(BridgeLaunch, ChoosesTheRecipeByModelTaskGpusAndPrecision) {
    const BridgeLaunch found = launch("");
    EXPECT_EQ(found.recipe, "qwen3_235b_a22b_pretrain_256gpu_gb200_bf16");
    EXPECT_EQ(found.world, 256);
    EXPECT_THAT(found.overrides, ElementsAre("optimizer.use_precision_aware_optimizer=true"));
    EXPECT_EQ(launch("-c fp8_mx -cv v1").recipe, "qwen3_235b_a22b_pretrain_256gpu_gb200_fp8mx");
    EXPECT_EQ(read_bridge_launch(words_of("--model_name llama3 --model_size 8b -g h100 -ng 8"), "run.sh")->recipe,
              "llama3_8b_pretrain_8gpu_h100_bf16");
}

/// The largest recipe of the others, its batch for as many sequences a data-parallel rank; overlaps with the optimizer are switched on.
TEST(BridgeLaunch, ChangesTheRecipeOfOtherNumbersOfGpus) {
    const BridgeLaunch found = launch("-ng 512 -vp 4");
    EXPECT_EQ(found.recipe, "qwen3_235b_a22b_pretrain_256gpu_gb200_bf16");
    EXPECT_EQ(found.world, 512);
    EXPECT_THAT(found.overrides, Contains("train.global_batch_size=16384"));
    EXPECT_THAT(found.overrides, Contains("optimizer.overlap_param_gather_with_optimizer_step=true"));
    EXPECT_THAT(launch("-ng 512 -vp 4 -gb 4096").overrides, Contains("train.global_batch_size=4096"));
    EXPECT_THAT(launch("-ng 512 -vp 4 -c fp8_mx").overrides, Not(Contains(HasSubstr("overlap_param_gather_with_optimizer_step"))));
    EXPECT_EQ(read_bridge_launch(words_of("-m qwen -mr qwen3_30b_a3b -g h100 -ng 128"), "run.sh")->recipe,
              "perf_recipes/qwen3_30b_a3b_pretrain_16gpu_h100_bf16");
}

TEST(BridgeLaunch, TurnsOptionsIntoFields) {
    const auto fields = launch(
                            "--tensor_model_parallel_size 2 -pp=8 --virtual_pipeline_model_parallel_size None --max_step 50 "
                            "--cuda_graph_impl transformer_engine --cuda_graph_scope attn,moe_router --recompute_modules moe_act "
                            "--moe_flex_dispatcher_backend None --use_megatron_fsdp true -ol 20 logger.log_throughput=True "
                            "--moe_a2a_overlap False --seq_length 8192")
                            .overrides;
    for (const char* field :
         {"model.tensor_model_parallel_size=2", "model.sequence_parallel=true", "model.virtual_pipeline_model_parallel_size=null",
          "model.cuda_graph_impl=transformer_engine", "model.cuda_graph_scope=[attn,moe_router]", "model.recompute_modules=[moe_act]",
          "model.recompute_granularity=selective", "model.moe_token_dispatcher_type=alltoall", "model.moe_flex_dispatcher_backend=null",
          "ddp.use_megatron_fsdp=true", "ddp.data_parallel_sharding_strategy=optim_grads_params", "model.cpu_offloading_num_layers=20",
          "dataset.seq_length=8192", "logger.log_throughput=True"})
        EXPECT_THAT(fields, Contains(field));
    EXPECT_THAT(fields, Not(Contains(HasSubstr("comm_overlap.overlap_moe"))));
    EXPECT_THAT(launch("--moe_a2a_overlap True").overrides, Contains("comm_overlap.delay_wgrad_compute=true"));
    EXPECT_THAT(launch("--cuda_graph_impl none").overrides, Contains("model.cuda_graph_scope=[]"));
}

TEST(BridgeLaunch, PlacesLayersAsTheRecipeDoesForOtherStages) {
    const auto deepseek = [](const std::string& more) {
        return read_bridge_launch(words_of("-mr deepseek_v3 -g b200 -ng 256 -c bf16 " + more), "run.sh")->overrides;
    };
    EXPECT_THAT(deepseek("-pp 16 -vp None"), Contains(::testing::AllOf(::testing::StartsWith("model.pipeline_model_parallel_layout=[["
                                                                                             "embedding,decoder,decoder,decoder,decoder],"),
                                                                       ::testing::EndsWith("[decoder,mtp,loss]]"))));
    EXPECT_THAT(deepseek("-pp 3"), Not(Contains(HasSubstr("layout"))));
    EXPECT_THAT(deepseek("--pipeline_model_parallel_layout 'Et*4|tmL'"), Contains("model.pipeline_model_parallel_layout=\"Et*4|tmL\""));
}

TEST(BridgeLaunch, RefusesWhatTheScriptRefusesAndWhatIsNotRead) {
    EXPECT_THAT(refusal("-mr llama3_8b --num_gpus 8"), HasSubstr("run.sh: --gpu is missing"));
    EXPECT_THAT(refusal("-mr llama3_8b -g h100 -ng many"), HasSubstr("--num_gpus = many is no number of GPUs"));
    EXPECT_THAT(refusal("-mr llama3_8b -g $GPU_TYPE -ng 8"), HasSubstr("--gpu = $GPU_TYPE is not known"));
    EXPECT_THAT(refusal("-mr llama3_8b -g h100 -ng 8 --tensor-parallel 2"), HasSubstr("--tensor-parallel is no option"));
    EXPECT_THAT(refusal("-mr llama3_8b -g h100 -ng 8 --num_layers 4"), HasSubstr("--num_layers changes the recipe"));
    EXPECT_THAT(refusal("-mr llama3_8b -g h100 -ng 8 --moe_flex_dispatcher_backend uccl"), HasSubstr("use deepep, hybridep or None"));
}

}  // namespace
}  // namespace mgplan::formats
