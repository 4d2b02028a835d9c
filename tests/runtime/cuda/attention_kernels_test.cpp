// Attention on a GPU, run on the host, against that of the CPU: separate products, and what a library gets and leaves to others.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/fused_attention.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cuda/fused_strides.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"
#include "tests/runtime/cuda/one_way_plans.hpp"

namespace mgplan::runtime::cuda::attention_kernels_test {
namespace {

using namespace model;

struct Sides {
    std::vector<std::vector<double>> expected, actual;
    int offered = 0;
    bool as_predicted = true;
};

/// Attention forward and backward on the CPU and on the emulated GPU.
Sides attend(Dtype dtype, bool fused, const Positions& queries, const Positions& keys, std::int64_t heads, std::int64_t kv_heads,
             std::int64_t head_dim, bool refuses = false) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(fused));
    gpu.launcher().emulation().refuses = refuses;
    MetaDevice meta({.stands_for = emulated_traits(fused)});
    const auto run = [&](Device& device) {
        Maker maker(device, dtype);
        const Tensor q = maker.random({queries.rows(), heads, head_dim}), k = maker.random({keys.rows(), kv_heads, head_dim}),
                     v = maker.random({keys.rows(), kv_heads, head_dim}), d_output = maker.random({queries.rows(), heads, head_dim});
        const AttentionResult result = attention(q, k, v, queries, keys, 0.3);
        const AttentionGradients gradients = attention_backward(d_output, q, k, v, result, queries, keys, 0.3);
        std::vector<std::vector<double>> values;
        if (device.computes()) {
            for (const Tensor& each : {result.output, result.log_sum_exp, gradients.q, gradients.k, gradients.v})
                values.push_back(read(each));
        }
        return values;
    };
    Sides sides{run(cpu), run(gpu), gpu.launcher().emulation().asked, true};
    (void)run(meta);
    sides.as_predicted = gpu.memory() == meta.memory();
    return sides;
}

/// Offsets of all values of a head's kind, in the order of (sequence, group, head, place, width), by strides of the folded shape.
std::vector<std::int64_t> offsets_by_strides(const FusedShape& asked, std::int64_t heads, std::int64_t begin) {
    const FusedShape shape = by_group(asked);
    const std::int64_t folded = asked.batch == shape.batch ? 1 : asked.kv_heads;
    const FourStrides strides = input_strides(shape, heads / folded, shape.qk_dim);
    std::vector<std::int64_t> offsets;
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
        for (std::int64_t head = 0; head < heads / folded; ++head) {
            for (std::int64_t place = 0; place < shape.places; ++place) {
                for (std::int64_t column = 0; column < shape.qk_dim; ++column)
                    offsets.push_back(begin + batch * strides[0] + head * strides[1] + place * strides[2] + column * strides[3]);
            }
        }
    }
    return offsets;
}

// The projection's rows run by place and then by sequence; in a row each group's query heads are followed by its key and its value.
TEST(PackedStrides, FindEveryValueOfTheProjection) {
    for (const auto [heads, kv_heads, batch] : {std::array<std::int64_t, 3>{8, 2, 3}, {4, 4, 2}, {6, 1, 1}, {32, 8, 2}}) {
        SCOPED_TRACE(fmt::format("{} heads, {} keys, {} sequences", heads, kv_heads, batch));
        const PackedHeads packed{heads, kv_heads, 16};
        FusedShape shape{};
        shape.packed = true;
        shape.batch = batch;
        shape.heads = heads;
        shape.kv_heads = kv_heads;
        shape.places = shape.key_places = 5;
        shape.qk_dim = shape.v_dim = packed.head_dim;
        const auto expected = [&](std::int64_t of_group, std::int64_t first) {
            std::vector<std::int64_t> offsets;
            for (std::int64_t sequence = 0; sequence < batch; ++sequence) {
                for (std::int64_t group = 0; group < kv_heads; ++group) {
                    for (std::int64_t head = first; head < first + of_group; ++head) {
                        for (std::int64_t place = 0; place < shape.places; ++place) {
                            for (std::int64_t column = 0; column < packed.head_dim; ++column)
                                offsets.push_back((place * batch + sequence) * packed.width() + group * packed.group_width() +
                                                  head * packed.head_dim + column);
                        }
                    }
                }
            }
            return offsets;
        };
        const std::int64_t of_group = packed.group_heads();
        EXPECT_EQ(offsets_by_strides(shape, heads, 0), expected(of_group, 0));
        EXPECT_EQ(offsets_by_strides(shape, kv_heads, of_group * packed.head_dim), expected(1, of_group)) << "keys";
        EXPECT_EQ(offsets_by_strides(shape, kv_heads, (of_group + 1) * packed.head_dim), expected(1, of_group + 1)) << "values";
    }
}

