// `mgplan export`: what Megatron-LM's flags make of a plan, read back, is the plan.

#include <map>
#include <random>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/megatron_round_trip.hpp"
#include "cli/plan_file.hpp"
#include "exported.hpp"
#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/bridge_overrides.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/json/model_json.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "planner/candidates.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::cli::testing::export_command_test {
namespace {

using exported::some_layouts, exported::workload_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;
using Json = nlohmann::ordered_json;

/// Whether Megatron-LM lets exchanges of experts run beside another microbatch (transformer_config.py, __post_init__).
bool hides_exchanges(const Plan& plan) {
    const Layout& layout = plan.layout;
    return layout.sizes.ep > 1 && (layout.sizes.pp == 1 || layout.vpp > 1) && layout.recompute == Recompute::none &&
           layout.cuda_graphs.empty() && plan.model.mtp_layers <= 1 && plan.model.moe->dispatcher != TokenDispatcher::all_gather &&
           plan.training.compute_dtype() != Dtype::fp32;
}

/// Training choices of every kind that Megatron-LM knows, one set for each seed.
TrainingSpec some_training(std::mt19937& random, bool moe) {
    const auto coin = [&] { return random() % 2 == 0; };
    TrainingSpec training;
    constexpr std::array precisions{Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp8};
    training.precision = precisions[random() % precisions.size()];
    const bool half = training.precision == Precision::bf16 || training.precision == Precision::fp16;
    training.grad_dtype = half && coin() ? training.compute_dtype() : Dtype::fp32;
    training.distributed_optimizer = coin();
    training.overlap_grad_reduce = coin();
    training.overlap_param_gather = training.distributed_optimizer && training.overlap_grad_reduce && coin();
    training.overlap_tp = coin();
    training.overlap_moe = moe && coin();
    training.fused_cross_entropy = coin();
    training.fp8_parameters = training.precision == Precision::fp8 && coin();
    if (coin()) {
        training.megatron.precision_aware_optimizer = true;
        training.exp_avg_dtype = coin() ? Dtype::bf16 : Dtype::fp8;
        training.exp_avg_sq_dtype = coin() ? Dtype::fp16 : Dtype::fp32;
    }
    MegatronSwitches& switches = training.megatron;
    switches.transformer_engine = coin() || training.precision == Precision::fp8;
    switches.gradient_accumulation_fusion = coin();
    switches.bias_activation_fusion = coin();
    switches.rope_fusion = coin();
    switches.async_tp_reduce = coin();
    switches.te_cross_entropy = coin();
    switches.attention_softmax_in_fp32 = coin();
    switches.deterministic = coin();
    switches.defer_embedding_wgrad = coin();
    switches.pad_buckets = coin();
    switches.bucket_size = coin() ? 0 : 12'345'678;
    switches.moe_permute_fusion = moe && coin();
    switches.router_fp32 = moe && coin();
    switches.permute_in_hybrid_ep = moe && coin();
    switches.dispatcher_sms = moe && coin() ? 32 : 0;
    switches.op_fuser = coin();
    switches.activation_clamp = coin() ? 6.5 : 0;
    switches.fp8_output_projection = coin();
    switches.fp8_attention = coin();
    switches.fp8_recipe = training.precision == Precision::fp8 && coin() ? Fp8Recipe::mxfp8 : Fp8Recipe::delayed;
    constexpr std::array kernels{FusedAttention::automatic, FusedAttention::flash_attention, FusedAttention::cudnn};
    switches.fused_attention = kernels[random() % kernels.size()];
    switches.reuse_grad_buffer = coin();
    switch (random() % 5) {
        case 0: {
            FullyShardedSpec& spec = switches.fully_sharded;
            spec.kind = FullyShardedKind::megatron_fsdp;
            spec.strategy = static_cast<ShardingStrategy>(random() % 4);
            spec.double_buffer = coin();
            spec.communication_unit = coin() ? 0 : 123'456'789;
            if (coin()) spec.main_params = std::nullopt;
            if (coin()) spec.main_grads = Dtype::fp32;
            if (coin()) spec.communicated_grads = Dtype::bf16;
            training.distributed_optimizer = true;
            if (spec.shards_gradients()) training.overlap_grad_reduce = true;
            if (spec.shards_parameters()) training.overlap_param_gather = true;
            break;
        }
        case 1:
            switches.optimizer = coin() ? OptimizerKind::muon : OptimizerKind::sgd;
            // The precision-aware optimizer is Adam's.
            switches.precision_aware_optimizer = false;
            training.main_param_dtype = training.exp_avg_dtype = training.exp_avg_sq_dtype = Dtype::fp32;
            break;
        default:
            break;
    }
    // auto finds no fused kernel for fp32, nor outside Transformer Engine; a kernel named is taken.
    if (training.precision == Precision::fp32 || !switches.transformer_engine) switches.fused_attention = FusedAttention::flash_attention;
    return training;
}

TEST(MegatronRoundTrip, GivesBackModelBatchLayoutAndTraining) {
    std::mt19937 random(20261121);
    std::size_t plans = 0;
    for (const auto& [name, world, stride] :
         {std::tuple{"llama3-70b", 64, 97U}, std::tuple{"gpt3-175b", 96, 41U}, std::tuple{"mixtral-8x7b", 32, 151U},
          std::tuple{"deepseek-v3", 256, 1999U}, std::tuple{"qwen2-57b-a14b", 28, 31U}, std::tuple{"qwen3-30b-a3b", 16, 61U},
          std::tuple{"nemotron4-15b", 24, 7U}, std::tuple{"qwen2.5-7b", 14, 5U}, std::tuple{"llama3.1-8b", 40, 11U},
          std::tuple{"nemotron-h-8b", 32, 61U}}) {
        Workload work = workload_of(name, world);
        planner::SearchSpace space;
        space.engine = Engine::megatron;
        space.recompute_modules = {RecomputeModule::core_attn, RecomputeModule::layernorm};
        const std::vector<Layout> layouts = some_layouts(work, space, stride);
        plans += layouts.size();
        for (const Layout& layout : tests::sanitized_share(layouts, 8)) {
            Plan plan{work.model, work.cluster, work.batch, some_training(random, work.model.moe.has_value()), layout, work.routing};
            plan.training.overlap_moe = plan.training.overlap_moe && hides_exchanges(plan);
            plan.training.overlap_tp = plan.training.overlap_tp && (layout.sizes.tp == 1 || layout.sequence_parallel);
            // Some are of branch dev, some of main.
            ASSERT_THAT(lost_in_megatron_flags(plan, std::nullopt), IsEmpty())
                << name << " " << summary(layout) << "\n"
                << formats::megatron_args_text(formats::megatron_job(plan, std::nullopt));
        }
    }
    EXPECT_GT(plans, 1000U);
}

TEST(MegatronRoundTrip, KeepsBuffersOfAFixedSizeForExperts) {
    Workload work = workload_of("deepseek-v3", 256);
    work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    planner::SearchSpace space;
    space.engine = Engine::megatron;
    space.pp = {16};
    space.vpp = {2};
    const auto layouts = some_layouts(work, space, 1000);
    ASSERT_FALSE(layouts.empty());
    work.training.megatron.expert_buffers = {.capacity = 1.5, .paged_stash = true, .pages = -1.25};
    for (const bool fused : {true, false}) {
        work.training.megatron.op_fuser = fused;
        const Plan plan{work.model, work.cluster, work.batch, work.training, layouts.front(), work.routing};
        EXPECT_THAT(lost_in_megatron_flags(plan), IsEmpty());
        EXPECT_EQ(plan_from_json(plan_to_json(plan), "plan"), plan);
        const std::vector<std::string> words = formats::megatron_job(plan).words();
        EXPECT_THAT(words, ::testing::IsSupersetOf({"--moe-expert-rank-capacity-factor", "--moe-paged-stash", "-1.25"}));
        nlohmann::ordered_json without = plan_to_json(plan);
        without["training"]["megatron"]["expert_buffers"]["capacity"] = 0;
        EXPECT_THROW((void)plan_from_json(without, "plan"), ConfigError);
        EXPECT_EQ(std::count(words.begin(), words.end(), "--moe-use-grouped-tensor"), fused ? 0 : 1)
            << "Megatron-LM asks for one of the two";
    }
}

TEST(MegatronRoundTrip, ReadsTheFileForTheShellAndTheYamlAsTheSameWords) {
    Workload work = workload_of("deepseek-v3", 256);
    planner::SearchSpace space;
    space.pp = {16};
    space.vpp = {2};
    space.recompute = {Recompute::selective};
    space.recompute_modules = {RecomputeModule::mla_up_proj, RecomputeModule::moe_act};
    const auto layouts = some_layouts(work, space, 50);
    ASSERT_FALSE(layouts.empty());
    bool some_layout_string = false;
    for (const Layout& layout : layouts) {
        const formats::MegatronJob job = formats::megatron_job({work.model, work.cluster, work.batch, work.training, layout, work.routing});
        EXPECT_EQ(formats::argument_words(formats::megatron_args_text(job), "file").words, job.words());
        EXPECT_EQ(formats::argument_words(formats::megatron_yaml_text(job), "file").words, job.words());
        some_layout_string |= layout.split->request().pipeline_layout.has_value();
    }
    EXPECT_TRUE(some_layout_string) << "its bars and stars need quotes";
}

/// The YAML of a configuration after overrides: a mapping for each section.
std::string overridden(const std::vector<std::string>& overrides, const std::string& model) {
    std::map<std::string, std::string> sections{{"model", model}};
    for (const auto& one : overrides) {
        const auto dot = one.find('.'), equals = one.find('=');
        if (dot == std::string::npos || dot > equals) continue;  // comm_overlap=null
        sections[one.substr(0, dot)] += "  " + one.substr(dot + 1, equals - dot - 1) + ": " + one.substr(equals + 1) + "\n";
    }
    std::string yaml;
    for (const auto& [section, fields] : sections) yaml += section + ":\n" + fields;
    return yaml;
}

TEST(BridgeOverrides, GiveARecipeThePlansLayout) {
    Workload work = workload_of("deepseek-v3", 256);
    planner::SearchSpace space;
    space.engine = Engine::megatron;
    space.pp = {8, 16};
    space.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    space.recompute_modules = {RecomputeModule::mla_up_proj, RecomputeModule::moe_act};
    const auto layouts = some_layouts(work, space, 3001);
    ASSERT_GT(layouts.size(), 5U);
    const std::string recipe =
        "  num_layers: 61\n  hidden_size: 7168\n  num_attention_heads: 128\n  vocab_size: 129280\n  multi_latent_attention: true\n  "
        "num_moe_experts: 256\n  moe_grouped_gemm: true\n  mtp_num_layers: 1\n  bf16: true\n  add_bias_linear: false\n";
    bool layout_string = false;
    for (const Layout& layout : layouts) {
        const formats::MegatronJob job = formats::megatron_job({work.model, work.cluster, work.batch, work.training, layout, work.routing});
        const auto overrides = formats::bridge_overrides(job);
        const LayoutRequest read = *formats::read_bridge_config(overridden(overrides, recipe), "run_config.yaml").layout;
        EXPECT_EQ(std::tie(read.tp, read.cp, read.pp, read.ep, read.micro_batch, read.sequence_parallel, read.recompute),
                  std::tie(layout.sizes.tp, layout.sizes.cp, layout.sizes.pp, layout.sizes.ep, layout.micro_batch, layout.sequence_parallel,
                           layout.recompute))
            << summary(layout);
        EXPECT_EQ(read.etp.value_or(read.tp), layout.sizes.etp);
        EXPECT_EQ(read.vpp, layout.vpp);
        EXPECT_THAT(overrides, Contains(layout.vpp > 1 ? "model.overlap_p2p_comm=true" : "model.overlap_p2p_comm=false"));
        if (layout.recompute == Recompute::selective) {
            EXPECT_EQ(read.recompute_modules, layout.recompute_modules);
        }
        layout_string |= read.split->pipeline_layout.has_value();
        EXPECT_EQ(read.split->pipeline_layout, layout.split->request().pipeline_layout);
    }
    EXPECT_TRUE(layout_string) << "its bars and stars need quotes";
}

// HybridModelProvider of megatron-bridge 0.6.2 divides the pattern by its bars, and takes no virtual stages.
TEST(BridgeOverrides, GiveAHybridItsStages) {
    Workload work = workload_of("nemotron-h-8b", 16);
    planner::SearchSpace space;
    space.engine = Engine::megatron;
    space.pp = {2};
    for (const int vpp : {1, 2}) {
        space.vpp = {vpp};
        const Plan plan{work.model, work.cluster, work.batch, work.training, some_layouts(work, space, 1).front(), work.routing};
        const formats::MegatronJob job = formats::megatron_job(plan);
        if (vpp == 1)
            EXPECT_THAT(formats::bridge_overrides(job), Contains(MatchesRegex("model.hybrid_layer_pattern=\"[^|]*[|][^|]*\"")));
        else
            EXPECT_THAT([&] { (void)formats::bridge_overrides(job); },
                        ThrowsMessage<ConfigError>(HasSubstr("4 chunks of layers on 2 pipeline ranks")));
    }
}

TEST(BridgeOverrides, GiveARecipeThePlansOffloading) {
    const std::string recipe =
        "  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\n  vocab_size: 128256\n  bf16: true\n  add_bias_linear: false\n";
    Workload work = workload_of("llama3-8b", 16);
    planner::SearchSpace space;
    space.engine = Engine::megatron;
    space.recompute = {Recompute::none};
    const OffloadSpec none, host{.optimizer = 0.25, .modules = {OffloadModule::core_attn, OffloadModule::attn_proj}}, states{.states = 1},
        some{.states = 0.5};
    for (const OffloadSpec& offload : {none, host, states, some}) {
        work.training.offload = offload;
        work.training.megatron.precision_aware_optimizer = offload.optimizer > 0;
        work.training.megatron.overlap_host_update = offload.optimizer > 0;
        work.training.megatron.offload_chunk_mib = offload == some ? 64 : 0;
        const Plan plan{work.model, work.cluster, work.batch, work.training, some_layouts(work, space, 1).front(), work.routing};
        const formats::MegatronJob job = formats::megatron_job(plan, std::nullopt);
        const auto overrides = formats::bridge_overrides(job);
        const TrainingSpec read = *formats::read_bridge_config(overridden(overrides, recipe), "run_config.yaml").training;
        EXPECT_EQ(read.offload, offload);
        EXPECT_EQ(read.megatron.overlap_host_update, work.training.megatron.overlap_host_update);
        EXPECT_EQ(read.megatron.offload_chunk_mib, work.training.megatron.offload_chunk_mib);
        // What is off is said, but for fields that only branch dev has.
        const bool waits = offload.states > 0;
        EXPECT_THAT(overrides,
                    Contains(offload == host ? "optimizer.optimizer_cpu_offload=true" : "optimizer.optimizer_cpu_offload=false"));
        EXPECT_EQ(fmt::format("{}", fmt::join(overrides, " ")).find("optimizer_state") != std::string::npos, waits);
        EXPECT_EQ(formats::bridge_overrides_text(job).starts_with("# In the environment: NVTE_CPU_OFFLOAD_V1=1\n"), offload == host);
    }
}

TEST(MegatronRoundTrip, NamesWhatNoFlagCarries) {
    Workload work = workload_of("llama3-8b", 8);
    work.model.qk_norm = work.model.qk_norm_full_width = true;
    const Layout layout = some_layouts(work, {}, 1).front();
    EXPECT_THAT(lost_in_megatron_flags({work.model, work.cluster, work.batch, work.training, layout, work.routing}),
                ElementsAre("model.qk_norm_full_width is true, and false to Megatron-LM"));
}

class ExportCommand : public ::testing::Test {
protected:
    /// A plan for two nodes of the best layout with tp 2.
    std::string plan(const std::string& options = "") {
        const Said said = say("plan --world 16 --model llama3-8b --tp 2 --save-plan " + file_.path() + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return file_.path();
    }

private:
    TempFile file_{"exported_plan.json"};
};

// Fused rotation of latent attention knows yarn alone.
// validate_args turns the distributed optimizer off for Muon; Bridge asserts that no check for NaN reads a captured step
// (training/config.py).
TEST_F(ExportCommand, GivesBridgeNothingThatTheOptimizerOrAGraphRefuses) {
    const auto overrides = [&](const std::string& options) { return say("export " + plan(options) + " --to bridge-overrides").out; };
    EXPECT_THAT(overrides(""), AllOf(HasSubstr("ddp.use_distributed_optimizer=true"), HasSubstr("optimizer.use_distributed_optimizer=true"),
                                     Not(HasSubstr("check_for_nan"))));
    EXPECT_THAT(overrides(" --optimizer muon"),
                AllOf(HasSubstr("ddp.use_distributed_optimizer=false"), HasSubstr("optimizer.use_distributed_optimizer=false")));
    EXPECT_THAT(overrides(" --cuda-graphs full_iteration"),
                AllOf(HasSubstr("rerun_state_machine.check_for_nan_in_loss=false"), HasSubstr("ddp.check_for_nan_in_grad=false")));
}

TEST_F(ExportCommand, RotatesLatentAttentionUnfusedWhereItIsNotScaled) {
    const TempFile saved("latent.json"), arguments("latent.args");
    ASSERT_EQ(say("plan --world 8 --model moonlight-16b-a3b --top 1 --tp 1 --pp 1 --ep 8 --save-plan " + saved.path()).code, kDone);
    const Said exported = say("export " + saved.path() + " --to megatron-args --output " + arguments.path());
    EXPECT_EQ(exported.code, kDone);
    EXPECT_THAT(exported.err, Not(HasSubstr("rope_fusion")));
    EXPECT_EQ(say("check --world 8 --megatron-args " + arguments.path()).code, kDone);
}

TEST_F(ExportCommand, WritesFlagsAndTheEnvironmentThatTheyNeed) {
    const Said said = say("export " + plan() + " --to megatron-args");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.err, "");
    EXPECT_THAT(said.out, AllOf(HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"), HasSubstr("MEGATRON_ARGS=(\n"),
                                HasSubstr("\n    --tensor-model-parallel-size 2\n"), HasSubstr("\n    --swiglu\n")));
    const Said yaml = say("export " + plan() + " --to megatron-yaml");
    EXPECT_THAT(yaml.out, AllOf(HasSubstr("ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"), HasSubstr("\n  --swiglu: true\n")));
}

TEST_F(ExportCommand, SaysWhichVersionItWritesForAndKnowsNoOther) {
    EXPECT_THAT(say("export " + plan() + " --to megatron-args").out, HasSubstr("# Megatron-LM 0.20 (main at d98e8a64): "));
    EXPECT_THAT(say("export " + plan() + " --to megatron-yaml --megatron 0.19").out,
                HasSubstr("# Megatron-LM 0.19 (megatron-core 0.19.2): "));
    EXPECT_EQ(Json::parse(say("export " + plan() + " --to megatron-args --megatron dev --format json").out)["megatron"], "dev");
    expect_refused("export " + plan() + " --to megatron-args --megatron 0.12", {"--megatron", "0.19", "0.20", "dev"});
}

TEST_F(ExportCommand, WritesWhatSimulateAndCheckReadAgain) {
    const std::string path = plan();
    const TempFile arguments("exported.args");
    ASSERT_EQ(say("export " + path + " --to megatron-args --output " + arguments.path()).code, kDone);
    const Json of_plan = Json::parse(say("simulate " + path + " --format json").out);
    const Json of_arguments = Json::parse(say("simulate --megatron-args " + arguments.path() + " --world 16 --format json").out);
    EXPECT_EQ(of_arguments["layout"], of_plan["layout"]);
    EXPECT_EQ(of_arguments["predicted"], of_plan["predicted"]);
}

TEST_F(ExportCommand, WritesAPlanAnew) {
    const std::string path = plan();
    const TempFile again("exported_again.json");
    ASSERT_EQ(say("export " + path + " --to mgplan --output " + again.path()).code, kDone);
    EXPECT_TRUE(load_plan(path) == load_plan(again.path()));
}

TEST_F(ExportCommand, SaysWhatIsMissingOrWrong) {
    expect_refused("export", {"export needs a PLAN", "--to is missing"});
    expect_refused("export nothing.json --to megatron-args", "nothing.json");
    expect_refused("export " + plan() + " --to nemo", {"--to", "megatron-yaml"});
    expect_refused("export " + plan(" --precision fp64 --attention unfused --cluster dgx-h100") + " --to megatron-args", {"fp64", "bf16"});
}

TEST(ExportedFlags, AreRefusedWithoutTheSizesOfBothExchanges) {
    const TempFile saved("hierarchical.json");
    const auto plan_with_cp = [&](int cp) {
        const TempFile command(
            "hierarchical.sh",
            fmt::format("torchrun pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 4096 "
                        "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --bf16 "
                        "--context-parallel-size {} --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes {} 1",
                        cp, cp));
        const Said said = say("check --megatron-args " + command.path() + " --world 8 --cluster dgx-h100 --save-plan " + saved.path());
        ASSERT_EQ(said.code, kDone) << said.err;
    };
    plan_with_cp(4);
    for (const char* to : {"megatron-args", "megatron-yaml", "bridge-overrides"})
        expect_refused("export " + saved.path() + " --to " + to,
                       {"layout.cp_comm_type = a2a+p2p", "--hierarchical-context-parallel-sizes", "cp = 4", "--cp-comm-type p2p"});
    EXPECT_EQ(say("export " + saved.path() + " --to mgplan").code, kDone);
    const std::string launch = "launch " + saved.path() + " --via slurm --dry-run --job megatron";
    expect_refused(launch, {"--hierarchical-context-parallel-sizes", "give them to mgplan launch after --"});
    expect_refused(launch + " -- --hierarchical-context-parallel-sizes-of-others 2", "layout.cp_comm_type = a2a+p2p");
    EXPECT_THAT(say(launch + " -- --hierarchical-context-parallel-sizes 2 2").out, HasSubstr("--hierarchical-context-parallel-sizes 2 2"));
    plan_with_cp(1);
    EXPECT_EQ(say("export " + saved.path() + " --to megatron-args").code, kDone) << "there is no exchange";
}

TEST(ExportedFlags, PredictWhatThePlanPredicts) {
    for (const std::string model : {"gpt-oss-20b", "mixtral-8x7b", "deepseek-v2-lite", "llama3-8b"}) {
        const TempFile plan(model + ".json"), flags(model + ".sh");
        ASSERT_EQ(say("--world 16 --model " + model + " --top 1 --save-plan " + plan.path()).code, kDone) << model;
        ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + flags.path()).code, kDone) << model;
        const auto predicted = [](const std::string& words) { return Json::parse(say(words + " --format json").out)["predicted"]; };
        const Json ours = predicted("simulate " + plan.path()), theirs = predicted("simulate --world 16 --megatron-args " + flags.path());
        EXPECT_NEAR(theirs["iteration_seconds"].get<double>(), ours["iteration_seconds"].get<double>(),
                    1e-9 * ours["iteration_seconds"].get<double>())
            << model;
        EXPECT_EQ(theirs["memory"]["peak_bytes"], ours["memory"]["peak_bytes"]) << model;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::export_command_test
