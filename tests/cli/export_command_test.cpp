// `mgplan export`: what Megatron-LM's flags make of a plan, read back, is the plan.

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "cli/megatron_round_trip.hpp"
#include "cli/plan_file.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/json/model_json.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "planner/candidates.hpp"
#include "reports/bridge_overrides.hpp"
#include "say.hpp"
#include "tests/support/sanitized_share.hpp"
#include "tests/support/transformers_vector.hpp"

namespace mgplan::cli::testing::export_command_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Workload workload_of(const std::string& model, std::int64_t world) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster("dgx-h100");
    work.world = world;
    work.batch = {.global_batch = 8 * world, .sequence = 2048};
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

/// The k-th legal layout of a workload, of all in the order of enumeration, every `stride`-th.
std::vector<Layout> some_layouts(const Workload& work, const planner::SearchSpace& space, std::size_t stride) {
    planner::CandidateCounts counts;
    std::vector<Layout> layouts;
    std::size_t seen = 0;
    for (const auto& prefix : planner::prefixes(work, space, counts)) {
        planner::visit_layouts(work, space, prefix, counts, [&](const Layout& layout) {
            if (seen++ % stride == 0) layouts.push_back(layout);
        });
    }
    return layouts;
}

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
            ASSERT_THAT(lost_in_megatron_flags(plan), IsEmpty()) << name << " " << summary(layout) << "\n"
                                                                 << formats::megatron_args_text(formats::megatron_job(plan));
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
        "num_moe_experts: 256\n  mtp_num_layers: 1\n  bf16: true\n  add_bias_linear: false\n";
    bool layout_string = false;
    for (const Layout& layout : layouts) {
        const formats::MegatronJob job = formats::megatron_job({work.model, work.cluster, work.batch, work.training, layout, work.routing});
        const auto overrides = reports::bridge_overrides(job);
        const LayoutRequest read = *formats::read_bridge_config(overridden(overrides, recipe), "run_config.yaml").layout;
        EXPECT_EQ(std::tie(read.tp, read.cp, read.pp, read.ep, read.micro_batch, read.sequence_parallel, read.recompute),
                  std::tie(layout.sizes.tp, layout.sizes.cp, layout.sizes.pp, layout.sizes.ep, layout.micro_batch, layout.sequence_parallel,
                           layout.recompute))
            << summary(layout);
        EXPECT_EQ(read.etp.value_or(read.tp), layout.sizes.etp);
        EXPECT_EQ(read.vpp, layout.vpp);
        if (layout.recompute == Recompute::selective) {
            EXPECT_EQ(read.recompute_modules, layout.recompute_modules);
        }
        layout_string |= read.split->pipeline_layout.has_value();
        EXPECT_EQ(read.split->pipeline_layout, layout.split->request().pipeline_layout);
    }
    EXPECT_TRUE(layout_string) << "its bars and stars need quotes";
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
        const formats::MegatronJob job = formats::megatron_job(plan);
        const auto overrides = reports::bridge_overrides(job);
        const TrainingSpec read = *formats::read_bridge_config(overridden(overrides, recipe), "run_config.yaml").training;
        EXPECT_EQ(read.offload, offload);
        EXPECT_EQ(read.megatron.overlap_host_update, work.training.megatron.overlap_host_update);
        EXPECT_EQ(read.megatron.offload_chunk_mib, work.training.megatron.offload_chunk_mib);
        // What is off is said, but for fields that only branch dev has.
        const bool waits = offload.states > 0;
        EXPECT_THAT(overrides,
                    Contains(offload == host ? "optimizer.optimizer_cpu_offload=true" : "optimizer.optimizer_cpu_offload=false"));
        EXPECT_EQ(fmt::format("{}", fmt::join(overrides, " ")).find("optimizer_state") != std::string::npos, waits);
        EXPECT_EQ(reports::bridge_overrides_text(job).starts_with("# In the environment: NVTE_CPU_OFFLOAD_V1=1\n"), offload == host);
    }
}

