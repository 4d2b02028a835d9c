// `mgplan check`: a Megatron-LM command is judged, and bettered.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "check_commands.hpp"
#include "cli/plan_file.hpp"
#include "plan/text/text.hpp"
#include "reports/megatron_check.hpp"

namespace mgplan::cli::testing::check_command_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

TEST(CheckCommand, JudgesALegalCommandAndTellsWhichFlagsMakeItFaster) {
    const TempFile file("slow.args", command("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"));
    const Said said = say("check --megatron-args " + file.path() + " --world 16 --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json json = Json::parse(said.out);
    EXPECT_EQ(json["legal"], true);
    EXPECT_EQ(json["fits"], true);
    EXPECT_EQ(json["layout"]["tp"], 8);
    ASSERT_FALSE(json["better"].empty());
    const Json& best = json["better"][0];
    EXPECT_GT(best["gain"], 0.01);
    EXPECT_LT(best["predicted"]["iteration_seconds"], json["predicted"]["iteration_seconds"]);
    EXPECT_DOUBLE_EQ(json["predicted"]["iteration_seconds"].get<double>() / best["predicted"]["iteration_seconds"].get<double>() - 1,
                     best["gain"].get<double>());
    EXPECT_THAT(best["changes"].get<std::vector<std::string>>(), Contains(HasSubstr("--tensor-model-parallel-size 8 -> ")));
    EXPECT_GT(json["evaluated"], 10);
    std::set<std::string> families;
    for (const Json& better : json["better"]) {
        const Json& layout = better["layout"];
        families.insert(Json{layout["tp"], layout["cp"], layout["pp"], layout["recompute"]}.dump());
    }
    EXPECT_EQ(families.size(), json["better"].size()) << "rows that differ by less than a prediction can tell";

    const Said text = say("check --megatron-args " + file.path() + " --world 16 --top 1");
    EXPECT_THAT(text.out, AllOf(HasSubstr("legal:  yes, tp8"), HasSubstr("memory: fits: "), HasSubstr("speed:  "), HasSubstr("  1 +"),
                                Not(HasSubstr("\n  2 +"))));
}

TEST(CheckCommand, SaysWhichOfTheCommandsOwnFlagsBreakARule) {
    const TempFile file("interleaved.args", command("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                                                    "--no-overlap-p2p-communication"));
    const Said said = say("check --megatron-args " + file.path() + " --world 16 --format json --top 0");
    EXPECT_EQ(said.code, kBadInput);
    const auto problems = Json::parse(said.out)["problems"].get<std::vector<std::string>>();
    EXPECT_THAT(problems, ElementsAre(HasSubstr("drop --no-overlap-p2p-communication")));
}

TEST(CheckCommand, NamesTheAllocatorsSettingWhereAFitIsTight) {
    const TempFile file("tight.args", command("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"));
    const std::string words = "check --megatron-args " + file.path() + " --world 16 --top 0";
    const auto peak = Json::parse(say(words + " --format json").out)["predicted"]["memory"]["peak_bytes"].get<std::int64_t>();
    EXPECT_THAT(say(words).out, Not(HasSubstr("expandable_segments")));
    const Said tight = say(fmt::format("{} --max-memory {}", words, peak + peak / 20));
    EXPECT_THAT(tight.out, AllOf(HasSubstr("memory: fits: "), HasSubstr("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")));
}

TEST(CheckCommand, TakesAFileWithoutAnOption) {
    const TempFile file("train.sh", "python pretrain_gpt.py " + command("--tensor-model-parallel-size 8"));
    const Said named = say("check " + file.path() + " --world 16 --top 0"),
               by_option = say("check --megatron-args " + file.path() + " --world 16 --top 0");
    EXPECT_EQ(named.code, kDone);
    EXPECT_EQ(named.out, "read as Megatron-LM command: " + file.path() + "\n" + by_option.out);
    EXPECT_EQ(say("check " + file.path() + " --world 16 --top 0 --format json").out,
              say("check --megatron-args " + file.path() + " --world 16 --top 0 --format json").out);
    expect_refused("check " + file.path() + " --megatron-args " + file.path() + " --world 16", "both name a command");
    const TempFile swift("sft.sh", "megatron sft --model Qwen/Qwen3-30B-A3B --tensor_model_parallel_size 2 --max_length 4096\n");
    EXPECT_THAT(say("check " + swift.path() + " --world 16 --top 0").out,
                StartsWith("read as ms-swift Megatron command, SFT of Qwen/Qwen3-30B-A3B: "));
    const TempFile overrides(
        "override.yaml",
        "model:\n  tensor_model_parallel_size: 2\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 64\n  train_iters: 10\n");
    EXPECT_THAT(say("check " + overrides.path() + " --model qwen3-30b-a3b --world 16 --top 0").out,
                StartsWith("read as Megatron-Bridge configuration: "));
}

TEST(CheckCommand, TakesTheWorldOfTheLauncher) {
    const auto file = [](const std::string& launcher, const std::string& flags) {
        return TempFile("train.sh", launcher + " pretrain_gpt.py " + command(flags));
    };
    const TempFile stated = file("torchrun --nproc_per_node 8 --nnodes 2", "--tensor-model-parallel-size 8");
    const Said said = say("check " + stated.path() + " --top 0");
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.out, HasSubstr("world of 16 GPUs (torchrun: 2 nodes of 8)"));
    EXPECT_THAT(say("check " + stated.path() + " --world 8 --top 0").out, HasSubstr(" on 8 GPUs")) << "the option counts";
    const TempFile other = file("torchrun --nproc_per_node 4", "--tensor-model-parallel-size 8");
    expect_refused("check " + other.path(),
                   {"--world is missing: the launcher starts 4 ranks (torchrun: 1 node of 4), no multiple of tp·cp·pp = 8"});
    const TempFile open = file("torchrun --nproc_per_node $GPUS", "--tensor-model-parallel-size 8");
    expect_refused("check " + open.path(), {"--world is missing"});
}

TEST(CheckCommand, TakesTheWordsOfACommand) {
    const std::vector<std::string> words{"check",
                                         "--world",
                                         "16",
                                         "--top",
                                         "0",
                                         "--",
                                         "megatron",
                                         "sft",
                                         "--model",
                                         "Qwen/Qwen3-30B-A3B",
                                         "--tensor_model_parallel_size",
                                         "2",
                                         "--sequence_parallel",
                                         "true",
                                         "--max_length",
                                         "4096"};
    const Said said = say(words);
    EXPECT_EQ(said.code, kNothingFits) << said.err;
    EXPECT_THAT(said.out, HasSubstr("legal:  yes, tp2"));
    EXPECT_THAT(say(std::vector<std::string>{"check", "--world", "16", "--", "python", "pretrain_gpt.py", "--num-layers", "it's"}).err,
                HasSubstr("it's"));
}

TEST(CheckCommand, RoundsTokensAsThePlansDo) {
    bool rounds_up = false;
    for (const char* layout : {"--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2", "--tensor-model-parallel-size 8",
                               "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4",
                               "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
                               "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 8", "--pipeline-model-parallel-size 16"}) {
        const TempFile file("rounded.args", command(layout));
        const std::string asked = "check --top 0 --world 16 --megatron-args " + file.path();
        const double tokens = Json::parse(say(asked + " --format json").out)["predicted"]["tokens_per_second_per_gpu"];
        rounds_up = rounds_up || tokens - std::floor(tokens) >= 0.5;
        EXPECT_THAT(say(asked).out, HasSubstr(", " + with_thousands(std::llround(tokens)) + " tokens/s per GPU"));
    }
    EXPECT_TRUE(rounds_up) << "only there a number cut off is another";
}

TEST(CheckCommand, GateSaysInOneLineAndByItsExitCodeWhatBecomesOfTheJob) {
    const auto gate = [](const std::string& layout, int world, const std::string& more = "") {
        const TempFile file("gated.args", command(layout));
        return say("check --gate --megatron-args " + file.path() + " --world " + std::to_string(world) + more);
    };
    const Said runs = gate("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2", 16, " --cluster dgx-h100");
    EXPECT_EQ(runs.code, kDone) << runs.err;
    EXPECT_THAT(runs.out, AllOf(StartsWith("runs: tp8 "), HasSubstr(" pp2 "), HasSubstr("; fits: "), HasSubstr(" a step ("),
                                HasSubstr("; unless the launcher does: ")));
    const Said illegal = gate("--tensor-model-parallel-size 16 --pipeline-model-parallel-size 3", 16);
    EXPECT_EQ(illegal.code, kBadInput);
    EXPECT_THAT(illegal.out, AllOf(StartsWith("illegal: "), HasSubstr("world = 16")));
    const Said large = gate("--micro-batch-size 16", 8);
    EXPECT_EQ(large.code, kNothingFits);
    EXPECT_THAT(large.out, StartsWith("does not fit: "));
    const Said open = gate("--tensor-model-parallel-size 8 --flextron", 16);
    EXPECT_EQ(open.code, kCannotSay) << open.out;
    EXPECT_THAT(open.out, AllOf(StartsWith("cannot say: "), HasSubstr("--flextron")));
    const Said foreign = gate("--tensor-model-parallel-size 8 --no-such-flag 3", 16);
    EXPECT_EQ(foreign.code, kCannotSay) << foreign.out;
    EXPECT_THAT(foreign.out, AllOf(StartsWith("cannot say: no flags of Megatron-LM"), HasSubstr("--no-such-flag 3")));
    const Said mistyped = gate("--micro-batch-size 16 --tensor-model-parralel-size 4", 8);
    EXPECT_EQ(mistyped.code, kCannotSay) << "what was meant might fit: " << mistyped.out;
    EXPECT_THAT(mistyped.out, HasSubstr("--tensor-model-parralel-size 4 (did you mean --tensor-model-parallel-size?)"));
    for (const auto& said : {runs, illegal, large, open, foreign, mistyped})
        EXPECT_EQ(std::count(said.out.begin(), said.out.end(), '\n'), 1) << said.out;

    // Without a vocabulary there is nothing to judge, and nothing wrong either.
    const TempFile nameless("gated_nameless.args",
                            "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 "
                            "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 64 --bf16");
    const Said unknown = say("check --gate --world 16 --megatron-args " + nameless.path());
    EXPECT_EQ(unknown.code, kCannotSay) << unknown.err;
    EXPECT_THAT(unknown.out, StartsWith("cannot say: "));
    EXPECT_THAT(unknown.out, HasSubstr("--vocab-size is missing"));
    EXPECT_EQ(say("check --world 16 --megatron-args " + nameless.path()).code, kBadInput);
    const TempFile worse("gated_worse.args",
                         "--num-layers 4 --hidden-size 250 --num-attention-heads 4 --seq-length 512 "
                         "--max-position-embeddings 512 --micro-batch-size 0 --global-batch-size 64 --bf16");
    const Said wrong = say("check --gate --world 16 --megatron-args " + worse.path());
    EXPECT_EQ(wrong.code, kBadInput) << "whatever the vocabulary is";
    EXPECT_THAT(wrong.out, AllOf(StartsWith("illegal: "), HasSubstr(" more)\n"))) << "on stdout, in one line";
    EXPECT_EQ(std::count(wrong.out.begin(), wrong.out.end(), '\n'), 1) << wrong.out;
    EXPECT_THAT(wrong.err, HasSubstr("--micro-batch-size"));
    const Said nowhere = say("check --gate --world 16 --megatron-args /nowhere.sh");
    EXPECT_THAT(nowhere.out, StartsWith("illegal: --megatron-args: "));

    // Jobs of a kind that no plan describes are refused by name, and break no rule by that.
    for (const std::string other : {"--lora-target-modules router", "--export-kd-teacher-load teacher", "--decoder-num-layers 4"}) {
        const Said refused = gate("--tensor-model-parallel-size 8 " + other, 16);
        EXPECT_EQ(refused.code, kCannotSay) << other;
        EXPECT_THAT(refused.out, AllOf(StartsWith("cannot say: "), HasSubstr("cannot be planned"), HasSubstr(other.substr(0, 6))));
        EXPECT_EQ(gate("--micro-batch-size 0 " + other, 16).code, kBadInput) << other << " with a rule that is broken";
        const TempFile file("refused.args", command("--tensor-model-parallel-size 8 " + other));
        expect_refused("check --world 16 --megatron-args " + file.path(), "cannot be planned");
    }

    const Said json = gate("--tensor-model-parallel-size 8 --flextron", 16, " --format json");
    EXPECT_EQ(json.code, kCannotSay);
    EXPECT_TRUE(Json::parse(json.out)["fits"].is_null());
    EXPECT_TRUE(Json::parse(json.out)["better"].empty());
}

/// DeepSeek-V3 as Megatron-Bridge's recipe for 128 VR200 lays it out (perf_recipes/deepseek/vr200/deepseek_v3.py at 067f987d; its issue
/// 6083).
const std::string kRecipe = R"(model:
  _target_: megatron.bridge.models.deepseek.deepseek_provider.DeepSeekV3ModelProvider
  num_layers: 61
  hidden_size: 7168
  ffn_hidden_size: 18432
  num_attention_heads: 128
  vocab_size: 129280
  multi_latent_attention: true
  q_lora_rank: 1536
  kv_lora_rank: 512
  num_moe_experts: 256
  moe_router_topk: 8
  moe_ffn_hidden_size: 2048
  moe_shared_expert_intermediate_size: 2048
  moe_grouped_gemm: true
  moe_token_dispatcher_type: flex
  moe_flex_dispatcher_backend: hybridep
  mtp_num_layers: 1
  gated_linear_unit: true
  activation_func: {_call_: false, _target_: torch.nn.functional.silu}
  add_bias_linear: false
  share_embeddings_and_output_weights: false
  normalization: RMSNorm
  position_embedding_type: rope
  seq_length: 4096
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 4
  pipeline_model_parallel_layout: Et*4|(t*4|)*14tmL
  context_parallel_size: 1
  expert_model_parallel_size: 64
  expert_tensor_parallel_size: 1
  sequence_parallel: false
  recompute_granularity: selective
  recompute_modules: [mla_up_proj]
  cuda_graph_impl: transformer_engine
  cuda_graph_scope: [attn, moe_router, moe_preprocess]
mixed_precision: bf16_mixed
comm_overlap: {tp_comm_overlap: false, overlap_grad_reduce: true}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
train: {global_batch_size: 2048, micro_batch_size: 1}
dataset: {seq_length: 4096}
)";

TEST(CheckBridgeConfig, FindsRecipesThatCannotStart) {
    const TempFile recipe("run_config.yaml", kRecipe);
    const Said small = say("check --bridge-config " + recipe.path() + " --world 128 --cluster gb300-nvl72 --top 0 --format json");
    EXPECT_EQ(small.code, kBadInput);
    EXPECT_EQ(Json::parse(small.out)["legal"], false);
    EXPECT_THAT(Json::parse(small.out)["problems"].dump(), HasSubstr("etp·ep·pp = 1·64·4 = 256 is larger than world = 128"));
    const Said enough = say("check --bridge-config " + recipe.path() + " --world 256 --cluster gb300-nvl72 --top 0 --format json");
    ASSERT_EQ(enough.code, kDone) << enough.err;
    const Json json = Json::parse(enough.out);
    EXPECT_EQ(json["layout"]["vpp"], 4);
    EXPECT_THAT(json["used"].get<std::vector<std::string>>(), Contains("model.expert_model_parallel_size"));
    EXPECT_TRUE(json["not_computed"].empty());
    expect_refused("check --bridge-config " + recipe.path(), {"--world is missing"});
}

TEST(CheckCommand, AsksOnlyForWhatATrainersFileLacks) {
    const TempFile nemo("gpt.yaml",
                        "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nexp_manager: {name: x}\nmodel:\n  micro_batch_size: 1\n"
                        "  global_batch_size: 64\n  encoder_seq_length: 2048\n  max_position_embeddings: 2048\n  num_layers: 12\n"
                        "  hidden_size: 768\n  num_attention_heads: 12\n  megatron_amp_O2: true\n");
    const Said said = say("check " + nemo.path());
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, HasSubstr("--vocab-size is missing"));
    EXPECT_THAT(said.err, Not(HasSubstr("--world"))) << "trainer.num_nodes x trainer.devices";
    const TempFile open("open.yaml", "exp_manager: {name: x}\nmodel: {num_layers: 12}\n");
    EXPECT_THAT(say("check " + open.path()).err, HasSubstr("--world is missing"));
}

