// The ops of state-space layers and gated delta nets against plain recurrences, place by place in fp64, and their gradients against
// central differences.

#include <algorithm>
#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "model/ops/causal_conv.hpp"
#include "model/ops/delta_rule.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"
#include "model/ops/short_conv.hpp"
#include "model/ops/state_space.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::recurrent_test {
namespace {

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
double silu(double x) {
    return x * sigmoid(x);
}
double softplus(double x) {
    return std::log(1 + std::exp(x));
}

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

void expect_values(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
    expect_close(read(actual), expected, tolerance, "values");
}

/// y by one recurrence for each sequence and head.
std::vector<double> recurrence(const StateSpaceInputs& in, const StateSpaceSizes& s) {
    const auto mixed = read(in.mixed), projected = read(in.projected), bias = read(in.step_bias), log_decay = read(in.log_decay),
               skip = read(in.skip);
    std::vector<double> y(at(s.rows() * s.inner()));
    const std::int64_t pitch = in.projected.shape()[1];
    for (std::int64_t b = 0; b < s.batch; ++b) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
            std::vector<double> state(at(s.head_dim * s.state));
            const std::int64_t group = h / (s.heads / s.groups);
            for (std::int64_t t = 0; t < s.places; ++t) {
                const std::int64_t row = t * s.batch + b;
                const double step =
                    std::clamp(softplus(projected[at(row * pitch + in.step_begin + h)] + bias[at(h)]), s.step_low, s.step_high);
                const double kept = std::exp(-std::exp(log_decay[at(h)]) * step);
                for (std::int64_t p = 0; p < s.head_dim; ++p) {
                    const double x = mixed[at(row * s.width() + h * s.head_dim + p)];
                    double sum = skip[at(h)] * x;
                    for (std::int64_t n = 0; n < s.state; ++n) {
                        const std::int64_t write = row * s.width() + s.inner() + group * s.state + n;
                        double& value = state[at(p * s.state + n)];
                        value = kept * value + step * x * mixed[at(write)];
                        sum += value * mixed[at(write + s.groups * s.state)];
                    }
                    y[at(row * s.inner() + h * s.head_dim + p)] = sum;
                }
            }
        }
    }
    return y;
}

/// The same of the delta rule.
std::vector<double> recurrence(const DeltaRuleInputs& in, const DeltaRuleSizes& s) {
    const auto mixed = read(in.mixed), projected = read(in.projected), bias = read(in.step_bias), log_decay = read(in.log_decay);
    const Tensor& decay_columns = in.decays.defined() ? in.decays : in.projected;
    const auto decays = read(decay_columns);
    std::vector<double> y(at(s.rows() * s.values()));
    const std::int64_t pitch = in.projected.shape()[1], decay_pitch = decay_columns.shape()[1];
    for (std::int64_t b = 0; b < s.batch; ++b) {
        for (std::int64_t h = 0; h < s.value_heads; ++h) {
            std::vector<double> state(at(s.key_dim * s.value_dim));
            const std::int64_t key_head = h / (s.value_heads / s.key_heads);
            for (std::int64_t t = 0; t < s.places; ++t) {
                const std::int64_t row = t * s.batch + b;
                const auto unit = [&](std::int64_t begin) {
                    std::vector<double> vector;
                    double squares = 1e-6;
                    for (std::int64_t i = 0; i < s.key_dim; ++i) {
                        vector.push_back(mixed[at(row * s.width() + begin + key_head * s.key_dim + i)]);
                        squares += vector.back() * vector.back();
                    }
                    for (double& value : vector) value /= std::sqrt(squares);
                    return vector;
                };
                const auto q = unit(0), k = unit(s.keys());
                const double beta = sigmoid(projected[at(row * pitch + in.beta_begin + h)]);
                for (std::int64_t i = 0; i < s.key_dim; ++i) {
                    const std::int64_t decay = s.channel_decays ? h * s.key_dim + i : h;
                    const double raw = decays[at(row * decay_pitch + in.decay_begin + decay)] + bias[at(decay)];
                    for (std::int64_t c = 0; c < s.value_dim; ++c)
                        state[at(i * s.value_dim + c)] *= std::exp(-std::exp(log_decay[at(h)]) * softplus(raw));
                }
                for (std::int64_t c = 0; c < s.value_dim; ++c) {
                    double found = 0, read_out = 0;
                    for (std::int64_t i = 0; i < s.key_dim; ++i) found += state[at(i * s.value_dim + c)] * k[at(i)];
                    const double value = mixed[at(row * s.width() + 2 * s.keys() + h * s.value_dim + c)];
                    for (std::int64_t i = 0; i < s.key_dim; ++i) {
                        state[at(i * s.value_dim + c)] += k[at(i)] * beta * (value - found);
                        read_out += state[at(i * s.value_dim + c)] * q[at(i)] / std::sqrt(static_cast<double>(s.key_dim));
                    }
                    y[at(row * s.values() + h * s.value_dim + c)] = read_out;
                }
            }
        }
    }
    return y;
}

