// Casts to fp8 with a scale for each block, and their products: the GPU's kernels on the host against the CPU's.

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/fp8.hpp"
#include "model/ops/fp8_block_groups.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::block_kernels_test {
namespace {

using model::Maker;

class BlockKernels : public testing::TestWithParam<Dtype> {};

TEST_P(BlockKernels, CastAndMultiplyAsTheCpuDoes) {
    for (const bool of_32 : {false, true}) {
        for (const auto run : {model::run_fp8_block_ops, model::run_short_fp8_block_ops}) {
            CpuDevice cpu;
            EmulatedDevice gpu(emulated_traits(false));
            Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
            const auto expected = run(on_cpu, of_32), actual = run(on_gpu, of_32);
            ASSERT_EQ(actual.size(), expected.size());
            for (std::size_t i = 0; i < actual.size(); ++i) {
                const Dtype dtype = actual[i].second.dtype();
                const double tolerance = dtype == Dtype::int32 ? 0 : dtype == Dtype::bf16 ? 0.004 : 2e-6;
                model::expect_close(model::read(actual[i].second), model::read(expected[i].second), tolerance, actual[i].first);
            }
        }
    }
}

// Products read up to so many rows behind the last group's: initcheck of compute-sanitizer must find them written.
TEST_P(BlockKernels, FillTheRoomBehindGroupsWithZeros) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const std::vector<std::int64_t> rows{5, 0, 14};
    const std::int64_t sum = 19, width = 160;
    for (model::Device* device : std::vector<model::Device*>{&cpu, &gpu}) {
        for (const auto scaling : {model::Fp8Scaling::vectors_of_128, model::Fp8Scaling::vectors_of_32}) {
            Maker maker(*device, GetParam());
            const model::Tensor x = maker.random({sum, width});
            const model::Shape shape{sum + model::kRowsOfVectors, width};
            const std::vector<std::uint8_t> ones(static_cast<std::size_t>(shape.elements()), 0xff);
            device->write(device->empty(shape, Dtype::fp8, model::MemoryCategory::activations, "what lay there before"), ones.data());
            const model::Fp8Blocks groups = model::quantise_group_rows(x, scaling, rows, "groups");
            const model::Tensor room = groups.codes.slice(sum, shape[0]);
            std::vector<std::uint8_t> codes(static_cast<std::size_t>(room.bytes()), 0xff);
            device->read(room, codes.data());
            EXPECT_THAT(codes, testing::Each(0));
        }
    }
}

TEST(TransposedCodes, OfNoRowsAreZeros) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (model::Device* device : std::vector<model::Device*>{&cpu, &gpu}) {
        const auto codes_of = [&](const model::Shape& shape) {
            return device->empty(shape, Dtype::fp8, model::MemoryCategory::activations, "codes");
        };
        const model::Tensor transposed = codes_of({32, 16});
        std::vector<std::uint8_t> codes(32 * 16, 0xff);
        device->write(transposed, codes.data());
        model::transpose_codes(codes_of({0, 32}), transposed);
        device->read(transposed, codes.data());
        EXPECT_THAT(codes, testing::Each(0));
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, BlockKernels, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace mgplan::runtime::cuda::block_kernels_test
