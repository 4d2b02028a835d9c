#include "model/layers/tensor_parallel.hpp"

#include <gtest/gtest.h>

#include "model/layers/initialization.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "tests/model/layers/support.hpp"

namespace mgplan::model::tensor_parallel_test {
namespace {

constexpr std::int64_t kRows = 6, kIn = 8, kOut = 10, kRanks = 2;

/// One linear layer's values on one rank, and what came of them.
struct Values {
    std::vector<double> y, dx, d_weight, d_bias;
};

enum class Side : std::uint8_t { column, row };

/// Rows or columns [begin, end) of a (rows, columns) matrix.
std::vector<double> block(const std::vector<double>& from, std::int64_t columns, std::int64_t row_begin, std::int64_t row_end,
                          std::int64_t column_begin, std::int64_t column_end) {
    std::vector<double> part;
    for (std::int64_t row = row_begin; row < row_end; ++row) {
        for (std::int64_t column = column_begin; column < column_end; ++column)
            part.push_back(from[static_cast<std::size_t>(row * columns + column)]);
    }
    return part;
}

struct Problem {
    std::vector<double> x, dy, weight, bias;

    Problem() {
        runtime::CpuDevice device;
        Maker maker(device, Dtype::fp64);
        x = maker.numbers(kRows * kIn);
        dy = maker.numbers(kRows * kOut);
        weight = maker.numbers(kOut * kIn);
        bias = maker.numbers(kOut);
    }
};

/// Runs the layer on `ranks` ranks with whole inputs and outputs.
std::vector<Values> run(const Problem& problem, Side side, int ranks, bool skip_bias) {
    std::vector<Values> results(static_cast<std::size_t>(ranks));
    runtime::InProcessWorld world(ranks);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        std::vector<std::int32_t> all;
        for (int i = 0; i < ranks; ++i) all.push_back(i);
        const auto tp = world.view(rank).join("tp", all);
        RankContext context;
        context.device = &device;
        context.tp = tp.get();
        context.dtype = Dtype::fp64;
        Maker maker(device, Dtype::fp64);
        const std::int64_t out = side == Side::column ? kOut / ranks : kOut, in = side == Side::row ? kIn / ranks : kIn;
        const std::int64_t row = side == Side::column ? out * rank : 0, column = side == Side::row ? in * rank : 0;
        const Weight weight{make(device, {out, in}, Dtype::fp64, block(problem.weight, kIn, row, row + out, column, column + in)),
                            maker.zeros({out, in})};
        const Weight bias{make(device, {out}, Dtype::fp64, block(problem.bias, 1, row, row + out, 0, 1)), maker.zeros({out})};
        const Tensor x = make(device, {kRows, kIn}, Dtype::fp64, problem.x), dy = make(device, {kRows, kOut}, Dtype::fp64, problem.dy);
        Values& values = results[static_cast<std::size_t>(rank)];
        if (side == Side::column) {
            const ColumnParallelLinear layer(weight, bias, {.gather_output = true, .skip_bias_add = skip_bias});
            values.y = read(layer.forward(context, x));
            values.dx = read(layer.backward(context, dy, x));
        } else {
            const RowParallelLinear layer(weight, bias, {.input_is_parallel = false, .skip_bias_add = skip_bias});
            values.y = read(layer.forward(context, x));
            values.dx = read(layer.backward(context, dy, x));
        }
        values.d_weight = read(weight.gradient);
        values.d_bias = read(bias.gradient);
    });
    return results;
}

TEST(TensorParallel, WholeOutputsOfDividedColumnsEqualThoseOfOneRank) {
    const Problem problem;
    const Values one = run(problem, Side::column, 1, false).front();
    const auto both = run(problem, Side::column, kRanks, false);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        const Values& mine = both[static_cast<std::size_t>(rank)];
        const std::int64_t first = rank * kOut / kRanks, last = (rank + 1) * kOut / kRanks;
        expect_close(mine.y, one.y, 1e-14, "y");
        expect_close(mine.dx, one.dx, 1e-14, "dx");
        expect_close(mine.d_weight, block(one.d_weight, kIn, first, last, 0, kIn), 1e-14, "weight gradient");
        expect_close(mine.d_bias, block(one.d_bias, 1, first, last, 0, 1), 1e-14, "bias gradient");
    }
}

TEST(TensorParallel, WholeInputsOfDividedRowsEqualThoseOfOneRank) {
    const Problem problem;
    const Values one = run(problem, Side::row, 1, false).front();
    const auto both = run(problem, Side::row, kRanks, false);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
        const Values& mine = both[static_cast<std::size_t>(rank)];
        expect_close(mine.y, one.y, 1e-14, "y");
        expect_close(mine.dx, one.dx, 1e-14, "dx");
        expect_close(mine.d_weight, block(one.d_weight, kIn, 0, kOut, rank * kIn / kRanks, (rank + 1) * kIn / kRanks), 1e-14,
                     "weight gradient");
        expect_close(mine.d_bias, one.d_bias, 1e-14, "bias gradient");
    }
}