TEST(CheckCommand, ListsTheFlagsThatItKnows) {
    const Said said = say("check --list-flags --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    std::map<std::string, Json> flags;
    for (const auto& flag : Json::parse(said.out)) EXPECT_TRUE(flags.emplace(flag["flag"], flag).second) << flag;
    EXPECT_EQ(flags.at("--hidden-size")["effect"], "used");
    EXPECT_TRUE(flags.at("--hidden-size")["asks_for"].is_null());
    EXPECT_EQ(flags.at("--lr")["effect"], "without effect");
    EXPECT_EQ(flags.at("--flextron")["effect"], "not computed");
    EXPECT_EQ(flags.at("--flextron")["asks_for"], "elastic sub-networks (Flextron)");
    EXPECT_EQ(flags.at("--flextron")["leaves_open"], "legal and fits");
    const std::string csv = say("check --list-flags --format csv").out;
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\r'), static_cast<std::ptrdiff_t>(flags.size()) + 1);
    EXPECT_THAT(say("check --list-flags").out, HasSubstr("\n--hidden-size "));
}

TEST(CheckCommand, ChangesNoFlagThatTheCommandDoesNotHave) {
    const TempFile file("etp_left_out.args",
                        command("--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --tensor-model-parallel-size 8 "
                                "--sequence-parallel --expert-model-parallel-size 1 --moe-token-dispatcher-type alltoall"));
    const Json json = Json::parse(say("check --megatron-args " + file.path() + " --world 32 --format json").out);
    ASSERT_FALSE(json["better"].empty());
    for (const Json& better : json["better"]) {
        const auto changes = better["changes"].get<std::vector<std::string>>();
        EXPECT_THAT(changes, Contains(HasSubstr("--tensor-model-parallel-size 8 -> ")));
        EXPECT_THAT(changes, Not(Contains(HasSubstr("--expert-tensor-parallel-size 8 ->"))));  // it follows tp
    }
}

TEST(CheckCommand, FindsNothingBetterThanTheBest) {
    const TempFile plan("best.json"), best("best.args");
    // As check searches: without headroom.
    ASSERT_EQ(say("plan --headroom 0 --world 16 --model llama3-8b --global-batch 128 --seq 4096 --save-plan " + plan.path()).code, kDone);
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + best.path()).code, kDone);
    const Said said = say("check --megatron-args " + best.path() + " --world 16");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.out, HasSubstr("better: none that is faster, of "));
    EXPECT_THAT(say("check --megatron-args " + best.path() + " --world 16 --top 0").out, HasSubstr("better: not looked for (--top 0)\n"));
}

