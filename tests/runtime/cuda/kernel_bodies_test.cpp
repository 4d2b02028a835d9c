// The kernels of the GPU, run on the host, against those of the CPU: every op in every type, and the bytes it takes.

#include <limits>
#include <memory>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/checks.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/grouped_matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "model/ops/scratch.hpp"
#include "model/ops/short_conv.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/gpu/large_ops.hpp"
#include "tests/model/ops/every_op.hpp"
#include "tests/model/ops/single_steps.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::kernel_bodies_test {
namespace {

using namespace model;

class KernelBodies : public ::testing::TestWithParam<Dtype> {};

TEST_P(KernelBodies, AgreeWithTheCpuInEveryOp) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
    const auto expected = run_every_op(on_cpu), actual = run_every_op(on_gpu);
    // In bf16 the probabilities of attention are rounded before their product, as in every flash attention.
    const double tolerance = GetParam() == Dtype::bf16 ? 0.012 : GetParam() == Dtype::fp32 ? 2e-6 : 1e-12;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        expect_close(read(actual[i].second), read(expected[i].second), tolerance, actual[i].first);
    }
}

// Lengths around whole packs and pairs of packs, from aligned memory and from one value further.
TEST_P(KernelBodies, PacksAndSingleValuesGiveTheSame) {
    const double tolerance = GetParam() == Dtype::bf16 ? 0.012 : 2e-6;
    CpuDevice cpu;
    for (const std::int64_t elements : {1, 7, 8, 9, 31, 32, 33, 100}) {
        for (const std::int64_t begin : {0, 1}) {
            EmulatedDevice gpu(emulated_traits(false));
            const auto run = [&](Device& device) {
                Maker maker(device, GetParam());
                const Tensor from = maker.random({begin + elements}).slice(begin, begin + elements),
                             to = maker.random({begin + elements}).slice(begin, begin + elements);
                add(from, to);
                scale(to, 0.75);
                soft_cap(to, 2.0);
                return read(to);
            };
            const auto expected = run(cpu);
            expect_close(run(gpu), expected, tolerance, fmt::format("{} values behind {}", elements, begin));
            EXPECT_EQ(gpu.launcher().packed, begin == 0 ? 3 : 0) << elements;
        }
    }
}

TEST_P(KernelBodies, TakeTheBytesThatShapesPredict) {
    EmulatedDevice gpu(emulated_traits(false));
    MetaDevice meta({.stands_for = emulated_traits(false)}), other;
    {
        Maker on_gpu(gpu, GetParam()), on_meta(meta, GetParam()), on_other(other, GetParam());
        const auto results = run_every_op(on_gpu), shapes = run_every_op(on_meta), others = run_every_op(on_other);
        EXPECT_EQ(gpu.memory(), meta.memory());
    }
    EXPECT_THAT(gpu.memory().current, ::testing::Each(0));
    const auto workspace = static_cast<std::size_t>(MemoryCategory::workspace);
    EXPECT_NE(meta.memory().high_water[workspace], other.memory().high_water[workspace]) << "a GPU wants other scratch than the CPU";
}

TEST_P(KernelBodies, CastAndMultiplyFp8AsTheCpuDoes) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
    const auto expected = run_fp8_ops(on_cpu), actual = run_fp8_ops(on_gpu);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const Dtype dtype = actual[i].second.dtype();
        const bool codes = dtype == Dtype::int32;
        expect_close(read(actual[i].second), read(expected[i].second), codes ? 0 : dtype == Dtype::bf16 ? 0.004 : 2e-7, actual[i].first);
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, KernelBodies, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// What tests/gpu/large_test.cpp asks of a card at sizes beyond 2^31.
TEST(KernelBodiesAtSize, MeetTheClosedFormsOfLargeArrays) {
    EmulatedDevice gpu(emulated_traits(false));
    tests::check_elementwise(gpu, 34, 129);
    tests::check_losses(gpu, 17, 256);
    tests::check_table_and_product(gpu, 33, 130);
    tests::check_norm(gpu, 34, 130);
    tests::check_activation(gpu, 34, 130);
    tests::check_biases(gpu, 34, 130);
    tests::check_moves(gpu, 34, 130);
    tests::check_latent_keys(gpu, 34, 132);
    tests::check_delta_rule(gpu, 150, 2, 8);
    tests::check_casts(gpu, 34, 130);
    tests::check_casts(gpu, 130, 144);
    tests::check_block_casts(gpu, 304, 272);
}