TEST(TensorParallel, ASkippedBiasIsLeftToTheCaller) {
    const Problem problem;
    for (const Side side : {Side::column, Side::row}) {
        const Values with = run(problem, side, 1, false).front(), without = run(problem, side, 1, true).front();
        for (std::size_t i = 0; i < with.y.size(); ++i)
            EXPECT_NEAR(with.y[i], without.y[i] + problem.bias[i % static_cast<std::size_t>(kOut)], 1e-14);
        EXPECT_EQ(without.d_bias, std::vector<double>(static_cast<std::size_t>(kOut), 0.0));
        EXPECT_EQ(without.dx, with.dx);
        EXPECT_EQ(without.d_weight, with.d_weight);
    }
}

/// A linear layer beside which an adapter of rank 3 stands, and the same layer with the adapter's product added to its weight.
struct AdaptedPair {
    OneRank rank;
    WeightTable weights;
    Weight frozen, in, out, merged;
    double factor = 0;
    LayerSite site;

    AdaptedPair() : site(site_of(weights)) {
        frozen = {.value = rank.maker.random({5, 4}), .gradient = {}};
        in = {rank.maker.random({3, 4}), rank.maker.zeros({3, 4})};
        out = {rank.maker.random({5, 3}), rank.maker.zeros({5, 3})};
        factor = site.layer.adapters->factor();
        merged = {matmul(out.value, in.value, {}, "product"), rank.maker.zeros({5, 4})};
        scale(merged.value, factor);
        add(frozen.value, merged.value);
        weights.add("a.linear.weight", frozen);
        weights.add("a.linear.adapter.linear_in.weight", in);
        weights.add("a.linear.adapter.linear_out.weight", out);
    }

    static LayerSite site_of(const WeightTable& weights) {
        Layer layer;
        layer.adapters = Adapters{.rank = 3, .alpha = 7.5};
        return {
            .layer = layer, .hidden = 4, .max_positions = 0, .layers = 1, .weights = weights, .prefix = "a.", .number = 0, .recompute = {}};
    }

    /// With W' = W + f·B·A: y = x·W'ᵀ, so that dB = f·dW'·Aᵀ and dA = f·Bᵀ·dW'.
    void expect_equals_merged(const Tensor& y, const Tensor& dx, const Tensor& merged_y, const Tensor& merged_dx) const {
        expect_close(read(y), read(merged_y), 1e-14, "y");
        expect_close(read(dx), read(merged_dx), 1e-14, "dx");
        const Tensor d_out = matmul(merged.gradient, in.value, {.b = true}, "gradient of B"),
                     d_in = matmul(out.value, merged.gradient, {.a = true}, "gradient of A");
        scale(d_out, factor);
        scale(d_in, factor);
        expect_close(read(out.gradient), read(d_out), 1e-14, "gradient of B");
        expect_close(read(in.gradient), read(d_in), 1e-14, "gradient of A");
    }
};

TEST(TensorParallel, AdaptersAreWhatTheirProductInTheWeightWouldBe) {
    const auto both = [](const auto& adapted_of, const auto& merged_of) {
        AdaptedPair pair;
        const Tensor x = pair.rank.maker.random({6, 4}), dy = pair.rank.maker.random({6, 5});
        const auto adapted = adapted_of(pair);
        const auto merged = merged_of(pair);
        EXPECT_TRUE(adapted.reads_input());
        AdapterSaved saved;
        const Tensor y = adapted.forward(pair.rank.context, x, &saved), merged_y = merged.forward(pair.rank.context, x);
        const Tensor dx = adapted.backward(pair.rank.context, dy, x, &saved), merged_dx = merged.backward(pair.rank.context, dy, x);
        pair.expect_equals_merged(y, dx, merged_y, merged_dx);
    };
    both([](const AdaptedPair& pair) { return ColumnParallelLinear(pair.site, "linear"); },
         [](const AdaptedPair& pair) { return ColumnParallelLinear(pair.merged, {}); });
    both([](const AdaptedPair& pair) { return RowParallelLinear(pair.site, "linear"); },
         [](const AdaptedPair& pair) { return RowParallelLinear(pair.merged, {}); });
    both([](const AdaptedPair& pair) { return DuplicatedLinear(pair.site, "linear"); },
         [](const AdaptedPair& pair) { return DuplicatedLinear(pair.merged); });
}

TEST(TensorParallel, AFrozenLayerReadsNoInputInItsBackward) {
    AdaptedPair pair;
    const ColumnParallelLinear frozen(pair.frozen, {});
    EXPECT_FALSE(frozen.reads_input());
    const Tensor dy = pair.rank.maker.random({6, 5});
    expect_close(read(frozen.backward(pair.rank.context, dy, LinearInput())), read(matmul(dy, pair.frozen.value, {}, "dx")), 1e-14, "dx");
}

