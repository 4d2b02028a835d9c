// What waits for weight gradients that are put off (docs/memory-megatron.md).

#include "simulator/piece/weight_gradient_policies.hpp"

#include <gtest/gtest.h>

#include "simulator/memory/chunk_profile.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::weight_gradient_policies_test {
namespace {

constexpr std::int64_t s = 512, b = 2, h = 1024;

class WeightGradientPolicies : public testing::Test {
protected:
    ModelSpec model = mixture(1);
    TrainingSpec training;
    PieceSizes sizes;

    WeightGradientPolicies() {
        sizes.engine = Engine::megatron;
        sizes.micro_batch = b;
        sizes.sequence = s;
        sizes.ep = 2;
        sizes.traits = {model::DeviceKind::cuda, 100, true};
        training.overlap_moe = true;
    }

    [[nodiscard]] PieceTrace traced(bool put_off, Piece piece) {
        training.megatron.delay_wgrad = put_off;
        PieceTrace trace = piece == Piece::mixture ? trace_mixture(model, sizes) : trace_dense_pieces(model, sizes);
        apply_megatron_policies(trace, {model, traced_layer(model, piece == Piece::mixture), training, sizes});
        return trace;
    }
    /// Bytes that an op in the middle of a backward finds, of the piece's own tensors: at the instant at which the last tensor of that name
    /// is taken.
    [[nodiscard]] std::int64_t found_at(bool put_off, Piece piece, std::string_view name) {
        const PieceTrace trace = traced(put_off, piece);
        const PieceRange& forward = trace.range(piece, false);
        const PieceRange& backward = trace.range(piece, true);
        std::int64_t when = -1, bytes = 0;
        for (const auto& tensor : trace.tensors) {
            if (tensor.name == name && backward.contains(tensor.taken)) when = std::max(when, tensor.taken);
        }
        EXPECT_GE(when, 0) << name;
        for (const auto& tensor : trace.tensors) {
            const bool own = forward.contains(tensor.taken) || backward.contains(tensor.taken);
            if (own && tensor.taken <= when && tensor.returned > when) bytes += tensor.bytes;
        }
        return bytes;
    }
    void expect_more(Piece piece, std::string_view name, std::int64_t more) {
        EXPECT_EQ(found_at(true, piece, name) - found_at(false, piece, name), more);
        const PassProfile now = piece_profiles(traced(false, piece))[static_cast<std::size_t>(piece)];
        const PassProfile later = piece_profiles(traced(true, piece))[static_cast<std::size_t>(piece)];
        EXPECT_EQ(now.forward.net_total(), later.forward.net_total()) << "a forward keeps what it kept";
        EXPECT_EQ(now.backward.net_total(), later.backward.net_total()) << "and all of it goes";
        EXPECT_GE(later.backward.peak, now.backward.peak);
    }
};

TEST_F(WeightGradientPolicies, KeepWhatTheProductsOfExpertsRead) {
    const std::int64_t rows = s * b * model.moe->top_k, inner = model.moe->expert_ffn;
    expect_more(Piece::mixture, "expert input gradient", rows * inner * 2);  // the activation, which the second product reads
    model.moe->grouped_gemm = true;
    training.precision = Precision::fp8;
    training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    // Its copy in 8 bits with a scale for each 32, along one dimension, and the output's gradient along both.
    expect_more(Piece::mixture, "expert input gradient", rows * (inner + inner / 32) + 2 * rows * (h + h / 32));
}

TEST_F(WeightGradientPolicies, KeepWhatTheProductsOfSharedExpertsRead) {
    model.moe->shared_ffn = 256;
    // When the norm runs: the activation, and the gradient of both halves of the product in front of it.
    expect_more(Piece::mixture, "norm input gradient", s * b * 256 * 2 + s * b * 2 * 256 * 2 + s * b * h * 2);
}

TEST_F(WeightGradientPolicies, KeepGatheredRows) {
    sizes.tp = 2;
    sizes.sequence_parallel = true;
    // As without, halved over tp, but for the input and the output's gradient, which are whole on each rank.
    expect_more(Piece::attention, "norm input gradient", s * b * h / 2 * 2 + s * b * h / 2 * 2 + s * b * 3 * h / 2 * 2 + 2 * s * b * h * 2);
}

TEST_F(WeightGradientPolicies, KeepGradientsOfLatentAttention) {
    model.mla = MlaSpec{256, 128, 48, 16, 32};
    const std::int64_t heads = model.heads, queries = heads * (48 + 16), latents = heads * (48 + 32), row = s * b * 2;
    // Queries and what keys and values are projected to; the projection's input, both latents' gradients.
    EXPECT_GE(found_at(true, Piece::attention, "norm input gradient") - found_at(false, Piece::attention, "norm input gradient"),
              row * (queries + latents + heads * 32 + 128 + 16));
}

TEST_F(WeightGradientPolicies, KeepWhatTheProductsOfAttentionRead) {
    // What either layer reads, and the gradient of queries, keys and values.
    expect_more(Piece::attention, "norm input gradient", 2 * s * b * h * 2 + s * b * 3 * h * 2);
}

}  // namespace
}  // namespace mgplan::simulator::weight_gradient_policies_test