TEST(UnfusedAttention, AgreesWithTheCpuForWholeAndZigzagSlices) {
    const Positions whole = zigzag_positions(24, 2, 1, 0), first = zigzag_positions(48, 2, 2, 0), second = zigzag_positions(48, 2, 2, 1);
    for (const auto& [queries, keys] : {std::pair{whole, whole}, {first, first}, {first, second}, {second, first}}) {
        for (const std::int64_t kv_heads : {1, 2, 4}) {
            const Sides sides = attend(Dtype::fp64, true, queries, keys, 4, kv_heads, 6);
            EXPECT_EQ(sides.offered, 0) << "fp64 is not for the fused kernel";
            EXPECT_TRUE(sides.as_predicted);
            for (std::size_t i = 0; i < sides.actual.size(); ++i) {
                expect_close(sides.actual[i], sides.expected[i], 1e-12, std::to_string(i));
            }
        }
    }
}

TEST(UnfusedAttention, StepsInWhereTheFusedKernelRefuses) {
    const Positions whole = zigzag_positions(32, 2, 1, 0);
    const Sides refused = attend(Dtype::bf16, true, whole, whole, 4, 2, 8, true);
    EXPECT_EQ(refused.offered, 2) << "forward and backward were offered";
    EXPECT_FALSE(refused.as_predicted) << "the measurement shows the refusal";
    for (std::size_t i = 0; i < refused.actual.size(); ++i) {
        expect_close(refused.actual[i], refused.expected[i], 0.012, std::to_string(i));
    }
    const Sides other = attend(Dtype::bf16, true, whole, whole, 4, 2, 12);
    EXPECT_EQ(other.offered, 0) << "a head size that is no multiple of 8 is not offered";
    EXPECT_TRUE(other.as_predicted);
}

TEST(FusedAttention, GetsItsArraysAndWorkspaceAsTheLibraryWantsThem) {
    const Positions whole = zigzag_positions(24, 3, 1, 0);
    for (const std::int64_t kv_heads : {2, 4}) {
        const Sides sides = attend(Dtype::bf16, true, whole, whole, 4, kv_heads, 8);
        EXPECT_EQ(sides.offered, 2);
        EXPECT_TRUE(sides.as_predicted);
        for (std::size_t i = 0; i < sides.actual.size(); ++i) expect_close(sides.actual[i], sides.expected[i], 0.012, std::to_string(i));
    }
}

