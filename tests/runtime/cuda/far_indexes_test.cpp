// Kernel bodies at arrays of more than 2^31 elements: rows at the far end, on all of whose way there are zeros, must come out as they do
// alone. An index, a size or a number of shares that was cut to 32 bits reads and writes elsewhere.

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "model/ops/fp8_history.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "tests/model/ops/single_steps.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"
#include "tests/runtime/cuda/far_device.hpp"

namespace mgplan::runtime::cuda::far_indexes_test {
namespace {

using namespace model;

constexpr std::int64_t kMarked = 3;        ///< rows with values, the last ones
constexpr std::int64_t kRows = 4'200'003;  ///< with 520 columns 2.184e9 values, where 2^31 is 2.147e9

/// One device, with `rows` rows in front of which all is zero, and what was made of the marked ones.
class Rows {
public:
    Rows(Device& on, std::int64_t count) : maker(on, Dtype::bf16), device(on), rows(count) {}

    Tensor zeros(const Shape& shape, Dtype dtype = Dtype::bf16) { return device.zeros(shape, dtype, MemoryCategory::activations, "zeros"); }
    /// (rows, width): the same values in the marked rows on every device.
    Tensor marked(std::int64_t width, Dtype dtype = Dtype::bf16) {
        Tensor tensor = zeros({rows, width}, dtype);
        const Tensor values = maker.random({kMarked, width}, dtype);
        std::vector<std::byte> bytes(static_cast<std::size_t>(values.bytes()));
        device.read(values, bytes.data());
        device.write(tensor.slice(rows - kMarked, rows), bytes.data());
        return tensor;
    }
    /// Keeps the bytes of the last elements.
    void keep(const Tensor& tensor, std::int64_t last) {
        const Tensor flat = tensor.view({tensor.elements()});
        const Tensor end = flat.slice(flat.elements() - last, flat.elements());
        kept.emplace_back(static_cast<std::size_t>(end.bytes()));
        device.read(end, kept.back().data());
    }
    void keep_rows(const Tensor& tensor) { keep(tensor, tensor.elements() / rows * kMarked); }

