#pragma once
// See model/ops/causal_conv.hpp; the formulas are those of runtime/cpu/ops/causal_conv.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// Channels of a projection, and the convolution in front of SiLU, of N channels at a time.
template <class Element>
struct ConvolvedChannels {
    using Sum = Compute<Element>;
    const Element *x, *weight, *bias;
    std::int64_t places, batch, channels, taps, pitch, begin;

    [[nodiscard]] MGPLAN_BOTH std::int64_t at(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        return (place * batch + sequence) * pitch + begin + channel;
    }
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Pack<Sum, N> in_front(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        Pack<Sum, N> sums{};
        if (bias != nullptr) {
            for (int k = 0; k < N; ++k) sums[k] = Sum(bias[channel + k]);
        }
        const auto values_of = [&](std::int64_t j) { return load_pack<N>(x + at(place - taps + 1 + j, sequence, channel)); };
        const auto add = [&](const Pack<Element, N>& values, std::int64_t j) {
            for (int k = 0; k < N; ++k) sums[k] += Sum(weight[(channel + k) * taps + j]) * Sum(values[k]);
        };
        std::int64_t j = place >= taps - 1 ? 0 : taps - 1 - place;
        for (; j + 1 < taps; j += 2) {  // two are under way at once
            const auto one = values_of(j), other = values_of(j + 1);
            add(one, j);
            add(other, j + 1);
        }
        if (j < taps) add(values_of(j), j);
        return sums;
    }
    /// Gradient in front of SiLU.
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Pack<Sum, N> slope(const Element* dy, std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        const auto slopes = load_pack<N>(dy + (place * batch + sequence) * channels + channel);
        Pack<Sum, N> result = in_front<N>(place, sequence, channel);
        for (int k = 0; k < N; ++k) {
            const Sum u = result[k], s = 1 / (1 + exponential(-u));
            result[k] = Sum(slopes[k]) * s * (1 + u * (1 - s));
        }
        return result;
    }
};

template <class Element, int N>
struct CausalConv {
    ConvolvedChannels<Element> in;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, pack] = row_column(index, in.channels / N);
        const auto [place, sequence] = row_column(row, in.batch);
        const auto u = in.template in_front<N>(place, sequence, pack * N);
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) result[k] = Element(u[k] / (1 + exponential(-u[k])));
        store_pack<N>(y + index * N, result);
    }
};

template <class Element, int N>
struct CausalConvInputGradient {
    using Sum = Compute<Element>;
    ConvolvedChannels<Element> in;
    const Element* dy;
    Element* dx;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, pack] = row_column(index, in.channels / N);
        const auto [place, sequence] = row_column(row, in.batch);
        const std::int64_t channel = pack * N;
        Pack<Sum, N> sums{};
        for (std::int64_t j = in.taps - 1; j >= 0 && place + in.taps - 1 - j < in.places; --j) {
            const auto slopes = in.template slope<N>(dy, place + in.taps - 1 - j, sequence, channel);
            for (int k = 0; k < N; ++k) sums[k] += Sum(in.weight[(channel + k) * in.taps + j]) * slopes[k];
        }
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) result[k] = Element(sums[k]);
        store_pack<N>(dx + in.at(place, sequence, channel), result);
    }
};

/// Sums over the rows of one part: (parts, taps + 1, channels), those of each tap and those of the bias.
template <class Element, int N>
struct CausalConvColumns {
    using Sum = Compute<Element>;
    ConvolvedChannels<Element> in;
    const Element* dy;
    Sum* sums;
    std::int64_t rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, rest] = row_column(index, (in.taps + 1) * (in.channels / N));
        const auto [tap, pack] = row_column(rest, in.channels / N);
        const std::int64_t channel = pack * N, rows = in.places * in.batch, first = part * rows_per_part;
        const std::int64_t end = first + rows_per_part < rows ? first + rows_per_part : rows;
        Pack<Sum, N> of_channels{};
        for (std::int64_t row = first; row < end; ++row) {
            const auto [place, sequence] = row_column(row, in.batch);
            const std::int64_t from = place - in.taps + 1 + tap;
            if (tap < in.taps && from < 0) continue;
            const auto du = in.template slope<N>(dy, place, sequence, channel);
            if (tap < in.taps) {
                const auto values = load_pack<N>(in.x + in.at(from, sequence, channel));
                for (int k = 0; k < N; ++k) of_channels[k] += du[k] * Sum(values[k]);
            } else {
                for (int k = 0; k < N; ++k) of_channels[k] += du[k];
            }
        }
        store_pack<N>(sums + index * N, of_channels);
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

/// Addresses and lengths that packs must divide.
template <class Element, class Arguments>
std::uint64_t causal_conv_bytes(const Arguments& x) {
    return address(x.x.data) | static_cast<std::uint64_t>(x.x_pitch | x.x_begin | x.channels) * sizeof(Element);
}

template <class Launcher>
void causal_conv(model::Device& device, const model::CausalConvArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        with_pack<kPack<Element>>(causal_conv_bytes<Element>(x) | address(x.y.data), [&]<int N>() {
            Launcher::of(device).each(x.places * x.batch * x.channels / N,
                                      CausalConv<Element, N>{convolved_channels<Element>(x), values<Element>(x.y)});
        });
    });
}

template <class Launcher>
void causal_conv_backward(model::Device& device, const model::CausalConvBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const std::int64_t rows = x.places * x.batch;
    with_types(x.x.dtype, x.weight_gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const ConvolvedChannels<Element> in = convolved_channels<Element>(x);
        const std::uint64_t bytes = causal_conv_bytes<Element>(x) | address(x.dy.data) | address(x.dx.data) | address(x.column_sums.data);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            launcher.each(rows * x.channels / N, CausalConvInputGradient<Element, N>{in, values<Element>(x.dy), values<Element>(x.dx)});
            launcher.each(
                x.parts * (x.taps + 1) * x.channels / N,
                CausalConvColumns<Element, N>{in, values<Element>(x.dy), values<Sum>(x.column_sums), (rows + x.parts - 1) / x.parts});
        });
        launcher.each(x.channels * x.taps, AddTapSums<Sum, Gradient>{values<Sum>(x.column_sums), values<Gradient>(x.weight_gradient),
                                                                     x.channels, x.taps, x.parts});
    });
    if (x.bias_gradient.data != nullptr)
        add_column_sums(launcher, x.x.dtype, x.column_sums, x.taps * x.channels, (x.taps + 1) * x.channels, x.parts, x.channels,
                        x.bias_gradient);
}

}  // namespace mgplan::runtime::cuda
