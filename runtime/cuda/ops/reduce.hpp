#pragma once
// Sums over ranks that share a device: the same bits as runtime/comm/reduce.hpp makes in host memory.

#include <span>

#include "model/device/memory_operations.hpp"
#include "runtime/cuda/ops/launch.hpp"

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

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        Sum sum = Sum(inputs[0][begin + i]);
        for (int rank = 1; rank < input_count; ++rank) {
            const Sum next = Sum(inputs[rank][begin + i]);
            if (reduction == model::Reduction::maximum) {
                sum = next > sum || next != next ? next : sum;
            } else {
                sum += next;
            }
        }
        if (reduction == model::Reduction::average) sum /= static_cast<Sum>(input_count);
        const Element result = Element(sum);
        for (int rank = 0; rank < output_count; ++rank) outputs[rank][begin + i] = result;
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
        launcher.each(end - begin, body);
    };
    if (dtype == Dtype::int32) {
        run.template operator()<std::int32_t>();
    } else {
        with_type(dtype, run);
    }
}

}  // namespace mgplan::runtime::cuda
