// Casts to fp8 with a scale for each block, and their products: the GPU's kernels on the host against the CPU's.

#include <gtest/gtest.h>

#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::block_kernels_test {
namespace {

using model::Maker;

class BlockKernels : public testing::TestWithParam<Dtype> {};

TEST_P(BlockKernels, CastAndMultiplyAsTheCpuDoes) {
    for (const bool of_32 : {false, true}) {
        CpuDevice cpu;
        EmulatedDevice gpu(emulated_traits(false));
        Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
        const auto expected = run_fp8_block_ops(on_cpu, of_32), actual = run_fp8_block_ops(on_gpu, of_32);
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) {
            const Dtype dtype = actual[i].second.dtype();
            const double tolerance = dtype == Dtype::int32 ? 0 : dtype == Dtype::bf16 ? 0.004 : 2e-6;
            model::expect_close(model::read(actual[i].second), model::read(expected[i].second), tolerance, actual[i].first);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, BlockKernels, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace mgplan::runtime::cuda::block_kernels_test
