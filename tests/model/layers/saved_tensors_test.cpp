// What a decoder layer keeps from forward to backward, byte by byte, as docs/layers.md lists it.

#include <numeric>

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model::saved_tensors_test {
namespace {

constexpr int kTp = 2;
constexpr std::int64_t kSequence = 64, kBatch = 2, kElement = 2;

ModelSpec gpt() {
    ModelSpec model =
        tests::gpt_of("gpt", {.layers = 1, .hidden = 64, .ffn = 256, .heads = 8, .head_dim = 8, .vocab = 128, .max_positions = kSequence});
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

ModelSpec mixture() {
    ModelSpec model = llama();
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 48, .shared_ffn = 32, .auxiliary_loss = 0.01};
    model.moe_layers = {true};
    return model;
}

/// Ranks that share experts; 1 without mixtures.
struct ExpertSizes {
    int ep = 1, etp = 1;
};

/// Bytes that a layer's forward leaves alive beside its output, its own input included.
std::int64_t kept(const ModelSpec& model, bool sequence_parallel, EnumSet<RecomputeModule> recompute = {}, ExpertSizes experts = {},
                  bool fp8 = false, OwnFp8 scaling = OwnFp8::current) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    const World world = recording_world(0, 8);
    const auto first_ranks = [&](const std::string& name, std::int32_t count) {
        std::vector<std::int32_t> ranks(static_cast<std::size_t>(count));
        std::iota(ranks.begin(), ranks.end(), 0);
        return world.join(name, ranks);
    };
    const auto tp = first_ranks("tp", kTp), ep = first_ranks("ep", experts.ep), etp = first_ranks("etp", experts.etp);
    const auto alone = first_ranks("alone", 1);
    RankContext context;
    context.device = &device;
    context.tp = context.tp_cp = tp.get();
    context.cp = alone.get();
    context.ep = ep.get();
    context.etp = etp.get();
    context.sequence_parallel = sequence_parallel;
    context.dtype = Dtype::bf16;
    WeightTable weights;
    const LayerKind kind = model.moe ? LayerKind::moe : LayerKind::dense;
    for (const Parameter& parameter : layer_parameters(model, kind, kTp, experts.ep, experts.etp, "")) {
        const Shape shape = parameter.shape.size() == 1 ? Shape{parameter.shape[0]} : Shape{parameter.shape[0], parameter.shape[1]};
        Weight weight{device.empty(shape, Dtype::bf16, MemoryCategory::parameters, "weight"),
                      device.empty(shape, Dtype::fp32, MemoryCategory::gradients, "gradient")};
        if (fp8 && parameter.linear_weight) weight.fp8 = make_fp8_weight(device, shape[0], shape[1], scaling);
        weights.add(parameter.name, std::move(weight));
    }
    const DecoderLayer layer(layer_site(model, typed_layer(model, 0), weights, "", 0, recompute));
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

TEST(SavedTensors, OfFp8AreAByteForEachValueThatItsProductsRead) {
    for (const ModelSpec& model : {gpt(), llama()}) {
        for (const bool sp : {false, true}) {
            const Expected e(sp);
            // Outputs of both norms and of the activation; the attention output stays for the core.
            const std::int64_t halved = 2 * e.m * model.hidden + e.n * model.ffn / kTp, scales = 3 * 8;
            EXPECT_EQ(kept(model, sp, {}, {}, true), kept(model, sp) - halved + scales) << model.name;
            EXPECT_EQ(kept(model, sp, {RecomputeModule::layernorm, RecomputeModule::mlp}, {}, true),
                      kept(model, sp, {RecomputeModule::layernorm, RecomputeModule::mlp}));
        }
    }
}

TEST(SavedTensors, OfBlocksInFp8AreCastsAlongColumnsWithTheirScales) {
    using enum RecomputeModule;
    const auto up = [](std::int64_t count, std::int64_t multiple) { return (count + multiple - 1) / multiple * multiple; };
    for (const OwnFp8 scaling : {OwnFp8::blockwise, OwnFp8::mxfp8}) {
        // A scale for so many rows of each column: fp32, columns padded to 4, or bytes in tiles of 128 columns and 4 blocks.
        const auto scales = [&](std::int64_t rows, std::int64_t columns) {
            if (scaling == OwnFp8::mxfp8) return up(columns, 128) * up((rows + 31) / 32, 4);
            return 4 * ((rows + 127) / 128) * up(columns, 4);
        };
        for (const ModelSpec& model : {gpt(), llama()}) {
            const auto held = [&](bool sp, EnumSet<RecomputeModule> modules) { return kept(model, sp, modules, {}, true, scaling); };
            const Expected e(false);
            const std::int64_t activation = e.n * model.ffn / kTp - scales(e.n, model.ffn / kTp);
            const std::int64_t norms = e.n * model.hidden - scales(e.n, model.hidden);  // less each
            EXPECT_EQ(held(false, {}), kept(model, false) - 2 * norms - activation);
            // What a forward that comes again reads stays beside it, cast along rows.
            const Fp8ScaleLayout rows(scaling == OwnFp8::mxfp8 ? Fp8Scaling::vectors_of_32 : Fp8Scaling::vectors_of_128, e.n, model.hidden);
            const std::int64_t along_rows = e.n * model.hidden + rows.count() * (scaling == OwnFp8::mxfp8 ? 1 : 4);
            EXPECT_EQ(held(false, {mlp}), kept(model, false, {mlp}) - 2 * norms + along_rows);
            EXPECT_EQ(held(false, {layernorm, mlp}), kept(model, false, {layernorm, mlp}));
            // Inputs that are gathered stay in 16 bits: 128 does not divide the rows of a rank.
            ASSERT_NE(Expected(true).m % 128, 0);
            EXPECT_EQ(held(true, {}), kept(model, true) - activation);
        }
    }
}

TEST(SavedTensors, OfClippedProjectionsNormsWithoutWeightsAndXieluAreThoseOfTheTable) {
    ModelSpec model = llama();
    model.normalization = Normalization::layer_norm;
    model.norm_weight = model.norm_bias = model.gated_mlp = false;
    model.activation = Activation::xielu;
    const Expected e(true);
    const std::int64_t plain = e.norms(model) + e.core(32, 16, 16, 32, 4) + e.mlp(model);
    EXPECT_EQ(kept(model, true), plain);
    model.qkv_clip = 8;
    EXPECT_EQ(kept(model, true), plain + e.n * (32 + 16 + 16) * kElement);
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

/// The rows of the table that mixtures alone have: m rows are routed, `copies` of them sent, `routed` arrive at this rank's
/// experts.
struct ExpectedMixture {
    const ModelSpec& model;
    Expected e{true};
    std::int64_t etp = 1;
    std::int64_t copies = e.m * model.moe->top_k;  ///< of dropless experts
    std::int64_t routed = copies * etp;            ///< balanced

    [[nodiscard]] std::int64_t router() const {
        return e.m * (8 * model.moe->top_k + 4 * model.moe->experts) + (model.moe->auxiliary_loss > 0 ? 4 * model.moe->experts : 0);
    }
    [[nodiscard]] std::int64_t capacity() const { return 4 * e.m * model.moe->top_k; }
    [[nodiscard]] std::int64_t dispatch() const { return 4 * copies; }
    [[nodiscard]] std::int64_t activated() const { return routed * model.moe->expert_ffn / etp * kElement; }
    [[nodiscard]] std::int64_t experts() const { return routed * (model.hidden * kElement + 4) + (model.gated_mlp ? 3 : 2) * activated(); }
    [[nodiscard]] std::int64_t shared() const {
        const std::int64_t gate = model.moe->shared_gate ? e.m * (model.hidden + 1) * kElement : 0;
        return e.n * (model.gated_mlp ? 3 : 2) * model.moe->shared_ffn / kTp * kElement + gate;
    }
    [[nodiscard]] std::int64_t mixture() const {
        return router() + (model.moe->capacity_factor > 0 ? capacity() : 0) + dispatch() + experts() + shared();
    }
    [[nodiscard]] std::int64_t layer() const { return e.norms(model) + e.core(32, 16, 16, 32, 4) + mixture(); }
};

TEST(SavedTensors, OfAMixtureAreThoseOfTheTable) {
    ModelSpec model = mixture();
    EXPECT_EQ(kept(model, true), ExpectedMixture{model}.layer());
    EXPECT_EQ(kept(model, true, {}, {.ep = 4}), ExpectedMixture{model}.layer()) << "balanced ranks get what they send";
    EXPECT_EQ(kept(model, true, {}, {.etp = 2}), (ExpectedMixture{.model = model, .etp = 2}.layer()));
    EXPECT_EQ(kept(model, true, {}, {.ep = 2, .etp = 2}), (ExpectedMixture{.model = model, .etp = 2}.layer()));
    ModelSpec wider = model;
    wider.moe->top_k = 4;
    EXPECT_EQ(kept(wider, true), ExpectedMixture{wider}.layer());
    model.moe->shared_ffn = 0;
    EXPECT_EQ(kept(model, true), ExpectedMixture{model}.layer());
    model.moe->score = RouterScore::sigmoid;
    model.moe->auxiliary_loss = 0;
    EXPECT_EQ(kept(model, true), ExpectedMixture{model}.layer()) << "scores are kept for the gradient, with or without a loss of balance";
}

TEST(SavedTensors, OfLatentExpertsAreThoseOfTheTable) {
    ModelSpec model = mixture();
    constexpr std::int64_t kLatent = 12;
    model.moe->latent = kLatent;
    const ExpectedMixture expected{model};
    EXPECT_EQ(kept(model, true, {}, {.ep = 2}),
              expected.layer() - expected.routed * (model.hidden - kLatent) * kElement + expected.e.m * kLatent * kElement);
}

TEST(SavedTensors, OfAMixtureWithPlainActivationAndAGateAreThoseOfTheTable) {
    ModelSpec model = mixture();
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.moe->shared_gate = true;
    EXPECT_EQ(kept(model, true, {}, {.ep = 2}), ExpectedMixture{model}.layer());
}

TEST(SavedTensors, OfAMixtureWithCapacityAreOfTheCopiesKept) {
    ModelSpec model = mixture();
    model.moe->capacity_factor = 0.5;
    const std::int64_t m = Expected(true).m, within = m * model.moe->top_k / 2;
    for (const bool pads : {false, true}) {
        model.moe->pad_to_capacity = pads;
        const ExpectedMixture dropped{.model = model, .etp = 2, .copies = within};
        EXPECT_EQ(kept(model, true, {}, {.ep = 2, .etp = 2}), dropped.layer());
    }
    // Filled up to more than the balanced share.
    model.moe->capacity_factor = 2;
    const ExpectedMixture filled{.model = model, .copies = 2 * m * model.moe->top_k};
    EXPECT_EQ(kept(model, true, {}, {.ep = 2}), filled.layer());
    model.moe->pad_to_capacity = false;
    EXPECT_EQ(kept(model, true, {}, {.ep = 2}), ExpectedMixture{model}.layer());
}

TEST(SavedTensors, OfAMixtureInFp8AreAByteForEachValueThatItsProductsRead) {
    const ModelSpec model = mixture();
    for (const ExpertSizes sizes : {ExpertSizes{}, {.ep = 2}, {.ep = 2, .etp = 2}}) {
        const ExpectedMixture expected{.model = model, .etp = sizes.etp};
        // Experts' rows and activations with a scale for each expert; what the shared experts' second product and the packed projection
        // read. The router reads the norm's output as it is.
        const std::int64_t experts = model.moe->experts / sizes.ep;
        const std::int64_t halved = expected.routed * (model.hidden + model.moe->expert_ffn / sizes.etp) +
                                    expected.e.n * model.moe->shared_ffn / kTp + expected.e.m * model.hidden;
        EXPECT_EQ(kept(model, true, {}, sizes, true), expected.layer() - halved + 2 * 8 * experts + 2 * 8);
    }
}

TEST(SavedTensors, OfALatentLayerInFp8AreAByteForEachValueThatItsProductsRead) {
    for (const bool sp : {false, true}) {
        ModelSpec model = deepseek();
        const Expected e(sp);
        // The norm's output once for both down projections; both normed latents; of the MLP the norm's output and the activation.
        const std::int64_t of_mlp = e.m * model.hidden + e.n * model.ffn / kTp;
        EXPECT_EQ(kept(model, sp, {}, {}, true), kept(model, sp) - of_mlp - e.m * (model.hidden + 24 + 16) + 5 * 8);
        // Queries without a latent read the norm's output by a scale of their own: it stays as it is.
        model.mla->q_lora_rank = 0;
        EXPECT_EQ(kept(model, sp, {}, {}, true), kept(model, sp) - of_mlp - e.m * 16 + 3 * 8);
    }
}

TEST(SavedTensors, OfAMixtureAreFewerWhereModulesAreMadeAgain) {
    using enum RecomputeModule;
    for (const bool gate : {false, true}) {
        ModelSpec model = mixture();
        model.moe->shared_gate = gate;
        const ExpertSizes sizes{.ep = 2, .etp = 2};
        const ExpectedMixture expected{.model = model, .etp = 2};
        const std::int64_t whole = kept(model, true, {}, sizes), normed = expected.e.m * model.hidden * kElement;
        EXPECT_EQ(whole - kept(model, true, {moe_act}, sizes), expected.activated());
        EXPECT_EQ(whole - kept(model, true, {shared_experts}, sizes), expected.shared());
        EXPECT_EQ(whole - kept(model, true, {moe_act, shared_experts}, sizes), expected.activated() + expected.shared());
        EXPECT_EQ(whole - kept(model, true, {moe}, sizes), expected.mixture());
        EXPECT_EQ(whole - kept(model, true, {moe, moe_act, shared_experts}, sizes), expected.mixture()) << "moe drops them already";
        EXPECT_EQ(whole - kept(model, true, {layernorm, moe}, sizes), expected.mixture() + 2 * normed);
    }
}

}  // namespace
}  // namespace mgplan::model::saved_tensors_test
