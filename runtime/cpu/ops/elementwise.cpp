#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// Calls work with an unsigned type of the dtype's size: for moving values without looking at them.
template <class Work>
void with_size(Dtype dtype, Work&& work) {
    switch (bytes_of(dtype)) {
        case 8:
            return work.template operator()<std::uint64_t>();
        case 4:
            return work.template operator()<std::uint32_t>();
        case 2:
            return work.template operator()<std::uint16_t>();
        default:
            return work.template operator()<std::uint8_t>();
    }
}

}  // namespace

void copy(model::Device& /*device*/, const model::ElementwiseArguments& x) {
    vectorised([&] {
        if (x.from.dtype == x.to.dtype) {
            std::memmove(x.to.data, x.from.data, static_cast<std::size_t>(x.elements * bytes_of(x.from.dtype)));
            return;
        }
        with_type(x.from.dtype, [&]<class From>() {
            with_type(x.to.dtype, [&]<class To>() {
                const From* const from = values<From>(x.from);
                To* const to = values<To>(x.to);
                // fp64 to bf16 goes through fp32.
                for (std::int64_t i = 0; i < x.elements; ++i) to[i] = To(static_cast<Compute<To>>(Compute<From>(from[i])));
            });
        });
    });
}

void add(model::Device& /*device*/, const model::ElementwiseArguments& x) {
    vectorised([&] {
        with_types(x.from.dtype, x.to.dtype, [&]<class From, class To>() {
            const From* const from = values<From>(x.from);
            To* const to = values<To>(x.to);
            for (std::int64_t i = 0; i < x.elements; ++i) to[i] = To(Compute<To>(to[i]) + Compute<From>(from[i]));
        });
    });
}

void scale(model::Device& /*device*/, const model::ScalarArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            const auto factor = static_cast<Compute<Element>>(x.value);
            Element* const to = values<Element>(x.x);
            for (std::int64_t i = 0; i < x.elements; ++i) to[i] = Element(Compute<Element>(to[i]) * factor);
        });
    });
}

void soft_cap(model::Device& /*device*/, const model::ScalarArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        const auto cap = static_cast<Compute<Element>>(x.value);
        Element* const to = values<Element>(x.x);
        for (std::int64_t i = 0; i < x.elements; ++i) to[i] = Element(cap * std::tanh(Compute<Element>(to[i]) / cap));
    });
}

void clip(model::Device& /*device*/, const model::ClipArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Value = Compute<Element>;
        const auto bound = static_cast<Value>(x.bound);
        Element* const to = values<Element>(x.x);
        if (x.clipped.data == nullptr) {
            for (std::int64_t i = 0; i < x.elements; ++i) to[i] = Element(std::clamp(Value(to[i]), -bound, bound));
            return;
        }
        // The bound in the elements' type, in which they were clipped.
        const Value reached = Value(Element(bound));
        const Element* const clipped = values<Element>(x.clipped);
        for (std::int64_t i = 0; i < x.elements; ++i) {
            if (std::abs(Value(clipped[i])) >= reached) to[i] = Element(Value{0});
        }
    });
}

void fill(model::Device& /*device*/, const model::ScalarArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Element* const to = values<Element>(x.x);
        std::fill(to, to + x.elements, Element(static_cast<Compute<Element>>(x.value)));
    });
}

void sums_of_squares(model::Device& /*device*/, const model::SumsOfSquaresArguments& x) {
    vectorised([&] {
        for (std::int64_t i = 0; i < x.count; ++i) {
            const model::SquaredArray& array = x.arrays[i];
            *values<double>(array.sum) = with_type(array.x.dtype, [&]<class Element>() {
                const Element* const from = values<Element>(array.x);
                return sum_over<double>(array.elements, [&](std::int64_t k) {
                    const auto value = static_cast<double>(Compute<Element>(from[k]));
                    return value * value;
                });
            });
        }
    });
}

void copy_columns(model::Device& /*device*/, const model::ColumnsArguments& x) {
    const std::int64_t size = bytes_of(x.from.dtype);
    const auto* const from = static_cast<const std::byte*>(x.from.data) + x.from_begin * size;
    auto* const to = static_cast<std::byte*>(x.to.data) + x.to_begin * size;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        std::memcpy(to + row * x.to_pitch * size, from + row * x.from_pitch * size, static_cast<std::size_t>(x.width * size));
    }
}

void scale_columns(model::Device& /*device*/, const model::ScaleColumnsArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        const auto factor = static_cast<Compute<Element>>(x.factor);
        for (std::int64_t row = 0; row < x.rows; ++row) {
            Element* const to = values<Element>(x.x) + row * x.pitch + x.begin;
            for (std::int64_t i = 0; i < x.width; ++i) to[i] = Element(Compute<Element>(to[i]) * factor);
        }
    });
}

void swap_leading(model::Device& /*device*/, const model::SwapLeadingArguments& x) {
    with_size(x.x.dtype, [&]<class Word>() {
        const Word* const from = values<Word>(x.x);
        Word* const to = values<Word>(x.y);
        for (std::int64_t b = 0; b < x.b; ++b) {
            for (std::int64_t a = 0; a < x.a; ++a) std::copy_n(from + (a * x.b + b) * x.c, x.c, to + (b * x.a + a) * x.c);
        }
    });
}

}  // namespace mgplan::runtime::cpu
