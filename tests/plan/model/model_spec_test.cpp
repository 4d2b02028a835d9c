#include "plan/model/model_spec.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/json/model_json.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model_spec_test {
namespace {

using testing::HasSubstr;

ModelSpec small() {
    ModelSpec model = tests::llama_of(
        "small", {.layers = 3, .hidden = 8, .ffn = 16, .heads = 4, .kv_heads = 2, .head_dim = 2, .vocab = 100, .max_positions = 32});
    model.source = "test";
    return model;
}

std::string refusal(const ModelSpec& model) {
    try {
        validate(model, "m");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(ModelSpec, PadsTheVocabularyToAMultipleOfTheDivisorAndTp) {
    ModelSpec model = small();
    model.vocab = 50257;
    EXPECT_EQ(model.padded_vocab(1), 50304);
    EXPECT_EQ(model.padded_vocab(8), 51200);
    model.vocab_divisor = 1;
    EXPECT_EQ(model.padded_vocab(1), 50257);
    model.padded_rows = 50258;
    for (const int tp : {1, 2}) EXPECT_EQ(model.padded_vocab(tp), 50258) << "whatever tp is";
    EXPECT_EQ(refusal(model), "accepted");
    model.padded_rows = 50256;
    EXPECT_THAT(refusal(model),
                HasSubstr("padded vocabulary = 50256 has fewer rows than the vocabulary = 50257 has tokens; give at least"));
    model.padded_rows = -1;
    EXPECT_THAT(refusal(model), HasSubstr("padded vocabulary = -1 is out of range"));
}

TEST(ModelSpec, RefusesContradictionsTogether) {
    ModelSpec model = small();
    model.kv_heads = 3;
    model.layers = 0;
    model.rotary_fraction = std::numeric_limits<double>::quiet_NaN();
    model.hidden_dropout = 1;
    model.moe_layers = {true};
    const std::string text = refusal(model);
    for (const char* part : {"kv heads = 3 does not divide attention heads = 4; use 1, 2 or 4", "layers = 0 is out of range",
                             "rotary fraction = nan", "hidden dropout = 1 is out of range", "a list of mixture layers without experts"})
        EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(refusal(small()), "accepted");
    model = small();
    model.normed_residual = NormedResidual{.mlp = {.path = 0}};
    model.order = LayerOrder::parallel;
    const std::string residual = refusal(model);
    EXPECT_THAT(residual, HasSubstr("factor of the residual path = 0 is out of range; give a number above 0"));
    EXPECT_THAT(residual, HasSubstr("normed_residual needs norms in front of halves that follow each other"));
    model = small();
    model.branch_multipliers.state_step = 0.5;
    EXPECT_THAT(refusal(model), HasSubstr("branch_multipliers belong to layers of attention beside Mamba-2"));
}

TEST(ModelSpec, NamesWhatIsCarriedButNotComputed) {
    ModelSpec model = small();
    EXPECT_TRUE(features_not_computed(model).empty());
    model.attention_sinks = true;
    EXPECT_TRUE(features_not_computed(model).empty()) << "a layer computes them";
    model.logit_softcap = 30;
    EXPECT_TRUE(features_not_computed(model).empty());
    model.left_out = {"queries scaled by position"};
    EXPECT_THAT(features_not_computed(model), testing::ElementsAre("queries scaled by position"));
}

TEST(ModelSpec, CountsASmallModelAsByHand) {
    // Per layer: qkv (4 + 2·2)·2·8 = 128, output 64, MLP 3·8·16 = 384, norms 16. Embeddings 2·800, final norm 8.
    ModelSpec model = small();
    EXPECT_EQ(layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total(), 128 + 64 + 384 + 16);
    EXPECT_EQ(total_parameters(model), 3 * 592 + 1608);
    // Divided over tp = 4, twice the kv heads, all but the norms is a quarter: no key or value is kept twice.
    EXPECT_EQ(layer_parameter_count(model, LayerKind::dense, 4, 1, 1).dense, 32 + 16 + 96 + 16);

    model.moe = MoeSpec{.experts = 4, .top_k = 1, .expert_ffn = 16};
    model.moe_layers = {false, true, true};
    EXPECT_EQ(layer_parameter_count(model, LayerKind::moe, 1, 2, 2), (ParameterCount{.dense = 128 + 64 + 16 + 32, .expert = 2 * 192}));
    EXPECT_EQ(total_parameters(model), 592 + 2 * (240 + 4 * 384) + 1608);
    EXPECT_EQ(active_parameters(model), total_parameters(model) - 2 * 3 * 384);
}

TEST(ModelSpec, PackedProjectionsDivideByKvHeadsOrByEqualParts) {
    ModelSpec model = small();  // 4 heads of 2, 2 kv heads: 16 rows
    for (const std::int64_t tp : {1, 2, 4, 8, 16}) EXPECT_TRUE(packed_heads_divide(model, tp)) << tp;
    EXPECT_FALSE(packed_heads_divide(model, 3)) << "parts of two groups";
    EXPECT_FALSE(packed_heads_divide(model, 32)) << "less than a row";
    model.kv_heads = 4;
    EXPECT_FALSE(packed_heads_divide(model, 6));
    model.mla = MlaSpec{.q_lora_rank = 3, .kv_lora_rank = 4, .qk_nope_head_dim = 5, .qk_rope_head_dim = 6, .v_head_dim = 7};
    EXPECT_TRUE(packed_heads_divide(model, 6)) << "there is no packed projection";
}

TEST(ModelSpec, SaysWhichGradientsAreParts) {
    ModelSpec model = small();
    model.qk_norm = true;
    model.attention_output_bias = true;
    const auto partial = [&](std::string_view end) {
        for (const Parameter& parameter : layer_parameters(model, LayerKind::dense, 2, 1, 1, "")) {
            if (parameter.name.ends_with(end)) return parameter.partial_gradient;
        }
        ADD_FAILURE() << end;
        return PartialGradient::never;
    };
    EXPECT_EQ(partial("linear_qkv.weight"), PartialGradient::never);
    EXPECT_EQ(partial("linear_qkv.layer_norm_weight"), PartialGradient::sequence_parallel);
    EXPECT_EQ(partial("linear_proj.bias"), PartialGradient::sequence_parallel);
    EXPECT_EQ(partial("q_layernorm.weight"), PartialGradient::always);
    model.qk_norm_full_width = true;
    EXPECT_EQ(partial("q_layernorm.weight"), PartialGradient::never);
    model.kv_heads = 4;
    model.mla = MlaSpec{.q_lora_rank = 3, .kv_lora_rank = 4, .qk_nope_head_dim = 5, .qk_rope_head_dim = 6, .v_head_dim = 7};
    EXPECT_EQ(partial("linear_kv_down_proj.weight"), PartialGradient::sequence_parallel);
    EXPECT_EQ(partial("linear_kv_up_proj.layer_norm_weight"), PartialGradient::sequence_parallel);
    EXPECT_EQ(partial("linear_kv_up_proj.weight"), PartialGradient::never);
}

TEST(ModelSpec, ReadsBackANormOfQueriesWithoutALatent) {
    ModelSpec model = small();
    model.kv_heads = model.heads;
    model.mla = MlaSpec{.kv_lora_rank = 4, .qk_nope_head_dim = 5, .qk_rope_head_dim = 6, .v_head_dim = 7};
    const std::int64_t without = total_parameters(model);
    EXPECT_FALSE(model_to_json(model)["mla"].contains("query_norm"));
    model.mla->query_norm = true;
    validate(model, "m");
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    EXPECT_EQ(total_parameters(model), without + model.layers * model.hidden);
    model.mla->q_lora_rank = 3;
    EXPECT_THAT(refusal(model), HasSubstr("query_norm with q lora rank = 3"));
}

// Apart from the others, which contradict them.
TEST(ModelSpec, ReadsBackTheResidualPathAndTheOutputLayersBias) {
    ModelSpec model = small();
    model.normed_residual =
        NormedResidual{.attention = {.path = 2, .branch = 3}, .state = {.path = 4, .branch = 5}, .mlp = {.path = 6, .branch = 7}};
    model.output_bias = true;
    validate(model, "m");
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    EXPECT_EQ(total_parameters(model), total_parameters(small()) + model.vocab);
    model.mtp_layers = 1;
    EXPECT_THAT(refusal(model), HasSubstr("output_bias beside multi-token prediction"));
}

TEST(ModelSpec, HoldsNormsWithoutWeightsClippedProjectionsAndXielu) {
    ModelSpec model = small();
    model.normalization = Normalization::layer_norm;
    model.norm_weight = model.norm_bias = false;
    model.qkv_clip = 8;
    model.gated_mlp = false;
    model.activation = Activation::xielu;
    validate(model, "m");
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    // As by hand above, with an MLP of two matrices and two trained values, and no norm that counts.
    EXPECT_EQ(layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total(), 128 + 64 + 2 * 8 * 16 + 2);
    EXPECT_EQ(total_parameters(model), 3 * (128 + 64 + 256 + 2) + 1600);
    model.qk_norm = true;
    model.gated_mlp = true;
    model.qkv_clip = -1;
    const std::string text = refusal(model);
    EXPECT_THAT(text, HasSubstr("norm_weight = false is known of LayerNorm in front of attention and MLP"));
    EXPECT_THAT(text, HasSubstr("xielu has trained values, which gated MLPs and experts here have not"));
    EXPECT_THAT(text, HasSubstr("bound of queries, keys and values = -1 is out of range"));
}

TEST(ModelSpec, CountsExpertsBetweenMapsToASmallerWidth) {
    ModelSpec model = small();
    model.moe = MoeSpec{.experts = 4, .top_k = 1, .expert_ffn = 16, .latent = 3};
    model.moe_layers = {true, true, true};
    // Router 4·8, maps 2·8·3, experts of 3·3·16 each.
    EXPECT_EQ(layer_parameter_count(model, LayerKind::moe, 1, 2, 1), (ParameterCount{.dense = 128 + 64 + 16 + 32 + 48, .expert = 2 * 144}));
    EXPECT_EQ(active_parameters(model), total_parameters(model) - 3 * 3 * 144);
}

TEST(ModelSpec, ReadsBackIdenticallyWithEveryFieldChanged) {
    ModelSpec model = small();
    model.activation = Activation::squared_relu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.rotary_fraction = 0.3;
    model.rotary_base = 5e5;
    model.rotary_scaling = "yarn";
    model.rotary_scaling_values = {.factor = 40,
                                   .original_positions = 4096,
                                   .low_frequency_factor = 2,
                                   .high_frequency_factor = 8,
                                   .beta_fast = 16,
                                   .beta_slow = 2,
                                   .mscale = 0.5,
                                   .mscale_all_dim = 0.25};
    model.norm_epsilon = 1e-6;
    model.state_norm_epsilon = 1e-4;
    model.tied_embeddings = model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.qk_norm = model.qk_norm_full_width = model.attention_sinks = true;
    model.sliding_window = 7;
    model.full_attention_every = 2;
    model.window_layers = {true, false, true};
    model.rotary_layers = {false, true, true};
    model.window_rotary_base = 100;
    model.order = LayerOrder::parallel;
    model.attention_output_gate = true;
    model.post_norms = true;
    model.norm_bias = false;
    model.rotary_interleaved = true;
    model.embedding_multiplier = 3;
    model.residual_multiplier = 0.5;
    model.logit_multiplier = 0.25;
    model.attention_multiplier = 0.125;
    model.logit_softcap = 30;
    model.attention_softcap = 50;
    model.qk_norm_behind_rotary = true;
    model.kinds.resize(3);
    model.kinds[0] = {"counted", {}};
    model.kinds[0].layer.counted = {{"norm.weight", {8}}, {"experts.weight", {4, 8}, 6, 2}};
    model.kinds[1] = {"mlp", {}};
    model.kinds[1].layer.feed_forward = Mlp{.width = 4, .bias = true};
    model.kinds[2] = {"beside", {}};
    for (const std::size_t typed : {1, 2}) model.kinds[typed].layer.norms.after = true;
    model.kinds[2].layer.mixer =
        AttentionBesideMamba2{.attention = {.heads = 2, .kv_heads = 1, .head_dim = 4, .output_gate = true, .qk_norm = QkNorm::full_width},
                              .mamba2 = {.inner_width = 8, .heads = 2, .groups = 1, .state_size = 3, .conv_taps = 4}};
    model.kind_of_layer = {1, 2, 0};
    model.branch_multipliers = {.attention_output = 2,
                                .state_output = 3,
                                .state_gate = 4,
                                .state_input = 5,
                                .state_write = 6,
                                .state_read = 7,
                                .state_step = 8,
                                .mlp_gate = 9,
                                .mlp_output = 10};
    model.counted = {{"values", {5}}};
    model.token_types = 2;
    model.mtp_layers = 1;
    model.mtp_repeated = true;
    model.mtp_loss_factor = 0.3;
    model.vocab_divisor = 64;
    model.attention_dropout = 0.1;
    model.hidden_dropout = 0.2;
    model.kv_heads = 4;
    model.head_dim = 0;
    model.mla =
        MlaSpec{.q_lora_rank = 3, .kv_lora_rank = 4, .qk_nope_head_dim = 5, .qk_rope_head_dim = 6, .v_head_dim = 7, .norm_epsilon = 1e-6};
    model.moe = MoeSpec{.experts = 8,
                        .top_k = 2,
                        .expert_ffn = 9,
                        .latent = 5,
                        .shared_ffn = 10,
                        .shared_gate = true,
                        .expert_bias = true,
                        .router_bias = true,
                        .score = RouterScore::sigmoid,
                        .dispatcher = TokenDispatcher::hybrid_ep,
                        .grouped_gemm = false,
                        .auxiliary_loss = 0.001,
                        .capacity_factor = 1.25,
                        .pad_to_capacity = true,
                        .groups = 4,
                        .group_top_k = 2,
                        .group_scores = 1,
                        .expert_bias_update_rate = 0.01};
    model.moe_layers = {false, true, false};
    model.default_sequence = 16;
    model.default_global_batch = 32;
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    // Also through text.
    EXPECT_EQ(model_from_json(nlohmann::ordered_json::parse(model_to_json(model).dump()), "m"), model);
}

TEST(ModelSpec, CountsWhatMixesResidualStreams) {
    ModelSpec model = small();
    model.hyper_connections = HyperConnections{.streams = 3, .sinkhorn_iterations = 7, .learned_head = true};
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    // For each half 3 · 5 maps of 3 · 8 values and a bias, and three scales; in front of the last norm 3 weights of 3 · 8 values, 3 biases
    // and a scale (hyper_connection.py, HyperConnectionModule.__init__; transformer_block.py at d48bd6be, hc_head_fn).
    const std::int64_t half = 15 * (24 + 1) + 3, head = 3 * (24 + 1) + 1;
    EXPECT_EQ(total_parameters(model) - total_parameters(small()), 3 * 2 * half + head);
    std::int64_t listed = 0;
    for (const Parameter& parameter : layer_parameters(model, LayerKind::dense, 1, 1, 1, "")) listed += parameter.count();
    EXPECT_EQ(listed, layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total());
    model.hyper_connections->streams = 0;
    model.hyper_connections->sinkhorn_iterations = 0;
    model.mtp_layers = 1;
    const std::string text = refusal(model);
    EXPECT_THAT(text, HasSubstr("residual streams = 0 is out of range"));
    EXPECT_THAT(text, HasSubstr("rounds of Sinkhorn and Knopp = 0 is out of range"));
    EXPECT_THAT(text, HasSubstr("hyper_connections are known of layers whose halves are one behind the other"));
}

TEST(ModelSpec, ReadsBackAnIndexerLabelsAndANormOfTheEmbeddings) {
    ModelSpec model = small();
    model.kv_heads = model.heads;
    model.head_dim = 0;
    model.mla = MlaSpec{.q_lora_rank = 3,
                        .kv_lora_rank = 4,
                        .qk_nope_head_dim = 5,
                        .qk_rope_head_dim = 6,
                        .v_head_dim = 7,
                        .index_heads = 2,
                        .index_head_dim = 8,
                        .index_top_k = 9};
    model.embedding_norm = true;
    model.labels = 3;
    EXPECT_EQ(model_from_json(model_to_json(model), "m"), model);
    EXPECT_EQ(model.output_rows(2), 4) << "rounded up, as rows of the vocabulary are";
    EXPECT_THAT(features_not_computed(model), testing::ElementsAre("attention to the 9 keys alone that an indexer chooses"));
}

TEST(ModelSpec, RefusesArrangementsThatContradictThemselves) {
    const auto refusal = [](auto change) {
        ModelSpec model = small();
        change(model);
        try {
            validate(model, "m");
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refusal([](ModelSpec& m) { m.pre_norms = false; }), HasSubstr("layers without norms in front and behind"));
    EXPECT_THAT(refusal([](ModelSpec& m) { m.window_layers = {true}; }), HasSubstr("layers with a window has 1 entries for 3 layers"));
    EXPECT_THAT(refusal([](ModelSpec& m) { m.qk_norm_per_head = true; }), HasSubstr("norms of each head need qk_norm"));
    EXPECT_THAT(refusal([](ModelSpec& m) { m.residual_multiplier = 0; }), HasSubstr("multiplier of additions to the residual stream = 0"));
    EXPECT_THAT(refusal([](ModelSpec& m) { m.kind_of_layer = {0, 0, 0}; }), HasSubstr("a layer is of kind 0 of 0"));
}

TEST(LayerPattern, ReadsMegatronsExpressions) {
    EXPECT_EQ(parse_layer_pattern("([0]*3+[1]*2)", 100), (std::vector<bool>{false, false, false, true, true}));
    EXPECT_EQ(parse_layer_pattern("([1]+[0,1]*2)*2", 100).size(), 10U);
    EXPECT_EQ(layer_pattern_text(parse_layer_pattern("([1]*3+[0]*1)*2", 100)), "[1]*3+[0]+[1]*3+[0]");
    EXPECT_TRUE(parse_layer_pattern(layer_pattern_text({}), 100).empty());
}

TEST(LayerPattern, RefusesTheRestAtItsSpot) {
    for (const char* bad : {"", "[2]", "[0", "([1]", "[1]*", "[1]+", "1", "[1])", "[0]*1000000000000000000000", "[1]*101",
                            "((((((((((((((((((((((((((((((((((((((((([1])))))))))))))))))))))))))))))))))))))))))"}) {
        try {
            (void)parse_layer_pattern(bad, 100);
            ADD_FAILURE() << "accepted " << bad;
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), HasSubstr("^")) << bad;
        }
    }
    // Repeating nothing stays nothing, however often.
    EXPECT_TRUE(parse_layer_pattern("[]*100", 100).empty());
}

}  // namespace
}  // namespace mgplan::model_spec_test
