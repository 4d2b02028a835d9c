// Products whose algorithms the card chooses by timing, against those of the library's first answer.

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "model/ops/fp8.hpp"
#include "model/ops/matmul.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::tests::products_test {
namespace {

using namespace model;

constexpr std::int64_t kM = 2048, kN = 2048, kK = 4096;  // 34 GFLOP

/// The root of the mean square difference over that of the expected values.
double error_of(const std::vector<double>& actual, const std::vector<double>& expected) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / size);
}

struct Results {
    std::vector<double> product, again;  ///< a · bᵀ, twice
    std::vector<double> written, added;  ///< into fp32, and once more on top
    MemoryUse use;
};

Results multiply(runtime::CudaDeviceInterface& device, Dtype inputs) {
    const ProductAlgorithm timed = ProductAlgorithm::timed;
    Maker maker(device, Dtype::bf16);
    const Tensor a = maker.random({kM, kK}), b = maker.random({kN, kK}), sum = maker.zeros({kM, kN}, Dtype::fp32);
    Results results;
    if (inputs == Dtype::bf16) {
        results.product = read(matmul(a, b, {.b = true}, "product", timed));
        results.again = read(matmul(a, b, {.b = true}, "product", timed));
        matmul_write(a, b, {.b = true}, sum, timed);
        results.written = read(sum);
        matmul_accumulate(a, b, {.b = true}, sum, timed);
    } else {
        const auto cast = [&](const Tensor& x) {
            Fp8Tensor made{device.empty(x.shape(), Dtype::fp8, MemoryCategory::activations, "codes"),
                           device.empty({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale")};
            find_largest(x, made.scale);
            quantise(x, made);
            return made;
        };
        const Fp8Tensor codes_a = cast(a), codes_b = cast(b);
        results.product = read(fp8_matmul(codes_a, codes_b, Dtype::bf16, "product", timed));
        results.again = read(fp8_matmul(codes_a, codes_b, Dtype::bf16, "product", timed));
        fp8_matmul_write(codes_a, codes_b, sum, timed);
        results.written = read(sum);
        fp8_matmul_accumulate(codes_a, codes_b, sum, timed);
    }
    results.added = read(sum);
    results.use = device.memory();
    return results;
}

/// A deterministic device takes the first answer.
void expect_the_same_but_for_rounding(runtime::CudaModule& module, Dtype inputs) {
    const auto chosen = module.make_device(0, 0), first = module.make_device(0, 0, true);
    const std::int64_t before = chosen->free_bytes() + chosen->reserved_bytes();
    const Results actual = multiply(*chosen, inputs);
    std::printf("choosing the algorithms of three products took %lld bytes of the card\n",
                static_cast<long long>(before - chosen->free_bytes() - chosen->reserved_bytes()));
    const Results expected = multiply(*first, inputs);
    EXPECT_EQ(actual.again, actual.product) << "the choice is kept, and its result is the first that is seen";
    EXPECT_LT(error_of(actual.product, expected.product), 0.012);
    EXPECT_LT(error_of(actual.written, expected.written), inputs == Dtype::bf16 ? 1e-4 : 0.012);
    EXPECT_LT(error_of(actual.added, expected.added), inputs == Dtype::bf16 ? 1e-4 : 0.012);
    std::vector<double> twice = actual.written;
    for (double& value : twice) value *= 2;
    EXPECT_LT(error_of(actual.added, twice), inputs == Dtype::bf16 ? 1e-4 : 0.012) << "what was repeated was not added up";
    EXPECT_EQ(actual.use, expected.use) << "timing takes no tensors";
}

class GpuProducts : public GpuTest {};

TEST_F(GpuProducts, ChosenByTimingDifferInRoundingAlone) {
    expect_the_same_but_for_rounding(*module_, Dtype::bf16);
}

TEST_F(GpuFp8, ProductsChosenByTimingDifferInRoundingAlone) {
    expect_the_same_but_for_rounding(*module_, Dtype::fp8);
}

}  // namespace
}  // namespace mgplan::tests::products_test