class RecurrentOps : public ::testing::TestWithParam<Dtype> {
protected:
    [[nodiscard]] double tolerance() const { return GetParam() == Dtype::fp64 ? 1e-12 : GetParam() == Dtype::fp32 ? 2e-5 : 6e-2; }
    runtime::CpuDevice device;
    Maker maker{device, GetParam()};
    Maker exact{device, Dtype::fp64};
};

StateSpaceInputs scan_inputs(Maker& maker, const StateSpaceSizes& sizes) {
    return {maker.random({sizes.rows(), sizes.width()}),
            maker.random({sizes.rows(), sizes.heads + 3}),
            2,
            maker.random({sizes.heads}),
            maker.random({sizes.heads}),
            maker.random({sizes.heads})};
}

DeltaRuleInputs rule_inputs(Maker& maker, const DeltaRuleSizes& sizes) {
    return {maker.random({sizes.rows(), sizes.width()}),
            maker.random({sizes.rows(), 2 * sizes.value_heads + 3}),
            1,
            sizes.value_heads + 2,
            maker.random({sizes.value_heads}),
            maker.random({sizes.value_heads})};
}

/// With a decay for each value of a key, in a tensor of their own.
DeltaRuleInputs channel_inputs(Maker& maker, const DeltaRuleSizes& sizes) {
    DeltaRuleInputs in = rule_inputs(maker, sizes);
    in.decay_begin = 2;
    in.step_bias = maker.random({sizes.decays()});
    in.decays = maker.random({sizes.rows(), sizes.decays() + 3});
    return in;
}

TEST_P(RecurrentOps, ScansAreTheRecurrencesWhateverTheChunk) {
    for (const std::int64_t chunk : {1, 4, 5, 11, 64}) {
        StateSpaceSizes sizes{.places = 11, .batch = 2, .heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = chunk};
        Maker same(device, GetParam()), same_exact(device, Dtype::fp64);
        expect_values(state_space_scan(scan_inputs(same, sizes), sizes), recurrence(scan_inputs(same_exact, sizes), sizes), tolerance());
    }
}

TEST_P(RecurrentOps, ScansKeepStepsWithinTheirLimits) {
    StateSpaceSizes sizes{.places = 6, .batch = 1, .heads = 2, .head_dim = 2, .groups = 1, .state = 3, .chunk = 4};
    const StateSpaceInputs free = scan_inputs(maker, sizes);
    const auto before = read(state_space_scan(free, sizes));
    sizes.step_low = 0.6, sizes.step_high = 0.8;
    const auto limited = read(state_space_scan(free, sizes));
    EXPECT_NE(limited, before);
    expect_close(limited, recurrence(scan_inputs(exact, sizes), sizes), tolerance(), "values");
}

