// What --offload-modules leaves in the host's memory of Megatron-LM's layers: bytes from the tensors that its modules save
// (docs/memory-optimizers.md, "Inputs of modules").

#include "simulator/piece/offload_policies.hpp"

#include <gtest/gtest.h>

#include "simulator/memory/chunk_profile.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::offload_policies_test {
namespace {

using enum OffloadModule;

constexpr std::int64_t s = 512, b = 2, h = 1024;
constexpr std::int64_t kStream = s * b * h * 2;  // 16 bits of 2^20 elements: just large enough to leave

class OffloadPolicies : public testing::Test {
protected:
    ModelSpec model = gpt(1);
    TrainingSpec training;
    PieceSizes sizes;

    OffloadPolicies() {
        model.attention_dropout = model.hidden_dropout = 0;
        sizes.engine = Engine::megatron;
        sizes.micro_batch = b;
        sizes.sequence = s;
        sizes.traits = {model::DeviceKind::cuda, 90, true};
        training.megatron.fused_attention = FusedAttention::cudnn;
    }

    struct Bytes {
        std::int64_t kept = 0, balance = 0, to_host = 0;  ///< of a forward; of it and its backward; on the host
    };
    [[nodiscard]] Bytes bytes_with(EnumSet<OffloadModule> modules, Piece piece) const {
        PieceSizes asked = sizes;
        asked.offloaded = modules;
        PieceTrace trace = model.moe ? trace_mixture(model, asked) : trace_dense_pieces(model, asked);
        apply_megatron_policies(trace, {model, traced_layer(model, model.moe.has_value()), training, asked});
        const PassProfile profile = piece_profiles(trace)[static_cast<std::size_t>(piece)];
        return {profile.forward.net_total(), profile.forward.net_total() + profile.backward.net_total(), trace.range(piece, false).to_host};
    }
    /// The device keeps so much less of a piece, and so much is copied.
    void expect_leaves(EnumSet<OffloadModule> modules, std::int64_t less, std::int64_t copied, Piece piece = Piece::attention) const {
        const Bytes plain = bytes_with({}, piece), offloaded = bytes_with(modules, piece);
        EXPECT_EQ(plain.kept - offloaded.kept, less);
        EXPECT_EQ(offloaded.to_host, copied);
        EXPECT_EQ(offloaded.balance, plain.balance) << "all that comes back is given back";
    }
};

TEST_F(OffloadPolicies, TakeWhatAModuleKeepsForItsBackward) {
    expect_leaves({qkv_linear}, 2 * kStream, 2 * kStream);  // what the norm reads and what it gives: one module with the projection
    expect_leaves({core_attn}, 3 * kStream, 4 * kStream);   // the output is copied, and the projection holds it
    expect_leaves({core_attn, attn_proj}, 4 * kStream, 5 * kStream);
    expect_leaves({attn_norm}, 0, 0);
    expect_leaves({mlp_norm}, 0, 0, Piece::dense);
}

TEST_F(OffloadPolicies, LeaveSmallTensorsWhereTheyAre) {
    training.megatron.least_offloaded = kStream / 2 + 1;
    expect_leaves({qkv_linear, core_attn, attn_proj}, 0, 0);
}

TEST_F(OffloadPolicies, TakeTheNormInFrontOfLatentAttentionByItsOwnName) {
    model.position = PositionEmbedding::rope;
    model.mla = MlaSpec{256, 128, 48, 16, 32};
    expect_leaves({attn_norm}, kStream, kStream);
    training.megatron.least_offloaded = kStream / 2;
    expect_leaves({qkv_linear}, kStream, kStream);  // the norm's output; latents are smaller
    training.megatron.least_offloaded = 0;
    EXPECT_GT(bytes_with({qkv_linear}, Piece::attention).to_host, kStream + s * b * (256 + 128) * 2);
}

TEST_F(OffloadPolicies, TakeTheRowsAndProductsOfExperts) {
    model = mixture(1);
    const std::int64_t copies = s * b * model.moe->top_k, rows = copies * h * 2, product = copies * 2 * model.moe->expert_ffn * 2;
    expect_leaves({mlp_norm}, kStream, kStream, Piece::mixture);
    expect_leaves({expert_fc1}, rows, rows, Piece::mixture);
    expect_leaves({moe_act}, product, product, Piece::mixture);
    expect_leaves({expert_fc1, moe_act}, rows + product, rows + product, Piece::mixture);
    sizes.modules = {RecomputeModule::moe_act};
    expect_leaves({moe_act}, product, product, Piece::mixture);
}

TEST_F(OffloadPolicies, KeepExpertsRowsInSixteenBitsUnlessTheirFp8CopyCanLeave) {
    model = mixture(1);
    model.moe->grouped_gemm = true;
    const std::int64_t copies = s * b * model.moe->top_k, rows = copies * h * 2;
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_EQ(bytes_with({expert_fc1}, Piece::mixture).to_host, rows);
    training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    sizes.traits.architecture = 100;
    const std::int64_t quantised = bytes_with({expert_fc1}, Piece::mixture).to_host;
    EXPECT_GT(quantised, rows / 2 - 1);
    EXPECT_LT(quantised, rows * 6 / 10);  // 8 bits, and a scale for each 32
}

}  // namespace
}  // namespace mgplan::simulator::offload_policies_test
