// Biases of linear layers on a GPU: what its products do for them, what passes of their own do, and that both come to the same.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "model/layers/deferred_gradients.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/linear.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::linear_biases_test {
namespace {

using namespace model;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

constexpr std::int64_t kRows = 6, kIn = 16, kOut = 24;

class OpNames final : public OpListener {
public:
    void on_op(const OpRecord& record) override {
        names.emplace_back(record.name);
        read.push_back(record.bytes_read);
        written.push_back(record.bytes_written);
    }
    std::vector<std::string> names;
    std::vector<std::int64_t> read, written;
};

/// How a layer is run.
struct Way {
    Dtype dtype = Dtype::bf16, gradients = Dtype::fp32;
    bool in_products = true, row_parallel = false, deferred = false, begins = false;
    int ranks = 1;
    std::int64_t out = kOut;
};

/// What came of one forward and of two microbatches' backwards, on rank 0.
struct Outcome {
    std::vector<double> y, dx, d_weight, d_bias;
    std::vector<std::string> ops;               ///< of the forward and of the first backward
    std::vector<std::string> behind;            ///< of its weight-gradient pass
    std::int64_t with_bias = 0, with_sums = 0;  ///< products
};

template <class Layer>
void pass(const Layer& layer, RankContext& context, EmulatedDevice& device, const Way& way, const Tensor& x, const Tensor& dy,
          Outcome& into) {
    OpNames listener;
    device.set_listener(&listener);
    into.y = read(layer.forward(context, x));
    DeferredGradients later;
    if (way.deferred) context.deferred = &later;
    into.dx = read(layer.backward(context, dy, x));
    into.ops = listener.names;
    listener.names.clear();
    later.run();
    into.behind = listener.names;
    device.set_listener(nullptr);
    (void)layer.backward(context, dy, x);
    later.run();
}

Outcome run(const Way& way) {
    Outcome outcome;
    InProcessWorld world(way.ranks);
    run_ranks(world, [&](int rank) {
        EmulatedDevice device(emulated_traits(true));
        std::vector<std::int32_t> all;
        for (int i = 0; i < way.ranks; ++i) all.push_back(i);
        const auto tp = world.view(rank).join("tp", all);
        RankContext context;
        context.device = &device;
        context.tp = tp.get();
        context.dtype = way.dtype;
        context.biases_in_products = way.in_products;
        Maker maker(device, way.dtype);
        const Shape shape{way.out, kIn};
        model::Weight weight{maker.random(shape), maker.zeros(shape, way.gradients)};
        if (way.begins) weight.start = std::make_shared<GradientStart>(GradientStart{.products = true, .empty = true});
        const model::Weight bias{maker.random({way.out}), maker.zeros({way.out}, way.gradients)};
        const Tensor x = maker.random({kRows, kIn}), dy = maker.random({kRows, way.out});
        Outcome mine;
        if (way.row_parallel)
            pass(RowParallelLinear(weight, bias), context, device, way, x, dy, mine);
        else
            pass(ColumnParallelLinear(weight, bias), context, device, way, x, dy, mine);
        if (rank != 0) return;
        outcome = mine;
        outcome.d_weight = read(weight.gradient);
        outcome.d_bias = read(bias.gradient);
        outcome.with_bias = device.launcher().with_bias;
        outcome.with_sums = device.launcher().with_sums;
    });
    return outcome;
}

void expect_same(const Outcome& actual, const Outcome& expected) {
    expect_close(actual.y, expected.y, 0.012, "y");  // rounded once, not twice
    EXPECT_EQ(actual.dx, expected.dx);
    EXPECT_EQ(actual.d_weight, expected.d_weight);
    expect_close(actual.d_bias, expected.d_bias, 1e-5, "bias gradient");
}

TEST(LinearBiases, AreAddedAndSummedUpByProducts) {
    for (const bool row_parallel : {false, true}) {
        for (const bool begins : {false, true}) {
            Way way{.row_parallel = row_parallel, .begins = begins};
            const Outcome actual = run(way);
            EXPECT_THAT(actual.ops, ElementsAre("matmul", "matmul", "matmul", "add"));
            EXPECT_EQ(actual.with_bias, 1);
            EXPECT_EQ(actual.with_sums, 2) << "each microbatch adds its own";
            way.in_products = false;
            const Outcome expected = run(way);
            EXPECT_THAT(expected.ops, Contains("add_bias"));
            EXPECT_THAT(expected.ops, Contains("bias_gradient"));
            EXPECT_EQ(expected.with_bias + expected.with_sums, 0);
            expect_same(actual, expected);
        }
    }
}

TEST(LinearBiases, AreSummedUpWithTheWeightsGradientThatIsPutOff) {
    const Outcome actual = run({.deferred = true});
    EXPECT_THAT(actual.ops, ElementsAre("matmul", "matmul"));
    EXPECT_THAT(actual.behind, ElementsAre("matmul", "add"));
    const Outcome passes = run({.in_products = false, .deferred = true});
    EXPECT_THAT(passes.ops, ElementsAre("matmul", "add_bias", "matmul", "bias_gradient"));
    EXPECT_THAT(passes.behind, ElementsAre("matmul"));
    expect_same(actual, passes);
}

// fp32 is not asked for, sums in bf16 would be rounded once more, and rows of 20 values do not lie at multiples of 16 bytes.
TEST(LinearBiases, HavePassesWhereTheLibraryIsNotKnownToDoTheirWork) {
    const Outcome fp32 = run({.dtype = Dtype::fp32});
    EXPECT_EQ(fp32.with_bias + fp32.with_sums, 0);
    EXPECT_THAT(fp32.ops, ElementsAre("matmul", "add_bias", "matmul", "matmul", "bias_gradient"));
    const Outcome narrow = run({.gradients = Dtype::bf16});
    EXPECT_THAT(narrow.ops, ElementsAre("matmul", "matmul", "matmul", "bias_gradient"));
    const Outcome odd = run({.out = 20});
    EXPECT_THAT(odd.ops, ElementsAre("matmul", "add_bias", "matmul", "matmul", "bias_gradient"));
}

TEST(LinearBiases, OfReducedRowsHavePassesBehindTheReduction) {
    const Outcome rows = run({.row_parallel = true, .ranks = 2});
    EXPECT_EQ(rows.with_bias + rows.with_sums, 0);
    EXPECT_THAT(rows.ops, Contains("add_bias"));
    EXPECT_THAT(rows.ops, Contains("bias_gradient"));
    const Outcome columns = run({.ranks = 2});
    EXPECT_THAT(columns.ops, Not(Contains("add_bias")));
    EXPECT_THAT(columns.ops, Not(Contains("bias_gradient")));
}

TEST(LinearBiases, LieWhereTheLibraryMayLoad16Bytes) {
    EmulatedDevice device(emulated_traits(true));
    Maker maker(device, Dtype::bf16);
    const Tensor x = maker.random({kRows, kIn}), weight = maker.random({kOut, kIn}), dy = maker.random({kRows, kOut});
    const Tensor biases = maker.random({3, kOut}), behind = maker.random({kOut + 4});
    EXPECT_TRUE(adds_bias_in_product(x, weight, biases.slice(1, 2).view({kOut})));
    EXPECT_FALSE(adds_bias_in_product(x, weight, behind.slice(4, kOut + 4)));
    EXPECT_FALSE(
        adds_bias_in_product(behind.slice(4, kOut + 4).view({1, kOut}), maker.random({kOut, kOut}), biases.slice(1, 2).view({kOut})));
    EXPECT_TRUE(sums_columns_in_product(dy, x, maker.zeros({kOut, kIn}, Dtype::fp32)));
    EXPECT_FALSE(sums_columns_in_product(dy.slice(0, 0), x.slice(0, 0), maker.zeros({kOut, kIn}, Dtype::fp32)))
        << "nothing would be written";
    CpuDevice cpu;
    Maker on_cpu(cpu, Dtype::bf16);
    EXPECT_FALSE(adds_bias_in_product(on_cpu.random({kRows, kIn}), on_cpu.random({kOut, kIn}), on_cpu.random({kOut})));
}

TEST(LinearBiases, CountTheBytesThatProductsMoveForThem) {
    EmulatedDevice device(emulated_traits(true));
    Maker maker(device, Dtype::bf16);
    const Tensor x = maker.random({kRows, kIn}), weight = maker.random({kOut, kIn}), dy = maker.random({kRows, kOut});
    const Tensor gradient = maker.zeros({kOut, kIn}, Dtype::fp32), sums = maker.zeros({kOut}, Dtype::fp32);
    OpNames listener;
    device.set_listener(&listener);
    const Tensor y = linear(x, weight, maker.random({kOut}), "y");
    linear_gradients(dy, x, gradient, true, sums);
    device.set_listener(nullptr);
    EXPECT_THAT(listener.names, ElementsAre("matmul", "matmul", "add"));
    EXPECT_THAT(listener.read, ElementsAre(x.bytes() + weight.bytes() + 2 * kOut, dy.bytes() + x.bytes() + gradient.bytes(), 8 * kOut));
    EXPECT_THAT(listener.written, ElementsAre(y.bytes(), gradient.bytes() + 4 * kOut, 4 * kOut));
}

}  // namespace
}  // namespace mgplan::runtime::cuda::linear_biases_test