TEST(CheckCommand, NamesTheBrokenRuleAndWhatWouldBeLegal) {
    const TempFile file("illegal.args", command("--tensor-model-parallel-size 16 --pipeline-model-parallel-size 3"));
    const Said said = say("check --megatron-args " + file.path() + " --world 16");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.out, AllOf(HasSubstr("legal:  no\n"), HasSubstr("16·1·3 does not divide world = 16"), HasSubstr("possible: tp")));
    const Json json = Json::parse(say("check --megatron-args " + file.path() + " --world 16 --format json").out);
    EXPECT_EQ(json["legal"], false);
    EXPECT_TRUE(json["predicted"].is_null());
    EXPECT_FALSE(json["problems"].empty());
    EXPECT_TRUE(json["better"][0]["gain"].is_null());
}

TEST(CheckCommand, ShowsWhatFitsWhereTheCommandDoesNot) {
    const TempFile file("large.args", command("--micro-batch-size 16"));
    const Said said = say("check --megatron-args " + file.path() + " --world 8");
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(said.out, AllOf(HasSubstr("memory: does not fit: "), HasSubstr("over the limit"), HasSubstr("legal and fitting, of "),
                                HasSubstr("--micro-batch-size 16 -> ")));
}

TEST(CheckCommand, NamesWhatTheCommandSwitchesOn) {
    const TempFile file("switched.args", command("--tensor-model-parallel-size 4 --sequence-parallel --tp-comm-overlap"));
    const std::string asked = "check --top 1 --world 16 --megatron-args " + file.path();
    const std::string text = say(asked).out;
    EXPECT_THAT(text, HasSubstr("legal:  yes, tp4 cp1 ep1 etp4 pp1 vpp1 mbs1 sp p2p none tp-overlap\n"));
    EXPECT_THAT(text, ::testing::ContainsRegex("  1 .*tokens/s: tp.* tp-overlap\n")) << "which others keep";
    EXPECT_THAT(
        text,
        HasSubstr(
            "\n    all with the command's dispatcher, overlaps, types and CUDA graphs, which\n    mgplan plan --search wide varies too\n"));
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + file.path()).out, Not(HasSubstr("all with the command's")));
    EXPECT_THAT(say(asked + " --gate").out, HasSubstr(" tp-overlap; "));
}

