// What each named policy changes in the trace of mgplan's own layers.

#include "simulator/piece/engine_policies.hpp"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/memory/chunk_profile.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::simulator::engine_policies_test {
namespace {

constexpr std::int64_t s = 512, b = 2, h = 1024, heads = 16;

class Policies : public testing::Test {
protected:
    ModelSpec model = gpt(1);
    TrainingSpec training;
    PieceSizes sizes;

    Policies() {
        model.attention_dropout = model.hidden_dropout = 0;
        sizes.micro_batch = b;
        sizes.sequence = s;
        sizes.traits = {model::DeviceKind::cuda, 90, true};
        training.megatron.fused_attention = FusedAttention::cudnn;
    }

    [[nodiscard]] PieceProfiles own() const {
        return piece_profiles(model.moe ? trace_mixture(model, sizes) : trace_dense_pieces(model, sizes));
    }
    [[nodiscard]] PieceProfiles megatron() const {
        PieceSizes theirs = sizes;
        theirs.engine = Engine::megatron;
        PieceTrace trace = model.moe ? trace_mixture(model, theirs) : trace_dense_pieces(model, theirs);
        apply_megatron_policies(trace, {model, traced_layer(model, model.moe.has_value()), training, theirs});
        return piece_profiles(trace);
    }
    /// Bytes that engine megatron keeps of a piece beyond mgplan's own layers.
    [[nodiscard]] std::int64_t kept_more(Piece piece) const {
        const auto index = static_cast<std::size_t>(piece);
        return megatron()[index].forward.net_total() - own()[index].forward.net_total();
    }
    [[nodiscard]] std::int64_t backward_peak(Piece piece) const { return megatron()[static_cast<std::size_t>(piece)].backward.peak; }
    /// Everything that a piece takes it gives back, in both directions together.
    void expect_balance(Piece piece) const {
        const PassProfile profile = megatron()[static_cast<std::size_t>(piece)], mine = own()[static_cast<std::size_t>(piece)];
        EXPECT_EQ(profile.forward.net_total() + profile.backward.net_total(), mine.forward.net_total() + mine.backward.net_total());
    }
};

TEST_F(Policies, KeepNothingMoreOfPlainFusedAttention) {
    EXPECT_EQ(kept_more(Piece::attention), 0);
    EXPECT_EQ(kept_more(Piece::dense), 0);
}

TEST_F(Policies, KeepQueriesAndKeysTwiceWithoutTransformerEngine) {
    model.position = PositionEmbedding::rope;
    EXPECT_EQ(kept_more(Piece::attention), 0);
    training.megatron.transformer_engine = false;
    // The flash-attn package comes with it, whose output stands twice.
    EXPECT_EQ(kept_more(Piece::attention), 2 * s * b * h * 2 + s * b * h * 2);
    expect_balance(Piece::attention);
}

TEST_F(Policies, KeepTheFlashPackagesOutputTwiceWhereBatchAndSequenceChangePlaces) {
    training.megatron.fused_attention = FusedAttention::flash_attention;
    EXPECT_EQ(kept_more(Piece::attention), s * b * h * 2);
    expect_balance(Piece::attention);
    sizes.micro_batch = 1;
    EXPECT_EQ(kept_more(Piece::attention), 0) << "one sequence needs no exchange";
    sizes.micro_batch = b;
    training.megatron.fused_attention = FusedAttention::automatic;
    EXPECT_EQ(kept_more(Piece::attention), 0) << "cuDNN is preferred on Hopper";
    sizes.traits.architecture = 80;
    EXPECT_EQ(kept_more(Piece::attention), s * b * h * 2);
    sizes.traits.architecture = 100;
    EXPECT_EQ(kept_more(Piece::attention), 0);
    training.megatron.deterministic = true;
    EXPECT_EQ(kept_more(Piece::attention), s * b * h * 2) << "cuDNN is not reproducible there";
}

TEST_F(Policies, KeepTheScoresOfUnfusedAttention) {
    training.attention = AttentionBackend::unfused;
    const std::int64_t scores = heads * s * s * b, sums = heads * s * b * 4;
    EXPECT_EQ(kept_more(Piece::attention), 2 * scores - sums);
    expect_balance(Piece::attention);
    model.attention_dropout = 0.1;
    EXPECT_EQ(kept_more(Piece::attention), 5 * scores - sums) << "a mask of one byte and the dropped scores";
    sizes.modules = {RecomputeModule::core_attn};
    EXPECT_EQ(kept_more(Piece::attention), 0);
    EXPECT_GE(backward_peak(Piece::attention), 5 * scores) << "made again for the backward";
}

TEST_F(Policies, KeepTheActivatedHalfOfAGatedMlpThatPytorchActivates) {
    model.gated_mlp = true;
    training.megatron.bias_activation_fusion = false;
    EXPECT_EQ(kept_more(Piece::dense), s * b * model.ffn * 2);
    expect_balance(Piece::dense);
    model.gated_mlp = false;
    EXPECT_EQ(kept_more(Piece::dense), 0) << "the sum with the bias takes the product's place";
}

TEST_F(Policies, KeepAMaskOfEachDropout) {
    model.hidden_dropout = 0.1;
    for (const Piece piece : {Piece::embedding, Piece::attention, Piece::dense}) {
        EXPECT_EQ(kept_more(piece), s * b * h);
        expect_balance(piece);
    }
}

TEST_F(Policies, KeepTheOutputByHeadsBesideTheOneByTokens) {
    sizes.cp = 2;
    EXPECT_EQ(kept_more(Piece::attention), 0);
    sizes.cp_comm_type = CpCommType::a2a;
    EXPECT_EQ(kept_more(Piece::attention), s / 2 * b * h * 2);
    expect_balance(Piece::attention);
}

TEST_F(Policies, KeepTheProjectionOfWhichValuesAreAView) {
    model.position = PositionEmbedding::rope;
    model.mla = MlaSpec{256, 128, 48, 16, 32};
    // Projected keys and values live on in place of a copy of the values.
    EXPECT_EQ(kept_more(Piece::attention), s * b * heads * 48 * 2);
    expect_balance(Piece::attention);
}

TEST_F(Policies, MakeTheTablesGradientWhole) {
    EXPECT_GE(backward_peak(Piece::embedding), model.padded_vocab(1) * h * 2);
}

TEST_F(Policies, HoldAnUnpackedWeightNextToItsProduct) {
    model.adapters = Adapters{.rank = 16};
    const std::int64_t half = megatron()[static_cast<std::size_t>(Piece::dense)].forward.peak;
    model.adapters->base = FrozenStorage::nf4;
    const std::int64_t packed = megatron()[static_cast<std::size_t>(Piece::dense)].forward.peak;
    EXPECT_GT(packed, half);
    EXPECT_LE(packed, half + 4 * h * h * 2) << "the weight of one product at a time";
    expect_balance(Piece::dense);
}

TEST_F(Policies, MakeNoGradientOfAFrozenVocabulary) {
    const std::int64_t table = model.padded_vocab(1) * h * 2;
    training.fused_cross_entropy = training.megatron.te_cross_entropy = true;
    const std::int64_t trained = backward_peak(Piece::loss);
    model.adapters = Adapters{};
    EXPECT_LT(backward_peak(Piece::embedding), table);
    EXPECT_LE(backward_peak(Piece::loss), trained - table);
}

TEST_F(Policies, CopyTheLogitsOfTheLossToFp32) {
    const std::int64_t logits = s * b * model.padded_vocab(1);
    EXPECT_EQ(kept_more(Piece::loss), 2 * logits) << "the softmax in fp32 in place of the logits";
    expect_balance(Piece::loss);
    training.fused_cross_entropy = training.megatron.te_cross_entropy = true;
    EXPECT_EQ(kept_more(Piece::loss), 0);
    EXPECT_GE(backward_peak(Piece::loss), model.padded_vocab(1) * h * 2) << "the output layer's weight gradient";
}

TEST_F(Policies, KeepTablesOfTheRoutingAndUnweightedActivations) {
    model = mixture(1);
    const std::int64_t experts = model.moe->experts, copies = s * b * model.moe->top_k, width = model.moe->expert_ffn;
    EXPECT_EQ(kept_more(Piece::mixture), s * b * experts * (4 + 1));
    training.megatron.bias_activation_fusion = false;
    EXPECT_EQ(kept_more(Piece::mixture), s * b * experts * (4 + 1) + 2 * copies * width * 2);
    expect_balance(Piece::mixture);
}

TEST_F(Policies, KeepInputsOfLinearLayersInFp8) {
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    const std::int64_t rows = s * b, scale = 4;
    EXPECT_EQ(kept_more(Piece::attention), -(rows * h - scale)) << "the norm's output; the projection's input is the core's output";
    EXPECT_EQ(kept_more(Piece::dense), -(rows * h - scale) - (rows * model.ffn - scale)) << "norm's and activation's output";
    PieceTrace trace = trace_dense_pieces(model, sizes);
    apply_megatron_policies(trace, {model, traced_layer(model), training, sizes});
    std::vector<std::int64_t> gradients;
    for (const auto& tensor : trace.tensors) {
        if (tensor.name == "output gradient in fp8" && trace.range(Piece::dense, true).contains(tensor.taken))
            gradients.push_back(tensor.bytes);
    }
    EXPECT_THAT(gradients, testing::ElementsAre(2 * rows * h + scale, 2 * rows * model.ffn + scale)) << "along rows and along columns";
    training.megatron.fp8_recipe = Fp8Recipe::delayed;
    EXPECT_EQ(kept_more(Piece::attention), -(rows * h - scale) + rows * h + scale) << "a copy of the core's output";
    training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    EXPECT_EQ(kept_more(Piece::dense), -(rows * h + rows * model.ffn) * 31 / 32) << "a byte for 32 elements";
    training.megatron.fp8_recipe = Fp8Recipe::blockwise;
    EXPECT_EQ(kept_more(Piece::dense), -(rows * h + rows * model.ffn) * 31 / 32) << "four bytes for 128";
    sizes.traits.architecture = 80;
    EXPECT_EQ(kept_more(Piece::dense), 0) << "no fp8";
    sizes.traits.architecture = 90;
    training.megatron.transformer_engine = false;
    EXPECT_EQ(kept_more(Piece::dense), 0) << "Megatron-LM's own layers compute in 16 bits";
}

TEST_F(Policies, KeepAClampedProductBesideTheProduct) {
    model = mixture(1);
    model.activation = Activation::gelu;
    model.moe->grouped_gemm = true;
    const std::int64_t plain = kept_more(Piece::mixture);
    training.megatron.activation_clamp = 7;
    const std::int64_t clamped = kept_more(Piece::mixture);
    EXPECT_EQ(clamped - plain, s * b * model.moe->top_k * 2 * model.moe->expert_ffn * 2) << "both halves in 16 bits";
    sizes.modules = {RecomputeModule::moe_act};
    const std::int64_t recomputed = kept_more(Piece::mixture);
    training.megatron.activation_clamp = 0;
    EXPECT_EQ(recomputed, kept_more(Piece::mixture)) << "clamped again in the backward";
}

TEST_F(Policies, KeepExpertsRowsInFp8AndTheRoutersInputIn16Bits) {
    model = mixture(1);
    const std::int64_t tables = kept_more(Piece::mixture), rows = s * b, copies = rows * model.moe->top_k, experts = model.moe->experts;
    training.precision = Precision::fp8;
    const std::int64_t less = copies * (h + model.moe->expert_ffn) - 2 * 4 * experts;
    EXPECT_EQ(kept_more(Piece::mixture), tables - less);
    model.moe->shared_ffn = 512;
    training.precision = Precision::bf16;
    const std::int64_t shared = kept_more(Piece::mixture);
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_EQ(kept_more(Piece::mixture), shared - less - (rows * 512 - 4));
    training.megatron.fp8_recipe = Fp8Recipe::delayed;
    EXPECT_EQ(kept_more(Piece::mixture), shared - less - (rows * 512 - 4) + rows * h + 4) << "shared experts copy the norm's output";
}

TEST_F(Policies, KeepLatentAttentionsInputsInFp8) {
    model.position = PositionEmbedding::rope;
    model.mla = MlaSpec{256, 128, 48, 16, 32};
    model.qk_norm = true;
    const std::int64_t sixteen = kept_more(Piece::attention), rows = s * b;
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    // Two down projections copy one norm's output each.
    EXPECT_EQ(kept_more(Piece::attention), sixteen + 2 * 4 - (rows * 256 - 4) - (rows * 128 - 4));
}

TEST_F(Policies, GatherInFp8) {
    training.precision = Precision::fp8;
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    const auto gathered = [&](Fp8Recipe recipe, int architecture) {
        training.megatron.fp8_recipe = recipe;
        sizes.traits.architecture = architecture;
        PieceTrace trace = trace_dense_pieces(model, sizes);
        apply_megatron_policies(trace, {model, traced_layer(model), training, sizes});
        std::vector<std::int64_t> bytes;
        const PieceRange &forward = trace.range(Piece::dense, false), &backward = trace.range(Piece::dense, true);
        for (const auto& tensor : trace.tensors) {
            if (tensor.name == "gathered rows" && (forward.contains(tensor.taken) || backward.contains(tensor.taken)))
                bytes.push_back(tensor.bytes);
        }
        return bytes;
    };
    const std::int64_t rows = s * b * h;
    using testing::ElementsAre;
    EXPECT_THAT(gathered(Fp8Recipe::delayed, 90), ElementsAre(rows + 4, 2 * rows + 4, 2 * rows + 4)) << "both with their transposes";
    EXPECT_THAT(gathered(Fp8Recipe::delayed, 100), ElementsAre(rows + 4, rows + 4, rows + 4));
    EXPECT_THAT(gathered(Fp8Recipe::mxfp8, 100), ElementsAre(rows / 32 * 33, rows / 32 * 66, rows / 32 * 33));
}

TEST_F(Policies, GiveBackWhatTheyTakeUnderFp8) {
    training.precision = Precision::fp8;
    const ModelSpec plain = gpt(1);
    ModelSpec latent = plain, experts = mixture(1);
    latent.position = PositionEmbedding::rope;
    latent.mla = MlaSpec{256, 128, 48, 16, 32};
    latent.qk_norm = true;
    experts.moe->shared_ffn = 512;
    using enum RecomputeModule;
    const std::vector<EnumSet<RecomputeModule>> recomputes{
        {}, {core_attn}, {layernorm}, {mlp}, {mla_up_proj}, {moe}, {moe_act, shared_experts}};
    for (const Fp8Recipe recipe : {Fp8Recipe::delayed, Fp8Recipe::mxfp8}) {
        for (const auto& modules : recomputes) {
            for (const std::int64_t tp : {1, 2}) {
                training.megatron.fp8_recipe = recipe;
                sizes.modules = modules;
                sizes.tp = tp;
                sizes.sequence_parallel = tp > 1;
                for (const ModelSpec& each : {plain, latent, experts}) {
                    model = each;
                    for (const Piece piece : {Piece::attention, Piece::dense, Piece::mixture}) {
                        if ((piece == Piece::mixture) == model.moe.has_value()) expect_balance(piece);
                    }
                    PieceTrace trace = model.moe ? trace_mixture(model, sizes) : trace_dense_pieces(model, sizes);
                    apply_megatron_policies(trace, {model, traced_layer(model, model.moe.has_value()), training, sizes});
                    for (const auto& tensor : trace.tensors)
                        EXPECT_TRUE(tensor.bytes >= 0 && (tensor.returned < 0 || tensor.returned > tensor.taken)) << tensor.name;
                }
            }
        }
    }
}

TEST(PolicyTable, NamesModuleTensorTypeAndSource) {
    for (const EnginePolicy& policy : megatron_policies()) {
        for (const std::string_view text : {policy.name, policy.module, policy.tensor, policy.dtype, policy.source})
            EXPECT_FALSE(text.empty());
        EXPECT_NE(policy.source.find('.'), std::string_view::npos) << policy.name;
    }
    for (const RankPolicy& policy : megatron_rank_policies()) {
        for (const std::string_view text : {policy.name, policy.module, policy.tensor, policy.dtype, policy.source})
            EXPECT_FALSE(text.empty());
        EXPECT_NE(policy.source.find('.'), std::string_view::npos) << policy.name;
    }
}

TEST(PolicyTable, IsToldInTheDocumentation) {
    std::string page;  // those that change time alone are on the last one
    for (const char* name : {"memory-megatron", "memory-precision", "time"}) {
        std::ifstream file(tests::data_folder() + "/../docs/" + name + ".md");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        ASSERT_FALSE(text.empty()) << name;
        page += text;
    }
    for (const EnginePolicy& policy : megatron_policies()) EXPECT_NE(page.find(policy.name), std::string::npos) << policy.name;
    for (const RankPolicy& policy : megatron_rank_policies()) EXPECT_NE(page.find(policy.name), std::string::npos) << policy.name;
}

}  // namespace
}  // namespace mgplan::simulator::engine_policies_test
