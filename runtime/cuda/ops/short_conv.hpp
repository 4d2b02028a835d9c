#pragma once
// See model/ops/short_conv.hpp; the formulas are those of runtime/cpu/ops/short_conv.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// The projection's blocks B, C, x side by side, and the convolution of B · x.
template <class Element>
struct GatedChannels {
    using Sum = Compute<Element>;
    const Element *projected, *weight;
    std::int64_t places, batch, width, taps;

    [[nodiscard]] MGPLAN_BOTH std::int64_t at(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        return (place * batch + sequence) * 3 * width + channel;
    }
    [[nodiscard]] MGPLAN_BOTH Sum gated(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        const std::int64_t b = at(place, sequence, channel);
        return Sum(projected[b]) * Sum(projected[b + 2 * width]);
    }
    [[nodiscard]] MGPLAN_BOTH Sum convolved(std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        Sum sum = 0;
        for (std::int64_t j = place >= taps - 1 ? 0 : taps - 1 - place; j < taps; ++j)
            sum += Sum(weight[channel * taps + j]) * gated(place - taps + 1 + j, sequence, channel);
        return sum;
    }
    /// Gradient of what the convolution gives.
    [[nodiscard]] MGPLAN_BOTH Sum slope(const Element* dy, std::int64_t place, std::int64_t sequence, std::int64_t channel) const {
        return Sum(dy[(place * batch + sequence) * width + channel]) * Sum(projected[at(place, sequence, channel) + width]);
    }
};

template <class Element>
struct ShortConv {
    GatedChannels<Element> in;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, channel] = row_column(index, in.width);
        const auto [place, sequence] = row_column(row, in.batch);
        y[index] =
            Element(Compute<Element>(in.projected[in.at(place, sequence, channel) + in.width]) * in.convolved(place, sequence, channel));
    }
};

template <class Element>
struct ShortConvInputGradient {
    using Sum = Compute<Element>;
    GatedChannels<Element> in;
    const Element* dy;
    Element* d_projected;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, channel] = row_column(index, in.width);
        const auto [place, sequence] = row_column(row, in.batch);
        Sum du = 0;
        for (std::int64_t j = in.taps - 1; j >= 0 && place + in.taps - 1 - j < in.places; --j)
            du += Sum(in.weight[channel * in.taps + j]) * in.slope(dy, place + in.taps - 1 - j, sequence, channel);
        const std::int64_t b = in.at(place, sequence, channel);
        d_projected[b] = Element(du * Sum(in.projected[b + 2 * in.width]));
        d_projected[b + in.width] = Element(Sum(dy[index]) * in.convolved(place, sequence, channel));
        d_projected[b + 2 * in.width] = Element(du * Sum(in.projected[b]));
    }
};

/// Sums over the rows of one part, as the weight lies: (parts, width, taps).
template <class Element>
struct ShortConvColumns {
    using Sum = Compute<Element>;
    GatedChannels<Element> in;
    const Element* dy;
    Sum* sums;
    std::int64_t rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, rest] = row_column(index, in.width * in.taps);
        const auto [channel, tap] = row_column(rest, in.taps);
        const std::int64_t rows = in.places * in.batch, first = part * rows_per_part;
        const std::int64_t end = first + rows_per_part < rows ? first + rows_per_part : rows;
        Sum sum = 0;
        for (std::int64_t row = first; row < end; ++row) {
            const auto [place, sequence] = row_column(row, in.batch);
            const std::int64_t from = place - in.taps + 1 + tap;
            if (from >= 0) sum += in.slope(dy, place, sequence, channel) * in.gated(from, sequence, channel);
        }
        sums[index] = sum;
    }
};

template <class Launcher>
void short_conv(model::Device& device, const model::ShortConvArguments& a) {
    with_type(a.projected.dtype, [&]<class Element>() {
        const GatedChannels<Element> in{values<Element>(a.projected), values<Element>(a.weight), a.places, a.batch, a.width, a.taps};
        Launcher::of(device).each(a.places * a.batch * a.width, ShortConv<Element>{in, values<Element>(a.y)});
    });
}

template <class Launcher>
void short_conv_backward(model::Device& device, const model::ShortConvBackwardArguments& a) {
    auto&& launcher = Launcher::of(device);
    const std::int64_t rows = a.places * a.batch, weights = a.width * a.taps;
    with_type(a.projected.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const GatedChannels<Element> in{values<Element>(a.projected), values<Element>(a.weight), a.places, a.batch, a.width, a.taps};
        launcher.each(rows * a.width, ShortConvInputGradient<Element>{in, values<Element>(a.dy), values<Element>(a.d_projected)});
        launcher.each(a.parts * weights,
                      ShortConvColumns<Element>{in, values<Element>(a.dy), values<Sum>(a.column_sums), (rows + a.parts - 1) / a.parts});
    });
    add_column_sums(launcher, a.projected.dtype, a.column_sums, 0, weights, a.parts, weights, a.weight_gradient);
}

}  // namespace mgplan::runtime::cuda