TEST(CheckCommand, SavesTheCommandAsAPlan) {
    const TempFile file("saved.args", command("--tensor-model-parallel-size 4 --sequence-parallel"));
    const TempFile plan("saved_plan.json");
    ASSERT_EQ(say("check --top 0 --megatron-args " + file.path() + " --world 16 --save-plan " + plan.path()).code, kDone);
    const Plan saved = load_plan(plan.path());
    EXPECT_EQ(saved.layout.sizes.tp, 4);
    EXPECT_EQ(saved.layout.engine, Engine::megatron);
    EXPECT_EQ(saved.batch.global_batch, 128);
}

TEST(CheckCommand, TakesTheVocabularyThatAScriptLacks) {
    std::string text = command("--tensor-model-parallel-size 2");
    text.erase(text.find("--vocab-size 128256"), std::string("--vocab-size 128256").size());
    const TempFile without("nameless.args", text), with("named.args", command("--tensor-model-parallel-size 2"));
    expect_refused("check --world 16 --megatron-args " + without.path(),
                   {"--vocab-size is missing", "as --vocab-size N with --megatron-args"});
    EXPECT_EQ(judged(without, "--world 16 --vocab-size 128256")["predicted"], judged(with)["predicted"]);
    EXPECT_NE(judged(with, "--world 16 --vocab-size 32000")["predicted"], judged(with)["predicted"]) << "and wins over the script's";
    for (const std::string other : {"simulate --megatron-args ", "plan --top 1 --model "})
        EXPECT_EQ(say(other + without.path() + " --world 16 --vocab-size 128256").code, kDone) << other;
    expect_refused("check --world 16 --vocab-size 0 --megatron-args " + without.path(), "--vocab-size = 0");
}

