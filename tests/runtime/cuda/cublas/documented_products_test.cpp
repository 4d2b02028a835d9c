// Every product of real steps is one that cuBLASLt's documentation has, by the descriptors that the module makes of it.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/scratch.hpp"
#include "tests/runtime/cuda/cublas/described_products.hpp"
#include "tests/runtime/cuda/cublas/products.hpp"

namespace mgplan::runtime::cuda::documented_products_test {
namespace {

/// As the documentation numbers them (cublasLtMatmulMatrixScale_t of CUDA 12.9 and later).
int scale_mode(model::Fp8Scaling scaling) {
    switch (scaling) {
        case model::Fp8Scaling::tensor:
            break;
        case model::Fp8Scaling::vectors_of_32:
            return 2;
        case model::Fp8Scaling::vectors_of_128:
            return 4;
        case model::Fp8Scaling::squares_of_128:
            return 5;
    }
    return 0;
}

/// Else the module refuses them by name.
constexpr bool knows_scales_of_blocks = CUBLAS_VERSION >= 120900;

/// A matrix of a batch: elements from column to column, and from one matrix to the next.
void expect_lies(const DescribedMatrix& matrix, std::int64_t pitch, std::int64_t stride, std::int64_t batch) {
    EXPECT_EQ(matrix.pitch, pitch);
    EXPECT_EQ(matrix.stride, stride);
    EXPECT_EQ(matrix.batch, batch);
}

class DocumentedProducts : public testing::TestWithParam<int> {};

TEST_P(DocumentedProducts, AreAllThatStepsAskFor) {
    const auto most = static_cast<std::uint64_t>(model::matmul_workspace_bytes({model::DeviceKind::cuda, GetParam(), true}));
    for (const AskedProduct& each : asked_products(GetParam())) {
        if (!knows_scales_of_blocks && each.gemm.a_scaling != model::Fp8Scaling::tensor) continue;
        SCOPED_TRACE(each.step + ": " + text_of(each.gemm));
        const DescribedProduct product = described(each.gemm);
        EXPECT_EQ(why_undocumented(product, GetParam()), "");
        // Row by row is column by column of the transposed, so the operands change places and D is n x m of the row-major product.
        EXPECT_EQ(product.m(), static_cast<std::uint64_t>(each.gemm.n));
        EXPECT_EQ(product.n(), static_cast<std::uint64_t>(each.gemm.m));
        EXPECT_EQ(product.k(), static_cast<std::uint64_t>(each.gemm.k));
        expect_lies(product.a, each.gemm.b_pitch, each.gemm.b_stride, each.gemm.batch);
        expect_lies(product.b, each.gemm.a_pitch, each.gemm.a_stride, each.gemm.batch);
        for (const DescribedMatrix& matrix : {product.c, product.d})
            expect_lies(matrix, each.gemm.c_pitch, each.gemm.c_stride, each.gemm.batch);
        EXPECT_EQ(product.workspace_bytes, most);
        EXPECT_EQ(product.a_operation == CUBLAS_OP_T, each.gemm.transpose_b);
        EXPECT_EQ(product.b_operation == CUBLAS_OP_T, each.gemm.transpose_a);
        EXPECT_EQ(product.a.type == CUDA_R_8F_E5M2, each.gemm.a_scale != nullptr && each.gemm.other_input == Dtype::e5m2);
        EXPECT_EQ(product.b.type == CUDA_R_8F_E5M2, each.gemm.input == Dtype::e5m2);
        EXPECT_EQ(product.a_scaling, scale_mode(each.gemm.b_scaling));
        EXPECT_EQ(product.b_scaling, scale_mode(each.gemm.a_scaling));
        EXPECT_EQ(product.a_scale, each.gemm.b_scale);
        EXPECT_EQ(product.b_scale, each.gemm.a_scale);
        EXPECT_EQ(product.epilogue == CUBLASLT_EPILOGUE_BIAS, each.gemm.bias != nullptr);
        EXPECT_EQ(product.epilogue == CUBLASLT_EPILOGUE_BGRADB, each.gemm.row_sums != nullptr);
        EXPECT_EQ(product.vector, each.gemm.bias != nullptr ? each.gemm.bias : each.gemm.row_sums);
    }
}

INSTANTIATE_TEST_SUITE_P(Cards, DocumentedProducts, testing::Values(80, 90, 100, 103),
                         [](const auto& test) { return "sm_" + std::to_string(test.param); });

/// What the list of products must hold, so that it says something.
TEST(AskedProducts, HaveWhatIsHard) {
    const auto list = asked_products(90);
    const auto any = [&](const auto& is) { return std::ranges::any_of(list, [&](const AskedProduct& each) { return is(each.gemm); }); };
    EXPECT_TRUE(any([](const Gemm& x) { return x.input == Dtype::fp8 && x.output == Dtype::fp32 && x.beta != 0; })) << "weight gradients";
    EXPECT_TRUE(any([](const Gemm& x) { return x.input == Dtype::fp8 && x.m % 2 == 1 && x.m > 1; })) << "an odd number of an expert's rows";
    EXPECT_TRUE(any([](const Gemm& x) { return x.m == 1; })) << "an expert with one row";
    EXPECT_TRUE(any([](const Gemm& x) { return x.n == 576 || x.k == 576; })) << "latent keys";
    EXPECT_TRUE(any([](const Gemm& x) { return x.batch > 1 && x.input == Dtype::bf16 && x.output == Dtype::fp32; })) << "scores";
    EXPECT_TRUE(any([](const Gemm& x) { return x.batch > 1 && x.input == Dtype::fp32; }));
    constexpr std::int64_t kShort = 1000 % 128;
    EXPECT_TRUE(any([](const Gemm& x) { return x.batch > 1 && x.k == kShort; })) << "a scan's last places, fewer than a chunk's";
    EXPECT_TRUE(any([](const Gemm& x) { return x.input == Dtype::fp64; }));
    EXPECT_TRUE(any([](const Gemm& x) { return alignment_of(x.a) < 16 || alignment_of(x.b) < 16; })) << "rows that begin anywhere";
    EXPECT_TRUE(any([](const Gemm& x) { return x.b_scaling == model::Fp8Scaling::squares_of_128; }));
    EXPECT_TRUE(any([](const Gemm& x) { return x.other_input == Dtype::e5m2 || x.input == Dtype::e5m2; })) << "gradients";
    EXPECT_TRUE(any([](const Gemm& x) { return x.bias != nullptr; }));
    EXPECT_TRUE(any([](const Gemm& x) { return x.row_sums != nullptr && x.beta == 0; }));
    EXPECT_TRUE(any([](const Gemm& x) { return x.row_sums != nullptr && x.beta != 0; })) << "of a second microbatch";
}

/// A product in fp8 as a step asks for it, which the documentation has on Hopper.
Gemm forward_in_fp8() {
    Gemm x;
    x.transpose_b = true;
    x.m = 33;
    x.n = 64;
    x.k = 128;
    x.input = Dtype::fp8;
    x.output = Dtype::bf16;
    x.a = x.b = reinterpret_cast<const void*>(0x1000);
    x.c = reinterpret_cast<void*>(0x2000);
    x.a_scale = x.b_scale = reinterpret_cast<const void*>(0x3000);
    x.a_pitch = x.b_pitch = x.k;
    x.c_pitch = x.n;
    x.workspace_bytes = 1 << 20;
    return x;
}

// Matrices of a batch that lie 40 bytes apart are not all where 16 divides the address, though the first one is.
TEST(DescribedProducts, AreAlignedAsTheLeastAlignedMatrixOfABatch) {
    Gemm x;
    x.m = x.n = x.k = 4;
    x.input = x.output = Dtype::fp32;
    x.a = reinterpret_cast<const void*>(0x1000);
    x.b = reinterpret_cast<const void*>(0x1010);
    x.c = reinterpret_cast<void*>(0x2000);
    x.a_pitch = x.b_pitch = x.c_pitch = 60;
    x.a_stride = 10;
    x.b_stride = x.c_stride = 16;
    EXPECT_EQ(described(x).b.alignment, 256U) << "a single one";
    x.batch = 3;
    const DescribedProduct product = described(x);
    EXPECT_EQ(product.b.alignment, 8U);
    EXPECT_EQ(product.a.alignment, 16U);
    EXPECT_EQ(product.d.alignment, 64U);
}

TEST(DocumentedRules, NameEpiloguesThatTheLibraryDoesNotTake) {
    const auto why = [](const auto& change) {
        Gemm x = forward_in_fp8();
        x.input = Dtype::bf16;
        x.a_scale = x.b_scale = nullptr;
        x.bias = reinterpret_cast<const void*>(0x3000);
        change(x);
        return why_undocumented(described(x), 90);
    };
    EXPECT_EQ(why([](Gemm&) {}), "");
    EXPECT_EQ(why([](Gemm& x) { x.output = Dtype::fp32; }), "a bias beside a wide D");
    EXPECT_EQ(why([](Gemm& x) { x.input = x.output = Dtype::fp32; }), "an epilogue of other types than bf16");
    const auto sums = [](Gemm& x) { x.row_sums = std::exchange(x.bias, nullptr) != nullptr ? reinterpret_cast<void*>(0x3000) : nullptr; };
    EXPECT_EQ(why(sums), "");
    EXPECT_EQ(why([&](Gemm& x) { sums(x), x.output = Dtype::fp32; }), "");
}

TEST(DocumentedRules, NameWhatTheLibraryDoesNotHave) {
    const auto why = [](const auto& change, int architecture = 90) {
        Gemm x = forward_in_fp8();
        change(x);
        return why_undocumented(described(x), architecture);
    };
    EXPECT_EQ(why([](Gemm&) {}), "");
    EXPECT_EQ(why([](Gemm&) {}, 80), "fp8 came with Ada and Hopper");
    EXPECT_EQ(why([](Gemm& x) { x.k = x.a_pitch = x.b_pitch = 120; }), "16 bytes do not divide a column of A");
    EXPECT_EQ(why([](Gemm& x) { x.n = x.c_pitch = 60; }), "16 bytes do not divide a column of D");
    EXPECT_EQ(why([](Gemm& x) { x.a = reinterpret_cast<const void*>(0x1008); }), "pitches or addresses are not those of fp8");
    EXPECT_EQ(why([](Gemm& x) { x.transpose_b = false, x.b_pitch = x.n; }), "before Blackwell fp8 has A transposed and B not");
    EXPECT_EQ(why([](Gemm& x) { x.input = x.other_input = Dtype::e5m2; }), "no table has these types");
    EXPECT_EQ(why([](Gemm& x) { x.output = Dtype::fp64; }), "no table has these types");
    EXPECT_EQ(why([](Gemm& x) { x.c_pitch = 32; }), "columns overlap");
    if (!knows_scales_of_blocks) return;
    const auto both = [](model::Fp8Scaling a, model::Fp8Scaling b) { return [a, b](Gemm& x) { x.a_scaling = a, x.b_scaling = b; }; };
    using enum model::Fp8Scaling;
    const auto even = [&](model::Fp8Scaling a, model::Fp8Scaling b) { return [both, a, b](Gemm& x) { both(a, b)(x), x.m = 32; }; };
    EXPECT_EQ(why(even(vectors_of_128, squares_of_128)), "");
    EXPECT_EQ(why(both(vectors_of_128, squares_of_128)), "8 does not divide the rows of scales");
    EXPECT_EQ(why(both(squares_of_128, vectors_of_128)), "");
    EXPECT_EQ(why(both(squares_of_128, squares_of_128)), "no such pair of scales");
    EXPECT_EQ(why(both(vectors_of_128, vectors_of_128), 100), "blocks of 128 are Hopper's");
    EXPECT_EQ(why(both(vectors_of_32, vectors_of_32)), "vectors of 32 came with Blackwell");
    EXPECT_EQ(why(both(vectors_of_32, vectors_of_32), 103), "");
}

}  // namespace
}  // namespace mgplan::runtime::cuda::documented_products_test