TEST(TensorParallel, LinearGradientsHold) {
    OneRank rank;
    const Weight weight{rank.maker.random({5, 4}), rank.maker.zeros({5, 4})}, bias{rank.maker.random({5}), rank.maker.zeros({5})};
    const Weight duplicated_weight{weight.value, rank.maker.zeros({5, 4})};
    const Tensor x = rank.maker.random({3, 4}), dy = rank.maker.random({3, 5});
    const ColumnParallelLinear column(weight, bias);
    const auto column_loss = [&] { return weigh(column.forward(rank.context, x), dy); };
    expect_gradient("x", x, column.backward(rank.context, dy, x), column_loss);
    expect_gradient("weight", weight.value, weight.gradient, column_loss);
    expect_gradient("bias", bias.value, bias.gradient, column_loss);
    const DuplicatedLinear duplicated(duplicated_weight);
    const auto duplicated_loss = [&] { return weigh(duplicated.forward(rank.context, x), dy); };
    expect_gradient("x", x, duplicated.backward(rank.context, dy, x), duplicated_loss);
    expect_gradient("weight", weight.value, duplicated_weight.gradient, duplicated_loss);
    const Weight row_weight{weight.value, rank.maker.zeros({5, 4})}, row_bias{bias.value, rank.maker.zeros({5})};
    const RowParallelLinear row(row_weight, row_bias);
    const auto row_loss = [&] { return weigh(row.forward(rank.context, x), dy); };
    expect_gradient("x", x, row.backward(rank.context, dy, x), row_loss);
    expect_gradient("weight", row_weight.value, row_weight.gradient, row_loss);
    expect_gradient("bias", row_bias.value, row_bias.gradient, row_loss);
}

TEST(TensorParallel, WholeOutputsExcludeSequenceParallelism) {
    OneRank rank;
    rank.context.sequence_parallel = true;
    const Weight weight{rank.maker.random({5, 4}), rank.maker.zeros({5, 4})};
    const Tensor x = rank.maker.random({3, 4});
    EXPECT_THROW((void)ColumnParallelLinear(weight, {}, {.gather_output = true}).forward(rank.context, x), std::logic_error);
    EXPECT_THROW((void)RowParallelLinear(weight, {}, {.input_is_parallel = false}).forward(rank.context, x), std::logic_error);
}

/// The whole parameter put together from the shards of `tp` ranks, as the stride says.
std::vector<double> assembled(const ModelSpec& model, std::int64_t tp, std::string_view name) {
    runtime::CpuDevice device;
    Maker maker(device, Dtype::fp64);
    std::vector<std::vector<double>> blocks;
    int stride = 1;
    for (std::int64_t rank = 0; rank < tp; ++rank) {
        for (const Parameter& parameter : layer_parameters(model, LayerKind::dense, tp, 1, 1, "")) {
            if (parameter.name != name) continue;
            stride = parameter.shard_stride;
            WeightTable table;
            const Tensor value = maker.zeros({parameter.shape[0], parameter.shape[1]});
            table.add(parameter.name, {value, Tensor()});
            initialize_weights(model, std::vector<Parameter>{parameter}, table, {rank, tp}, {});
            blocks.push_back(read(value));
        }
    }
    std::vector<double> whole;
    for (int i = 0; i < stride; ++i) {
        for (const auto& shard : blocks) {
            const auto size = static_cast<std::ptrdiff_t>(shard.size()) / stride;
            whole.insert(whole.end(), shard.begin() + i * size, shard.begin() + (i + 1) * size);
        }
    }
    return whole;
}

TEST(TensorParallel, ShardsOfPackedAndGatedWeightsMakeTheWholeByTheirStride) {
    ModelSpec model = layer_model();
    model.gated_mlp = true;
    model.kv_heads = 2;
    model.ffn = 8;
    for (const std::string_view name : {"mlp.linear_fc1.weight", "self_attention.linear_qkv.weight"}) {
        const auto one = assembled(model, 1, name);
        EXPECT_EQ(assembled(model, 2, name), one) << name;
        EXPECT_EQ(assembled(model, 4, name), one) << name;
    }
}

TEST(TensorParallel, LargeWeightsDrawnInStretchesAreThoseOfSmallShards) {
    ModelSpec model = layer_model();
    model.gated_mlp = true;
    model.hidden = 2048;
    model.ffn = 768;  // three million values, and a quarter of them below what is worth a second thread
    EXPECT_EQ(assembled(model, 4, "mlp.linear_fc1.weight"), assembled(model, 1, "mlp.linear_fc1.weight"));
}

}  // namespace
}  // namespace mgplan::model::tensor_parallel_test
