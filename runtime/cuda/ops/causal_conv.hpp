#pragma once
// See model/ops/causal_conv.hpp; the formulas are those of runtime/cpu/ops/causal_conv.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Channels of a projection, and the convolution in front of SiLU.
template <class Element>
struct ConvolvedChannels {
    using Sum = Compute<Element>;
    const Element *x, *weight, *bias;
    std::int64_t places, batch, channels, taps, pitch, begin;

    [[nodiscard]] MGPLAN_BOTH std::int64_t at(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        return (place * batch + sequence) * pitch + begin + channel;
    }
    [[nodiscard]] MGPLAN_BOTH Sum in_front(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        Sum sum = bias != nullptr ? Sum(bias[channel]) : Sum{0};
        for (std::int64_t j = place >= taps - 1 ? 0 : taps - 1 - place; j < taps; ++j)
            sum += Sum(weight[channel * taps + j]) * Sum(x[at(place - taps + 1 + j, sequence, channel)]);
        return sum;
    }
    /// Gradient in front of SiLU.
    [[nodiscard]] MGPLAN_BOTH Sum slope(const Element* dy, std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        const Sum u = in_front(place, sequence, channel), s = 1 / (1 + exponential(-u));
        return Sum(dy[(place * batch + sequence) * channels + channel]) * s * (1 + u * (1 - s));
    }
};

template <class Element>
struct CausalConv {
    ConvolvedChannels<Element> in;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, channel] = row_column(index, in.channels);
        const auto [place, sequence] = row_column(row, in.batch);
        const Compute<Element> u = in.in_front(place, sequence, channel);
        y[index] = Element(u / (1 + exponential(-u)));
    }
};

template <class Element>
struct CausalConvInputGradient {
    using Sum = Compute<Element>;
    ConvolvedChannels<Element> in;
    const Element* dy;
    Element* dx;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, channel] = row_column(index, in.channels);
        const auto [place, sequence] = row_column(row, in.batch);
        Sum sum = 0;
        for (std::int64_t j = in.taps - 1; j >= 0 && place + in.taps - 1 - j < in.places; --j)
            sum += Sum(in.weight[channel * in.taps + j]) * in.slope(dy, place + in.taps - 1 - j, sequence, channel);
        dx[in.at(place, sequence, channel)] = Element(sum);
    }
};

/// Sums over the rows of one part: (parts, taps + 1, channels), those of each tap and those of the bias.
template <class Element>
struct CausalConvColumns {
    using Sum = Compute<Element>;
    ConvolvedChannels<Element> in;
    const Element* dy;
    Sum* sums;
    std::int64_t rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, rest] = row_column(index, (in.taps + 1) * in.channels);
        const auto [tap, channel] = row_column(rest, in.channels);
        const std::int64_t rows = in.places * in.batch, first = part * rows_per_part;
        const std::int64_t end = first + rows_per_part < rows ? first + rows_per_part : rows;
        Sum sum = 0;
        for (std::int64_t row = first; row < end; ++row) {
            const auto [place, sequence] = row_column(row, in.batch);
            const std::int64_t from = place - in.taps + 1 + tap;
            if (tap < in.taps && from < 0) continue;
            const Sum du = in.slope(dy, place, sequence, channel);
            sum += tap < in.taps ? du * Sum(in.x[in.at(from, sequence, channel)]) : du;
        }
        sums[index] = sum;
    }
};

/// weight (channels, taps) += the sums' taps, of all parts in order.
template <class Sum, class Gradient>
struct AddTapSums {
    const Sum* sums;
    Gradient* gradient;
    std::int64_t channels, taps, parts;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [channel, tap] = row_column(index, taps);
        Sum sum = 0;
        for (std::int64_t part = 0; part < parts; ++part) sum += sums[(part * (taps + 1) + tap) * channels + channel];
        gradient[index] = Gradient(Sum(gradient[index]) + sum);
    }
};

template <class Element, class Arguments>
ConvolvedChannels<Element> convolved_channels(const Arguments& x) {
    return {values<Element>(x.x),
            values<Element>(x.weight),
            values<Element>(x.bias),
            x.places,
            x.batch,
            x.channels,
            x.taps,
            x.x_pitch,
            x.x_begin};
}

template <class Launcher>
void causal_conv(model::Device& device, const model::CausalConvArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.places * x.batch * x.channels,
                                  CausalConv<Element>{convolved_channels<Element>(x), values<Element>(x.y)});
    });
}

template <class Launcher>
void causal_conv_backward(model::Device& device, const model::CausalConvBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const std::int64_t rows = x.places * x.batch;
    with_types(x.x.dtype, x.weight_gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const ConvolvedChannels<Element> in = convolved_channels<Element>(x);
        launcher.each(rows * x.channels, CausalConvInputGradient<Element>{in, values<Element>(x.dy), values<Element>(x.dx)});
        launcher.each(x.parts * (x.taps + 1) * x.channels,
                      CausalConvColumns<Element>{in, values<Element>(x.dy), values<Sum>(x.column_sums), (rows + x.parts - 1) / x.parts});
        launcher.each(x.channels * x.taps, AddTapSums<Sum, Gradient>{values<Sum>(x.column_sums), values<Gradient>(x.weight_gradient),
                                                                     x.channels, x.taps, x.parts});
    });
    if (x.bias_gradient.data != nullptr)
        add_column_sums(launcher, x.x.dtype, x.column_sums, x.taps * x.channels, (x.taps + 1) * x.channels, x.parts, x.channels,
                        x.bias_gradient);
}

}  // namespace mgplan::runtime::cuda
