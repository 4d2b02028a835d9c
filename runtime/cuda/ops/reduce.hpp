#pragma once
// Sums over ranks that share a device: the same bits as runtime/comm/reduce.hpp makes in host memory.

#include <span>

#include "model/device/memory_operations.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// Most ranks whose arrays one kernel takes.
inline constexpr int kMostRanks = 64;

template <class Element>
struct Accumulator {
    using Type = Compute<Element>;
};
template <>
struct Accumulator<std::int32_t> {
    using Type = std::int64_t;
};

template <class Element>
struct ReduceRanks {
    using Sum = typename Accumulator<Element>::Type;
    const Element* inputs[kMostRanks];
    Element* outputs[kMostRanks];
    std::int64_t begin;
    int input_count, output_count;
    model::Reduction reduction;

    template <int N>
    struct Sums {
        Sum of[N];
    };
    /// Adds as it reads: there may be more arrays than registers.
    template <int N>
    MGPLAN_BOTH Sums<N> load(std::int64_t i) const {
        Sums<N> sums;
        const auto first = load_pack<N>(inputs[0] + begin + i);
        for (int k = 0; k < N; ++k) sums.of[k] = Sum(first[k]);
        for (int rank = 1; rank < input_count; ++rank) {
            const auto next = load_pack<N>(inputs[rank] + begin + i);
            for (int k = 0; k < N; ++k) {
                const Sum value = Sum(next[k]);
                if (reduction == model::Reduction::maximum) {
                    sums.of[k] = value > sums.of[k] || value != value ? value : sums.of[k];
                } else {
                    sums.of[k] += value;
                }
            }
        }
        return sums;
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Sums<N> sums) const {
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) {
            if (reduction == model::Reduction::average) sums.of[k] /= static_cast<Sum>(input_count);
            result[k] = Element(sums.of[k]);
        }
        for (int rank = 0; rank < output_count; ++rank) store_pack<N>(outputs[rank] + begin + i, result);
    }
};

template <class Launcher>
void reduce_ranks(Launcher& launcher, Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
                  std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end) {
    MGPLAN_ASSERT(!inputs.empty() && std::ssize(inputs) <= kMostRanks && std::ssize(outputs) <= kMostRanks,
                  "a kernel adds up the arrays of at most 64 ranks");
    if (end <= begin) return;
    const auto run = [&]<class Element>() {
        ReduceRanks<Element> body{};
        for (std::size_t i = 0; i < inputs.size(); ++i) body.inputs[i] = reinterpret_cast<const Element*>(inputs[i]);
        for (std::size_t i = 0; i < outputs.size(); ++i) body.outputs[i] = reinterpret_cast<Element*>(outputs[i]);
        body.begin = begin;
        body.input_count = static_cast<int>(inputs.size());
        body.output_count = static_cast<int>(outputs.size());
        body.reduction = reduction;
        std::uint64_t bytes = static_cast<std::uint64_t>(begin) * sizeof(Element);
        for (const std::byte* input : inputs) bytes |= address(input);
        for (const std::byte* output : outputs) bytes |= address(output);
        each_pack<kPack<Element>>(launcher, end - begin, bytes, body);
    };
    if (dtype == Dtype::int32) {
        run.template operator()<std::int32_t>();
    } else {
        with_type(dtype, run);
    }
}

}  // namespace mgplan::runtime::cuda
