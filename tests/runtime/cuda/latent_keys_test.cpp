// Latent keys of all heads go through few kernels: the CPU's bits, and those of head by head.

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/ops/elementwise.hpp"
#include "model/ops/latent_keys.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::latent_keys_test {
namespace {

using namespace model;

struct Sizes {
    std::int64_t rows = 3, heads = 1, own = 8, width = 8, v_dim = 8;
    std::int64_t begin = 0;  ///< all tensors begin so many values behind an aligned address
    [[nodiscard]] std::string name() const {
        return fmt::format("{} heads, {} + {} and {} columns, {} values further", heads, own, width, v_dim, begin);
    }
};

/// Sizes in packs and not, heads around those that are under way at once, aligned memory and other.
std::vector<Sizes> all_sizes() {
    std::vector<Sizes> list;
    for (const std::int64_t heads : {1, 3, 4, 5, 8, 130}) {
        for (const std::int64_t begin : {0, 1}) {
            list.push_back({.heads = heads, .own = 16, .width = 8, .v_dim = 24, .begin = begin});
            list.push_back({.heads = heads, .own = 8, .width = 16, .v_dim = 8, .begin = begin});
            list.push_back({.heads = heads, .own = 3, .width = 5, .v_dim = 2, .begin = begin});
            list.push_back({.heads = heads, .own = 8, .width = 4, .v_dim = 6, .begin = begin});
            list.push_back({.heads = heads, .own = 8, .width = 0, .v_dim = 8, .begin = begin});
        }
    }
    return list;
}

/// Values of many magnitudes, so that sums in another order have other bits.
Tensor spread(Maker& maker, const Sizes& sizes, const Shape& shape) {
    std::vector<double> list = maker.numbers(sizes.begin + shape.elements());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = std::ldexp(list[i], static_cast<int>(i * 7 % 31) - 15);
    const Tensor all = make(maker.device(), {std::ssize(list)}, maker.dtype(), list);
    return all.slice(sizes.begin, all.elements()).view(shape);
}

using Values = std::vector<std::vector<double>>;

Values both_ways(Maker& maker, const Sizes& sizes) {
    const auto [rows, heads, own, width, v_dim, begin] = sizes;
    const Tensor projected = spread(maker, sizes, {rows, heads, own + v_dim}), shared = spread(maker, sizes, {rows, width}),
                 dk = spread(maker, sizes, {rows, heads, own + width}), dv = spread(maker, sizes, {rows, heads, v_dim});
    const LatentKeys keys = join_latent_keys(projected, width > 0 ? shared : Tensor(), own);
    const LatentKeyGradients gradients = split_latent_keys(dk, dv, own);
    Values values{read(keys.k), read(keys.v), read(gradients.projected)};
    if (width > 0) values.push_back(read(gradients.shared));
    return values;
}

/// The same by ops that move columns, and sums of one head after the other.
Values head_by_head(Maker& maker, const Sizes& sizes) {
    const auto [rows, heads, own, width, v_dim, begin] = sizes;
    const Tensor projected = spread(maker, sizes, {rows, heads, own + v_dim}), shared = spread(maker, sizes, {rows, width}),
                 dk = spread(maker, sizes, {rows, heads, own + width}), dv = spread(maker, sizes, {rows, heads, v_dim});
    const Tensor by_head = projected.view({rows * heads, own + v_dim}), k = maker.zeros({rows, heads * (own + width)}),
                 d_projected = maker.zeros({rows * heads, own + v_dim}), d_shared = maker.zeros({rows, width}),
                 sum = maker.zeros({rows, width}, maker.dtype() == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32);
    set_columns(columns(by_head, 0, own), k.view({rows * heads, own + width}), 0);
    for (std::int64_t head = 0; head < heads && width > 0; ++head) {
        const std::int64_t from = head * (own + width) + own;
        set_columns(shared, k, from);
        add(columns(dk.view({rows, heads * (own + width)}), from, from + width), sum);
    }
    copy(sum, d_shared);
    set_columns(columns(dk.view({rows * heads, own + width}), 0, own), d_projected, 0);
    set_columns(dv.view({rows * heads, v_dim}), d_projected, own);
    Values values{read(k), read(columns(by_head, own, own + v_dim)), read(d_projected)};
    if (width > 0) values.push_back(read(d_shared));
    return values;
}

class LatentKernels : public testing::TestWithParam<Dtype> {};

TEST_P(LatentKernels, OfAllHeadsGiveTheBitsOfHeadByHead) {
    for (const Sizes& sizes : all_sizes()) {
        CpuDevice cpu;
        EmulatedDevice gpu(emulated_traits(false));
        Maker on_cpu(cpu, GetParam()), again(cpu, GetParam()), on_gpu(gpu, GetParam());
        const Values expected = head_by_head(on_cpu, sizes);
        EXPECT_EQ(both_ways(again, sizes), expected) << "on the CPU, " << sizes.name();
        EXPECT_EQ(both_ways(on_gpu, sizes), expected) << "on a GPU, " << sizes.name();
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, LatentKernels, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(LatentKernelLaunches, AreAsManyForAllHeadsAsForOne) {
    for (const std::int64_t heads : {1, 128}) {
        EmulatedDevice gpu(emulated_traits(false));
        Maker maker(gpu, Dtype::bf16);
        const Tensor projected = maker.random({2, heads, 16}), shared = maker.random({2, 8}), dk = maker.random({2, heads, 16}),
                     dv = maker.random({2, heads, 8});
        const std::int64_t before = gpu.launcher().launches();
        (void)join_latent_keys(projected, shared, 8);
        EXPECT_EQ(gpu.launcher().launches() - before, 1) << heads;
        (void)split_latent_keys(dk, dv, 8);
        EXPECT_EQ(gpu.launcher().launches() - before, 3) << heads;
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::latent_keys_test