// Rows beyond one part and beyond a group of parts, widths beyond a team, in packs and one by one. Groups give a GPU's sums another order
// than parts alone did; the CPU has one part.
TEST(KernelBodiesAtSize, NormsAndBiasesSumTheirColumnsInParts) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    ASSERT_GT(column_sum_parts(gpu.traits(), 300), 2);
    ASSERT_GT(column_sum_parts(gpu.traits(), 1101), kPartsOfGroup);
    for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{300, 515}, {1101, 64}, {1101, 7}}) {
        const auto run = [rows = rows, width = width](Device& device) {
            Maker maker(device, Dtype::fp64);
            const Tensor x = maker.random({rows, width}), dy = maker.random({rows, width}), weight = maker.random({width}),
                         bias = maker.random({width});
            const Tensor weight_gradient = maker.random({width}), bias_gradient = maker.random({width}), sums = maker.random({width});
            NormStatistics statistics;
            std::vector<Tensor> results{norm(x, weight, bias, Normalization::layer_norm, 1e-5, statistics)};
            results.push_back(norm_backward(dy, x, weight, statistics, Normalization::layer_norm, weight_gradient, bias_gradient));
            model::bias_gradient(dy, sums);
            results.insert(results.end(), {weight_gradient, bias_gradient, sums});
            return results;
        };
        const auto expected = run(cpu), actual = run(gpu);
        for (std::size_t i = 0; i < actual.size(); ++i)
            expect_close(read(actual[i]), read(expected[i]), 1e-12, fmt::format("{} of {} rows", i, rows));
    }
}

// The same of a convolution's taps, also where sequences begin within a part.
TEST(KernelBodiesAtSize, ShortConvolutionsSumTheirTapsInParts) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const auto& [rows, batch, width] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{300, 2, 65}, {1101, 3, 16}}) {
        ASSERT_GT(column_sum_parts(gpu.traits(), rows), 2);
        const auto run = [rows = rows, batch = batch, width = width](Device& device) {
            Maker maker(device, Dtype::fp64);
            const Tensor projected = maker.random({rows, 3 * width}), weight = maker.random({width, 1, 3}),
                         weight_gradient = maker.random({width, 1, 3});
            std::vector<Tensor> results{short_conv(projected, weight, batch)};
            results.push_back(short_conv_backward(maker.random({rows, width}), projected, weight, batch, weight_gradient));
            results.push_back(weight_gradient);
            return results;
        };
        const auto expected = run(cpu), actual = run(gpu);
        for (std::size_t i = 0; i < actual.size(); ++i)
            expect_close(read(actual[i]), read(expected[i]), 1e-12, fmt::format("{} of {} rows", i, rows));
    }
}

