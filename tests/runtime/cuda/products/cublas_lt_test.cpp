// From a product to the library's launches: how often it is asked, what runs, and which algorithm is kept.

#include "runtime/cuda/cublas_lt.hpp"

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "plan/text/errors.hpp"
#include "tests/runtime/cuda/products/fake_cublas_lt.hpp"

namespace mgplan::runtime::cuda::cublas_lt_test {
namespace {

using model::ProductAlgorithm;
using testing::ElementsAre;
using tests::fake_cublas_lt;
using tests::FakeCandidate;
using tests::FakeEpilogue;
using tests::FakeLaunch;

constexpr std::size_t kBest = 3;

/// Memory that is never touched: addresses alone count.
alignas(256) std::array<std::byte, 4 * 256> memory;

/// A linear layer's output, of some 275 GFLOP.
Gemm large(Dtype input = Dtype::bf16) {
    Gemm x;
    x.transpose_b = true;
    x.m = 8192;
    x.n = x.k = 4096;
    x.input = x.output = input;
    if (bytes_of(input) == 1) {
        x.output = Dtype::bf16;
        x.a_scale = x.b_scale = memory.data();
    }
    x.a_pitch = x.b_pitch = x.k;
    x.c_pitch = x.n;
    x.a = memory.data();
    x.b = memory.data() + 256;
    x.c = memory.data() + 512;
    x.workspace = memory.data() + 768;
    x.workspace_bytes = 1024;
    x.algorithm = ProductAlgorithm::timed;
    return x;
}

Gemm added_to(Gemm x) {
    x.beta = 1;
    return x;
}

class CublasLtChoice : public testing::Test {
protected:
    CublasLtChoice() {
        fake_cublas_lt = {};
        fake_cublas_lt.candidates = std::vector<FakeCandidate>(8, FakeCandidate{1e-3});
        fake_cublas_lt.candidates[kBest].seconds = 0.8e-3;
    }
    ~CublasLtChoice() override { EXPECT_EQ(fake_cublas_lt.descriptions, 0) << "nothing is left behind"; }

    /// What one product launches.
    static std::vector<FakeLaunch> launched(CublasLt& products, const Gemm& x) {
        fake_cublas_lt.launches.clear();
        fake_cublas_lt.epilogues.clear();
        products.multiply(x);
        return fake_cublas_lt.launches;
    }
    static void expect_alone(CublasLt& products, const Gemm& x, std::size_t candidate) {
        EXPECT_THAT(launched(products, x), ElementsAre(FakeLaunch{candidate, x.beta != 0}));
    }
    /// Asked of the heuristic for its first choice alone, it runs once, and so again.
    static void expect_the_first(const Gemm& x, bool times = true) {
        CublasLt products(nullptr, times);
        expect_alone(products, x, 0);
        expect_alone(products, x, 0);
        EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(1));
        EXPECT_EQ(fake_cublas_lt.waits, 0);
    }
};

TEST_F(CublasLtChoice, RunsEachCandidateThriceAndTheFastestBehindThem) {
    CublasLt products(nullptr, true);
    std::vector<FakeLaunch> expected;
    for (std::size_t candidate = 0; candidate < 8; ++candidate) expected.insert(expected.end(), 3, {candidate, false});
    expected.push_back({kBest, false});  // c holds its result
    EXPECT_EQ(launched(products, large()), expected);
    EXPECT_EQ(fake_cublas_lt.waits, 8);
    expect_alone(products, large(), kBest);
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(8));
}

TEST_F(CublasLtChoice, IsMadeForProductsInFp8) {
    CublasLt products(nullptr, true);
    EXPECT_EQ(launched(products, large(Dtype::fp8)).size(), 25U);
    expect_alone(products, large(Dtype::fp8), kBest);
}

TEST_F(CublasLtChoice, IsTheHeuristicsOnADeterministicDevice) {
    expect_the_first(large(), false);
}

TEST_F(CublasLtChoice, IsTheHeuristicsForWhatRanksHoldAlike) {
    Gemm x = large();
    x.algorithm = ProductAlgorithm::first;
    expect_the_first(x);
}