TEST(CheckCommand, SaysWhatBecameOfEachFlag) {
    const TempFile file("flags.args", command("--optimizer soap --nccl-ub --no-my-flag 3 --lr 1e-4 --tensor-model-parallel-size 2"));
    const auto list = [](const Json& json, const char* key) { return json.at(key).get<std::vector<std::string>>(); };
    const Json json = judged(file);
    EXPECT_THAT(list(json, "used"), AllOf(Contains("--bf16"), Contains("--tensor-model-parallel-size"), Not(Contains("--optimizer")),
                                          Not(Contains("--lr")), Not(Contains("--nccl-ub"))));
    EXPECT_THAT(list(json, "not_computed"), ElementsAre(HasSubstr("--nccl-ub ("), HasSubstr("--optimizer (optimizer soap")));
    EXPECT_THAT(list(json, "unknown"), ElementsAre("--no-my-flag 3"));
    const Said simulated = say("simulate --format json --world 16 --megatron-args " + file.path());
    for (const char* key : {"used", "not_computed", "unknown"}) EXPECT_EQ(Json::parse(simulated.out)[key], json[key]);
    const Json plan = Json::parse(say("plan --top 1 --format json --world 16 --engine megatron --model " + file.path()).out);
    EXPECT_THAT(list(plan, "used"), AllOf(Contains("--bf16"), Not(Contains("--tensor-model-parallel-size")))) << "which a search chooses";
    EXPECT_EQ(plan["not_computed"], json["not_computed"]);
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + file.path()).out,
                AllOf(HasSubstr("not computed: --nccl-ub"), HasSubstr("unknown flags, left out: --no-my-flag 3")));
}

TEST(CheckCommand, SaysWhereTheTimeOfALayerIsALowerBound) {
    const TempFile mamba("mamba.json", R"({"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 4, "vocab_size": 50280})");
    EXPECT_THAT(say("simulate --world 1 --model " + mamba.path()).err,
                HasSubstr("the time of the selective scan of Mamba is a lower bound"));
    EXPECT_THAT(say("simulate --world 1 --model tiny-llama").err, Not(HasSubstr("lower bound")));
}

TEST(CheckCommand, AsksModelsWithoutExpertsForTheirGridToo) {
    // parallel_state.py, initialize_model_parallel: etp times ep times pp divides the world.
    const TempFile wide("etp_of_dense.args", command("--tensor-model-parallel-size 2 --expert-tensor-parallel-size 3"));
    const Said gate = say("check --gate --world 16 --megatron-args " + wide.path());
    EXPECT_EQ(gate.code, kBadInput);
    EXPECT_THAT(gate.out, AllOf(StartsWith("illegal: etp = 3 (--expert-tensor-parallel-size) times pp = 1 does not divide world = 16"),
                                HasSubstr("leave that flag out")));
    const TempFile parts("parts_of_dense.args", command("--tensor-model-parallel-size 2 --expert-tensor-parallel-num-weight-shards 12"));
    EXPECT_THAT(say("check --gate --world 16 --megatron-args " + parts.path()).out, HasSubstr("in 6 parts of weights"));
    const TempFile divides("etp_divides.args", command("--tensor-model-parallel-size 2 --expert-tensor-parallel-size 4"));
    EXPECT_EQ(say("check --gate --world 16 --megatron-args " + divides.path()).code, kDone);
}