/// Lightning attention as attention without softmax: each place sees those up to it, weaker by a head's own factor with every step.
std::vector<double> decaying_attention(const Tensor& mixed, const StateSpaceSizes& s) {
    const auto values = read(mixed);
    std::vector<double> y(at(s.rows() * s.inner()));
    const std::int64_t keys = s.inner(), queries = 2 * s.inner();
    for (std::int64_t b = 0; b < s.batch; ++b) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
            const double rate = s.fixed.factor * std::exp(-s.fixed.slope * static_cast<double>(s.fixed.first_head + h + 1));
            for (std::int64_t t = 0; t < s.places; ++t) {
                for (std::int64_t from = 0; from <= t; ++from) {
                    const std::int64_t row = (t * s.batch + b) * s.width() + h * s.state;
                    const std::int64_t other = (from * s.batch + b) * s.width() + h * s.state;
                    double score = 0;
                    for (std::int64_t n = 0; n < s.state; ++n) score += values[at(row + queries + n)] * values[at(other + keys + n)];
                    for (std::int64_t p = 0; p < s.head_dim; ++p)
                        y[at((t * s.batch + b) * s.inner() + h * s.head_dim + p)] +=
                            std::exp(-rate * static_cast<double>(t - from)) * score * values[at(other + p)];
                }
            }
        }
    }
    return y;
}

/// The third and fourth head of eight.
StateSpaceSizes lightning_sizes() {
    return {.places = 11,
            .batch = 2,
            .heads = 2,
            .head_dim = 3,
            .groups = 2,
            .state = 3,
            .chunk = 4,
            .fixed = {.factor = 0.7, .slope = 0.4, .first_head = 2}};
}

TEST_P(RecurrentOps, ScansWithFixedDecaysAreLightningAttention) {
    const StateSpaceSizes sizes = lightning_sizes();
    Maker same(device, GetParam()), same_exact(device, Dtype::fp64);
    const Shape shape{sizes.rows(), sizes.width()};
    expect_values(state_space_scan({.mixed = same.random(shape)}, sizes), decaying_attention(same_exact.random(shape), sizes), tolerance());
}

TEST_P(RecurrentOps, DeltaRulesAreTheRecurrences) {
    const DeltaRuleSizes sizes{.places = 9, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .chunk = 4};
    expect_values(delta_rule(rule_inputs(maker, sizes), sizes), recurrence(rule_inputs(exact, sizes), sizes), tolerance());
}

TEST_P(RecurrentOps, DeltaRulesDecayEachChannelOnItsOwn) {
    const DeltaRuleSizes sizes{
        .places = 9, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .chunk = 4, .channel_decays = true};
    expect_values(delta_rule(channel_inputs(maker, sizes), sizes), recurrence(channel_inputs(exact, sizes), sizes), tolerance());
}

TEST_P(RecurrentOps, ConvolutionsSeeTheirOwnPlaceAndThoseBefore) {
    const std::int64_t places = 6, batch = 2, width = 5;
    const Tensor x = maker.random({places * batch, 8}), weight = maker.random({width, 1, 4}), bias = maker.random({width});
    const auto in = read(x), taps = read(weight), add = read(bias);
    std::vector<double> expected, unbiased;
    for (std::int64_t row = 0; row < places * batch; ++row) {
        for (std::int64_t c = 0; c < width; ++c) {
            double sum = 0;
            for (std::int64_t back = 0; back < 4 && row - back * batch >= 0; ++back)
                sum += taps[at(c * 4 + 3 - back)] * in[at((row - back * batch) * 8 + 2 + c)];
            expected.push_back(silu(sum + add[at(c)]));
            unbiased.push_back(silu(sum));
        }
    }
    expect_values(causal_conv(x, {2, width}, weight, bias, batch), expected, tolerance());
    expect_values(causal_conv(x, {2, width}, weight, {}, batch), unbiased, tolerance());
}

TEST_P(RecurrentOps, ShortConvolutionsAreGatedOnBothSides) {
    const std::int64_t places = 5, batch = 2, width = 3, taps = 3;
    const Tensor projected = maker.random({places * batch, 3 * width}), weight = maker.random({width, 1, taps});
    const auto in = read(projected), w = read(weight);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < places * batch; ++row) {
        for (std::int64_t c = 0; c < width; ++c) {
            double sum = 0;
            for (std::int64_t back = 0; back < taps && row - back * batch >= 0; ++back) {
                const std::int64_t of_row = (row - back * batch) * 3 * width + c;
                sum += w[at(c * taps + taps - 1 - back)] * in[at(of_row)] * in[at(of_row + 2 * width)];
            }
            expected.push_back(in[at(row * 3 * width + width + c)] * sum);
        }
    }
    expect_values(short_conv(projected, weight, batch), expected, tolerance());
}