TEST(MegatronRoundTrip, NamesWhatNoFlagCarries) {
    Workload work = workload_of("llama3-8b", 8);
    work.model.qk_norm = work.model.qk_norm_full_width = true;
    const Layout layout = some_layouts(work, {}, 1).front();
    EXPECT_THAT(lost_in_megatron_flags({work.model, work.cluster, work.batch, work.training, layout, work.routing}),
                ElementsAre("model.qk_norm_full_width is true, and false to Megatron-LM"));
}

Plan plan_for(const ModelSpec& model) {
    Workload work = workload_of("llama3-8b", 8);
    work.model = model;
    work.batch.sequence = std::min<std::int64_t>(2048, model.max_positions);
    planner::SearchSpace space;
    space.engine = Engine::megatron;
    space.recompute = {Recompute::none};
    return {work.model, work.cluster, work.batch, work.training, some_layouts(work, space, 1).front(), work.routing};
}

std::vector<std::string> lost_of(const ModelSpec& model, std::vector<std::string>* words = nullptr) {
    const Plan plan = plan_for(model);
    if (words != nullptr) *words = formats::megatron_job(plan).words();
    return lost_in_megatron_flags(plan);
}

/// The word behind a flag; "": the flag is not there.
std::string value_of(const std::vector<std::string>& words, const std::string& flag) {
    const auto found = std::find(words.begin(), words.end(), flag);
    return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
}

