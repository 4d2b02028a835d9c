#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/judged_recipe.hpp"
#include "formats/megatron/bridge_recipes.hpp"
#include "tests/cli/say.hpp"

namespace mgplan::cli::recipes_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Result {
    int code;
    std::string out;
    std::string err;
};

Result run(const std::vector<std::string>& args) {
    std::ostringstream out, err;
    Console console{out, err};
    const int code = run_mgplan(args, console);
    return {code, out.str(), err.str()};
}

Json answer(const std::vector<std::string>& args) {
    return Json::parse(run(args).out);
}

Json settings_of(const formats::BridgeRecipe& recipe) {
    Json settings;
    for (const auto& [field, value] : recipe.settings()) settings[field] = Json::parse(value);
    return settings;
}

/// Public functions of the wheel that return a ConfigContainer and need no argument: 737 by its syntax trees, 8 of which read what only a
/// download or another package tells.
TEST(RecipesCommand, ListsEveryRecipeOfTheWheelByTask) {
    const Json list = answer({"recipes", "list", "--format", "json"});
    std::map<std::string, int> tasks;
    for (const auto& recipe : list.at("recipes")) ++tasks[recipe.at("task").get<std::string>()];
    EXPECT_EQ(tasks, (std::map<std::string, int>{{"peft", 82}, {"performance", 440}, {"pretrain", 103}, {"sft", 104}}));
    EXPECT_EQ(list.at("not_recorded").size(), 8U);
    EXPECT_EQ(list.at("release"), "megatron-bridge 0.6.2");
}

/// perf_recipes/deepseek/gb300/deepseek_v3.py, deepseek/common.py, _common.py; recipes/deepseek/h100/deepseek_v3.py for the optimizer.
TEST(RecipesCommand, RecordsWhatDeepSeekV3OnGb300Sets) {
    const formats::BridgeRecipe& recipe = *formats::bridge_recipes().find("deepseek_v3_pretrain_256gpu_gb300_fp8mx");
    EXPECT_EQ(recipe.model, "deepseek-ai/DeepSeek-V3");
    EXPECT_EQ(recipe.gpu, "GB300");
    EXPECT_EQ(recipe.gpus, 256);
    EXPECT_EQ(recipe.precision, "mxfp8");
    const Json settings = settings_of(recipe);
    EXPECT_EQ(settings.at("model.pipeline_model_parallel_size"), 2);
    EXPECT_EQ(settings.at("model.virtual_pipeline_model_parallel_size"), 8);
    EXPECT_EQ(settings.at("model.expert_model_parallel_size"), 32);
    EXPECT_EQ(settings.at("model.pipeline_model_parallel_layout"), "Et*4|(t*4|)*14tmL");
    EXPECT_EQ(settings.at("model.cuda_graph_impl"), "full_iteration");
    EXPECT_EQ(settings.at("model.moe_flex_dispatcher_backend"), "hybridep");
    EXPECT_EQ(settings.at("model.moe_paged_stash_buffer_size_factor_cuda"), 1.2);
    EXPECT_EQ(settings.at("mixed_precision.fp8_dot_product_attention"), true);
    EXPECT_EQ(settings.at("mixed_precision.fp8_recipe"), "mxfp8");
    EXPECT_EQ(settings.at("mixed_precision.grad_reduce_in_fp32"), false);
    EXPECT_EQ(settings.at("comm_overlap.overlap_moe_expert_parallel_comm"), true);
    EXPECT_EQ(settings.at("optimizer.exp_avg_dtype"), "torch.bfloat16");
    EXPECT_EQ(settings.at("train.global_batch_size"), 4096);
    EXPECT_EQ(settings.at("env_vars.CUDA_DEVICE_MAX_CONNECTIONS"), 32);
    EXPECT_EQ(settings.at("env_vars.TORCH_NCCL_HIGH_PRIORITY"), 1);
}

/// perf_recipes/llama/h100/llama3.py with llama/common.py and _common.py.
TEST(RecipesCommand, RecordsWhatLlama3OnH100Sets) {
    const formats::BridgeRecipe& recipe = *formats::bridge_recipes().find("llama3_70b_pretrain_64gpu_h100_fp8cs");
    EXPECT_EQ(recipe.model, "meta-llama/Meta-Llama-3-70B");
    EXPECT_EQ(recipe.task, "performance");
    const Json settings = settings_of(recipe);
    EXPECT_EQ(settings.at("model.tensor_model_parallel_size"), 4);
    EXPECT_EQ(settings.at("model.pipeline_model_parallel_size"), 8);
    EXPECT_EQ(settings.at("model.virtual_pipeline_model_parallel_size"), 5);
    EXPECT_EQ(settings.at("model.sequence_parallel"), true);
    EXPECT_EQ(settings.at("comm_overlap.tp_comm_overlap_cfg"), "userbuffers_fp8_h100_h8192_tp4_mbs1_seqlen8192");
    EXPECT_EQ(settings.at("mixed_precision.fp8_recipe"), "tensorwise");
    EXPECT_FALSE(settings.contains("mixed_precision.first_last_layers_bf16"));  // set to its default, false
    EXPECT_EQ(settings.at("train.global_batch_size"), 256);
    EXPECT_EQ(settings.at("env_vars.NCCL_P2P_NET_CHUNKSIZE"), 2097152);
}