    Maker maker;
    Device& device;
    std::int64_t rows;
    std::vector<std::vector<std::byte>> kept;
};

/// What `work` keeps of rows at the far end must be what it keeps of them alone, in `near` rows.
void expect_alike(const std::function<void(Rows&)>& work, std::int64_t near = kMarked) {
    EmulatedDevice small(emulated_traits(false));
    FarDevice large(emulated_traits(false));
    Rows alone(small, near), far(large, kRows);
    work(alone);
    work(far);
    ASSERT_EQ(far.kept.size(), alone.kept.size());
    for (std::size_t i = 0; i < alone.kept.size(); ++i) {
        EXPECT_TRUE(far.kept[i] == alone.kept[i]) << "result " << i;
        EXPECT_TRUE(std::any_of(alone.kept[i].begin(), alone.kept[i].end(), [](std::byte b) { return b != std::byte{0}; })) << i;
    }
}

/// Rows by packs of sixteen bytes, and one value at a time.
class FarIndexes : public ::testing::TestWithParam<std::int64_t> {
protected:
    void SetUp() override {
        if (!ReservedMemory::can_reserve(std::int64_t{64} << 30)) GTEST_SKIP() << "no addresses may be reserved here";
    }
    static std::int64_t width() { return GetParam(); }
};

TEST_P(FarIndexes, OfElementsAndTheirSums) {
    expect_alike([](Rows& on) {
        const Tensor x = on.marked(width()), wide = on.marked(width(), Dtype::fp32);
        add(x, wide);
        scale(wide, 3);
        on.keep_rows(wide);
        const Tensor narrow = on.zeros(x.shape());
        copy(wide, narrow);
        on.keep_rows(narrow);
        const Tensor same = on.zeros(x.shape());
        copy(narrow, same);
        on.keep_rows(same);
        scale_columns(narrow, 1, width() - 1, 2);
        on.keep_rows(narrow);
        on.keep_rows(columns(narrow, 2, width()));
        fill(same, 7);
        on.keep_rows(same);
    });
    const auto sum = [](Device& device, std::int64_t rows) {
        Rows on(device, rows);
        return sum_of_squares(on.marked(width()));
    };
    EmulatedDevice small(emulated_traits(false));
    FarDevice large(emulated_traits(false));
    EXPECT_NEAR(sum(large, kRows) / sum(small, kMarked), 1, 1e-12);
}

TEST_P(FarIndexes, OfLeadingSizesThatAreSwapped) {
    // (2, n, width) -> (n, 2, width): the last row of the second half stays last.
    FarDevice large(emulated_traits(false));
    const std::int64_t half = kRows / 2;
    const Tensor x = large.empty({2, half, width()}, Dtype::bf16, MemoryCategory::activations, "x");
    fill(x.view({2 * half, width()}).slice(2 * half - 1, 2 * half), 3);
    fill(x.view({2 * half, width()}).slice(half - 1, half), 2);
    const Tensor last = swap_leading(x).view({2 * half, width()}).slice(2 * half - 2, 2 * half);
    EXPECT_EQ(read(last.slice(0, 1)), std::vector<double>(static_cast<std::size_t>(width()), 2));
    EXPECT_EQ(read(last.slice(1, 2)), std::vector<double>(static_cast<std::size_t>(width()), 3));
}

TEST_P(FarIndexes, OfNormsAndTheirGradients) {
    for (const Normalization kind : {Normalization::rms_norm, Normalization::layer_norm}) {
        expect_alike([kind](Rows& on) {
            const Tensor x = on.marked(width()), dy = on.marked(width()), weight = on.maker.random({width()});
            NormStatistics statistics;
            on.keep_rows(norm(x, weight, {}, kind, 1e-5, statistics));
            const Tensor gradient = on.maker.zeros({width()}, Dtype::fp32);
            on.keep_rows(norm_backward(dy, x, weight, statistics, kind, gradient, {}));
            on.keep_rows(norm_backward(dy, x, weight, statistics, kind, gradient, {}, dy));
            on.keep(gradient, 64);
        });
    }
}

TEST_P(FarIndexes, OfActivationsGatesBiasesAndSums) {
    expect_alike([](Rows& on) {
        const Tensor x = on.marked(2 * width()), y = activation(x, Activation::silu, true);
        on.keep_rows(y);
        on.keep_rows(activation_backward(y, x, Activation::silu, true));
        on.keep_rows(gate_rows(y, on.marked(1)));
        const Tensor residual = on.marked(width());
        on.keep_rows(dropout_add(y, residual, {}));
        add_bias(residual, on.maker.random({width()}));
        on.keep_rows(residual);
        const Tensor gradient = on.maker.zeros({width()}, Dtype::fp32);
        bias_gradient(y, gradient);
        on.keep(gradient, 64);
    });
}

TEST_P(FarIndexes, OfDroppedValuesAndTurnedHeads) {
    expect_alike([](Rows& on) {
        DropoutPlace place;
        place.probability = 0.5;
        place.seed = 7;
        place.positions = {.chunk_length = kRows, .first = {0, 0}, .batch = 1, .chunks = 1};
        place.first_row = kRows - on.rows;
        const Tensor x = on.marked(width());
        on.keep_rows(dropout_add(x, x, place));
        const std::int64_t heads = 4, dim = width() % 8 == 0 ? 128 : 130;
        const Positions places{.chunk_length = on.rows, .first = {kRows - on.rows, 0}, .batch = 1, .chunks = 1};
        on.keep_rows(rotary(on.marked(heads * dim).view({on.rows, heads, dim}), places, dim, {}, false));
        const PackedHeads packed_heads{4, 2, dim};
        const Tensor packed = on.marked(packed_heads.width());
        rotary_in_place(packed, packed_heads, places, dim, {}, false);
        on.keep_rows(packed);
    });
}

TEST_P(FarIndexes, OfLosses) {
    expect_alike([](Rows& on) {
        const Tensor logits = on.marked(width()), targets = on.zeros({on.rows}, Dtype::int32);
        const std::array<std::int32_t, kMarked> wanted{1, 0, static_cast<std::int32_t>(width() - 1)};
        on.device.write(targets.slice(on.rows - kMarked, on.rows), wanted.data());
        const VocabularyShard all{0, width()};
        const Tensor maximum = row_maximum(logits, all);
        const SoftmaxSums sums = softmax_sums(logits, targets, maximum, all);
        on.keep_rows(maximum);
        on.keep_rows(sums.exponentials);
        on.keep_rows(sums.target);
        cross_entropy_backward(logits, targets, maximum, sums.exponentials, all, 1);
        on.keep_rows(logits);
    });
}

TEST_P(FarIndexes, OfLatentKeys) {
    expect_alike([](Rows& on) {
        const std::int64_t heads = 4, own = width() % 8 == 0 ? 104 : 105, v_dim = 24, shared = 16;
        const Tensor projected = on.marked(heads * (own + v_dim)).view({on.rows, heads, own + v_dim});
        const LatentKeys keys = join_latent_keys(projected, on.marked(shared), own);
        on.keep_rows(keys.k);
        on.keep_rows(keys.v);
        const LatentKeyGradients gradients = split_latent_keys(keys.k, keys.v, own);
        on.keep_rows(gradients.projected);
        on.keep_rows(gradients.shared);
    });
}

TEST_P(FarIndexes, OfRowsThatMove) {
    FarDevice large(emulated_traits(false));
    Rows on(large, kRows);
    const Tensor x = on.marked(width());
    const auto row = [&](const Tensor& tensor, std::int64_t at) { return read(tensor.slice(at, at + 1)); };
    const std::vector<double> last = row(x, kRows - 1);
    // From the far end to the front, and the large block behind it.
    const Tensor moved = reorder_blocks(x, {kRows - 1, 1}, {1, 0});
    EXPECT_EQ(row(moved, 0), last);
    EXPECT_EQ(row(moved, kRows - 1), row(x, kRows - 2));
    // The first copy is of the last row, the last one of the first.
    fill(x.slice(0, 1), 5);
    Permutation permutation{on.zeros({kRows}, Dtype::int32)};
    const std::int32_t end = kRows - 1;
    large.write(permutation.source.slice(0, 1), &end);
    const Tensor permuted = permute_rows(x, permutation, 1);
    EXPECT_EQ(row(permuted, 0), last);
    EXPECT_EQ(row(permuted, kRows - 1), row(x, 0));
    const Tensor back = unpermute_rows(permuted, permutation, kRows, 1);
    EXPECT_EQ(row(back, kRows - 1), last);
    // Rows of a table.
    const Tensor ids = make(large, {2}, Dtype::int32, {static_cast<double>(end), 0});
    const Tensor found = embedding(ids, x, 0);
    EXPECT_EQ(row(found, 0), last);
    EXPECT_EQ(row(found, 1), row(x, 0));
}

TEST_P(FarIndexes, OfOptimizerSteps) {
    expect_alike([](Rows& on) {
        const Tensor main = on.marked(width(), Dtype::fp32), first = on.marked(width()), second = on.zeros(main.shape(), Dtype::bf16),
                     gradient = on.marked(width()), parameter = on.zeros(main.shape());
        adam_step(main, first, second, gradient, {.weight_decay = 0.1, .step = 2, .gradient_factor = 0.5}, parameter);
        for (const Tensor& each : {main, first, second, parameter}) on.keep_rows(each);
        const Tensor momentum = on.marked(width(), Dtype::fp32);
        momentum_step(main, momentum, gradient, {.weight_decay = 0.1});
        for (const Tensor& each : {main, momentum}) on.keep_rows(each);
    });
}

TEST_P(FarIndexes, OfCastsToFp8) {
    expect_alike([](Rows& on) {
        const Tensor x = on.marked(width());
        const auto cast = [&] { return Fp8Tensor{on.zeros(x.shape(), Dtype::fp8), on.zeros({kFp8ScaleElements}, Dtype::fp32)}; };
        const Fp8Tensor alone = cast(), first = cast(), second = cast();
        find_largest(x, alone.scale);
        quantise(x, alone);
        const std::array places{RaisedLargest{x, first.scale.slice(0, 1)}, RaisedLargest{x, second.scale.slice(0, 1)}};
        find_all_largest(places);
        raise_all_largest(places);
        quantise_all(std::array{Fp8Cast{x, first}, Fp8Cast{x, second}});
        for (const Fp8Tensor& each : {alone, second}) {  // of the first one's shares none is at an end
            on.keep_rows(each.codes);
            on.keep(each.scale, kFp8ScaleElements);
        }
    });
}

TEST_P(FarIndexes, OfCastsToFp8InBlocks) {
    const auto work = [](Rows& on) {
        const Tensor x = on.marked(width());
        for (const Fp8Scaling scaling : {Fp8Scaling::vectors_of_128, Fp8Scaling::squares_of_128, Fp8Scaling::vectors_of_32}) {
            const Fp8ScaleLayout layout(scaling, on.rows, width());
            const Fp8Blocks cast = empty_blocks(on.device, scaling, on.rows, width(), MemoryCategory::activations, "cast");
            quantise_blocks(x, cast);
            on.keep_rows(cast.codes);
            const std::int64_t at = layout.at(on.rows - 1, layout.blocks - 1);
            on.keep(cast.scales.slice(at, at + 1), 1);
            if (scaling == Fp8Scaling::squares_of_128) continue;
            const Fp8Columns columns = quantise_columns(x, scaling, ColumnCodes::as_rows, "columns");
            on.keep_rows(columns.codes);
            const Fp8ScaleLayout down(scaling, width(), on.rows);
            on.keep(columns.scales.slice(down.at(width() - 1, down.blocks - 1), down.at(width() - 1, down.blocks - 1) + 1), 1);
        }
    };
    // As many rows alone as there are in the last blocks.
    expect_alike(work, kRows % 128);
}

TEST_P(FarIndexes, OfCodesThatAreTransposed) {
    FarDevice large(emulated_traits(false));
    const Tensor codes = large.empty({kRows, width()}, Dtype::fp8, MemoryCategory::activations, "codes");
    std::vector<std::uint8_t> last(static_cast<std::size_t>(width()));
    for (std::size_t i = 0; i < last.size(); ++i) last[i] = static_cast<std::uint8_t>(1 + i % 251);
    large.write(codes.slice(kRows - 1, kRows), last.data());
    const Tensor turned = transpose_codes(codes);
    for (std::int64_t column = width() - 128; column < width(); ++column) {
        std::uint8_t code = 0;
        large.read(turned.slice(column, column + 1).view({kRows}).slice(kRows - 1, kRows), &code);
        ASSERT_EQ(code, last[static_cast<std::size_t>(column)]) << column;
    }
}

INSTANTIATE_TEST_SUITE_P(Widths, FarIndexes, ::testing::Values(520, 521),
                         [](const auto& width) { return width.param % 8 == 0 ? "ByPacks" : "OneByOne"; });

}  // namespace
}  // namespace mgplan::runtime::cuda::far_indexes_test
