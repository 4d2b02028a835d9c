// Bytes that the kernels move which bring operands to fp8: read and written, in one pass of a piece.
#include <initializer_list>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/simulator/price/recorded_piece.hpp"

namespace mgplan::simulator::fp8_time_policies_test {
namespace {

class Casts : public RecordedPiece {
protected:
    explicit Casts(const ModelSpec& model) : RecordedPiece(model, 4096) { workload.training.precision = Precision::fp8; }
    Casts() : Casts(gpt(2)) {}

    [[nodiscard]] double bytes(Piece piece, bool backward,
                               std::initializer_list<std::string_view> names = {"quantise", "transpose_fp8"}) const {
        double sum = 0;
        const PieceTrace recorded = trace(piece);
        for (const PieceStep& step : recorded.range(piece, backward).steps) {
            for (const std::string_view name : names) {
                if (step.kind == StepKind::op && step.op.name == name)
                    sum += static_cast<double>(step.op.bytes_read + step.op.bytes_written);
            }
        }
        return sum;
    }
    /// To a scale or two for each tensor.
    static void expect(double found, double bytes) { EXPECT_NEAR(found, bytes, 64); }
    void recipe(Fp8Recipe recipe, int compute_capability) {
        workload.training.megatron.fp8_recipe = recipe;
        workload.cluster.compute_capability = compute_capability;
    }
};

TEST_F(Casts, AreMadeAroundAllLinearLayers) {
    // Inputs of qkv and fc1 come from norms, 1,024 wide; those of the projection and of fc2 are 1,024 and 4,096 wide.
    expect(bytes(Piece::attention, false), 4096.0 * (2 * 1024 + 4 * 1024));
    expect(bytes(Piece::dense, false), 4096.0 * (2 * 1024 + 4 * 4096));
    expect(bytes(Piece::attention, true), 4096.0 * 4 * (3 * 1024 + 1024));
    expect(bytes(Piece::dense, true), 4096.0 * 4 * (4096 + 1024));
    recipe(Fp8Recipe::delayed, 100);  // the same bytes serve both products
    expect(bytes(Piece::dense, false), 4096.0 * 3 * 4096);
    workload.training.precision = Precision::bf16;
    expect(bytes(Piece::dense, false), 0);
}

TEST_F(Casts, SequenceParallelRanksCastTheirOwnTokensAndTransposeAll) {
    sizes.tp = 4;
    sizes.sequence_parallel = true;
    for (const bool overlapped : {false, true}) {
        workload.training.overlap_tp = overlapped;
        // The norm writes fp8 itself; fc2's input is 1,024 wide on a rank.
        expect(bytes(Piece::dense, false), 4096.0 * 4 * 1024);
        // fc2's gradient: own tokens, transposed behind the gather; fc1's gradient, and its input transposed.
        expect(bytes(Piece::dense, true), 3.0 * 1024 * 1024 + 2.0 * 4096 * 1024 + 4.0 * 4096 * 1024 + 2.0 * 4096 * 1024);
    }
}

TEST_F(Casts, AScaleOfTheTensorItselfIsLookedForInFront) {
    recipe(Fp8Recipe::tensorwise, 90);
    EXPECT_DOUBLE_EQ(bytes(Piece::dense, false, {"find_largest_produced"}), 2.0 * 4096 * (1024 + 4096));
    EXPECT_DOUBLE_EQ(bytes(Piece::attention, false, {"find_largest"}), 2.0 * 4096 * 1024) << "of what attention gives";
    EXPECT_DOUBLE_EQ(bytes(Piece::dense, true, {"find_largest"}), 2.0 * 4096 * (1024 + 4096));
    workload.training.precision = Precision::nvfp4;
    workload.cluster.compute_capability = 100;
    EXPECT_DOUBLE_EQ(bytes(Piece::dense, false, {"find_largest"}), 2.0 * 4096 * (1024 + 4096));
    EXPECT_DOUBLE_EQ(bytes(Piece::dense, false, {"quantise_again"}), 2.0 * 4096 * (1024 + 4096));
}

TEST_F(Casts, FrozenWeightsIn4BitsAreUnpackedForEachProduct) {
    workload.training.precision = Precision::bf16;
    expect(bytes(Piece::dense, false, {"dequantise"}), 0);
    workload.model.adapters = Adapters{.rank = 16, .base = FrozenStorage::nf4};
    const double mlp = 2.0 * (nf4_bytes(4096 * 1024) + 2 * 4096 * 1024);
    expect(bytes(Piece::dense, false, {"dequantise"}), mlp);
    expect(bytes(Piece::dense, true, {"dequantise"}), mlp);  // for the gradients of inputs; adapters' own products read 16 bits
    EXPECT_GT(bytes(Piece::attention, true, {"dequantise"}), 0);
    expect(bytes(Piece::loss, false, {"dequantise"}), 0);
}

class MixtureCasts : public Casts {
protected:
    MixtureCasts() : Casts(mixture(2)) {}
};

TEST_F(MixtureCasts, AreOfEveryCopyAndForSharedExpertsOfEveryToken) {
    sizes.ep = 4;
    const double copies = 2 * 4096;
    expect(bytes(Piece::mixture, false), copies * 4 * (1024 + 512));
    expect(bytes(Piece::mixture, true), copies * 4 * (1024 + 1024));
    workload.model.moe->shared_ffn = 512;  // whose input is that of the router too, in 16 bits
    expect(bytes(Piece::mixture, false), (copies + 4096) * 4 * (1024 + 512));
    expect(bytes(Piece::mixture, true), (copies + 4096) * 4 * (1024 + 1024));
}

class LatentCasts : public Casts {
protected:
    LatentCasts() : Casts(latent()) {}
    static ModelSpec latent() {
        ModelSpec model = mixture(2);
        model.moe.reset();
        model.moe_layers.clear();
        model.qk_norm = true;  // of the latents
        model.mla = MlaSpec{.q_lora_rank = 256, .kv_lora_rank = 128, .qk_nope_head_dim = 64, .qk_rope_head_dim = 32, .v_head_dim = 64};
        return model;
    }
};

TEST_F(LatentCasts, AreMadeDownAndUp) {
    // Down from the same 1,024 twice, to 256 and 160; up from normed 256 and 128 to 16 heads; the projection from 1,024.
    expect(bytes(Piece::attention, false), 4096.0 * (4 * 1024 + 4 * 1024 + 2 * 256 + 2 * 128 + 4 * 1024));
    expect(bytes(Piece::attention, true), 4096.0 * 4 * (256 + 160 + 16 * 96 + 16 * 128 + 1024));
}

}  // namespace
}  // namespace mgplan::simulator::fp8_time_policies_test