/// recipes/gpt/h100/gpt3_175b.py: the model's sizes are arguments of GPTModelProvider.
TEST(RecipesCommand, RecordsTheSizesThatARecipeWritesItself) {
    const formats::BridgeRecipe& recipe = *formats::bridge_recipes().find("gpt3_175b_pretrain_32gpu_h100_bf16");
    EXPECT_EQ(recipe.model, "");
    EXPECT_EQ(recipe.task, "pretrain");
    const Json settings = settings_of(recipe);
    EXPECT_EQ(settings.at("model.class"), "GPTModelProvider");
    EXPECT_EQ(settings.at("model.num_layers"), 96);
    EXPECT_EQ(settings.at("model.hidden_size"), 12288);
    EXPECT_EQ(settings.at("model.ffn_hidden_size"), 49152);
    EXPECT_EQ(settings.at("model.virtual_pipeline_model_parallel_size"), 6);
    EXPECT_EQ(settings.at("comm_overlap.wgrad_deferral_limit"), 50);
    EXPECT_EQ(settings.at("train.global_batch_size"), 2048);
    EXPECT_EQ(settings.at("train.micro_batch_size"), 2);
}

TEST(RecipesCommand, FiltersByModelGpuAndWorld) {
    const Json list = answer({"recipes", "--model", "deepseek-v3", "--gpu", "gb300", "--world", "64", "--format", "json"});
    std::vector<std::string> names;
    for (const auto& recipe : list.at("recipes")) names.push_back(recipe.at("name"));
    EXPECT_THAT(names, ::testing::ElementsAre("deepseek_v3_pretrain_64gpu_gb300_bf16_fsdp", "deepseek_v3_pretrain_64gpu_gb300_fp8mx_fsdp"));
}

TEST(RecipesCommand, AnUnknownGpuNamesThoseThatRecipesAreFor) {
    for (const char* verb : {"list", "check"}) {
        const Result result = run({"recipes", verb, "--gpu", "Z9"});
        EXPECT_EQ(result.code, kBadInput);
        EXPECT_THAT(result.err, HasSubstr("--gpu Z9"));
        EXPECT_THAT(result.err, HasSubstr("B200, B300, GB200, GB300, H100"));
    }
}

TEST(RecipesCommand, NamesTheNearestOfAnUnknownRecipe) {
    const Result result = run({"recipes", "show", "deepseek_v3_pretrain_256gpu_gb300_fp8"});
    EXPECT_EQ(result.code, kBadInput);
    EXPECT_THAT(result.err, HasSubstr("deepseek_v3_pretrain_256gpu_gb300_fp8mx"));
    EXPECT_EQ(run({"recipes", "show"}).code, kBadInput);
    EXPECT_EQ(run({"recipes", "list", "x"}).code, kBadInput);
    EXPECT_THAT(run({"recipes", "frobnicate"}).err, HasSubstr("list, show NAME, check or check NAME"));
}

TEST(RecipesCommand, SaysWhyARecipeIsNotRecorded) {
    const Result result = run({"recipes", "show", "flux_12b_pretrain_2gpu_h100_bf16_config"});
    EXPECT_EQ(result.code, kBadInput);
    EXPECT_THAT(result.err, HasSubstr("context_dim"));
}

JudgedRecipe judged(std::string_view name) {
    return judge_recipe(*formats::bridge_recipes().find(name));
}

TEST(RecipesCommand, JudgesARecipeByItsPresetAndCluster) {
    const JudgedRecipe recipe = judged("deepseek_v3_pretrain_256gpu_gb300_fp8mx_partial_cg_dev");
    EXPECT_EQ(recipe.preset, "deepseek-v3");
    EXPECT_EQ(recipe.cluster, "gb300-nvl72");
    EXPECT_EQ(recipe.verdict, RecipeVerdict::runs);
    EXPECT_THAT(recipe.layout, HasSubstr("tp1 cp1 ep64 etp1 pp4 vpp4 mbs1"));
    EXPECT_GT(recipe.seconds.value_or(0), 5);
    EXPECT_LT(recipe.seconds.value_or(0), 40);
}

/// models/transformer_config.py: experts are divided by ep alone unless the recipe sets etp; by tp as well, 128 GPUs would be too few.
constexpr const char* kRecipe = "llama31_8b_pretrain_2gpu_h100_bf16";