// Whole packs, single values, and more angles than the table has room for.
TEST(KernelBodiesAtSize, RotaryTurnsPacksAndSingleValuesAlike) {
    CpuDevice cpu;
    const Positions places = zigzag_positions(24, 2, 2, 1);
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
        for (const auto& [head_dim, rotated] : {std::pair{32, 32}, {32, 16}, {12, 12}, {32, 6}, {16, 0}, {600, 528}}) {
            EmulatedDevice gpu(emulated_traits(false));
            const auto run = [&, head_dim = head_dim, rotated = rotated](Device& device) {
                return read(rotary(Maker(device, dtype).random({places.rows(), 3, head_dim}), places, rotated, {.base = 10000}, false));
            };
            const auto expected = run(cpu);
            const double tolerance = dtype == Dtype::bf16 ? 0.012 : dtype == Dtype::fp32 ? 2e-6 : 1e-12;
            expect_close(run(gpu), expected, tolerance, fmt::format("{} of {} in {}", rotated, head_dim, to_string(dtype)));
            if (rotated == 0) continue;
            const PackedHeads heads{6, 2, head_dim};
            const auto run_in_place = [&, rotated = rotated](Device& device) {
                const Tensor packed = Maker(device, dtype).random({places.rows(), heads.width()});
                rotary_in_place(packed, heads, places, rotated, {.base = 10000}, true);
                return read(packed);
            };
            const auto in_place = run_in_place(cpu);
            expect_close(run_in_place(gpu), in_place, tolerance, fmt::format("{} of {} in place", rotated, head_dim));
        }
    }
}

TEST(KernelBodiesAtSize, AdamWritesItsParametersRounded) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const std::int64_t elements : {9, 64}) {
        for (const auto moments : {Dtype::fp32, Dtype::bf16}) {
            const auto run = [&](Device& device) {
                Maker maker(device, Dtype::fp32);
                const Tensor main = maker.random({elements}), m = maker.zeros({elements}, moments), v = maker.zeros({elements}, moments),
                             parameter = maker.zeros({elements}, Dtype::bf16), copied = maker.zeros({elements}, Dtype::bf16);
                adam_step(main, m, v, maker.random({elements}), {.learning_rate = 0.01, .weight_decay = 0.1}, parameter);
                copy(main, copied);
                EXPECT_EQ(read(parameter), read(copied)) << elements;
                return read(parameter);
            };
            const auto expected = run(cpu);
            expect_close(run(gpu), expected, 0.008, std::to_string(elements));
        }
    }
}

TEST(KernelBodiesAtSize, EmbeddingGradientsAddRowsOfOneIdInOrder) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const auto run = [](Device& device, const std::vector<double>& ids) {
        Maker maker(device, Dtype::fp32);
        const Tensor gradient = maker.random({600, 3});
        embedding_backward(maker.random({9000, 3}), maker.ids(ids, {9000}), 3, gradient);
        return read(gradient);
    };
    std::vector<double> many, two_of_a_bucket;
    for (int i = 0; i < 9000; ++i) {
        many.push_back(i % 4500 < 4300 ? i * 7 % 23 : i % 700);
        // An id whose next row stands behind thousands of the same bucket.
        two_of_a_bucket.push_back(i == 1 || i == 8990 ? 5
                                  : i % 50 < 48       ? static_cast<double>(5 + kEmbeddingBuckets)
                                                      : static_cast<double>(i % 700));
    }
    for (const auto& ids : {many, two_of_a_bucket}) EXPECT_EQ(run(cpu, ids), run(gpu, ids)) << "the same order gives the same bits";
}

TEST(KernelBodiesAtSize, ReductionsSpanSeveralPieces) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const std::int64_t elements : {1, 8192, 8193, 100001}) {
        Maker on_cpu(cpu, Dtype::fp32), on_gpu(gpu, Dtype::fp32);
        const Tensor a = on_cpu.random({elements}), b = on_gpu.random({elements});
        EXPECT_NEAR(sum_of_squares(a) / sum_of_squares(b), 1, 1e-12) << elements;
        auto values = read(b);
        auto behind_another = values;
        behind_another.insert(behind_another.begin(), 0);
        const Tensor unaligned = make(gpu, {elements + 1}, Dtype::fp32, behind_another).slice(1, elements + 1);
        EXPECT_EQ(sum_of_squares(unaligned), sum_of_squares(b)) << "a clip factor does not depend on alignment";
        values.back() = std::nan("");
        EXPECT_TRUE(std::isnan(sum_of_squares(make(gpu, {elements}, Dtype::fp32, values)))) << elements;
        values.back() = -std::numeric_limits<double>::infinity();
        EXPECT_EQ(sum_of_squares(make(gpu, {elements}, Dtype::fp32, values)), std::numeric_limits<double>::infinity()) << elements;
    }
}

