#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"
#include "runtime/fp8.hpp"

namespace mgplan::runtime::cpu {
namespace {

template <class Element, class Code>
void cast(const model::QuantiseArguments& x) {
    const float scale = fp8_scale<typename Code::Format>(*values<float>(x.largest));
    const Element* const from = values<Element>(x.x);
    if (x.codes.data != nullptr) {
        Code* const to = values<Code>(x.codes);
        for (std::int64_t i = 0; i < x.elements; ++i) to[i] = Code(static_cast<float>(from[i]) * scale);
    }
    if (x.turned.data != nullptr) {
        Code* const to = values<Code>(x.turned);
        for (std::int64_t row = 0; row < x.rows; ++row) {
            for (std::int64_t column = 0; column < x.columns; ++column)
                to[column * x.rows + row] = Code(static_cast<float>(from[row * x.columns + column]) * scale);
        }
    }
    *values<float>(x.inverse) = 1 / scale;
}

}  // namespace

void largest(model::Device& /*device*/, const model::LargestArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            const Element* const from = values<Element>(x.x);
            float* const place = values<float>(x.largest);
            *place = reduce_over(
                x.elements, x.raise ? *place : 0.0F, [&](std::int64_t i) { return std::abs(static_cast<float>(from[i])); },
                [](float a, float b) { return b > a ? b : a; });
        });
    });
}

void quantise(model::Device& /*device*/, const model::QuantiseArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            if ((x.codes.data != nullptr ? x.codes : x.turned).dtype == Dtype::fp8)
                cast<Element, E4m3>(x);
            else
                cast<Element, E5m2>(x);
        });
    });
}

void largest_of_arrays(model::Device& device, const model::LargestOfArraysArguments& x) {
    for (std::int64_t i = 0; i < x.count; ++i) largest(device, {x.arrays[i].x, x.arrays[i].largest, x.arrays[i].elements, x.raise});
}

void quantise_arrays(model::Device& device, const model::QuantiseArraysArguments& x) {
    for (std::int64_t i = 0; i < x.count; ++i) quantise(device, x.arrays[i]);
}

void transpose_bytes(model::Device& /*device*/, const model::TransposeBytesArguments& x) {
    const auto* const from = static_cast<const std::uint8_t*>(x.x.data);
    auto* const to = static_cast<std::uint8_t*>(x.y.data);
    for (std::int64_t row = 0; row < x.pitch; ++row) {
        for (std::int64_t column = 0; column < x.columns; ++column)
            to[column * x.pitch + row] = row < x.rows ? from[row * x.columns + column] : std::uint8_t{0};
    }
}

void follow_largest(model::Device& /*device*/, const model::FollowLargestArguments& x) {
    auto* const now = values<float>(x.now);
    auto* const scales = values<float>(x.scales);
    for (std::int64_t tensor = 0; tensor < x.tensors; ++tensor) {
        float* const history = values<float>(x.history) + tensor * (x.length + 1);
        float& place = history[x.length];
        if (now[tensor] != 0) {
            history[static_cast<std::int64_t>(place)] = now[tensor] / static_cast<float>(x.unit);
            place = place + 1 == static_cast<float>(x.length) ? 0 : place + 1;
        }
        float most = 0;
        for (std::int64_t i = 0; i < x.length; ++i) most = history[i] > most ? history[i] : most;
        if (fp8_has_scale(most)) scales[2 * tensor] = most * static_cast<float>(x.unit);
        now[tensor] = 0;
    }
}

}  // namespace mgplan::runtime::cpu
