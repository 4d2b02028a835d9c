// What Megatron-LM's flags make of every network that is known, read back: the same network, or what is lost, or a refusal.

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/megatron_round_trip.hpp"
#include "exported.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "formats/model_source.hpp"
#include "plan/json/model_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "planner/candidates.hpp"
#include "tests/support/transformers_vector.hpp"

namespace mgplan::cli::testing::export_networks_test {
namespace {

using exported::some_layouts, exported::workload_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

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
    const std::string gate = "model.activation after the gate";
    const std::string queries =
        "the network has no norm in front of its queries' projection, where --qk-layernorm puts one of the hidden size";
    const std::map<std::string, std::set<std::string>> kLost{
        {"command-r-35b", {"model.order", "model.norm_bias", "model.logit_multiplier"}},
        {"deepseek-v2", {"model.moe.group_scores"}},
        {"deepseek-v2-lite", {queries}},
        {"deepseek-v3.2", {"model.mtp_layers", "layout.split.mtp_layers"}},  // gpt_layer_specs.py:572 at d98e8a64
        {"ernie-4.5-21b-a3b",                                                // no flag has biases behind a softmax
         {"model.beside_layers.0.part", "model.beside_layers.0.experts", "model.beside_layers.0.mixtures", "model.moe.expert_bias"}},
        {"falcon-40b", {"model.order"}},
        {"gemma-7b", {gate, "model.embedding_multiplier"}},
        {"gemma2-9b", {gate, "model.post_norms", "model.embedding_multiplier", "model.attention_softcap", "model.logit_softcap"}},
        {"gemma2-27b",
         {gate, "model.post_norms", "model.embedding_multiplier", "model.attention_multiplier", "model.attention_softcap",
          "model.logit_softcap"}},
        {"gemma3-27b", {gate, "model.post_norms", "model.window_rotary_base", "model.embedding_multiplier", "model.attention_multiplier"}},
        {"glm-4-9b", {"model.post_norms"}},
        {"glm-4.7-flash", {"model.mla.norm_epsilon"}},
        {"glm-5", {"model.mla.norm_epsilon", "model.mtp_layers", "layout.split.mtp_layers"}},
        {"grok-1",
         {"the network has a GELU gate, norms after attention and MLP, soft-capped attention and logits, multiplied embeddings and "
          "logits"}},
        {"kimi-k2", {"model.rotary_scaling_values"}},  // beta_fast, which latent attention has no flag for
        {"kimi-k2-thinking", {"model.mla.norm_epsilon", "model.rotary_scaling_values"}},
        {"llama4-maverick",
         {"the network has 12 layers without rotary positions", "the network has attention in chunks of 8,192 tokens",
          "the network has attention scores scaled by position"}},
        {"llama4-scout",
         {"the network has 12 layers without rotary positions", "the network has attention in chunks of 8,192 tokens",
          "the network has attention scores scaled by position"}},
        {"minimax-m2", {"model.qk_norm_full_width"}},
        {"mistral-small-4", {"the network has attention scores scaled by position", "model.rotary_scaling_values"}},
        {"moonlight-16b-a3b", {"model.mla.norm_epsilon", queries}},
        {"olmo2-7b", {"model.qk_norm_full_width", "model.pre_norms", "model.post_norms"}},
        {"olmoe-1b-7b", {"model.qk_norm_full_width"}},
        {"phi-2", {"model.order", "model.output_bias"}},
        {"pythia-6.9b", {"model.order"}},
        {"starcoder2-3b", {"model.rotary_base"}}};  // no whole number
    for (const auto& name : formats::preset_names()) {
        const ModelSpec model = formats::load_model(name).model;
        if (name == "jamba-v0.1" || name == "kimi-linear-48b-a3b" || name == "minimax-text-01" || name.starts_with("deepseek-v4-")) {
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
        if (model.kinds.empty() != of_parts && !is_counted_only(model)) networks.emplace(name, model);
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
    joined.kinds[0].layer.feed_forward = joined.kinds[1].layer.feed_forward;
    joined.kinds.pop_back();
    joined.kind_of_layer.assign(4, 0);
    EXPECT_THAT(refusal_of(joined), HasSubstr("a mixer with a state and a feed-forward in one"));
    for (const auto& [vector, layers] : {std::pair{"falcon_h1", "attention beside Mamba-2"},
                                         {"kimi_linear", "Kimi delta attention"},
                                         {"lfm2", "short convolution"},
                                         {"minimax", "lightning attention"}}) {
        const ModelSpec other = formats::read_hugging_face(tests::read_vector(vector).config, vector, vector).model;
        EXPECT_THAT(refusal_of(other), HasSubstr(std::string("layers of ") + layers + ", for which Megatron-LM has no flags"));
    }
}

/// Fields that say nothing where kinds describe the layers.
bool kinds_state(const std::string& field) {
    for (const auto* name :
         {"/layer_kinds", "/beside_layers", "/heads", "/kv_heads", "/head_dim", "/ffn", "/gated_mlp", "/activation", "/qkv_bias",
          "/attention_output_bias", "/mlp_bias", "/qk_norm", "/attention_output_gate", "/position", "/rotary_fraction"}) {
        if (field.starts_with(name)) return true;
    }
    return false;
}

/// Every layer as its kind.
std::vector<Layer> layers_of(const ModelSpec& model) {
    std::vector<Layer> layers;
    for (const auto kind : model.kind_of_layer) layers.push_back(model.kinds.at(kind).layer);
    return layers;
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
        EXPECT_TRUE(layers_of(read) == layers_of(model)) << name;
        const auto ours = model_to_json(model).flatten(), theirs = model_to_json(read).flatten();
        for (const auto& [one, other] : {std::pair{&ours, &theirs}, {&theirs, &ours}}) {
            for (const auto& entry : one->items()) {
                if (other->contains(entry.key()) && (*other)[entry.key()] == entry.value()) continue;
                if (says_nothing(model, entry.key()) || kinds_state(entry.key())) continue;
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

}  // namespace
}  // namespace mgplan::cli::testing::export_networks_test