TEST(KernelBodiesAtSize, TheRouterChoosesAsTheCpuAlsoAmongTiesAndNaN) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const double nan = std::nan("");
    std::vector<double> logits;
    for (int row = 0; row < 5; ++row) {
        for (int i = 0; i < 70; ++i) logits.push_back((i * 13 + row) % 9);
    }
    logits[3] = nan;
    for (int i = 0; i < 70; ++i) logits[static_cast<std::size_t>(i) + 140] = nan;
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const Routing expected = route(make(cpu, {5, 70}, Dtype::fp64, logits), 6, score);
        const Routing actual = route(make(gpu, {5, 70}, Dtype::fp64, logits), 6, score);
        EXPECT_EQ(read(actual.experts), read(expected.experts));
    }
}

TEST(KernelBodiesAtSize, AuxiliaryLossesAreThoseOfTheCpu) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    Maker on_cpu(cpu, Dtype::fp64), on_gpu(gpu, Dtype::fp64);
    const std::vector<double> list{3, 9, 0, 7, 5, 1, 2, 8, 4, 6, 11, 10};
    const Tensor of_a = on_cpu.ids(list, {12}), of_b = on_gpu.ids(list, {12});
    for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const Tensor a = route(on_cpu.random({40, 12}), 2, score).scores, b = route(on_gpu.random({40, 12}), 2, score).scores;
        EXPECT_NEAR(auxiliary_loss_of(b, score, of_b, 40, 2, 0.1), auxiliary_loss_of(a, score, of_a, 40, 2, 0.1), 1e-14);
        const Tensor da = on_cpu.zeros({40, 12}), db = on_gpu.zeros({40, 12});
        auxiliary_loss_backward(a, score, of_a, 40, 2, 0.1, 3, da);
        auxiliary_loss_backward(b, score, of_b, 40, 2, 0.1, 3, db);
        expect_close(read(db), read(da), 1e-12, "gradient");
    }
}

// What CUDA graphs hold of a mixture, and of its experts where they are padded.
TEST(KernelBodiesAtSize, BetweenRouterAndDispatchNothingPassesBetweenHostAndDevice) {
    EmulatedDevice gpu(emulated_traits(false));
    Maker maker(gpu, Dtype::fp32);
    const Tensor logits = maker.random({40, 12}), x = maker.random({40, 8}), total = maker.zeros({1}, Dtype::fp64);
    const std::vector<Tensor> matrices(12, maker.random({6, 8})), sums(12, maker.zeros({6, 8}));
    const int before = gpu.reads() + gpu.writes();
    const Routing routing = route(logits, 2, RouterScore::softmax);
    const Tensor counts = count_by_expert(routing.experts, 12),
                 d_logits = route_backward(routing.probabilities, routing, RouterScore::softmax);
    add_counts_by_expert(routing.experts, counts);
    auxiliary_loss(routing.scores, RouterScore::softmax, counts, 40, 2, 1, total);
    auxiliary_loss_backward(routing.scores, RouterScore::softmax, counts, 40, 2, 1, 1, d_logits);
    const Permutation all = sort_by_expert(routing.experts, count_by_expert(routing.experts, 12), 80);
    const Permutation padded = sort_and_pad(keep_within_capacity(routing, 5), 12, 5);
    for (const Permutation& permutation : {all, padded}) {
        const Tensor copies = permute_rows(x, permutation, 2), weights = permute_probabilities(routing.probabilities, permutation);
        (void)unpermute_rows(copies, permutation, 40, 2);
        (void)unpermute_probabilities(weights, permutation, 40, 2);
    }
    const std::vector<std::int64_t> rows(12, 5);
    const Tensor copies = permute_rows(x, padded, 2), y = grouped_matmul(copies, matrices, rows, true, "products");
    grouped_matmul_accumulate(y, copies, rows, sums);
    EXPECT_EQ(gpu.reads() + gpu.writes(), before);
    (void)sum_of_squares(x);
    EXPECT_EQ(gpu.reads() + gpu.writes(), before + 1) << "which is seen";
}

