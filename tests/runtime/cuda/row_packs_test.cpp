// Kernels that read rows in packs of sixteen bytes, run on the host against those of the CPU: widths of whole packs and widths that are
// none, from aligned memory and from one value further. A pack at an address that a GPU would not take fails here.

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/causal_conv.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/gated_norm.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/router.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/single_steps.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::runtime::cuda::row_packs_test {
namespace {

using namespace model;

/// Where the values lie that an op gets.
struct Place {
    std::int64_t rows = 5, width = 64, begin = 0;  ///< `begin` values behind an aligned address
    [[nodiscard]] std::string name() const { return fmt::format("{} columns, {} values further", width, begin); }
};

/// Widths around packs (2 to 8 values) and around what a team of lanes takes at once.
std::vector<Place> places() {
    std::vector<Place> list;
    for (const std::int64_t width : {8, 24, 63, 64, 65, 264, 1000, 2056}) {
        for (const std::int64_t begin : {0, 1}) list.push_back({.width = width, .begin = begin});
    }
    return list;
}

Tensor behind(Maker& maker, std::int64_t begin, const Shape& shape, Dtype dtype) {
    return maker.random({begin + shape.elements()}, dtype).slice(begin, begin + shape.elements()).view(shape);
}
Tensor behind(Maker& maker, std::int64_t begin, const Shape& shape) {
    return behind(maker, begin, shape, maker.dtype());
}

class RowPacks : public ::testing::TestWithParam<Dtype> {
protected:
    /// results(maker, place): what ops give on a device; equal on both up to the rounding of sums in another order.
    template <class Results>
    void expect_alike(const Results& results) const {
        const double tolerance = GetParam() == Dtype::bf16 ? 0.016 : GetParam() == Dtype::fp32 ? 4e-6 : 1e-12;
        for (const Place& place : places()) {
            CpuDevice cpu;
            EmulatedDevice gpu(emulated_traits(false));
            Maker on_cpu(cpu, GetParam()), on_gpu(gpu, GetParam());
            const std::vector<Tensor> expected = results(on_cpu, place), actual = results(on_gpu, place);
            ASSERT_EQ(actual.size(), expected.size());
            for (std::size_t i = 0; i < actual.size(); ++i)
                expect_close(read(actual[i]), read(expected[i]), tolerance, fmt::format("result {}, {}", i, place.name()));
        }
    }
};

TEST_P(RowPacks, OfNorms) {
    for (const auto kind : {Normalization::rms_norm, Normalization::layer_norm}) {
        expect_alike([&](Maker& maker, const Place& place) {
            const auto [rows, width, begin] = place;
            const bool biased = kind == Normalization::layer_norm;
            const Tensor x = behind(maker, begin, {rows, width}), dy = behind(maker, begin, {rows, width}),
                         weight = behind(maker, begin, {width}), bias = biased ? behind(maker, begin, {width}) : Tensor{};
            const Tensor of_weight = maker.zeros({width}), of_bias = biased ? maker.zeros({width}) : Tensor{};
            NormStatistics statistics;
            std::vector<Tensor> results{norm(x, weight, bias, kind, 1e-5, statistics)};
            results.push_back(norm_backward(dy, x, weight, statistics, kind, of_weight, of_bias));
            results.push_back(of_weight);
            if (biased) results.push_back(of_bias);
            return results;
        });
    }
}

// A gradient that a norm's backward adds in its own pass: the bits of the op that adds it behind.
TEST_P(RowPacks, OfNormsAddAnotherGradientAsAddDoes) {
    CpuDevice cpu;
    EmulatedDevice gpu(emulated_traits(false));
    for (Device* device : std::vector<Device*>{&cpu, &gpu}) {
        for (const auto kind : {Normalization::rms_norm, Normalization::layer_norm}) {
            for (const bool weighted : {false, true}) {
                for (const auto& [rows, width, begin] : places()) {
                    Maker maker(*device, GetParam());
                    const Tensor x = behind(maker, begin, {rows, width}), dy = behind(maker, begin, {rows, width}),
                                 other = behind(maker, begin, {rows, width}), weight = weighted ? behind(maker, begin, {width}) : Tensor{};
                    NormStatistics statistics;
                    (void)norm(x, weight, {}, kind, 1e-5, statistics);
                    const auto gradients = [&](const Tensor& added) {
                        const Tensor of_weight = weighted ? maker.zeros({width}) : Tensor{};
                        const Tensor dx = norm_backward(dy, x, weight, statistics, kind, of_weight, {}, added);
                        if (!added.defined()) add(other, dx);
                        return std::pair(read(dx), weighted ? read(of_weight) : std::vector<double>{});
                    };
                    EXPECT_EQ(gradients(other), gradients({})) << width << " columns, " << begin << " further, weighted: " << weighted;
                }
            }
        }
    }
}

TEST_P(RowPacks, OfCrossEntropies) {
    for (const std::int64_t padding : {0, 3}) {
        for (const double soft_cap : {0.0, 2.0}) {
            expect_alike([&](Maker& maker, const Place& place) {
                const auto [rows, width, begin] = place;
                const Tensor logits = behind(maker, begin, {rows, width});
                // The first and the last valid column, a column of another shard, a row without a target.
                const auto last = static_cast<double>(width - padding - 1);
                const Tensor targets = maker.ids({0, last, last + 100, -1, 1}, {rows});
                const VocabularyShard shard{.first = 0, .valid = width - padding};
                const Tensor maximum = row_maximum(logits, shard);
                const SoftmaxSums sums = softmax_sums(logits, targets, maximum, shard);
                std::vector<Tensor> results{maximum, sums.exponentials, sums.target, token_losses(sums, targets)};
                cross_entropy_backward(logits, targets, maximum, sums.exponentials, shard, 0.5, soft_cap);
                results.push_back(logits);
                return results;
            });
        }
    }
}

TEST_P(RowPacks, OfActivations) {
    for (const bool gated : {false, true}) {
        for (const auto kind : {Activation::silu, Activation::gelu, Activation::squared_relu}) {
            if (gated && kind == Activation::squared_relu) continue;
            expect_alike([&](Maker& maker, const Place& place) {
                const auto [rows, width, begin] = place;
                const Tensor x = behind(maker, begin, {rows, width * (gated ? 2 : 1)}), dy = behind(maker, begin, {rows, width});
                const Tensor weights = maker.random({rows}, maker.dtype() == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32);
                Tensor of_weights;
                std::vector<Tensor> results{activation(x, kind, gated), activation_backward(dy, x, kind, gated),
                                            weighted_activation(x, weights, kind, gated)};
                results.push_back(weighted_activation_backward(dy, x, weights, kind, gated, of_weights));
                results.push_back(of_weights);
                return results;
            });
        }
    }
}

TEST_P(RowPacks, OfBiases) {
    expect_alike([](Maker& maker, const Place& place) {
        const auto [rows, width, begin] = place;
        const Dtype kept = statistics_dtype(maker.dtype());
        const Tensor x = behind(maker, begin, {rows, width}), weighted = behind(maker, begin, {rows, width}),
                     bias = behind(maker, begin, {width}), dy = behind(maker, begin, {rows, width}), weights = maker.random({rows}, kept);
        const Tensor gradient = maker.zeros({width}, kept), weighted_gradient = maker.zeros({width}, kept),
                     of_weights = maker.zeros({rows}, kept);
        add_bias(x, bias);
        add_weighted_bias(weighted, bias, weights);
        bias_gradient(dy, gradient);
        weighted_bias_gradient(dy, bias, weights, weighted_gradient, of_weights);
        return std::vector<Tensor>{x, weighted, gradient, weighted_gradient, of_weights};
    });
}

// Copies that were dropped, and rows that only fill up.
TEST_P(RowPacks, OfCopies) {
    for (const std::int64_t capacity : {0, 4}) {
        expect_alike([&](Maker& maker, const Place& place) {
            const auto [rows, width, begin] = place;
            const Tensor experts = maker.ids({0, 2, 1, 1, 0, 2, -1, 2, 1, 1, -1, -1, 0, 1, 2}, {rows, 3});
            const Permutation permutation =
                capacity > 0 ? sort_and_pad(experts, 3, 5) : sort_by_expert(experts, count_by_expert(experts, 3), 12);
            const std::int64_t copies = permutation.source.elements();
            return std::vector<Tensor>{permute_rows(behind(maker, begin, {rows, width}), permutation, 3),
                                       unpermute_rows(behind(maker, begin, {copies, width}), permutation, rows, 3)};
        });
    }
}

// A gate for each row, and one for each value.
TEST_P(RowPacks, OfGates) {
    expect_alike([](Maker& maker, const Place& place) {
        const auto [rows, width, begin] = place;
        std::vector<Tensor> results;
        for (const auto& [gates, values] : {std::pair(rows, width), std::pair(rows * width, std::int64_t{1})}) {
            const Tensor x = behind(maker, begin, {gates, values}), dy = behind(maker, begin, {gates, values}),
                         logits = behind(maker, begin, {gates, 1});
            Tensor of_logits;
            results.push_back(gate_rows(x, logits));
            results.push_back(gate_rows_backward(dy, x, logits, of_logits));
            results.push_back(of_logits);
        }
        return results;
    });
}

// Groups of half a row, weights for each column or for each of a group, gates behind other columns of a projection.
TEST_P(RowPacks, OfGatedNorms) {
    for (const bool gate_first : {true, false}) {
        for (const std::int64_t sharing : {1, 2, 0}) {
            expect_alike([&](Maker& maker, const Place& place) {
                const auto [rows, group, begin] = place;
                const std::int64_t width = 2 * group;
                const Columns z{group + begin, width};
                const GatedNormOptions options{group, gate_first, 1e-3, sharing == 2};
                const Tensor x = behind(maker, begin, {rows, width}), dy = behind(maker, begin, {rows, width}),
                             gates = maker.random({rows, 4 * group});
                const Tensor weight = sharing > 0 ? behind(maker, begin, {width / sharing}) : Tensor(),
                             d_gates = maker.zeros({rows, 4 * group}), d_weight = sharing > 0 ? maker.zeros({width / sharing}) : Tensor();
                Tensor statistics;
                std::vector<Tensor> results{gated_norm(x, gates, z, weight, options, statistics)};
                results.push_back(gated_norm_backward(dy, x, gates, z, weight, statistics, options, d_gates, d_weight));
                results.push_back(d_gates);
                if (sharing > 0) results.push_back(d_weight);
                return results;
            });
        }
    }
}

// Two sequences, channels behind others of a projection.
TEST_P(RowPacks, OfCausalConvolutions) {
    for (const bool biased : {false, true}) {
        expect_alike([&](Maker& maker, const Place& place) {
            const std::int64_t width = place.width, rows = 10;
            const Columns channels{8 + place.begin, width};
            const Tensor x = maker.random({rows, width + 16}), dy = behind(maker, place.begin, {rows, width}),
                         taps = maker.random({width, 1, 4}), bias = biased ? maker.random({width}) : Tensor();
            const Tensor dx = maker.zeros({rows, width + 16}), d_taps = maker.zeros({width, 1, 4}),
                         d_bias = biased ? maker.zeros({width}) : Tensor();
            std::vector<Tensor> results{causal_conv(x, channels, taps, bias, 2), dx, d_taps};
            causal_conv_backward(dy, x, channels, taps, bias, 2, dx, d_taps, d_bias);
            if (biased) results.push_back(d_bias);
            return results;
        });
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, RowPacks, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// Steps of optimizers go in packs where every array is aligned, else one value at a time, with the same values.
TEST(OptimizerPacks, AndSingleValuesGiveTheSame) {
    for (const auto gradients : {Dtype::fp32, Dtype::bf16}) {
        for (const auto moments : {Dtype::fp32, Dtype::bf16}) {
            for (const std::int64_t elements : {1, 7, 8, 9, 33, 100}) {
                for (const std::int64_t begin : {0, 1}) {
                    EmulatedDevice gpu(emulated_traits(false));
                    const auto run = [&](Device& device) {
                        Maker maker(device, Dtype::fp32);
                        const Tensor main = behind(maker, begin, {elements}, Dtype::fp32),
                                     first = behind(maker, begin, {elements}, moments),
                                     second = maker.zeros({begin + elements}, moments).slice(begin, begin + elements),
                                     gradient = behind(maker, begin, {elements}, gradients),
                                     momentum = behind(maker, begin, {elements}, Dtype::fp32),
                                     parameter = behind(maker, begin, {elements}, Dtype::bf16);
                        adam_step(main, first, second, gradient, {.learning_rate = 0.01, .weight_decay = 0.1, .step = 3}, parameter);
                        momentum_step(main, momentum, gradient, {.rule = MomentumRule::lion, .learning_rate = 0.01});
                        return std::vector<std::vector<double>>{read(main), read(first), read(second), read(parameter), read(momentum)};
                    };
                    CpuDevice cpu;
                    const auto expected = run(cpu), actual = run(gpu);
                    for (std::size_t i = 0; i < expected.size(); ++i)
                        expect_close(actual[i], expected[i], i == 0 || i == 4 ? 2e-6 : 0.008,
                                     fmt::format("array {}, {} values, {} further", i, elements, begin));
                }
            }
        }
    }
}

}  // namespace
}  // namespace mgplan::runtime::cuda::row_packs_test