/// Packed heads on the CPU and on the emulated GPU, and on the CPU those apart.
Sides attend_packed(Dtype dtype, bool fused, const PackedHeads& heads, std::int64_t window, bool refuses = false) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(fused));
    gpu.launcher().emulation().refuses = refuses;
    MetaDevice meta({.stands_for = emulated_traits(fused)});
    const Positions places = zigzag_positions(24, 3, 1, 0);
    const auto run = [&](Device& device, bool apart) {
        Maker maker(device, dtype);
        const Tensor packed = maker.random({places.rows(), heads.width()}),
                     d_output = maker.random({places.rows(), heads.heads, heads.head_dim});
        AttentionResult result;
        Tensor gradient;
        if (apart) {
            const QkvParts x = split_qkv(packed, heads.heads, heads.kv_heads, heads.head_dim);
            result = attention(x.q, x.k, x.v, places, places, 0.3, window);
            const AttentionGradients dx = attention_backward(d_output, x.q, x.k, x.v, result, places, places, 0.3, window);
            gradient = join_qkv({dx.q, dx.k, dx.v});
        } else {
            result = packed_attention(packed, heads, places, 0.3, window);
            gradient = packed_attention_backward(d_output, packed, heads, result, places, 0.3, window);
        }
        std::vector<std::vector<double>> values;
        if (device.computes()) {
            for (const Tensor& each : {result.output, result.log_sum_exp, gradient}) values.push_back(read(each));
        }
        return values;
    };
    const auto expected = run(cpu, true);
    EXPECT_EQ(run(cpu, false), expected) << "the CPU computes the same wherever heads lie";
    Sides sides{expected, run(gpu, false), gpu.launcher().emulation().asked, true};
    (void)run(meta, false);
    sides.as_predicted = gpu.memory() == meta.memory();
    return sides;
}

TEST(PackedAttention, IsThatOfHeadsApart) {
    for (const PackedHeads& heads : {PackedHeads{4, 4, 8}, {4, 2, 8}, {6, 2, 16}, {4, 1, 8}}) {
        for (const std::int64_t window : {0, 5}) {
            for (const Dtype dtype : {Dtype::fp64, Dtype::bf16}) {
                SCOPED_TRACE(fmt::format("{} over {} heads, window {}, {}", heads.heads, heads.kv_heads, window, to_string(dtype)));
                const Sides sides = attend_packed(dtype, true, heads, window);
                EXPECT_EQ(sides.offered, dtype == Dtype::bf16 && window == 0 ? 2 : 0);
                EXPECT_TRUE(sides.as_predicted);
                for (std::size_t i = 0; i < sides.actual.size(); ++i)
                    expect_close(sides.actual[i], sides.expected[i], dtype == Dtype::fp64 ? 1e-12 : 0.012, std::to_string(i));
            }
        }
    }
    const Sides refused = attend_packed(Dtype::bf16, true, {4, 2, 8}, 0, true);
    EXPECT_EQ(refused.offered, 2);
    for (std::size_t i = 0; i < refused.actual.size(); ++i) expect_close(refused.actual[i], refused.expected[i], 0.012, std::to_string(i));
}

TEST(PackedAttention, IsAskedOfTheLibraryAsPacked) {
    KernelTraits refusing = emulated_traits(true);
    refusing.fused_plans = std::make_shared<PlansForHeadsApart>();
    const Positions places = zigzag_positions(32, 1, 1, 0);
    AttentionSizes sizes{places, places, 4, 2, 8, 8, 1, 64};
    EXPECT_TRUE(attention_is_fused(refusing, Dtype::bf16, sizes, false));
    sizes.packed = true;
    EXPECT_FALSE(attention_is_fused(refusing, Dtype::bf16, sizes, false));
    EXPECT_TRUE(attention_is_fused(emulated_traits(true), Dtype::bf16, sizes, false));
    EXPECT_FALSE(reads_packed(EmulatedDevice(refusing), Dtype::bf16, {4, 2, 8}, places)) << "copies are worth a fused kernel";
    EXPECT_TRUE(reads_packed(EmulatedDevice(refusing), Dtype::bf16, {4, 2, 8}, places, 5)) << "which has no windows";
    EXPECT_TRUE(reads_packed(EmulatedDevice(emulated_traits(true)), Dtype::bf16, {4, 2, 8}, places));
    EXPECT_TRUE(reads_packed(CpuDevice(), Dtype::bf16, {4, 2, 8}, places));
}

