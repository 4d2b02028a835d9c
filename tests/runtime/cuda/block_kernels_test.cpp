// Casts to fp8 with a scale for each block, and their products: the GPU's kernels on the host against the CPU's.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/elementwise.hpp"
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
            const model::Fp8Blocks groups = model::quantise_groups_both_ways(x, scaling, rows, "groups", "columns").rows;
            const model::Tensor room = groups.codes.slice(sum, shape[0]);
            std::vector<std::uint8_t> codes(static_cast<std::size_t>(room.bytes()), 0xff);
            device->read(room, codes.data());
            EXPECT_THAT(codes, testing::Each(0));
        }
    }
}

std::vector<std::uint8_t> bytes_of(const model::Tensor& tensor) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.bytes()));
    tensor.device().read(tensor, bytes.data());
    return bytes;
}

/// Values of which every magnitude but NaN's is known to one or another block: infinities, NaNs and zeros among them.
model::Tensor odd_values(Maker& maker, const model::Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::ldexp(static_cast<double>((i * 7919) % 255) - 127, static_cast<int>((i * 104729) % 40) - 30);
        if (i % 1021 == 3) values[i] = std::nan("");
        if (i % 4093 == 5) values[i] = (i % 2 == 0 ? 1 : -1) * std::numeric_limits<double>::infinity();
        if (i / 64 % 29 == 7) values[i] = 0;
    }
    return model::make(maker.device(), shape, maker.dtype(), values);
}

// A cast both ways is the two casts, and turned codes are the transposed ones; on a GPU those are other kernels.
TEST_P(BlockKernels, CastBothWaysAsTheyCastEach) {
    using enum model::ColumnCodes;
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    // Packs, rows that do not turn in packs, and neither.
    for (const model::Shape& shape : {model::Shape{272, 288}, model::Shape{141, 144}, model::Shape{96, 130}}) {
        for (const auto scaling : {model::Fp8Scaling::vectors_of_128, model::Fp8Scaling::vectors_of_32}) {
            Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
            const model::Tensor x = odd_values(on_cpu, shape), same = odd_values(on_gpu, shape);
            const model::Fp8Blocks rows = model::quantise_rows(x, scaling, "rows");
            const model::Fp8Columns columns = model::quantise_columns(x, scaling, as_rows, "columns");
            const model::Fp8Blocks turned = model::turn_columns(columns);
            for (const auto lie : {as_rows, model::ColumnCodes::turned}) {
                for (const model::Tensor& values : {x, same}) {
                    const model::Fp8BothWays both = model::quantise_both_ways(values, scaling, lie, "rows", "columns");
                    EXPECT_EQ(bytes_of(both.rows.codes), bytes_of(rows.codes)) << shape.text();
                    EXPECT_EQ(bytes_of(both.rows.scales), bytes_of(rows.scales)) << shape.text();
                    EXPECT_EQ(bytes_of(both.columns.codes), bytes_of(lie == as_rows ? columns.codes : turned.codes)) << shape.text();
                    EXPECT_EQ(bytes_of(both.columns.scales), bytes_of(columns.scales)) << shape.text();
                }
            }
            EXPECT_EQ(bytes_of(model::quantise_rows(same, scaling, "rows").codes), bytes_of(rows.codes)) << shape.text();
        }
        const auto squares_of = [&](const model::Tensor& values) {
            const auto empty = [&](std::int64_t outer, std::int64_t inner) {
                return model::empty_blocks(values.device(), model::Fp8Scaling::squares_of_128, outer, inner,
                                           model::MemoryCategory::activations, "squares");
            };
            const model::Fp8Blocks squares = empty(shape[0], shape[1]), across = empty(shape[1], shape[0]);
            model::quantise_both_ways(values, squares, {across.codes, across.scales, across.scaling, model::ColumnCodes::turned});
            EXPECT_EQ(bytes_of(across.codes), bytes_of(model::transpose_codes(squares.codes))) << shape.text();
            return std::vector{bytes_of(squares.codes), bytes_of(squares.scales), bytes_of(across.scales)};
        };
        Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
        EXPECT_EQ(squares_of(odd_values(on_gpu, shape)), squares_of(odd_values(on_cpu, shape))) << shape.text();
    }
}

// A cast with one scale that turns is the cast that does not, transposed.
TEST_P(BlockKernels, TurnCodesOfOneScaleAsTheyAreCast) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const model::Shape& shape : {model::Shape{272, 288}, model::Shape{141, 144}, model::Shape{96, 130}}) {
        for (const Dtype dtype : {Dtype::fp8, Dtype::e5m2}) {
            for (model::Device* device : std::vector<model::Device*>{&cpu, &gpu}) {
                Maker maker(*device, GetParam());
                const model::Tensor x = odd_values(maker, shape);
                const auto cast = [&](model::Fp8Copies copies) {
                    const model::Tensor scale = maker.zeros({model::kFp8ScaleElements}, Dtype::fp32);
                    model::Fp8Tensor made = model::empty_codes(x, dtype, scale, copies, "codes");
                    model::fill(scale.slice(0, 1), 3000);
                    model::quantise(x, made);
                    return made;
                };
                const model::Fp8Tensor rows = cast(model::Fp8Copies::rows), both = cast(model::Fp8Copies::both),
                                       turned = cast(model::Fp8Copies::turned);
                EXPECT_EQ(bytes_of(both.codes), bytes_of(rows.codes)) << shape.text();
                EXPECT_EQ(bytes_of(both.turned), bytes_of(model::transpose_codes(rows.codes))) << shape.text();
                EXPECT_EQ(bytes_of(turned.turned), bytes_of(both.turned)) << shape.text();
                EXPECT_EQ(model::read(both.scale), model::read(rows.scale));
                EXPECT_EQ(model::read(turned.scale), model::read(rows.scale));
            }
        }
    }
}

// One kernel for both casts of an input.
TEST(BlockCasts, AreOneKernelBothWays) {
    EmulatedDevice gpu(emulated_traits(false));
    Maker maker(gpu, Dtype::bf16);
    const model::Tensor x = maker.random({256, 512});  // no places of scales are left over
    const std::int64_t before = gpu.launcher().launches();
    (void)model::quantise_both_ways(x, model::Fp8Scaling::vectors_of_32, model::ColumnCodes::turned, "rows", "columns");
    EXPECT_EQ(gpu.launcher().launches(), before + 1);
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
