// What a decoder layer keeps from forward to backward, byte by byte, as docs/layers.md lists it.

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/parameters.hpp"

namespace mgplan::model {
namespace {

constexpr std::int64_t kTp = 2, kSequence = 64, kBatch = 2, kElement = 2;

ModelSpec gpt() {
    ModelSpec model;
    model.name = "gpt";
    model.layers = 1;
    model.hidden = 64;
    model.ffn = 256;
    model.heads = 8;
    model.kv_heads = 8;
    model.head_dim = 8;
    model.vocab = 128;
    model.max_positions = kSequence;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.hidden_dropout = 0.1;
    return model;
}

ModelSpec llama() {
    ModelSpec model = gpt();
    model.kv_heads = 4;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    return model;
}

ModelSpec deepseek() {
    ModelSpec model = llama();
    model.kv_heads = 8;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 24, .kv_lora_rank = 16, .qk_nope_head_dim = 12, .qk_rope_head_dim = 4, .v_head_dim = 10};
    return model;
}

/// Bytes that a layer's forward leaves alive beside its output, its own input included.
std::int64_t kept(const ModelSpec& model, bool sequence_parallel, EnumSet<RecomputeModule> recompute = {}) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    const World world = recording_world(0, kTp);
    const auto tp = world.join("tp", std::vector<std::int32_t>{0, 1}), alone = world.join("alone", std::vector<std::int32_t>{0});
    RankContext context;
    context.device = &device;
    context.tp = tp.get();
    context.cp = context.ep = context.etp = alone.get();
    context.sequence_parallel = sequence_parallel;
    context.dtype = Dtype::bf16;
    WeightTable weights;
    for (const Parameter& parameter : layer_parameters(model, LayerKind::dense, kTp, 1, 1, "")) {
        const Shape shape = parameter.shape.size() == 1 ? Shape{parameter.shape[0]} : Shape{parameter.shape[0], parameter.shape[1]};
        weights.add(parameter.name, {device.empty(shape, Dtype::bf16, MemoryCategory::parameters, "weight"),
                                     device.empty(shape, Dtype::fp32, MemoryCategory::gradients, "gradient")});
    }
    const DecoderLayer layer(model, weights, "", 0, recompute);
    const MicrobatchContext microbatch{.batch = kBatch, .sequence = kSequence, .first_sequence = 0, .dropout_seed = 1};
    const std::int64_t rows = kBatch * kSequence / (sequence_parallel ? kTp : 1);
    DecoderLayer::Saved saved;
    Tensor y;
    {
        const Tensor x = device.empty({rows, model.hidden}, Dtype::bf16, MemoryCategory::activations, "x");
        y = layer.forward(context, microbatch, x, saved, {});
    }
    EXPECT_EQ(device.memory().current[static_cast<std::size_t>(MemoryCategory::communication)], 0);
    EXPECT_EQ(device.memory().current[static_cast<std::size_t>(MemoryCategory::workspace)], 0);
    return device.memory().current[static_cast<std::size_t>(MemoryCategory::activations)] - y.bytes();
}

/// The table of docs/layers.md. n rows inside the tp region, m outside.
struct Expected {
    std::int64_t n = kBatch * kSequence, m;
    explicit Expected(bool sequence_parallel) : m(sequence_parallel ? n / kTp : n) {}

    [[nodiscard]] std::int64_t norms(const ModelSpec& model) const {
        const std::int64_t statistics = model.normalization == Normalization::layer_norm ? 8 : 4;
        return 4 * m * model.hidden * kElement + 2 * m * statistics;
    }
    [[nodiscard]] std::int64_t core(std::int64_t q, std::int64_t k, std::int64_t v, std::int64_t output, std::int64_t heads) const {
        return n * (q + k + v + output) * kElement + 4 * n * heads;
    }
    [[nodiscard]] std::int64_t mlp(const ModelSpec& model) const { return n * (model.gated_mlp ? 3 : 2) * model.ffn / kTp * kElement; }
};

TEST(SavedTensors, OfAGptLayerAreThoseOfTheTable) {
    for (const bool sp : {false, true}) {
        const ModelSpec model = gpt();
        const Expected e(sp);
        const std::int64_t width = model.hidden / kTp;
        EXPECT_EQ(kept(model, sp), e.norms(model) + e.core(width, width, width, width, model.heads / kTp) + e.mlp(model));
    }
    // Korthikanti et al., arXiv 2205.05198, section 4.2.2: 34·s·b·h/t, of which 2 are dropout masks that are made again here.
    const ModelSpec model = gpt();
    const Expected e(true);
    const std::int64_t statistics = 2 * e.m * 8 + 4 * e.n * model.heads / kTp;
    EXPECT_EQ(kept(model, true) - statistics, 32 * e.n * model.hidden / kTp);
}

TEST(SavedTensors, OfALlamaLayerAreThoseOfTheTable) {
    ModelSpec model = llama();
    const Expected e(true);
    const std::int64_t q = 32, k = 16, heads = 4, kv_heads = 2;
    const std::int64_t plain = e.norms(model) + e.core(q, k, k, q, heads) + e.mlp(model);
    EXPECT_EQ(kept(model, true), plain);
    model.qk_norm = true;
    EXPECT_EQ(kept(model, true), plain + e.n * (q + k) * kElement + 4 * e.n * (heads + kv_heads));
}

TEST(SavedTensors, OfSharedKvHeadsAreTheGroupsOwn) {
    ModelSpec model = llama();
    model.kv_heads = 1;
    const Expected e(true);
    EXPECT_EQ(kept(model, true), e.norms(model) + e.core(32, 8, 8, 32, 4) + e.mlp(model));
}

TEST(SavedTensors, OfALatentLayerAreThoseOfTheTable) {
    for (const bool sp : {false, true}) {
        const ModelSpec model = deepseek();
        const Expected e(sp);
        const std::int64_t heads = 4, latents = 2 * e.m * (24 + 16) * kElement + 2 * e.m * 4;
        const std::int64_t whole = e.norms(model) + latents + e.core(heads * 16, heads * 16, heads * 10, heads * 10, heads) + e.mlp(model);
        EXPECT_EQ(kept(model, sp), whole);
        // Without what the up projections make, but with the rotated part of the keys.
        const std::int64_t made_again = e.n * heads * (16 + 16 + 10) * kElement + e.m * (24 + 16) * kElement;
        EXPECT_EQ(kept(model, sp, {RecomputeModule::mla_up_proj}), whole - made_again + e.n * 4 * kElement);
    }
}

TEST(SavedTensors, AreFewerWhereModulesAreMadeAgain) {
    using enum RecomputeModule;
    const ModelSpec model = llama();
    const Expected e(true);
    const std::int64_t whole = kept(model, true);
    EXPECT_EQ(whole - kept(model, true, {core_attn}), 4 * e.n * 4);
    EXPECT_EQ(whole - kept(model, true, {layernorm}), 2 * e.m * model.hidden * kElement);
    EXPECT_EQ(whole - kept(model, true, {RecomputeModule::mlp}), e.mlp(model));
}

}  // namespace
}  // namespace mgplan::model
