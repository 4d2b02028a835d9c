// Arrays of more than 2^31 elements on a card: 4.4 GB each in bf16.

#include "tests/gpu/gpu.hpp"
#include "tests/gpu/large_ops.hpp"

namespace mgplan::tests::large_test {
namespace {

constexpr std::int64_t kRows = 17'000, kWidth = 128'256;  // 2^31 is 2.147e9, and this 2.180e9
static_assert(kRows * kWidth > (std::int64_t{1} << 31));

class GpuLarge : public GpuTest {};

TEST_F(GpuLarge, ElementByElement) {
    check_elementwise(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, LossesOfManyRows) {
    check_losses(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, NormAndItsGradients) {
    check_norm(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, GatedActivationAndItsGradient) {
    check_activation(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, BiasesAndTheirGradients) {
    check_biases(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, RowsThatMove) {
    check_moves(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, LatentKeysAndTheirGradients) {
    check_latent_keys(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, DeltaRuleAndItsGradients) {
    constexpr std::int64_t kDim = 64, kKeyHeads = kWidth / (4 * kDim);
    check_delta_rule(*device(), kRows, kKeyHeads, kDim);
}

TEST_F(GpuLarge, CastsToFp8) {
    check_casts(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, BlockCastsBothWays) {
    check_block_casts(*device(), kRows, kWidth);
}

TEST_F(GpuLarge, LookUpAndProduct) {
    check_table_and_product(*device(), kRows, kWidth);
}

}  // namespace
}  // namespace mgplan::tests::large_test
