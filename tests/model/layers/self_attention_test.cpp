#include "model/layers/self_attention.hpp"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model::self_attention_test {
namespace {

/// The attention half's parameters: those of a layer but its MLP.
std::vector<Parameter> attention_parameters(const ModelSpec& model) {
    auto parameters = layer_parameters(model, LayerKind::dense, 1, 1, 1, "");
    std::erase_if(parameters, [](const Parameter& parameter) { return parameter.name.find("mlp.") != std::string::npos; });
    return parameters;
}

void expect_gradients_hold(const ModelSpec& model, EnumSet<RecomputeModule> recompute = {}) {
    OneRank rank;
    const auto parameters = attention_parameters(model);
    const WeightTable weights = rank.weights_for(parameters);
    const auto layer = first_half<SelfAttention>(alone(model, weights, recompute));
    const Tensor x = rank.maker.random({10, model.hidden}), dy = rank.maker.random({10, model.hidden});
    const auto loss = [&] {
        SelfAttentionSaved saved;
        return weigh(layer.forward(rank.context, rank.microbatch, x, saved), dy);
    };
    const auto backward = [&] {
        SelfAttentionSaved saved;
        (void)layer.forward(rank.context, rank.microbatch, x, saved);
        return layer.backward(rank.context, rank.microbatch, dy, saved);
    };
    expect_layer_gradients({loss, backward, x}, parameters, weights);
}

ModelSpec rotary_model() {
    ModelSpec model = layer_model();
    model.position = PositionEmbedding::rope;
    model.normalization = Normalization::rms_norm;
    return model;
}

ModelSpec latent_model() {
    ModelSpec model = rotary_model();
    model.qkv_bias = false;
    model.head_dim = 0;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 5, .kv_lora_rank = 6, .qk_nope_head_dim = 3, .qk_rope_head_dim = 4, .v_head_dim = 2};
    return model;
}

TEST(SelfAttention, GradientsHoldWithManyHeads) {
    expect_gradients_hold(layer_model());
}

TEST(SelfAttention, GradientsHoldWithGroupedQueriesAndRotation) {
    ModelSpec model = rotary_model();
    for (const std::int64_t kv_heads : {1, 2}) {
        model.kv_heads = kv_heads;
        expect_gradients_hold(model);
    }
}

TEST(SelfAttention, GradientsHoldWithRotationOfAPartOfEachHead) {
    ModelSpec model = rotary_model();
    model.rotary_fraction = 0.5;
    expect_gradients_hold(model);
}

TEST(SelfAttention, GradientsHoldWithNormsOnQueriesAndKeys) {
    for (const auto normalization : {Normalization::rms_norm, Normalization::layer_norm}) {
        for (const bool full_width : {false, true}) {
            ModelSpec model = rotary_model();
            model.kv_heads = 2;
            model.normalization = normalization;
            model.qk_norm = true;
            model.qk_norm_full_width = full_width;
            expect_gradients_hold(model);
        }
    }
}

TEST(SelfAttention, GradientsHoldWithLatents) {
    for (const std::int64_t q_lora_rank : {0, 5}) {
        for (const bool norms : {false, true}) {
            ModelSpec model = latent_model();
            model.mla->q_lora_rank = q_lora_rank;
            model.qk_norm = norms;
            expect_gradients_hold(model);
        }
    }
    ModelSpec further = latent_model();
    further.mla->q_lora_rank = 0;
    further.mla->query_norm = true;
    for (const auto normalization : {Normalization::rms_norm, Normalization::layer_norm}) {
        further.normalization = normalization;
        expect_gradients_hold(further);
        expect_gradients_hold(further, {RecomputeModule::mla_up_proj});
    }
    ModelSpec unrotated = latent_model();
    unrotated.mla->qk_rope_head_dim = 0;
    expect_gradients_hold(unrotated);
}

TEST(SelfAttention, GradientsHoldWhenPartsAreMadeAgain) {
    using enum RecomputeModule;
    ModelSpec dropping = latent_model();
    dropping.hidden_dropout = 0.3;
    for (const EnumSet<RecomputeModule> modules :
         {EnumSet<RecomputeModule>{core_attn}, {layernorm}, {mla_up_proj}, {core_attn, layernorm, mla_up_proj}})
        expect_gradients_hold(dropping, modules);
}

TEST(SelfAttention, GradientsHoldWithSinksAndWindows) {
    for (const std::int64_t window : {0, 1, 3}) {
        for (const bool again : {false, true}) {
            ModelSpec model = rotary_model();
            model.kv_heads = 2;
            model.attention_sinks = true;
            model.sliding_window = window;
            expect_gradients_hold(model, again ? EnumSet<RecomputeModule>{RecomputeModule::core_attn} : EnumSet<RecomputeModule>{});
        }
    }
}

TEST(SelfAttention, GradientsHoldWithScaledRotation) {
    for (const std::string kind : {"linear", "llama3", "yarn"}) {
        for (ModelSpec model : {rotary_model(), latent_model()}) {
            model.rotary_scaling = kind;
            model.rotary_scaling_values = {.factor = 3, .original_positions = 16, .mscale = 2, .mscale_all_dim = 1};
            expect_gradients_hold(model);
        }
    }
}