TEST(FusedAttention, DoesWhatContextParallelRanksHaveOfEachOther) {
    constexpr int kRanks = 3;
    for (const std::int64_t kv_heads : {2, 4}) {
        for (int rank = 0; rank < kRanks; ++rank) {
            for (int owner = 0; owner < kRanks; ++owner) {
                SCOPED_TRACE("queries of " + std::to_string(rank) + ", keys of " + std::to_string(owner));
                const Positions queries = zigzag_positions(48, 2, kRanks, rank), keys = zigzag_positions(48, 2, kRanks, owner);
                const Sides sides = attend(Dtype::bf16, true, queries, keys, 4, kv_heads, 8);
                EXPECT_EQ(sides.offered, 2);
                EXPECT_TRUE(sides.as_predicted);
                for (std::size_t i = 0; i < sides.actual.size(); ++i)
                    expect_close(sides.actual[i], sides.expected[i], 0.012, std::to_string(i));
            }
        }
    }
}

/// The steps of a ring: outputs merged, gradients under the log-sum-exp of all keys added up.
TEST(FusedAttention, PartsOfARingAddUpToTheWhole) {
    constexpr int kRanks = 3;
    constexpr std::int64_t kHeads = 4, kWidth = 8, kSequence = 24;
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(true));
    const auto run = [&](Device& device, int rank) {
        Maker maker(device, Dtype::bf16);
        const Positions mine = zigzag_positions(kSequence, 2, kRanks, rank);
        const Tensor q = maker.random({mine.rows(), kHeads, kWidth}), d_output = maker.random({mine.rows(), kHeads, kWidth});
        std::vector<Tensor> k, v;
        for (int owner = 0; owner < kRanks; ++owner) {
            k.push_back(maker.random({mine.rows(), 2, kWidth}));
            v.push_back(maker.random({mine.rows(), 2, kWidth}));
        }
        AttentionResult whole;
        for (int owner = 0; owner < kRanks; ++owner) {
            const auto at = static_cast<std::size_t>(owner);
            const AttentionResult part = attention(q, k[at], v[at], mine, zigzag_positions(kSequence, 2, kRanks, owner), 0.3);
            if (owner == 0)
                whole = part;
            else
                merge_attention(whole, part);
        }
        std::vector<std::vector<double>> values{read(whole.output), read(whole.log_sum_exp)};
        for (int owner = 0; owner < kRanks; ++owner) {
            const auto at = static_cast<std::size_t>(owner);
            const AttentionGradients part =
                attention_backward(d_output, q, k[at], v[at], whole, mine, zigzag_positions(kSequence, 2, kRanks, owner), 0.3);
            for (const Tensor& each : {part.q, part.k, part.v}) values.push_back(read(each));
        }
        return values;
    };
    for (int rank = 0; rank < kRanks; ++rank) {
        gpu.launcher().emulation().asked = 0;
        const auto expected = run(cpu, rank), actual = run(gpu, rank);
        EXPECT_EQ(gpu.launcher().emulation().asked, 2 * kRanks);
        for (std::size_t i = 0; i < actual.size(); ++i) expect_close(actual[i], expected[i], 0.012, std::to_string(i));
    }
}

TEST(FusedAttention, IsNotForPlacesThatStandElsewhere) {
    const KernelTraits traits = emulated_traits(true);
    const auto fused = [&](const Positions& queries, const Positions& keys) {
        return fused_part(traits, Dtype::bf16, {queries, keys, 4, 2, 8, 8, 1, 64}).has_value();
    };
    const Positions mine = zigzag_positions(48, 1, 3, 0), other = zigzag_positions(48, 1, 3, 1);
    ASSERT_TRUE(fused(mine, other));
    Positions moved = other;
    moved.first[0] = mine.first[0] + 1;
    EXPECT_FALSE(fused(mine, moved)) << "the keys' first chunk begins within the queries' own";
    moved = other;
    moved.first[1] = mine.first[1] + 4;
    EXPECT_FALSE(fused(mine, moved)) << "so does their second";
    EXPECT_FALSE(fused(zigzag_positions(16, 1, 1, 0), other)) << "one chunk and two";
    EXPECT_FALSE(fused(zigzag_positions(96, 1, 3, 0), other)) << "chunks of other lengths";
    std::swap(moved.first[0], moved.first[1]);
    EXPECT_FALSE(fused(moved, moved)) << "chunks that are not in the order of the sequence";
}