/// What export says where Megatron-LM has no flags for a model's layers; "accepted" where it has.
std::string refusal_of(const ModelSpec& model) {
    try {
        (void)lost_of(model);
        return "accepted";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

TEST(MegatronRoundTrip, AHeadOfLabelsIsLostInWords) {
    ModelSpec model = formats::load_model("llama3-8b").model;
    model.labels = 3;
    model.output_bias = true;  // as heads of tokens have
    EXPECT_THAT(lost_of(model),
                ElementsAre("the network ends in a head of 3 labels, and Megatron-LM's pretrain_gpt.py has none: it trains the "
                            "output layer of a language model in its place"));
}

TEST(MegatronRoundTrip, LayersKnownOfShapesAloneAreRefusedByName) {
    const auto mamba = nlohmann::ordered_json::parse(R"({"model_type": "mamba", "vocab_size": 50280, "hidden_size": 2560,
        "num_hidden_layers": 64, "state_size": 16})");
    EXPECT_THAT(refusal_of(formats::read_hugging_face(mamba, "mamba-2.8b", "config.json").model),
                HasSubstr("mamba-2.8b: layers of Mamba, for which Megatron-LM has no flags; export another model"));
}

TEST(MegatronRoundTrip, EveryPresetIsTheSameNetworkOrSaysWhatIsLost) {
    const std::string gate = "model.activation behind the gate";
    const std::map<std::string, std::set<std::string>> kLost{
        {"command-r-35b", {"model.order", "model.norm_bias", "model.logit_multiplier"}},
        {"deepseek-v2", {"model.moe.group_scores"}},
        {"falcon-40b", {"model.order"}},
        {"gemma-7b", {gate, "model.embedding_multiplier"}},
        {"gemma2-9b", {gate, "model.post_norms", "model.embedding_multiplier", "model.attention_softcap", "model.logit_softcap"}},
        {"gemma2-27b",
         {gate, "model.post_norms", "model.embedding_multiplier", "model.attention_multiplier", "model.attention_softcap",
          "model.logit_softcap"}},
        {"gemma3-27b", {gate, "model.post_norms", "model.window_rotary_base", "model.embedding_multiplier", "model.attention_multiplier"}},
        {"gpt-oss-20b", {"model.rotary_scaling_values"}},  // for its ramp does not end at whole pairs
        {"gpt-oss-120b", {"model.rotary_scaling_values"}},
        {"grok-1",
         {"the network has a GELU gate, norms behind attention and MLP, soft-capped attention and logits, multiplied embeddings and "
          "logits"}},
        {"minimax-m2", {"model.qk_norm_full_width"}},
        {"moonlight-16b-a3b", {"model.mla.norm_epsilon"}},
        {"olmo2-7b", {"model.qk_norm_full_width", "model.pre_norms", "model.post_norms"}},
        {"olmoe-1b-7b", {"model.qk_norm_full_width"}},
        {"phi-2", {"model.order", "model.output_bias"}},
        {"pythia-6.9b", {"model.order"}},
        {"smollm3-3b", {"model.rotary_layers"}}};
    for (const auto& name : formats::preset_names()) {
        const ModelSpec model = formats::load_model(name).model;
        if (name == "kimi-linear-48b-a3b" || name == "minimax-text-01" || name.starts_with("deepseek-v4-")) {
            EXPECT_THAT(refusal_of(model), HasSubstr("for which Megatron-LM has no flags")) << name;
            continue;
        }
        const auto lost = lost_of(model);
        const auto expected = kLost.find(name);
        if (expected == kLost.end()) {
            EXPECT_THAT(lost, IsEmpty()) << name;
            continue;
        }
        std::set<std::string> fields;
        for (const std::string& entry : lost) {
            const std::string field = entry.substr(0, entry.find(" is "));
            fields.insert(field.starts_with("model.rotary_scaling_values") ? "model.rotary_scaling_values" : field);
        }
        EXPECT_EQ(fields, expected->second) << name;
    }
}

/// Fields of a model that say nothing of its network where it is as it is.
bool says_nothing(const ModelSpec& model, const std::string& field) {
    for (const auto* name : {"/name", "/source", "/type", "/left_out", "/default_", "/rotary_interleaved"}) {
        if (field.starts_with(name)) return true;
    }
    if (model.mla && (field == "/head_dim" || field == "/kv_heads")) return true;
    if (model.position != PositionEmbedding::rope && field.starts_with("/rotary")) return true;
    return field == "/mtp_loss_factor" && model.mtp_layers == 0;
}

/// Networks that are planned, by name: those that transformers made vectors of, and each type at the sizes of its class.
std::map<std::string, ModelSpec> planned_networks(bool of_parts) {
    std::map<std::string, ModelSpec> networks;
    const auto take = [&](const std::string& name, const Json& config) {
        const ModelSpec model = formats::read_hugging_face(config, name, name).model;
        if (model.compositions.empty() != of_parts && !is_counted_only(model)) networks.emplace(name, model);
    };
    for (const std::string& name : tests::vector_names()) take(name, tests::read_vector(name).config);
    std::ifstream file(tests::data_folder() + "/formats/counts/class_counts.json");
    const Json types = Json::parse(file).at("types");
    for (const auto& [type, entry] : types.items()) take("class of " + type, entry.at("config"));
    return networks;
}

// Told apart from what export itself finds: every field of the model is looked at here once more.
TEST(MegatronRoundTrip, EveryTypeThatRunsIsTheSameNetworkOrSaysWhatIsLost) {
    std::size_t compared = 0;
    for (const auto& [name, model] : planned_networks(false)) {
        const Plan plan = plan_for(model);
        const std::vector<std::string> lost = lost_in_megatron_flags(plan);
        const auto ours = model_to_json(model).flatten(), theirs = model_to_json(read_back_from_megatron(plan).model).flatten();
        const auto expect_named = [&](const std::string& field) {
            if (says_nothing(model, field)) return;
            std::string dotted = "model" + field;
            std::replace(dotted.begin(), dotted.end(), '/', '.');
            EXPECT_THAT(lost, ::testing::Contains(HasSubstr(dotted))) << name;
        };
        for (const auto& entry : ours.items()) {
            if (!theirs.contains(entry.key()) || theirs[entry.key()] != entry.value()) expect_named(entry.key());
        }
        for (const auto& entry : theirs.items()) {
            if (!ours.contains(entry.key())) expect_named(entry.key());
        }
        ++compared;
    }
    EXPECT_GT(compared, 130U);
}

TEST(MegatronRoundTrip, WritesTheActivationThatTheModelHas) {
    std::vector<std::string> words;
    (void)lost_of(formats::load_model("gpt-oss-20b").model, &words);
    EXPECT_THAT(words, ::testing::Contains("--quick-geglu"));
    EXPECT_EQ(value_of(words, "--activation-func-clamp-value"), "7");
    EXPECT_EQ(value_of(words, "--glu-linear-offset"), "1");
    ModelSpec gpt = formats::load_model("gpt3-175b").model;
    EXPECT_THAT(lost_of(gpt, &words), IsEmpty());
    EXPECT_THAT(words, Not(::testing::Contains("--no-bias-gelu-fusion")));
    gpt.activation = Activation::gelu_exact;
    EXPECT_THAT(lost_of(gpt, &words), IsEmpty());
    EXPECT_THAT(words, ::testing::Contains("--no-bias-gelu-fusion"));
    gpt.mlp_bias = gpt.qkv_bias = gpt.attention_output_bias = false;
    EXPECT_THAT(lost_of(gpt, &words), IsEmpty());
    EXPECT_THAT(words, Not(::testing::Contains("--no-bias-gelu-fusion")));
    gpt.activation = Activation::gelu;
    EXPECT_THAT(lost_of(gpt), ElementsAre(HasSubstr("model.activation is \"gelu\", and \"gelu_exact\" to Megatron-LM")));
}

TEST(MegatronRoundTrip, PartsOfWeightsLayersInBf16AndARepeatedPredictionComeBack) {
    ModelSpec model = formats::load_model("deepseek-v3").model;
    model.mtp_layers = 3;
    model.mtp_repeated = true;
    Plan plan = plan_for(model);
    plan.training.megatron.weight_shards = {.dense = 4, .experts = 2};
    EXPECT_THAT(lost_in_megatron_flags(plan), IsEmpty());
    const std::vector<std::string> words = formats::megatron_job(plan).words();
    const ParallelSizes& sizes = plan.layout.sizes;
    EXPECT_EQ(value_of(words, "--tensor-parallel-num-weight-shards"), std::to_string(4 * sizes.tp));
    EXPECT_EQ(value_of(words, "--expert-tensor-parallel-num-weight-shards"), std::to_string(2 * sizes.etp));
    EXPECT_THAT(words, Contains("--mtp-use-repeated-layer"));
    plan.training.megatron.weight_shards = {};
    plan.training.precision = Precision::fp8;
    plan.training.megatron.fp8_recipe = Fp8Recipe::blockwise;
    plan.training.megatron.bf16_layers_at_start = 1;
    EXPECT_THAT(lost_in_megatron_flags(plan), IsEmpty());
    EXPECT_EQ(value_of(formats::megatron_job(plan).words(), "--num-layers-at-end-in-bf16"), "0");
    plan.layout.cuda_graphs.add(CudaGraphScope::attn);
    EXPECT_THAT(lost_in_megatron_flags(plan), IsEmpty()) << "written, though not predicted";
    plan.training.precision = Precision::bf16;
    plan.training.megatron.fp8_recipe = Fp8Recipe::delayed;
    plan.training.megatron.bf16_layers_at_start = 0;
    plan.training.megatron.weight_shards = {.dense = 4, .experts = 2};
    EXPECT_THAT(lost_in_megatron_flags(plan), IsEmpty()) << "so are parts of weights under CUDA graphs";
}

TEST(MegatronRoundTrip, WritesTheRouterTheNormsAndTheStartOfTheModel) {
    std::vector<std::string> words;
    (void)lost_of(formats::load_model("deepseek-v3").model, &words);
    EXPECT_EQ(value_of(words, "--moe-router-topk-scaling-factor"), "2.5");
    EXPECT_EQ(value_of(words, "--moe-router-load-balancing-type"), "seq_aux_loss");
    EXPECT_EQ(value_of(words, "--moe-aux-loss-coeff"), "0.001");
    EXPECT_EQ(value_of(words, "--norm-epsilon"), "1e-06");
    EXPECT_EQ(value_of(words, "--rope-type"), "yarn");
    EXPECT_EQ(value_of(words, "--rotary-scaling-factor"), "40");
    EXPECT_THAT(words, Not(::testing::Contains("--moe-router-pre-softmax")));
    (void)lost_of(formats::load_model("qwen3-30b-a3b").model, &words);
    EXPECT_EQ(value_of(words, "--moe-router-load-balancing-type"), "aux_loss");
    EXPECT_EQ(value_of(words, "--moe-aux-loss-coeff"), "0.001");
    (void)lost_of(formats::load_model("qwen2-57b-a14b").model, &words);
    EXPECT_THAT(words, ::testing::Contains("--moe-router-pre-softmax"));
    (void)lost_of(formats::load_model("nemotron4-15b").model, &words);
    EXPECT_EQ(value_of(words, "--init-method-std"), "0.0134");
}

TEST(MegatronRoundTrip, HybridsAndDeltaNetsComeBack) {
    const std::string base =
        "--hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --seq-length 64 --normalization RMSNorm "
        "--disable-bias-linear --untie-embeddings-and-output-weights --swiglu --num-experts 4 --moe-router-topk 2 "
        "--moe-ffn-hidden-size 128 --moe-shared-expert-intermediate-size 128 --moe-token-dispatcher-type alltoall ";
    std::vector<std::string> words;
    const auto model = [&](const std::string& flags) { return formats::read_megatron_text(base + flags, "flags").model; };
    EXPECT_THAT(lost_of(model("--hybrid-layer-pattern ME*-GE --mamba-state-dim 64 --position-embedding-type none"), &words), IsEmpty());
    EXPECT_EQ(value_of(words, "--hybrid-layer-pattern"), "ME*-GE");
    EXPECT_EQ(value_of(words, "--mamba-state-dim"), "64");
    EXPECT_THAT(words, Not(::testing::Contains("--num-layers")));
    EXPECT_THAT(
        lost_of(model("--num-layers 4 --position-embedding-type rope --moe-shared-expert-gate --attention-output-gate --qk-layernorm "
                      "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --linear-num-key-heads 8"),
                &words),
        IsEmpty());
    EXPECT_EQ(value_of(words, "--linear-attention-freq"), "[1]+[0]+[1]+[0]");
    EXPECT_EQ(value_of(words, "--linear-num-key-heads"), "8");
    ModelSpec joined = model("--hybrid-layer-pattern M-M- --position-embedding-type none");
    joined.compositions = {{"mamba2+mlp", joined.compositions[0].parts}};
    joined.compositions[0].parts.push_back(model("--hybrid-layer-pattern M-").compositions[1].parts[1]);
    joined.compositions[0].parts[0].sizes["copies"] = 2;
    joined.composition_of_layer.assign(4, 0);
    EXPECT_THAT(refusal_of(joined), HasSubstr("a mixer with a state and a feed-forward in one"));
    for (const auto& [vector, layers] : {std::pair{"falcon_h1", "attention beside Mamba-2"},
                                         {"kimi_linear", "Kimi delta attention"},
                                         {"lfm2", "short convolution"},
                                         {"minimax", "lightning attention"}}) {
        const ModelSpec other = formats::read_hugging_face(tests::read_vector(vector).config, vector, vector).model;
        EXPECT_THAT(refusal_of(other), HasSubstr(std::string("layers of ") + layers + ", for which Megatron-LM has no flags"));
    }
}

/// Fields that say nothing where parts describe the layers: the parts state them.
bool parts_state(const std::string& field) {
    for (const auto* name :
         {"/layer_kinds", "/beside_layers", "/heads", "/kv_heads", "/head_dim", "/ffn", "/gated_mlp", "/activation", "/qkv_bias",
          "/attention_output_bias", "/mlp_bias", "/qk_norm", "/attention_output_gate", "/position", "/rotary_fraction"}) {
        if (field.starts_with(name)) return true;
    }
    return false;
}

/// Every size of every part of every layer; the activation of what stands behind experts is theirs.
std::vector<std::string> sizes_of_layers(const ModelSpec& model) {
    std::vector<std::string> sizes;
    for (const auto kind : model.composition_of_layer) {
        bool behind_experts = false;
        for (const LayerPart& part : model.compositions.at(kind).parts) {
            std::string text = part.kind;
            for (const PartSize& size : find_part_kind(part.kind)->sizes) {
                if (behind_experts && size.name == "activation") continue;
                text += fmt::format(" {} {}", size.name, part_size(part, size.name));
            }
            behind_experts |= part.kind == "experts";
            sizes.push_back(text);
        }
    }
    return sizes;
}

TEST(MegatronRoundTrip, EveryHybridThatRunsIsTheSameNetworkOrRefused) {
    std::vector<std::string> same, refused;
    for (const auto& [name, model] : planned_networks(true)) {
        if (const std::string said = refusal_of(model); said != "accepted") {
            EXPECT_THAT(said, HasSubstr("for which Megatron-LM has no flags")) << name;
            refused.push_back(name);
            continue;
        }
        same.push_back(name);
        const Plan plan = plan_for(model);
        const std::vector<std::string> lost = lost_in_megatron_flags(plan);
        const ModelSpec read = read_back_from_megatron(plan).model;
        EXPECT_EQ(sizes_of_layers(read), sizes_of_layers(model)) << name;
        const auto ours = model_to_json(model).flatten(), theirs = model_to_json(read).flatten();
        for (const auto& [one, other] : {std::pair{&ours, &theirs}, {&theirs, &ours}}) {
            for (const auto& entry : one->items()) {
                if (other->contains(entry.key()) && (*other)[entry.key()] == entry.value()) continue;
                if (says_nothing(model, entry.key()) || parts_state(entry.key())) continue;
                std::string dotted = "model" + entry.key();
                std::replace(dotted.begin(), dotted.end(), '/', '.');
                EXPECT_THAT(lost, ::testing::Contains(HasSubstr(dotted))) << name;
            }
        }
    }
    EXPECT_THAT(same, ::testing::IsSupersetOf({"nemotron_h", "nemotron_h-latent", "qwen3_next", "qwen3_5_text", "mamba2"}));
    EXPECT_THAT(refused,
                ::testing::IsSupersetOf({"falcon_h1", "kimi_linear", "lfm2", "minimax", "bamba", "granitemoehybrid", "olmo_hybrid"}));
}

TEST(MegatronRoundTrip, NamesWhatTheNetworkHasAndNoFlagDoes) {
    ModelSpec model = formats::load_model("llama3-8b").model;
    model.left_out = {"logits divided by 16"};
    EXPECT_THAT(lost_of(model), ElementsAre("the network has logits divided by 16"));
    model.left_out.clear();
    model.activation = Activation::gelu;
    EXPECT_THAT(lost_of(model), ElementsAre(HasSubstr("its quick approximation to Megatron-LM")));
    model = formats::load_model("mixtral-8x7b").model;
    model.moe->score = RouterScore::sigmoid;
    model.moe->normalize_top_k = false;
    EXPECT_THAT(lost_of(model), ElementsAre(HasSubstr("model.moe.normalize_top_k is false")));
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

TEST_F(ExportCommand, WritesFlagsAndTheEnvironmentThatTheyNeed) {
    const Said said = say("export " + plan() + " --to megatron-args");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.err, "");
    EXPECT_THAT(said.out, AllOf(HasSubstr("export CUDA_DEVICE_MAX_CONNECTIONS=1\n"), HasSubstr("MEGATRON_ARGS=(\n"),
                                HasSubstr("\n    --tensor-model-parallel-size 2\n"), HasSubstr("\n    --swiglu\n")));
    const Said yaml = say("export " + plan() + " --to megatron-yaml");
    EXPECT_THAT(yaml.out, AllOf(HasSubstr("ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"), HasSubstr("\n  --swiglu: true\n")));
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