TEST(CheckOfARecipe, TakesGpusAndClusterOfTheRecipe) {
    const Json check = answer({"check", "--recipe", "deepseek_v3_pretrain_1024gpu_h100_fp8cs", "--top", "0", "--format", "json"});
    EXPECT_EQ(check["layout"]["world"], 1024);
    EXPECT_THAT(run({"check", "--recipe", "llama31_405b_pretrain_128gpu_gb300_bf16", "--top", "0"}).out, HasSubstr("gb300-nvl72"));
    EXPECT_THAT(run({"check", "--recipe", kRecipe, "--top", "0"}).out, ::testing::StartsWith(std::string("read as recipe ") + kRecipe));
}

TEST(CheckOfARecipe, IsOfTheRecipeWithItsOverrides) {
    const testing::TempFile overrides(
        "overrides.yaml", "model:\n  tensor_model_parallel_size: 4\n  sequence_parallel: true\ntrain: {global_batch_size: 256}\n");
    const Json check = answer({"check", "--recipe", std::string(kRecipe) + "_config", overrides.path(), "--world", "16", "--top", "0",
                               "--format", "json", "--", "model.pipeline_model_parallel_size=2", "+train.micro_batch_size=2"});
    const Json& layout = check["layout"];
    EXPECT_EQ(layout["tp"], 4) << "of the file";
    EXPECT_EQ(layout["pp"], 2) << "of a word";
    EXPECT_EQ(layout["micro_batch"], 2);
    EXPECT_EQ(layout["cp"], 2) << "of the recipe";
}

TEST(CheckOfARecipe, ReadsALaunchThatNamesOne) {
    const Json check = answer({"check", "--world", "16", "--top", "0", "--format", "json", "--", "torchrun", "--nproc-per-node=8",
                               "run_recipe.py", "--recipe", kRecipe, "--dataset", "llm=mock", "model.tensor_model_parallel_size=2"});
    EXPECT_EQ(check["layout"]["tp"], 2);
    EXPECT_EQ(check["layout"]["cp"], 2);
}

/// As recipes of cloud providers write it: the worker's command is a text that torchrun starts.
TEST(CheckOfARecipe, ReadsAScriptThatStartsOne) {
    const std::string script =
        "#!/bin/bash\nBATCH=1024\nworker_command=$(cat <<- EOM\n  if [ \"\\$RANK\" -eq \"0\" ]; then\n    env ;\n  fi ;\n"
        "  python scripts/performance/custom_setup_experiment.py \\\n    --gpu gb200 \\\n    --model_family_name qwen \\\n"
        "    --model_recipe_name qwen3_235b_a22b \\\n    --num_gpus 64 \\\n    --gpus_per_node 4 \\\n    --global_batch_size $BATCH \\\n"
        "    --virtual_pipeline_model_parallel_size 3 \\\n    --max_steps 30\n\nEOM\n)\n"
        "echo \"$worker_command\" > worker_command.sh\ntorchrun --nproc-per-node=4 --nnodes=16 --no-python bash worker_command.sh\n";
    const testing::TempFile file("launch.sh", script);
    const Json check = answer({"check", file.path(), "--top", "0", "--format", "json"});
    EXPECT_EQ(check["layout"]["world"], 64);
    EXPECT_EQ(check["layout"]["vpp"], 3);
    EXPECT_EQ(check["layout"]["pp"], 8) << "of the recipe";
    EXPECT_EQ(check["training"]["stages"][0]["global_batch"], 1024);
    EXPECT_THAT(run({"check", file.path(), "--top", "0"}).out,
                AllOf(HasSubstr("read as recipe qwen3_235b_a22b_pretrain_"), HasSubstr("launch.sh starts it"), HasSubstr("gb200-nvl72")));
    const testing::TempFile open("open.sh", "python scripts/performance/setup_experiment.py -mr llama3_8b -g ${GPU,,} -ng $N\n");
    EXPECT_EQ(answer({"check", open.path(), "--set", "GPU=H100", "--set", "N=8", "--top", "0", "--format", "json"})["layout"]["world"], 8);
    EXPECT_THAT(run({"check", open.path(), "--set", "GPU=H100"}).err, HasSubstr("--num_gpus =  is not known"));
    EXPECT_EQ(run({"check", open.path(), "--set", "N=8", "--gate"}).code, kCannotSay);
    EXPECT_THAT(run({"check", open.path(), "--set", "GPU=A100", "--set", "N=8", "--gate"}).out,
                HasSubstr("cannot say: unknown recipe 'llama3_8b_pretrain_8gpu_a100_bf16'"));
    EXPECT_EQ(answer({"check", file.path(), "--world", "128", "--top", "0", "--format", "json"})["layout"]["world"], 128);
}