TEST(UnfusedAttention, WorksThroughTheQueriesInBlocks) {
    // 16 heads and 4096 key places: 256 KiB of scores a place in fp32, so 1024 places at once, and half of that backward.
    AttentionSizes sizes{zigzag_positions(4096, 1, 1, 0), zigzag_positions(4096, 1, 1, 0), 16, 16, 8, 8, 1, 64};
    const auto forward = attention_workspace(emulated_traits(false), Dtype::fp32, sizes, false, false);
    const auto backward = attention_workspace(emulated_traits(false), Dtype::fp32, sizes, true, false);
    EXPECT_EQ(forward.block, 1024);
    EXPECT_EQ(backward.block, 512);
    EXPECT_EQ(forward.total, (std::int64_t{256} << 20) + (32 << 20));
    // The same code with blocks of 5 places, which do not divide the 24.
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const Positions places = zigzag_positions(48, 2, 2, 1);
    Maker on_cpu(cpu, Dtype::fp64), on_gpu(gpu, Dtype::fp64);
    const auto inputs = [&](Maker& maker) {
        return std::vector<Tensor>{maker.random({48, 4, 3}), maker.random({48, 2, 3}), maker.random({48, 2, 3}), maker.random({48, 4, 3})};
    };
    const auto a = inputs(on_cpu), b = inputs(on_gpu);
    const AttentionResult expected = model::attention(a[0], a[1], a[2], places, places, 0.5);
    const AttentionGradients gradients = model::attention_backward(a[3], a[0], a[1], a[2], expected, places, places, 0.5);
    sizes = {places, places, 4, 2, 3, 3, 0.5, 64};
    const auto by_five = [&](bool back) {
        auto space = attention_workspace(gpu.traits(), Dtype::fp64, sizes, back, false);
        space.block = 5;
        return space;
    };
    const Tensor memory = take_scratch(gpu, by_five(true).total, "workspace");
    const Tensor output = on_gpu.zeros({48, 4, 3}), log_sum_exp = on_gpu.zeros({48, 4});
    unfused_attention<HostLauncher, double>(gpu.launcher(), {b[0], b[1], b[2], output, log_sum_exp, sizes, {}, {}, {}, {}, {}, {}},
                                            by_five(false), static_cast<std::byte*>(memory.data()));
    const Tensor dq = on_gpu.zeros({48, 4, 3}), dk = on_gpu.zeros({48, 2, 3}), dv = on_gpu.zeros({48, 2, 3});
    AttentionBackwardArguments arguments{b[3], b[0], b[1], b[2], output, log_sum_exp, dq, dk, dv, sizes,
                                         {},   {},   {},   {},   {},     {},          {}, {}, {}, {}};
    unfused_attention_backward<HostLauncher, double>(gpu.launcher(), arguments, by_five(true), static_cast<std::byte*>(memory.data()));
    expect_close(read(output), read(expected.output), 1e-12, "output");
    expect_close(read(log_sum_exp), read(expected.log_sum_exp), 1e-12, "log-sum-exp");
    expect_close(read(dq), read(gradients.q), 1e-12, "dq");
    expect_close(read(dk), read(gradients.k), 1e-12, "dk");
    expect_close(read(dv), read(gradients.v), 1e-12, "dv");
}