TEST_F(CublasLtChoice, IsTheHeuristicsForSmallProducts) {
    Gemm x = large();
    x.m = 256;
    expect_the_first(x);
}

TEST_F(CublasLtChoice, IsTheHeuristicsInFp32) {
    expect_the_first(large(Dtype::fp32));
}

TEST_F(CublasLtChoice, OfOneLayerIsNotThatOfAnotherWhichRanksHoldAlike) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    Gemm x = large();
    x.algorithm = ProductAlgorithm::first;
    expect_alone(products, x, 0);
    expect_alone(products, large(), kBest);
}

TEST_F(CublasLtChoice, IsTheHeuristicsForWhatACaptureMeetsFirst) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.capturing = true;
    expect_alone(products, large(), 0);
    fake_cublas_lt.capturing = false;
    expect_alone(products, large(), 0);
    expect_alone(products, added_to(large()), 0);
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(1, 1)) << "nor has a sum a choice to take over";
    EXPECT_EQ(fake_cublas_lt.waits, 0);
}

TEST_F(CublasLtChoice, MadeBeforeACaptureHoldsInIt) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    fake_cublas_lt.capturing = true;
    expect_alone(products, large(), kBest);
    expect_alone(products, added_to(large()), kBest);
}

TEST_F(CublasLtChoice, OfASumIsThatOfTheProductThatBeganIt) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    expect_alone(products, added_to(large()), kBest);
    expect_alone(products, added_to(large()), kBest);
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(8)) << "the heuristic is not asked for it";
}

// In e4m3 alone the product that overwrites adds in fewer bits than fp32, and the one that adds to a sum does not.
TEST_F(CublasLtChoice, OfASumIsNotThatOfAProductThatAddsInFewerBits) {
    CublasLt products(nullptr, true);
    products.multiply(large(Dtype::fp8));
    expect_alone(products, added_to(large(Dtype::fp8)), 0);
    Gemm gradient = large(Dtype::e5m2);
    products.multiply(gradient);
    expect_alone(products, added_to(gradient), kBest);
}

TEST_F(CublasLtChoice, OfASumIsTheHeuristicsWhereTheLibraryRefusesTheOther) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    fake_cublas_lt.refuses_checks = true;
    expect_alone(products, added_to(large()), 0);
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(8, 1));
}

TEST_F(CublasLtChoice, OfASumIsTheHeuristicsWhereItWouldTakeMoreScratch) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    fake_cublas_lt.candidates[kBest].workspace_bytes = 1025;
    expect_alone(products, added_to(large()), 0);
}

TEST_F(CublasLtChoice, OfASumThatNothingBeganIsTheHeuristicsAndIsKept) {
    CublasLt products(nullptr, true);
    expect_alone(products, added_to(large()), 0);
    products.multiply(large());
    expect_alone(products, added_to(large()), 0);
}

TEST_F(CublasLtChoice, LeavesOutCandidatesThatFail) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.candidates[kBest].fails = true;
    fake_cublas_lt.candidates[5].seconds = 0.9e-3;
    EXPECT_EQ(launched(products, large()).size(), 3U * 7 + 1);
    EXPECT_FALSE(fake_cublas_lt.last_failed) << "the next launch of the thread would end with it";
    expect_alone(products, large(), 5);
}

TEST_F(CublasLtChoice, IsTheHeuristicsWhereAllFailAndItsErrorIsTold) {
    CublasLt products(nullptr, true);
    for (FakeCandidate& candidate : fake_cublas_lt.candidates) candidate.fails = true;
    EXPECT_THROW(products.multiply(large()), RunError);
    for (FakeCandidate& candidate : fake_cublas_lt.candidates) candidate.fails = false;
    expect_alone(products, large(), 0);
}

TEST_F(CublasLtChoice, IsAmongThoseThatThePredictedScratchIsEnoughFor) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.candidates[kBest].workspace_bytes = 1025;
    fake_cublas_lt.candidates[6] = {0.9e-3, 1024};
    EXPECT_EQ(launched(products, large()).size(), 3U * 7 + 1);
    expect_alone(products, large(), 6);
}

