// The mixers with a state along the sequence, and attention with a gate of its output: every gradient against finite differences, and
// what each keeps from forward to backward, as docs/layers.md lists it.

#include <gtest/gtest.h>

#include "model/layers/decoder_layer.hpp"
#include "plan/parameters/parameters.hpp"
#include "tests/model/layers/support.hpp"

namespace mgplan::model::recurrent_layers_test {
namespace {

/// One layer: a mixer behind its norm, alone or with a feed-forward.
ModelSpec layer_of(mgplan::Mixer mixer, std::optional<mgplan::FeedForward> feed_forward = {}) {
    ModelSpec model = layer_model();
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    model.layers = 1;
    Layer layer;
    layer.mixer = std::move(mixer);
    layer.feed_forward = feed_forward;
    model.kinds = {{"layer", layer}};
    model.kind_of_layer = {0};
    return model;
}

mgplan::Mamba2 mamba2(bool norm) {
    return {.inner_width = 12, .heads = 4, .groups = 2, .state_size = 3, .conv_taps = 4, .norm = norm};
}
mgplan::GatedDeltaNet delta_net() {
    return {.key_heads = 2, .key_dim = 3, .value_heads = 4, .value_dim = 2, .conv_taps = 4};
}
mgplan::ShortConvolution short_convolution() {
    return {.conv_taps = 3};
}
mgplan::Attention attention() {
    return {.heads = 4, .kv_heads = 2, .head_dim = 4, .rotary = Rotary{}};
}
mgplan::Attention gated_attention() {
    mgplan::Attention gated = attention();
    gated.output_gate = true;
    gated.qk_norm = QkNorm::shared_by_heads;
    return gated;
}

/// Attention beside Mamba-2 and an MLP, with a multiplier everywhere.
ModelSpec layer_with_branches() {
    ModelSpec model = layer_of(mgplan::AttentionBesideMamba2{.attention = attention(), .mamba2 = mamba2(true)}, mgplan::Mlp{.width = 12});
    model.branch_multipliers = {.attention_output = 0.6,
                                .state_output = 0.8,
                                .state_gate = 0.5,
                                .state_input = 1.2,
                                .state_write = 0.9,
                                .state_read = 1.5,
                                .state_step = 0.75,
                                .mlp_gate = 0.7,
                                .mlp_output = 1.6};
    return model;
}
mgplan::KimiDeltaAttention kimi_delta_attention() {
    return {.heads = 2, .head_dim = 3, .conv_taps = 4};
}
mgplan::LightningAttention lightning_attention() {
    return {.heads = 2, .head_dim = 3};
}
/// A layer whose residual path carries what the norms give: the mixer, and a dense MLP or experts.
ModelSpec layer_with_normed_residual(const mgplan::Mixer& mixer, bool experts) {
    ModelSpec model = layer_of(mixer, experts ? mgplan::FeedForward(mgplan::Mixture{}) : mgplan::FeedForward(mgplan::Mlp{.width = 12}));
    if (experts) {
        model.moe = MoeSpec{.experts = 4, .top_k = 2, .expert_ffn = 5};
        model.moe_layers = {true};
    }
    model.normed_residual = {.attention = {1.4, 0.8}, .state = {1.7, 0.9}, .mlp = {1.2, 0.7}};
    return model;
}
/// Latent attention without rotary positions.
ModelSpec layer_of_latent_attention() {
    ModelSpec model = layer_of(mgplan::LatentAttention{.heads = 4});
    model.position = PositionEmbedding::none;
    model.mla = MlaSpec{.kv_lora_rank = 5, .qk_nope_head_dim = 3, .qk_rope_head_dim = 2, .v_head_dim = 3};
    return model;
}

std::vector<Parameter> parameters_of(const ModelSpec& model) {
    return decoder_layer_parameters(model, 0, {}, "");
}

void expect_gradients_hold(const ModelSpec& model, EnumSet<RecomputeModule> recompute = {}) {
    OneRank rank;
    // Norms of few small values bend more than central differences can follow.
    rank.context.norm_epsilon = 0.1;
    const auto parameters = parameters_of(model);
    const WeightTable weights = rank.weights_for(parameters);
    const DecoderLayer layer(alone(model, weights, recompute));
    const Tensor x = rank.maker.random({10, model.hidden}), dy = rank.maker.random({10, model.hidden});
    const auto loss = [&] {
        DecoderLayer::Saved saved;
        return weigh(layer.forward(rank.context, rank.microbatch, x, saved, {}), dy);
    };
    const auto backward = [&] {
        DecoderLayer::Saved saved;
        (void)layer.forward(rank.context, rank.microbatch, x, saved, {});
        EXPECT_TRUE(saved.kept());
        Tensor dx = layer.backward(rank.context, rank.microbatch, dy, saved, {});
        EXPECT_FALSE(saved.kept()) << "the backward consumes what the forward kept";
        return dx;
    };
    expect_layer_gradients({loss, backward, x}, parameters, weights);
}

TEST(RecurrentLayers, GradientsOfMamba2Hold) {
    expect_gradients_hold(layer_of(mamba2(true)));
    expect_gradients_hold(layer_of(mamba2(false)));
    expect_gradients_hold(layer_of(mamba2(true)), {RecomputeModule::layernorm});
}

TEST(RecurrentLayers, GradientsOfGatedDeltaNetsHold) {
    expect_gradients_hold(layer_of(delta_net()));
    expect_gradients_hold(layer_of(delta_net()), {RecomputeModule::layernorm});
}

TEST(RecurrentLayers, GradientsOfShortConvolutionsHold) {
    expect_gradients_hold(layer_of(short_convolution()));
    expect_gradients_hold(layer_of(short_convolution()), {RecomputeModule::layernorm});
}

TEST(RecurrentLayers, GradientsOfAttentionBesideMamba2Hold) {
    expect_gradients_hold(layer_with_branches());
    expect_gradients_hold(layer_with_branches(), {RecomputeModule::core_attn, RecomputeModule::layernorm, RecomputeModule::mlp});
}

TEST(RecurrentLayers, GradientsOfKimiDeltaAttentionHold) {
    expect_gradients_hold(layer_of(kimi_delta_attention()));
    expect_gradients_hold(layer_of(kimi_delta_attention()), {RecomputeModule::layernorm});
}

TEST(RecurrentLayers, GradientsOfLightningAttentionHold) {
    expect_gradients_hold(layer_of(lightning_attention()));
    expect_gradients_hold(layer_of(lightning_attention()), {RecomputeModule::layernorm});
}

TEST(RecurrentLayers, GradientsOfAPathBehindTheNormsHold) {
    for (const mgplan::Mixer& mixer : {mgplan::Mixer(lightning_attention()), mgplan::Mixer(attention())}) {
        for (const bool experts : {false, true}) {
            expect_gradients_hold(layer_with_normed_residual(mixer, experts));
            expect_gradients_hold(layer_with_normed_residual(mixer, experts), {RecomputeModule::layernorm});
        }
    }
}

TEST(RecurrentLayers, GradientsOfLatentAttentionWithoutPositionsHold) {
    expect_gradients_hold(layer_of_latent_attention());
    expect_gradients_hold(layer_of_latent_attention(), {RecomputeModule::mla_up_proj, RecomputeModule::core_attn});
}

TEST(RecurrentLayers, GradientsOfAttentionWithAGatedOutputHold) {
    expect_gradients_hold(layer_of(gated_attention()));
    expect_gradients_hold(layer_of(gated_attention()), {RecomputeModule::core_attn, RecomputeModule::layernorm});
}

/// Values of 8 bytes that a layer keeps for 10 rows, without the tensor that it got.
std::int64_t values_kept(const ModelSpec& model, EnumSet<RecomputeModule> recompute = {}) {
    OneRank rank;
    const WeightTable weights = rank.weights_for(parameters_of(model));
    const DecoderLayer layer(alone(model, weights, recompute));
    const Tensor x = rank.maker.random({10, model.hidden});
    const auto activations = static_cast<std::size_t>(MemoryCategory::activations);
    const std::int64_t before = rank.device.memory().current[activations];
    DecoderLayer::Saved saved;
    const Tensor y = layer.forward(rank.context, rank.microbatch, x, saved, {});
    return (rank.device.memory().current[activations] - before - y.bytes()) / 8;
}

TEST(RecurrentLayers, KeepWhatTheDocumentListsOfThem) {
    constexpr std::int64_t kRows = 10, kHidden = 8;
    // Norm: output and statistics. Mamba-2: the projection (12 + 12 + 2·6 + 4 columns), the scan's output, the gated norm's output and
    // one statistic for each group.
    EXPECT_EQ(values_kept(layer_of(mamba2(true))), kRows * (kHidden + 1 + 40 + 12 + 12 + 2));
    EXPECT_EQ(values_kept(layer_of(mamba2(false))), kRows * (kHidden + 1 + 40 + 12 + 12));
    EXPECT_EQ(values_kept(layer_of(mamba2(true)), {RecomputeModule::layernorm}), kRows * (1 + 40 + 12 + 12 + 2));
    // Delta net: the projection (6 + 6 + 8 + 8 + 4 + 4 columns), what the convolution gives (20), output, gated output, a statistic a head.
    EXPECT_EQ(values_kept(layer_of(delta_net())), kRows * (kHidden + 1 + 36 + 20 + 8 + 8 + 4));
    // Short convolution: B, C and x, and the input of the output projection.
    EXPECT_EQ(values_kept(layer_of(short_convolution())), kRows * (kHidden + 1 + 24 + 8));
    // Kimi delta attention: q, k, v and the strengths (18 + 2), both latents, decays and gates (6 each), what the convolution gives,
    // output, gated output, a statistic a head.
    EXPECT_EQ(values_kept(layer_of(kimi_delta_attention())), kRows * (kHidden + 1 + 20 + 3 + 3 + 6 + 6 + 18 + 6 + 6 + 2));
    // Lightning attention: v, k, q and gates (6 each), what the scan gives, what the norm gives, the gated output, a statistic.
    EXPECT_EQ(values_kept(layer_of(lightning_attention())), kRows * (kHidden + 1 + 24 + 6 + 6 + 6 + 1));
    // Attention beside Mamba-2: q, k, v, log-sum-exp and output, and what Mamba-2 keeps, behind one norm; behind a second one the MLP,
    // which keeps the stream in front of its norm, and 24 and 12 values around its activation.
    EXPECT_EQ(values_kept(layer_with_branches()), kRows * (kHidden + 1 + 32 + 4 + 16 + 40 + 12 + 12 + 2 + 2 * kHidden + 1 + 24 + 12));
    // Attention: q, k, v (16 + 8 + 8), q and k in front of their norms and 6 statistics, log-sum-exp of 4 heads, output; with the gate its
    // logits and the gated output beside them.
    EXPECT_EQ(values_kept(layer_of(gated_attention())), kRows * (kHidden + 1 + 32 + 24 + 6 + 4 + 16 + 16 + 16));
}

}  // namespace
}  // namespace mgplan::model::recurrent_layers_test