TEST_P(RecurrentOps, GatedNormsNormBeforeOrBehindTheGate) {
    const Tensor x = maker.random({3, 6}), gates = maker.random({3, 9}), weight = maker.random({6}), of_group = maker.random({2});
    const auto in = read(x), z = read(gates);
    const auto expected = [&](std::int64_t group, bool gate_first, const std::vector<double>& scale) {
        std::vector<double> y;
        for (std::int64_t i = 0; i < 18; ++i) {
            const auto value = [&](std::int64_t j) { return in[at(j)] * (gate_first ? silu(z[at(j / 6 * 9 + 1 + j % 6)]) : 1); };
            double squares = 0;
            for (std::int64_t j = i / group * group; j < i / group * group + group; ++j) squares += value(j) * value(j);
            const double norm = scale.empty() ? 1 : std::sqrt(squares / static_cast<double>(group) + 1e-3);
            const double weighed = value(i) / norm * (scale.empty() ? 1 : scale[at(i % 6) % scale.size()]);
            y.push_back(gate_first ? weighed : weighed * silu(z[at(i / 6 * 9 + 1 + i % 6)]));
        }
        return y;
    };
    Tensor statistics;
    expect_values(gated_norm(x, gates, {1, 6}, weight, {3, true, 1e-3}, statistics), expected(3, true, read(weight)), tolerance());
    EXPECT_EQ(statistics.shape(), (Shape{3, 2}));
    expect_values(gated_norm(x, gates, {1, 6}, weight, {6, false, 1e-3}, statistics), expected(6, false, read(weight)), tolerance());
    expect_values(gated_norm(x, gates, {1, 6}, of_group, {2, false, 1e-3}, statistics), expected(2, false, read(of_group)), tolerance());
    expect_values(gated_norm(x, gates, {1, 6}, {}, {6, true, 1e-3}, statistics), expected(6, true, {}), tolerance());
    EXPECT_FALSE(statistics.defined()) << "without a norm nothing is kept";
    const auto by_silu = read(gated_norm(x, gates, {1, 6}, weight, {3, false, 1e-3, false}, statistics));
    std::vector<double> by_sigmoid;
    for (std::int64_t i = 0; i < 18; ++i) by_sigmoid.push_back(by_silu[at(i)] / z[at(i / 6 * 9 + 1 + i % 6)]);
    expect_values(gated_norm(x, gates, {1, 6}, weight, {3, false, 1e-3, true}, statistics), by_sigmoid, 4 * tolerance());
}

TEST_P(RecurrentOps, ScaledColumnsAreThoseOfEveryRowAlone) {
    const Tensor x = maker.random({3, 5});
    std::vector<double> expected = read(x);
    for (std::int64_t row = 0; row < 3; ++row) {
        for (const std::int64_t column : {1, 2}) expected[at(row * 5 + column)] *= 0.5;
    }
    scale_columns(x, 1, 2, 0.5);
    EXPECT_EQ(read(x), expected) << "halves are exact in every type";
}