TEST_F(CublasLtChoice, WithOneCandidateTakesNoTime) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.candidates.resize(1);
    expect_alone(products, large(), 0);
    EXPECT_EQ(fake_cublas_lt.waits, 0);
}

// Experts of a dropless mixture have ever new numbers of rows; what was timed stays, so that a recomputed forward equals the first.
TEST_F(CublasLtChoice, OutlastsProductsOfEverNewSizes) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    fake_cublas_lt.candidates[kBest].seconds = 2e-3;
    Gemm small = large();
    small.algorithm = ProductAlgorithm::first;
    for (std::int64_t rows = 1; rows < 20'000; ++rows) {
        small.m = rows;
        products.multiply(small);
    }
    EXPECT_LT(fake_cublas_lt.descriptions, 4 * 8200) << "most were forgotten";
    expect_alone(products, large(), kBest);
}

/// An expert's rows through its matrix.
Gemm of_expert(std::int64_t rows) {
    Gemm x = large();
    x.algorithm = ProductAlgorithm::near;
    x.m = rows;
    return x;
}
/// The gradient of its matrix: rows that lie along the columns, as bf16 has them, or along the rows, as fp8 wants them.
Gemm of_experts_gradient(std::int64_t rows, bool transposed) {
    Gemm x = large(transposed ? Dtype::bf16 : Dtype::fp8);
    x.algorithm = ProductAlgorithm::near;
    x.beta = 1;
    x.output = Dtype::fp32;
    x.m = x.n = 4096;
    x.k = rows;
    x.transpose_a = transposed;
    x.transpose_b = !transposed;
    x.a_pitch = transposed ? x.m : rows;
    x.b_pitch = transposed ? x.n : rows;
    return x;
}

TEST_F(CublasLtChoice, OfExpertsIsTheHeuristicsForTheRowsRoundedUp) {
    CublasLt products(nullptr, true);
    for (const std::int64_t rows : {900, 1000, 1024, 897, 1024, 900}) expect_alone(products, of_expert(rows), 0);
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(1));
    EXPECT_THAT(fake_cublas_lt.asked_of, ElementsAre(std::array<std::uint64_t, 4>{4096, 1024, 4096, 4096}));
    expect_alone(products, of_expert(1025), 0);
    EXPECT_EQ(fake_cublas_lt.asked_of.back(), (std::array<std::uint64_t, 4>{4096, 1280, 4096, 4096}));
}

TEST_F(CublasLtChoice, OfExpertsGradientsRoundsWhatIsAddedUp) {
    for (const bool transposed : {true, false}) {
        fake_cublas_lt.asked_of.clear();
        CublasLt products(nullptr, true);
        for (const std::int64_t rows : {896, 784, 880}) expect_alone(products, of_experts_gradient(rows, transposed), 0);
        const std::array<std::uint64_t, 4> rounded{4096, 4096, transposed ? 4096U : 896U, transposed ? 896U : 4096U};
        EXPECT_THAT(fake_cublas_lt.asked_of, ElementsAre(rounded));
    }
}

TEST_F(CublasLtChoice, OfExpertsIsTheirOwnWhereTheLibraryRefusesTheOther) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.refuses_checks = true;
    expect_alone(products, of_expert(900), 0);
    expect_alone(products, of_expert(1000), 0);
    EXPECT_THAT(fake_cublas_lt.asked_of,
                ElementsAre(std::array<std::uint64_t, 4>{4096, 1024, 4096, 4096}, std::array<std::uint64_t, 4>{4096, 900, 4096, 4096},
                            std::array<std::uint64_t, 4>{4096, 1000, 4096, 4096}));
}

TEST_F(CublasLtChoice, OfExpertsIsNotThatOfALayerWithAsManyRows) {
    CublasLt products(nullptr, true);
    expect_alone(products, of_expert(900), 0);
    Gemm layer = of_expert(900);
    layer.algorithm = ProductAlgorithm::first;
    expect_alone(products, layer, 0);
    EXPECT_EQ(fake_cublas_lt.asked_of.back(), (std::array<std::uint64_t, 4>{4096, 900, 4096, 4096}));
}

