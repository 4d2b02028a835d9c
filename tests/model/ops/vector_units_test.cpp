// Every copy of the kernels computes the same, whatever vector units it was compiled for.

#include "runtime/cpu/ops/vector_units.hpp"

#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/norm.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/model/ops/single_steps.hpp"

namespace mgplan::model::vector_units_test {
namespace {

using runtime::cpu::VectorUnits;

/// Ops whose loops fill several vectors and leave a rest, besides the small ones of run_every_op().
std::vector<std::pair<std::string, std::vector<double>>> results_with(VectorUnits units, Dtype dtype) {
    runtime::cpu::limit_vector_units(units);
    EXPECT_EQ(runtime::cpu::vector_units(), units);
    runtime::CpuDevice device;
    Maker maker(device, dtype);
    std::vector<std::pair<std::string, std::vector<double>>> results;
    const auto keep = [&](std::string name, const Tensor& tensor) { results.emplace_back(std::move(name), read(tensor)); };
    for (const auto& [name, tensor] : run_every_op(maker)) keep(name, tensor);

    constexpr std::int64_t kWidth = 2 * 67;
    const Tensor x = maker.random({3, kWidth}), dy = maker.random({3, kWidth}), half = maker.random({3, kWidth / 2});
    for (const auto kind : {Activation::gelu, Activation::silu, Activation::relu, Activation::squared_relu, Activation::gelu_exact,
                            Activation::clamped_swish}) {
        keep("activation", activation(x, kind, false));
        keep("activation_backward", activation_backward(dy, x, kind, false));
        keep("gated activation_backward", activation_backward(half, x, kind, true));
    }
    const Tensor weight = maker.random({kWidth}), gradient = maker.zeros({kWidth});
    NormStatistics statistics;
    keep("norm", norm(x, weight, weight, Normalization::layer_norm, 1e-5, statistics));
    keep("norm_backward", norm_backward(dy, x, weight, statistics, Normalization::layer_norm, gradient, gradient));
    bias_gradient(dy, gradient);
    keep("gradients of norm and bias", gradient);
    keep("sum_of_squares", make(device, {1}, Dtype::fp64, {sum_of_squares(x)}));
    const Tensor targets = maker.ids({4, 100, 133}, {3});
    const VocabularyShard shard{0, kWidth};
    const Tensor maximum = row_maximum(x, shard);
    const SoftmaxSums sums = softmax_sums(x, targets, maximum, shard);
    keep("softmax_sums", sums.exponentials);
    cross_entropy_backward(x, targets, maximum, sums.exponentials, shard, 0.5);
    keep("cross_entropy_backward", x);
    const Dtype kept = dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
    const Tensor main = maker.random({kWidth}, kept), exp_avg = maker.zeros({kWidth}, kept), exp_avg_sq = maker.zeros({kWidth}, kept);
    adam_step(main, exp_avg, exp_avg_sq, maker.random({kWidth}), {.learning_rate = 0.01, .weight_decay = 0.1});
    keep("adam_step", main);
    momentum_step(main, exp_avg, maker.random({kWidth}), {.learning_rate = 0.01, .weight_decay = 0.1});
    keep("momentum_step", main);
    return results;
}

class EveryVectorUnit : public ::testing::TestWithParam<Dtype> {
protected:
    void TearDown() override { runtime::cpu::limit_vector_units(runtime::cpu::available_vector_units()); }
};

TEST_P(EveryVectorUnit, ComputesTheSame) {
    // Fused multiply-adds round once where separate ones round twice.
    const double tolerance = GetParam() == Dtype::fp64 ? 1e-14 : GetParam() == Dtype::fp32 ? 2e-6 : 0.012;
    const auto expected = results_with(VectorUnits::baseline, GetParam());
    for (const auto units : {VectorUnits::avx2, VectorUnits::avx512}) {
        if (units > runtime::cpu::available_vector_units()) continue;
        const auto actual = results_with(units, GetParam());
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) expect_close(actual[i].second, expected[i].second, tolerance, actual[i].first);
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, EveryVectorUnit, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(VectorUnits, CannotBeWiderThanTheProcessorHas) {
    runtime::cpu::limit_vector_units(VectorUnits::avx512);
    EXPECT_EQ(runtime::cpu::vector_units(), runtime::cpu::available_vector_units());
}

}  // namespace
}  // namespace mgplan::model::vector_units_test