INSTANTIATE_TEST_SUITE_P(InEachType, RecurrentOps, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

class RecurrentGradients : public ::testing::Test {
protected:
    runtime::CpuDevice device;
    Maker maker{device, Dtype::fp64};
};

TEST_F(RecurrentGradients, OfScansHoldForAllInputs) {
    for (const double limit : {1e9, 0.7}) {
        const StateSpaceSizes sizes{
            .places = 7, .batch = 2, .heads = 4, .head_dim = 2, .groups = 2, .state = 3, .chunk = 3, .step_low = 1e-3, .step_high = limit};
        const StateSpaceInputs in = scan_inputs(maker, sizes);
        const Tensor dy = maker.random({sizes.rows(), sizes.inner()}), d_projected = maker.zeros(in.projected.shape());
        const StateSpaceGradients gradients{maker.zeros({4}), maker.zeros({4}), maker.zeros({4})};
        const Tensor dx = state_space_scan_backward(dy, in, sizes, d_projected, gradients);
        const auto loss = [&] { return weigh(state_space_scan(in, sizes), dy); };
        expect_gradient("x, B and C", in.mixed, dx, loss);
        expect_gradient("raw steps", in.projected, d_projected, loss);
        expect_gradient("dt_bias", in.step_bias, gradients.step_bias, loss);
        expect_gradient("A_log", in.log_decay, gradients.log_decay, loss);
        expect_gradient("D", in.skip, gradients.skip, loss);
    }
}

TEST_F(RecurrentGradients, OfScansWithFixedDecaysHold) {
    const StateSpaceSizes sizes = lightning_sizes();
    const StateSpaceInputs in{.mixed = maker.random({sizes.rows(), sizes.width()})};
    const Tensor dy = maker.random({sizes.rows(), sizes.inner()});
    const Tensor dx = state_space_scan_backward(dy, in, sizes, {}, {});
    expect_gradient("v, k and q", in.mixed, dx, [&] { return weigh(state_space_scan(in, sizes), dy); });
}

TEST_F(RecurrentGradients, OfDeltaRulesHoldForAllInputs) {
    const DeltaRuleSizes sizes{.places = 7, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 2, .chunk = 3};
    const DeltaRuleInputs in = rule_inputs(maker, sizes);
    const Tensor dy = maker.random({sizes.rows(), sizes.values()}), d_projected = maker.zeros(in.projected.shape());
    const Tensor d_bias = maker.zeros({4}), d_log_decay = maker.zeros({4});
    const Tensor dx = delta_rule_backward(dy, in, sizes, d_projected, d_bias, d_log_decay);
    const auto loss = [&] { return weigh(delta_rule(in, sizes), dy); };
    expect_gradient("q, k and v", in.mixed, dx, loss);
    expect_gradient("beta and decay", in.projected, d_projected, loss);
    expect_gradient("dt_bias", in.step_bias, d_bias, loss);
    expect_gradient("A_log", in.log_decay, d_log_decay, loss);
}

TEST_F(RecurrentGradients, OfDeltaRulesWithADecayForEachChannelHoldForAllInputs) {
    const DeltaRuleSizes sizes{
        .places = 7, .batch = 2, .key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 2, .chunk = 3, .channel_decays = true};
    const DeltaRuleInputs in = channel_inputs(maker, sizes);
    const Tensor dy = maker.random({sizes.rows(), sizes.values()}), d_projected = maker.zeros(in.projected.shape());
    const Tensor d_bias = maker.zeros({12}), d_log_decay = maker.zeros({4}), d_decays = maker.zeros(in.decays.shape());
    const Tensor dx = delta_rule_backward(dy, in, sizes, d_projected, d_bias, d_log_decay, d_decays);
    const auto loss = [&] { return weigh(delta_rule(in, sizes), dy); };
    expect_gradient("q, k and v", in.mixed, dx, loss);
    expect_gradient("beta", in.projected, d_projected, loss);
    expect_gradient("decays", in.decays, d_decays, loss);
    expect_gradient("dt_bias", in.step_bias, d_bias, loss);
    expect_gradient("A_log", in.log_decay, d_log_decay, loss);
}

TEST_F(RecurrentGradients, OfConvolutionsHoldForInputWeightAndBias) {
    for (const bool biased : {true, false}) {
        const Tensor x = maker.random({10, 7}), weight = maker.random({4, 1, 3}), dy = maker.random({10, 4});
        const Tensor bias = biased ? maker.random({4}) : Tensor(), d_bias = biased ? maker.zeros({4}) : Tensor();
        const Tensor dx = maker.zeros({10, 7}), d_weight = maker.zeros({4, 1, 3});
        causal_conv_backward(dy, x, {2, 4}, weight, bias, 2, dx, d_weight, d_bias);
        const auto loss = [&] { return weigh(causal_conv(x, {2, 4}, weight, bias, 2), dy); };
        expect_gradient("x", x, dx, loss);
        expect_gradient("weight", weight, d_weight, loss);
        if (biased) expect_gradient("bias", bias, d_bias, loss);
    }
}

TEST_F(RecurrentGradients, OfShortConvolutionsHoldForProjectionAndWeight) {
    for (const std::int64_t taps : {1, 3, 7}) {  // as many as one, fewer and more than a sequence has places
        const Tensor projected = maker.random({10, 9}), weight = maker.random({3, 1, taps}), dy = maker.random({10, 3});
        const Tensor d_weight = maker.zeros({3, 1, taps});
        const Tensor d_projected = short_conv_backward(dy, projected, weight, 2, d_weight);
        const auto loss = [&] { return weigh(short_conv(projected, weight, 2), dy); };
        expect_gradient("B, C and x", projected, d_projected, loss);
        expect_gradient("weight", weight, d_weight, loss);
    }
}

TEST_F(RecurrentGradients, OfGatedNormsHoldForInputGateAndWeight) {
    for (const auto& [gate_first, sigmoid] : {std::pair{true, false}, {false, false}, {false, true}}) {
        for (const std::int64_t weights : {6, 3, 0}) {
            const Tensor x = maker.random({4, 6}), gates = maker.random({4, 8}), dy = maker.random({4, 6}), d_gates = maker.zeros({4, 8});
            const Tensor weight = weights > 0 ? maker.random({weights}) : Tensor(),
                         d_weight = weights > 0 ? maker.zeros({weights}) : Tensor();
            const GatedNormOptions options{3, gate_first, 1e-4, sigmoid};
            Tensor statistics, again;
            (void)gated_norm(x, gates, {1, 6}, weight, options, statistics);
            const Tensor dx = gated_norm_backward(dy, x, gates, {1, 6}, weight, statistics, options, d_gates, d_weight);
            const auto loss = [&] { return weigh(gated_norm(x, gates, {1, 6}, weight, options, again), dy); };
            expect_gradient("x", x, dx, loss);
            expect_gradient("gate", gates, d_gates, loss);
            if (weights > 0) expect_gradient("weight", weight, d_weight, loss);
        }
    }
}

TEST_F(RecurrentGradients, ShapesThatDoNotFitAreBugs) {
    const StateSpaceSizes sizes{.places = 3, .batch = 1, .heads = 2, .head_dim = 2, .groups = 1, .state = 3};
    StateSpaceInputs in = scan_inputs(maker, sizes);
    in.step_begin = 4;
    EXPECT_THROW((void)state_space_scan(in, sizes), std::logic_error) << "steps behind the projection's columns";
    in = scan_inputs(maker, sizes);
    in.mixed = maker.random({3, 9});
    EXPECT_THROW((void)state_space_scan(in, sizes), std::logic_error);
    const DeltaRuleSizes rule{.places = 3, .batch = 1, .key_heads = 2, .value_heads = 3, .key_dim = 2, .value_dim = 2};
    EXPECT_THROW((void)delta_rule(rule_inputs(maker, rule), rule), std::logic_error) << "a key head serves equally many value heads";
    EXPECT_THROW((void)causal_conv(maker.random({4, 3}), {1, 3}, maker.random({3, 1, 2}), {}, 1), std::logic_error);
    EXPECT_THROW((void)short_conv(maker.random({4, 8}), maker.random({3, 1, 2}), 1), std::logic_error);
    const DeltaRuleSizes channels{
        .places = 3, .batch = 1, .key_heads = 2, .value_heads = 2, .key_dim = 2, .value_dim = 2, .channel_decays = true};
    EXPECT_THROW((void)delta_rule(rule_inputs(maker, channels), channels), std::logic_error) << "a bias for each decay";
    EXPECT_THROW(scale_columns(maker.random({2, 4}), 3, 2, 0.5), std::logic_error) << "columns behind the tensor's";
    Tensor statistics;
    EXPECT_THROW((void)gated_norm(maker.random({2, 4}), maker.random({2, 4}), {0, 4}, maker.random({4}), {3, false, 1e-5}, statistics),
                 std::logic_error);
}

}  // namespace
}  // namespace mgplan::model::recurrent_test