TEST(CheckCommand, KeepsOfACommandWhatNoSearchChooses) {
    const TempFile file("kept.args", command("--tensor-model-parallel-size 4 --enable-hyper-connections --use-tp-pp-dp-mapping "
                                             "--recompute-granularity selective --recompute-modules mhc --mhc-recompute-layer-num 2"));
    const Said said = say("check --top 20 --world 16 --format json --megatron-args " + file.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    int again = 0;
    const Json answer = Json::parse(said.out);
    for (const auto& better : answer["better"]) {
        const std::string changes = better["changes"].dump();
        EXPECT_THAT(changes, Not(HasSubstr("--use-tp-pp-dp-mapping")));
        if (changes.find("--recompute-modules") != std::string::npos) continue;
        ++again;
        EXPECT_THAT(changes, Not(HasSubstr("--mhc-recompute-layer-num")));
    }
    EXPECT_GT(again, 0);
}

TEST(CheckCommand, KeepsTheRowsOfAPaddedVocabularyInEveryLayout) {
    const auto dense = [](const std::string& vocabulary) {
        return "--hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --num-layers 16 --seq-length 2048 "
               "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer " +
               vocabulary;
    };
    const TempFile file("padded.args", dense("--tensor-model-parallel-size 2 --padded-vocab-size 50258"));
    const Json odd = Json::parse(say("check --top 20 --world 8 --format json --megatron-args " + file.path()).out);
    EXPECT_EQ(odd["legal"], true);
    EXPECT_FALSE(odd["better"].empty());
    for (const auto& better : odd["better"]) EXPECT_EQ(50258 % better["layout"]["tp"].get<int>(), 0) << better["layout"];
    const TempFile over_four("padded_four.args", dense("--tensor-model-parallel-size 4 --padded-vocab-size 50258"));
    const Said refused = say("check --gate --world 8 --megatron-args " + over_four.path());
    EXPECT_EQ(refused.code, kBadInput);
    EXPECT_EQ(refused.out, "illegal: tp = 4 does not divide padded vocabulary (--padded-vocab-size) = 50258; use 1 or 2\n");
    // The same number of rows as padding gives over two ranks holds over eight, where padding would give more.
    const auto memory_over_eight = [&](const std::string& vocabulary) {
        const TempFile wide("padded_eight.args", dense("--tensor-model-parallel-size 8 " + vocabulary));
        return Json::parse(say("check --top 0 --world 8 --format json --megatron-args " + wide.path()).out)["predicted"]["memory"].dump();
    };
    EXPECT_EQ(memory_over_eight("--vocab-size 50257 --padded-vocab-size 50432"),
              memory_over_eight("--vocab-size 50432 --make-vocab-size-divisible-by 1"));
    EXPECT_NE(memory_over_eight("--vocab-size 50257 --padded-vocab-size 50432"), memory_over_eight("--vocab-size 50257"));
    // mgplan's own --vocab-size says how many of the rows are tokens, and hides nothing.
    const TempFile own("padded_own.args", dense("--tensor-model-parallel-size 2 --padded-vocab-size 50257"));
    for (const std::string more : {"", " --vocab-size 50257"})
        EXPECT_THAT(say("check --gate --world 8 --megatron-args " + own.path() + more).out,
                    StartsWith("illegal: tp = 2 does not divide padded vocabulary"));
    expect_refused("check --top 0 --world 8 --vocab-size 60000 --megatron-args " + own.path(),
                   "--padded-vocab-size = 50257 is less than the 60000 tokens");
    const Json known = Json::parse(say("check --top 0 --world 8 --vocab-size 50257 --format json --megatron-args " + file.path()).out);
    EXPECT_EQ(known["legal"], true);
    EXPECT_THAT(known["used"].dump(), HasSubstr("--padded-vocab-size"));
    // And through a plan's JSON to flags and back.
    const TempFile plan("padded.json", "");
    const TempFile both("padded_both.args", dense("--tensor-model-parallel-size 2 --vocab-size 50257 --padded-vocab-size 50258"));
    ASSERT_EQ(say("check --top 0 --world 8 --megatron-args " + both.path() + " --save-plan " + plan.path()).code, kDone);
    const Said exported = say("export " + plan.path() + " --to megatron-args");
    EXPECT_THAT(exported.out, AllOf(HasSubstr("--vocab-size 50257"), HasSubstr("--padded-vocab-size 50258")));
    EXPECT_THAT(exported.err, Not(HasSubstr("padded_rows")));
}

TEST(CheckCommand, LeavesOpenHowManyRowsACheckpointBrings) {
    const auto gate = [](const std::string& more) {
        const TempFile file("checkpoint_rows.args", command("--tensor-model-parallel-size 8 " + more));
        return say("check --gate --world 16 --megatron-args " + file.path());
    };
    for (const std::string checkpoint : {"--load", "--pretrained-checkpoint"}) {
        const Said open = gate("--no-pad-vocab-size --use-checkpoint-args " + checkpoint + " /x");
        EXPECT_EQ(open.code, kCannotSay) << checkpoint << open.err;
        EXPECT_THAT(open.out, AllOf(StartsWith("cannot say: "), HasSubstr("give it as --padded-vocab-size N")));
    }
    EXPECT_EQ(gate("--no-pad-vocab-size --use-checkpoint-args --load /x --padded-vocab-size 128256").code, kDone);
    EXPECT_EQ(gate("--no-pad-vocab-size --use-checkpoint-args").code, kBadInput) << "from no checkpoint";
    EXPECT_EQ(gate("--no-pad-vocab-size --load /x").code, kBadInput) << "whose arguments are not asked";
    EXPECT_EQ(gate("--use-checkpoint-args --load /x").code, kDone);
}

TEST(CheckCommand, TellsWhatIsWrongBehindAMissingVocabulary) {
    std::string text = command("--tensor-model-parallel-size 3 --pipeline-model-parallel-size 5");
    text.erase(text.find("--vocab-size 128256"), std::string("--vocab-size 128256").size());
    const TempFile file("behind.args", text);
    const std::string judge = "check --top 0 --world 16 --megatron-args " + file.path();
    const Said said = say(judge);
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, AllOf(HasSubstr("--vocab-size is missing"), HasSubstr("tp = 3 does not divide attention heads = 32")));
    // Each that the command shows with a vocabulary, once.
    const Json known = Json::parse(say(judge + " --vocab-size 128256 --format json").out);
    EXPECT_GT(known["problems"].size(), 1U);
    for (const auto& broken : known["problems"]) {
        const auto first = said.err.find(broken.get<std::string>());
        ASSERT_NE(first, std::string::npos) << broken;
        EXPECT_EQ(said.err.find(broken.get<std::string>(), first + 1), std::string::npos) << broken;
    }
    const Said gated = say(judge + " --gate");
    EXPECT_EQ(gated.code, kBadInput) << "whatever the vocabulary is, it is illegal";
    EXPECT_THAT(gated.out, AllOf(StartsWith("illegal: tp = 3 does not divide world = 16"), HasSubstr(" more)\n")))
        << "a missing vocabulary makes nothing illegal";
    const TempFile variable("behind_variable.sh",
                            "LAYERS=4\nif [ -d data ]; then\n  LAYERS=8\nfi\npython pretrain_gpt.py --num-layers $LAYERS "
                            "--hidden-size 256 --num-attention-heads 4 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 "
                            "--global-batch-size 64 --bf16\n");
    const Said noted = say("check --gate --world 8 --megatron-args " + variable.path());
    EXPECT_EQ(noted.code, kCannotSay) << noted.out << noted.err;
    EXPECT_THAT(noted.out, AllOf(StartsWith("cannot say: "), HasSubstr("--vocab-size is missing"), HasSubstr(" more)\n")))
        << "nor does what only running the script would tell";

    // Batches that training grows through.
    const auto ramped = [](const std::string& vocabulary) {
        const TempFile growing("behind_ramp.args",
                               "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 --max-position-embeddings 512 "
                               "--micro-batch-size 1 --bf16 --tensor-model-parallel-size 2 --global-batch-size 60 "
                               "--rampup-batch-size 10 10 1000 --train-samples 100000" +
                                   vocabulary);
        return say("check --top 0 --world 8 --megatron-args " + growing.path());
    };
    const Said grows = ramped(" --vocab-size 50257"), also_grows = ramped("");
    EXPECT_EQ(also_grows.code, kBadInput);
    std::vector<std::string> batches;
    for (const auto& line : split(grows.out, '\n')) {
        const auto at = line.find("the batch of ");
        if (at != std::string::npos) batches.push_back(line.substr(at));
    }
    EXPECT_EQ(batches.size(), 3U) << grows.out;
    for (const auto& batch : batches) EXPECT_THAT(also_grows.err, HasSubstr(batch));
    // A batch of which nothing is left has a gate's line, too.
    const TempFile little("behind_little.args", command("--global-batch-size 8 --decrease-batch-size-if-needed"));
    EXPECT_THAT(say("check --gate --world 16 --megatron-args " + little.path()).out,
                StartsWith("illegal: --decrease-batch-size-if-needed leaves nothing"));

    std::string sizes = text;  // sizes stand behind it too
    sizes.replace(sizes.find("--num-query-groups 8"), std::string("--num-query-groups 8").size(), "--num-query-groups 7");
    const TempFile odd("behind_sizes.args", sizes);
    expect_refused("check --world 16 --megatron-args " + odd.path(),
                   {"--vocab-size is missing", "7", "tp = 3 does not divide world = 16; use 1, 2, 4, 8 or 16"});
    // A batch that the ranks do not divide, beside a model that is wrong; not where the model alone is missing something.
    const TempFile batch("behind_batch.args", command("--num-query-groups 7 --tensor-model-parallel-size 2 --global-batch-size 100"));
    expect_refused("check --world 16 --megatron-args " + batch.path(),
                   {"7",
                    "global batch = 100 is no multiple of dp·micro-batch = 8·1; use a micro-batch of 1 on fewer dp ranks or a batch that "
                    "is a multiple of 8"});
    EXPECT_THAT(say("simulate --world 16 --megatron-args " + batch.path()).err, Not(HasSubstr("no multiple of")));
}