TEST(AttentionWorkspace, IsThatOfCudnnForTheLlamaShape) {
    // 32 heads of 128 over 8 key heads, 4096 places: 134,742,272 bytes in the plan built for sm_90, of which delta and the
    // fp32 query gradient are given to it; the packed log-sum-exp comes on top.
    const Positions places = zigzag_positions(4096, 1, 1, 0);
    const AttentionSizes sizes{places, places, 32, 8, 128, 128, 1, 64};
    ASSERT_TRUE(attention_is_fused(emulated_traits(true), Dtype::bf16, sizes, false));
    const auto backward = attention_workspace(emulated_traits(true), Dtype::bf16, sizes, true, true);
    EXPECT_EQ(backward.total, 134742272 + 32 * 4096 * 4);
    // Half of the queries, and twice the keys: half of what hangs on queries, all of what hangs on keys.
    const Positions first = zigzag_positions(8192, 1, 2, 0), second = zigzag_positions(8192, 1, 2, 1);
    const auto later = attention_workspace(emulated_traits(true), Dtype::bf16, {first, second, 32, 8, 128, 128, 1, 64}, true, true);
    EXPECT_EQ(later.delta - later.log_sum_exp, 32 * 2048 * 4);
    EXPECT_EQ(later.library - later.query_sums, 32 * 2048 * 128 * 4);
    EXPECT_EQ(later.library_bytes, backward.library_bytes);
    EXPECT_FALSE(attention_is_fused(emulated_traits(false), Dtype::bf16, sizes, false));
    struct Plans final : FusedPlans {
        bool refuses(const FusedShape& shape, std::int64_t workspace_bytes) const override {
            EXPECT_EQ(shape, (FusedShape{1, 32, 8, 4096, 4096, 128, 128, true, shape.backward}));
            EXPECT_EQ(workspace_bytes, shape.backward ? 4096 * 32 * (128 + 128) * 2 + 256 : 256);
            return shape.backward;
        }
    };
    KernelTraits refusing = emulated_traits(true);
    refusing.fused_plans = std::make_shared<Plans>();
    EXPECT_TRUE(attention_is_fused(refusing, Dtype::bf16, sizes, false));
    EXPECT_FALSE(attention_is_fused(refusing, Dtype::bf16, sizes, true));
    EXPECT_FALSE(attention_is_fused({DeviceKind::cuda, 75, true}, Dtype::bf16, sizes, false));
    EXPECT_FALSE(attention_is_fused(emulated_traits(true), Dtype::fp32, sizes, false));
    EXPECT_FALSE(attention_is_fused({}, Dtype::bf16, sizes, false));
    const Positions one = zigzag_positions(1, 1, 1, 0);
    EXPECT_FALSE(attention_is_fused(emulated_traits(true), Dtype::bf16, {one, one, 32, 8, 128, 128, 1, 64}, false));
}

// From plans that cuDNN 9.19 builds for these cards (attention_plans): 4095 places are no multiple of 8, which an A100 rounds up to.
TEST(AttentionWorkspace, IsThatOfCudnnForOtherCards) {
    const auto of = [](int architecture, std::int64_t heads, std::int64_t kv_heads, bool backward) {
        const Positions places = zigzag_positions(4095, 1, 1, 0);
        return attention_workspace({DeviceKind::cuda, architecture, true}, Dtype::bf16, {places, places, heads, kv_heads, 128, 128, 1, 64},
                                   backward, true)
            .library_bytes;
    };
    EXPECT_EQ(of(80, 32, 8, true), 134201472);
    EXPECT_EQ(of(90, 32, 8, true), 67092736);
    EXPECT_EQ(of(100, 32, 8, true), 67092608);
    EXPECT_EQ(of(103, 32, 8, true), 67092608);
    EXPECT_EQ(of(100, 32, 32, true), 0);
    EXPECT_EQ(of(80, 32, 8, false), 0);
    EXPECT_EQ(of(90, 32, 8, false), 256);
    EXPECT_EQ(of(103, 32, 8, false), 0);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::attention_kernels_test