TEST_F(CublasLtChoice, OfEverNewRowsIsSeldomAskedFor) {
    CublasLt products(nullptr, true);
    for (std::int64_t rows = 1; rows <= 16'384; ++rows) products.multiply(of_expert(rows));
    EXPECT_EQ(fake_cublas_lt.asked.size(), 8U + 4 * 11) << "1 to 8, then 5, 6, 7 and 8 times each power of two";
}

TEST_F(CublasLtChoice, WithoutAnyCandidateSaysWhichProductHasNone) {
    CublasLt products(nullptr, true);
    fake_cublas_lt.candidates.clear();
    Gemm biased = large();
    biased.bias = memory.data();
    for (const auto& [product, told] : {std::pair{large(), "of bf16 into bf16"}, {biased, "of bf16 into bf16, with a bias"}}) {
        try {
            products.multiply(product);
            FAIL() << "it has no algorithm";
        } catch (const RunError& error) {
            EXPECT_THAT(error.what(), testing::EndsWith(std::string("(8192, 4096) x (transposed 4096, 4096) ") + told));
        }
    }
}

/// The layer with its bias, that of one of several layers.
Gemm with_bias(std::size_t layer) {
    Gemm x = large();
    x.bias = memory.data() + 16 * layer;
    return x;
}
/// The gradient of its weight, which sums up the rows of its transposed operand into a place of this microbatch.
Gemm with_sums(std::size_t place, double beta = 0) {
    Gemm x = large();
    x.transpose_a = true;
    x.transpose_b = false;
    x.a_pitch = x.m;
    x.b_pitch = x.n;
    x.output = Dtype::fp32;
    x.beta = beta;
    x.row_sums = memory.data() + 16 * place;
    return x;
}

TEST_F(CublasLtChoice, OfABiasIsMadeWithItAndHoldsForThoseOfOtherLayers) {
    CublasLt products(nullptr, true);
    const auto launches = launched(products, with_bias(0));
    EXPECT_EQ(launches.size(), 25U) << "candidates write the output anew, bias and all";
    const FakeEpilogue first{CUBLASLT_EPILOGUE_BIAS, CUDA_R_16BF, memory.data()};
    EXPECT_EQ(fake_cublas_lt.asked_with, first);
    EXPECT_EQ(fake_cublas_lt.epilogues, std::vector(25, first));
    expect_alone(products, with_bias(1), kBest);
    EXPECT_THAT(fake_cublas_lt.epilogues, ElementsAre(FakeEpilogue{CUBLASLT_EPILOGUE_BIAS, CUDA_R_16BF, memory.data() + 16}));
    EXPECT_THAT(fake_cublas_lt.asked, ElementsAre(8));
}

TEST_F(CublasLtChoice, OfABiasIsNotThatOfAProductWithoutOne) {
    CublasLt products(nullptr, true);
    products.multiply(large());
    EXPECT_EQ(fake_cublas_lt.asked_with, FakeEpilogue{});
    fake_cublas_lt.candidates[kBest].seconds = 2e-3;
    EXPECT_EQ(launched(products, with_bias(0)).size(), 25U);
    expect_alone(products, with_bias(0), 0);
    expect_alone(products, large(), kBest);
    EXPECT_THAT(fake_cublas_lt.epilogues, ElementsAre(FakeEpilogue{}));
}

TEST_F(CublasLtChoice, OfSumsOfRowsHoldsWhereTheProductIsAdded) {
    CublasLt products(nullptr, true);
    products.multiply(with_sums(0));
    expect_alone(products, with_sums(1, 1), kBest);
    EXPECT_THAT(fake_cublas_lt.epilogues, ElementsAre(FakeEpilogue{CUBLASLT_EPILOGUE_BGRADB, CUDA_R_32F, memory.data() + 16}));
    Gemm without = with_sums(0, 1);
    without.row_sums = nullptr;
    expect_alone(products, without, 0);
    EXPECT_THAT(fake_cublas_lt.epilogues, ElementsAre(FakeEpilogue{}));
}

TEST_F(CublasLtChoice, OfABiasIsTheHeuristicsOnADeterministicDevice) {
    expect_the_first(with_bias(0), false);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::cublas_lt_test