TEST(CheckCommand, JudgesResidualStreams) {
    const auto check = [](const std::string& more) {
        const TempFile file("streams.args", command("--tensor-model-parallel-size 8 " + more));
        return judged(file);
    };
    const Json plain = check(""), streams = check("--enable-mhc-connections");
    EXPECT_EQ(streams["legal"], true);
    EXPECT_GT(streams["predicted"]["memory"]["peak_bytes"], plain["predicted"]["memory"]["peak_bytes"]);
    EXPECT_GT(streams["predicted"]["iteration_seconds"], plain["predicted"]["iteration_seconds"]);
    EXPECT_THAT(streams["assumed"].dump(), HasSubstr("HyperConnectionTransformerLayer"));
    const Json again = check("--enable-mhc-connections --recompute-granularity selective --recompute-modules mhc");
    EXPECT_LT(again["predicted"]["memory"]["peak_bytes"], streams["predicted"]["memory"]["peak_bytes"]);
    const TempFile refused("streams_run.args", command("--tensor-model-parallel-size 8 --enable-mhc-connections"));
    const TempFile plan("streams.json", "");
    ASSERT_EQ(say("check --top 0 --world 16 --megatron-args " + refused.path() + " --save-plan " + plan.path()).code, kDone);
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + refused.path()).err,
                HasSubstr("residual streams (mHC) is not calibrated"));
    EXPECT_THAT(say("run " + plan.path()).err, HasSubstr("4 residual streams that maps mix (hyper-connections)"));
    EXPECT_THAT(say("export " + plan.path() + " --to megatron-args").out,
                AllOf(HasSubstr("--enable-mhc-connections"), HasSubstr("--mhc-num-residual-streams 4")));
}