/// What a pass through the half gives, and which ops it took.
struct Passed {
    std::vector<std::vector<double>> values;
    std::map<std::string, int> ops;
    [[nodiscard]] int count(const std::string& op) const { return ops.contains(op) ? ops.at(op) : 0; }
};

struct OpCounter final : OpListener {
    std::map<std::string, int>& ops;
    explicit OpCounter(std::map<std::string, int>& into) : ops(into) {}
    void on_op(const OpRecord& record) override { ++ops[std::string(record.name)]; }
};

/// Output, gradient of the input and of each weight.
Passed pass(const ModelSpec& model, bool packed, EnumSet<RecomputeModule> recompute = {}) {
    OneRank rank;
    rank.context.attends_packed = packed;
    const auto parameters = attention_parameters(model);
    const WeightTable weights = rank.weights_for(parameters);
    const auto layer = first_half<SelfAttention>(alone(model, weights, recompute));
    const Tensor x = rank.maker.random({10, model.hidden}), dy = rank.maker.random({10, model.hidden});
    SelfAttentionSaved saved;
    Passed passed;
    OpCounter counter(passed.ops);
    rank.device.set_listener(&counter);
    const Tensor y = layer.forward(rank.context, rank.microbatch, x, saved), dx = layer.backward(rank.context, rank.microbatch, dy, saved);
    rank.device.set_listener(nullptr);
    passed.values = {read(y), read(dx)};
    for (const Parameter& parameter : parameters) passed.values.push_back(read(weights.at(parameter.name).gradient));
    return passed;
}

TEST(SelfAttention, ReadsHeadsInThePackedProjectionWithTheSameBits) {
    std::vector<ModelSpec> models{layer_model(), rotary_model(), rotary_model(), rotary_model()};
    models[2].kv_heads = 2;
    models[2].rotary_fraction = 0.5;
    models[3].kv_heads = 1;
    models[3].attention_sinks = true;
    models[3].sliding_window = 3;
    for (const ModelSpec& model : models) {
        for (const EnumSet<RecomputeModule> recompute : {EnumSet<RecomputeModule>{}, {RecomputeModule::core_attn}}) {
            const Passed packed = pass(model, true, recompute), apart = pass(model, false, recompute);
            EXPECT_EQ(packed.values, apart.values);
            const int turns = model.position == PositionEmbedding::rope ? 1 : 0;
            EXPECT_EQ(apart.count("columns"), 3);
            EXPECT_EQ(apart.count("set_columns"), 3);
            EXPECT_EQ(apart.count("rotary"), 4 * turns);
            EXPECT_EQ(packed.count("columns") + packed.count("set_columns"), 0) << "nothing is copied";
            EXPECT_EQ(packed.count("rotary"), 2 * turns) << "of queries and keys at once, forward and back";
            EXPECT_EQ(packed.count("attention"), apart.count("attention"));
        }
    }
}

TEST(SelfAttention, TakesHeadsApartWhereSomethingStandsBeforeTheCore) {
    ModelSpec norms = rotary_model(), gated = rotary_model(), clipped = rotary_model();
    norms.qk_norm = true;
    gated.attention_output_gate = true;
    clipped.qkv_clip = 0.5;
    for (const ModelSpec& model : {norms, gated, clipped}) {
        const Passed passed = pass(model, true);
        EXPECT_GE(passed.count("columns"), 3);
        EXPECT_EQ(passed.values, pass(model, false).values);
    }
}

// Queries of zero give every key the same score.
TEST(SelfAttention, WithoutQueriesTheValuesSeenSoFarAreAveraged) {
    ModelSpec model = layer_model();
    model.qkv_bias = model.attention_output_bias = false;
    OneRank rank;
    rank.microbatch.batch = 1;
    const auto parameters = attention_parameters(model);
    const WeightTable weights = rank.weights_for(parameters);
    // The packed rows of head h: 4 queries, 4 keys, 4 values.
    const Tensor& packed = weights.at("self_attention.linear_qkv.weight").value;
    auto values = read(packed);
    for (std::int64_t head = 0; head < 4; ++head) std::fill_n(values.begin() + head * 12 * 8, 4 * 8, 0.0);
    rank.device.write(packed, values.data());
    const auto layer = first_half<SelfAttention>(alone(model, weights));
    SelfAttentionSaved saved;
    (void)layer.forward(rank.context, rank.microbatch, rank.maker.random({5, 8}), saved);
    // A row's values: those of each head behind its queries and keys.
    std::vector<double> v;
    const auto rows = read(saved.packed_heads), output = read(saved.core.output);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i % 12 >= 8) v.push_back(rows[i]);
    }
    for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_NEAR(output[i], v[i], 1e-12);
        EXPECT_NEAR(output[2 * 16 + i], (v[i] + v[16 + i] + v[32 + i]) / 3, 1e-12);
    }
}

}  // namespace
}  // namespace mgplan::model::self_attention_test