TEST(KernelBodiesAtSize, ASingleSigmoidChoiceIsNotNormalised) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    const auto run = [](Device& device) {
        Maker maker(device, Dtype::fp64);
        const Routing routing = route(maker.random({9, 5}), 1, RouterScore::sigmoid);
        return std::pair(read(routing.probabilities), read(route_backward(maker.random({9, 1}), routing, RouterScore::sigmoid)));
    };
    const auto expected = run(cpu), actual = run(gpu);
    expect_close(actual.first, expected.first, 1e-12, "probabilities");
    expect_close(actual.second, expected.second, 1e-12, "gradient");
    EXPECT_THAT(actual.first, ::testing::Each(::testing::Lt(1)));
    EXPECT_THAT(actual.second, ::testing::Contains(::testing::Ne(0)));
}

// Many equal probabilities, NaN, both zeros: the order is that of the CPU's stable sort.
TEST(KernelBodiesAtSize, ExpertsKeepTheSameChoicesWithinTheirCapacity) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const auto dtype : {Dtype::fp32, Dtype::fp64}) {
        const auto kept = [&](Device& device, std::int64_t capacity) {
            Maker maker(device, dtype);
            Routing routing = route(maker.random({300, 7}), 2, RouterScore::softmax);
            std::vector<double> probabilities;
            for (int i = 0; i < 600; ++i) {
                const double several[] = {0.25, 0.5, i / 600.0, 0.0, -0.0, std::nan(""), 1.0, 1e-30};
                probabilities.push_back(several[i * 5 % 11 % 8]);
            }
            routing.probabilities = make(device, {300, 2}, dtype, probabilities);
            return read(keep_within_capacity(routing, capacity));
        };
        for (const std::int64_t capacity : {1, 2, 37, 60, 80, 100, 300}) {
            const auto expected = kept(cpu, capacity);
            EXPECT_EQ(kept(gpu, capacity), expected) << capacity;
            if (capacity < 80) {
                EXPECT_THAT(expected, ::testing::Contains(-1)) << capacity;
            }
        }
    }
}

TEST(KernelBodiesAtSize, RowsThatOnlyFillUpAreZeroAndGoNowhere) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (const std::int64_t width : {3, 64}) {
        const auto run = [width](Device& device) {
            Maker maker(device, Dtype::fp32);
            const Tensor experts = maker.ids({1, 2, 2, 1, -1, 2, 1, 0, -1, -1}, {5, 2});
            const Permutation padded = sort_and_pad(experts, 4, 4);
            const Tensor rows = permute_rows(maker.random({5, width}), padded, 2);
            const Tensor probabilities = permute_probabilities(maker.random({5, 2}), padded);
            return std::vector<std::vector<double>>{read(padded.source), read(rows),
                                                    read(unpermute_rows(maker.random({16, width}), padded, 5, 2)), read(probabilities),
                                                    read(unpermute_probabilities(maker.random({16}), padded, 5, 2))};
        };
        const auto actual = run(gpu);
        EXPECT_EQ(actual, run(cpu));
        EXPECT_THAT(actual[0], ::testing::ElementsAre(7, -1, -1, -1, 0, 3, 6, -1, 1, 2, 5, -1, -1, -1, -1, -1));
        EXPECT_EQ(actual[1][static_cast<std::size_t>(width)], 0);
    }
}