TEST(CheckCommand, CannotSayWhatAFlagDecidesThatIsNotComputed) {
    const TempFile undecided("open.args", command("--flextron --micro-batch-size 16"));
    const Json json = judged(undecided, "--world 8");
    EXPECT_TRUE(json["legal"].is_null() && json["fits"].is_null());
    EXPECT_GT(json["predicted"]["memory"]["peak_bytes"], json["predicted"]["memory"]["limit_bytes"]);
    EXPECT_THAT(
        say("check --top 0 --world 8 --megatron-args " + undecided.path()).out,
        AllOf(HasSubstr("legal:  cannot say, --flextron (elastic sub-networks (Flextron)) is not computed: tp1"),
              HasSubstr("memory: cannot say, --flextron (elastic sub-networks (Flextron)) is not computed; without it does not fit")));
    EXPECT_EQ(say("simulate --world 8 --megatron-args " + undecided.path()).code, kDone);
    expect_refused("check --strict --world 8 --megatron-args " + undecided.path(),
                   "--strict: --flextron (elastic sub-networks (Flextron)) is not part");

    // MindSpeed's --noop-layers takes layers out of the model: their number is open, and no count is written.
    const TempFile layers("noop.args", command("--noop-layers 1,2 --tensor-model-parallel-size 2"));
    const Json without_count = judged(layers);
    for (const char* count : {"parameters", "active_parameters", "mtp_parameters"}) EXPECT_TRUE(without_count["model"][count].is_null());
    EXPECT_TRUE(without_count["legal"].is_null() && without_count["fits"].is_null());
    EXPECT_THAT(without_count["not_computed"].dump(), HasSubstr("--noop-layers"));

    const TempFile optimizer("soap.args", command("--optimizer soap --tensor-model-parallel-size 2"));
    EXPECT_EQ(judged(optimizer)["legal"], true) << "which decides only what a rank holds";
    EXPECT_TRUE(judged(optimizer)["fits"].is_null());
    const TempFile network("network.args", command("--nccl-ub --tensor-model-parallel-size 2"));
    EXPECT_EQ(judged(network)["fits"], true) << "which decides only the time";
    const TempFile unknown("unknown.args", command("--unheard-of 3 --tensor-model-parallel-size 2"));
    const Json of_a_fork = judged(unknown);
    EXPECT_TRUE(of_a_fork["fits"].is_null() && of_a_fork["legal"].is_null()) << "an unknown flag may change anything";
    EXPECT_GT(of_a_fork["model"]["parameters"], 0);
    EXPECT_THAT(
        say("check --top 0 --world 16 --megatron-args " + unknown.path()).out,
        AllOf(HasSubstr("legal:  cannot say, --unheard-of 3 is not known: tp2"), HasSubstr("memory: cannot say, --unheard-of 3 is")));
    expect_refused("simulate --strict --world 16 --megatron-args " + unknown.path(), "--strict: --unheard-of 3 is not known");
    const TempFile whole("whole.args", command("--tensor-model-parallel-size 2 --lr 1e-4"));
    EXPECT_EQ(judged(whole, "--world 16 --strict")["fits"], true);
}

TEST(CheckCommand, CountsEmbeddingAndLossBeforeItDividesStages) {
    // 30 layers, an embedding and a loss over pp 4: 8 of a rank, 4 chunks of 2 (Megatron-LM's arguments.py).
    const TempFile file("account.args",
                        command("--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 "
                                "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"));
    EXPECT_EQ(judged(file)["layout"]["vpp"], 4);
    const TempFile odd("odd.args", command("--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2"));
    EXPECT_THAT(judged(odd, "--world 16", kBadInput)["problems"][0].get<std::string>(), HasSubstr("needs 30 layers"));
}

TEST(CheckCommand, NeedsACommandToJudge) {
    expect_refused("check --world 16 --model llama3-8b", "--megatron-args is missing");
    expect_refused("check", "--megatron-args is missing");
}

TEST(FlagChanges, AreThoseThatWereAddedChangedAndDropped) {
    formats::MegatronJob from, to;
    from.parts = {{"layout", {{"--tp", {"4"}}, {"--sequence-parallel", {}}, {"--pp", {"2"}}}}};
    to.parts = {{"layout", {{"--tp", {"2"}}, {"--pp", {"2"}}, {"--recompute-modules", {"mlp", "moe"}}}}};
    EXPECT_THAT(reports::flag_changes(from, to), ElementsAre("--tp 4 -> 2", "add --recompute-modules mlp moe", "drop --sequence-parallel"));
    to.parts = {{"layout", {{"--pipeline-model-parallel-layout", {"Et*3|(tt|)*2L"}}}}};
    EXPECT_THAT(reports::flag_changes({}, to), ElementsAre("add --pipeline-model-parallel-layout 'Et*3|(tt|)*2L'"))
        << "as a shell takes it";
}

}  // namespace
}  // namespace mgplan::cli::testing::check_command_test