TEST(CheckOfARecipe, RefusesWhatIsNoOverride) {
    const auto said = [](const std::vector<std::string>& more) {
        std::vector<std::string> args{"check", "--recipe", kRecipe};
        args.insert(args.end(), more.begin(), more.end());
        const Result result = run(args);
        EXPECT_EQ(result.code, kBadInput);
        return result.err;
    };
    EXPECT_THAT(said({"--", "model=3"}), HasSubstr("'model=3' is not of the form section.field=value"));
    EXPECT_THAT(said({"--", "modle.seq_length=1"}), AllOf(HasSubstr("has no section 'modle'"), HasSubstr("did you mean model")));
    const testing::TempFile typing("typing.yaml", "tarin: {global_batch_size: 8}\n");
    EXPECT_THAT(said({typing.path()}), HasSubstr("has no section 'tarin'"));
    EXPECT_THAT(said({"--", "model.x=[1"}), HasSubstr("its value is not valid YAML"));
    EXPECT_THAT(said({"--megatron-args", "train.sh"}), HasSubstr("no other command"));
    const testing::TempFile list("list.yaml", "- 1\n");
    EXPECT_THAT(said({list.path()}), HasSubstr("holds no overrides of a recipe"));
    EXPECT_THAT(run({"check", "--recipe", "nothing"}).err, HasSubstr("unknown recipe 'nothing'"));
}

TEST(RecipesCommand, DividesExpertsByEpAlone) {
    const JudgedRecipe recipe = judged("glm45_355b_sft_128gpu_h100_bf16");
    EXPECT_THAT(recipe.problems, ::testing::Not(::testing::Contains(HasSubstr("larger than world"))));
}

/// training/config.py asks for fsdp_dtensor where something is saved or loaded, and this recipe does neither.
TEST(RecipesCommand, HoldsCheckpointFormatsAgainstWhatIsSaved) {
    EXPECT_NE(judged("llama3_70b_pretrain_64gpu_gb200_bf16").verdict, RecipeVerdict::illegal);
}

/// 46 layers on 4 stages: Megatron-LM stops (transformer_config.py).
TEST(RecipesCommand, NamesTheRuleThatAShippedRecipeBreaks) {
    const JudgedRecipe recipe = judged("glm45_air_106b_pretrain_32gpu_h100_bf16");
    EXPECT_EQ(recipe.verdict, RecipeVerdict::illegal);
    EXPECT_THAT(recipe.problems, ::testing::Contains(HasSubstr("layers = 46 do not split evenly over pp = 4")));
    EXPECT_EQ(run({"recipes", "check", "glm45_air_106b_pretrain_32gpu_h100_bf16"}).code, kBadInput);
}

/// perf_recipes/: DeepSeek-V3 switches experimental kernels on and gathers parameters early without reducing gradients early, gpt-oss
/// states YaRN's factor, Nemotron names its tokenizer in place of a vocabulary and fuses the experts' squared ReLU.
TEST(RecipesCommand, JudgesSwitchesOfPerformanceRecipes) {
    const JudgedRecipe deepseek = judged("deepseek_v3_pretrain_1024gpu_h100_fp8cs");
    EXPECT_EQ(deepseek.verdict, RecipeVerdict::runs);
    EXPECT_THAT(deepseek.not_computed, ::testing::Contains(HasSubstr("ddp.overlap_param_gather")));
    EXPECT_EQ(judged("gpt_oss_120b_pretrain_64gpu_gb200_bf16").verdict, RecipeVerdict::runs);
    EXPECT_EQ(judged("nemotron_3_nano_pretrain_8gpu_gb300_fp8mx").verdict, RecipeVerdict::runs);
    const JudgedRecipe super = judged("nemotron_3_super_pretrain_64gpu_gb300_nvfp4");
    EXPECT_EQ(super.verdict, RecipeVerdict::cannot_say);
    EXPECT_THAT(super.problems, ::testing::Contains("model.quant_recipe (precisions of single modules)"));
}

TEST(RecipesCommand, TakesThePresetOfAnEarlierModelWithTheSameLayers) {
    EXPECT_EQ(judged("qwen2_7b_sft_2gpu_h100_bf16").preset, "qwen2.5-7b");
}

TEST(RecipesCommand, GuessesNoModel) {
    const JudgedRecipe recipe = judged("kimi_k25_vl_sft_512gpu_h100_bf16");
    EXPECT_EQ(recipe.verdict, RecipeVerdict::cannot_say);
    const JudgedRecipe large = judged("exaone_moe_236b_a23b_pretrain_64gpu_h100_bf16");
    EXPECT_EQ(large.kind, "no preset of its model");
    EXPECT_THAT(large.problems, ::testing::ElementsAre(HasSubstr("LGAI-EXAONE/K-EXAONE-236B-A23B")));
}

}  // namespace
}  // namespace mgplan::cli::recipes_command_test