TEST(KernelTable, NamesTheFirstKernelThatIsMissing) {
    KernelTable table{};
    EXPECT_EQ(missing_kernel(table), "matmul");
    fill_dense<HostLauncher>(table);
    fill_flat<HostLauncher>(table);
    EXPECT_EQ(missing_kernel(table), "route");
    fill_recurrent<HostLauncher>(table);
    fill_router<HostLauncher>(table);
    EXPECT_EQ(missing_kernel(table), "");
    table.keep_within_capacity = nullptr;
    EXPECT_EQ(missing_kernel(table), "keep_within_capacity");
}

TEST(KernelTable, WithAGapMakesNoDevice) {
    KernelTable table{};
    fill_dense<HostLauncher>(table);
    fill_flat<HostLauncher>(table);
    fill_recurrent<HostLauncher>(table);
    fill_router<HostLauncher>(table);
    EXPECT_EQ(&with_every_kernel(table), &table);
    table.gate_rows = nullptr;
    EXPECT_THAT([&] { (void)with_every_kernel(table); },
                ::testing::ThrowsMessage<std::logic_error>(::testing::HasSubstr("gate_rows is missing")));
}

TEST(KernelBodiesAtSize, AMaximumOfLogitsPassesNaNOn) {
    EmulatedDevice gpu(emulated_traits(false));
    const auto most = read(row_maximum(make(gpu, {2, 3}, Dtype::fp32, {1, std::nan(""), 2, 4, 5, 3}), {0, 3}));
    EXPECT_TRUE(std::isnan(most[0]));
    EXPECT_EQ(most[1], 5);
    EXPECT_EQ(read(row_maximum(make(gpu, {1, 2}, Dtype::fp32, {1, 2}), {0, 0}))[0], -INFINITY);
}

TEST(ReduceRanks, GivesTheBitsOfTheHostsReduction) {
    EmulatedDevice gpu(emulated_traits(false));
    MemoryOperations& operations = *gpu.memory_operations();
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32}) {
        for (const auto reduction : {Reduction::sum, Reduction::average, Reduction::maximum}) {
            if (!reducible(dtype, reduction)) continue;
            Maker maker(gpu, dtype);
            std::vector<Tensor> inputs;
            std::vector<const std::byte*> from;
            for (int rank = 0; rank < 5; ++rank) {
                auto numbers = maker.numbers(37);
                for (auto& number : numbers) number *= dtype == Dtype::int32 ? 1e9 : 1.0 / 3;
                inputs.push_back(make(gpu, {37}, dtype, numbers));
                from.push_back(static_cast<const std::byte*>(inputs.back().data()));
            }
            // From within a pack to within another, all values, whole packs.
            for (const auto& [begin, end] : {std::pair{3, 35}, {0, 37}, {8, 32}}) {
                const Tensor expected = maker.zeros({37}), first = maker.zeros({37}), second = maker.zeros({37});
                auto* host = static_cast<std::byte*>(expected.data());
                reduce_in_order(dtype, reduction, from, std::span(&host, 1), begin, end);
                std::vector<std::byte*> to{static_cast<std::byte*>(first.data()), static_cast<std::byte*>(second.data())};
                operations.reduce(dtype, reduction, from, to, begin, end);
                operations.finish();
                EXPECT_EQ(read(first), read(expected)) << to_string(dtype) << " from " << begin;
                EXPECT_EQ(read(second), read(expected)) << to_string(dtype) << " from " << begin;
            }
        }
    }
}

TEST(Teams, JoinTheirLanesAlikeForEveryCount) {
    for (const int lanes : {32, 256}) {
        const HostTeam team(lanes);
        for (const std::int64_t count : {0, 1, 31, 32, 33, 1000}) {
            const auto sum = team.reduce(count, std::int64_t{0}, Add{}, [](std::int64_t i) { return i; });
            EXPECT_EQ(sum, count * (count - 1) / 2);
        }
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::kernel_bodies_test
