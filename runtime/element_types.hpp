#pragma once
// The number types that kernels compute in, on the CPU and on GPUs, and the way from a dtype to a template argument.

#include <type_traits>

#include "model/ops/kernel_table.hpp"
#include "plan/text/errors.hpp"
#include "runtime/bf16.hpp"

namespace mgplan::runtime {

/// Type that sums over values of `Element` are computed in.
template <class Element>
using Compute = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
const Element* values(const model::Input& input) {
    return static_cast<const Element*>(input.data);
}
template <class Element>
Element* values(const model::Output& output) {
    return static_cast<Element*>(output.data);
}

/// Calls work.operator()<Element>() with the type of a dtype.
template <class Work>
decltype(auto) with_type(Dtype dtype, Work&& work) {
    switch (dtype) {
        case Dtype::fp64:
            return work.template operator()<double>();
        case Dtype::fp32:
            return work.template operator()<float>();
        case Dtype::bf16:
            return work.template operator()<Bf16>();
        default:
            break;
    }
    MGPLAN_ASSERT(false, "kernels compute in fp64, fp32 and bf16");
    return work.template operator()<float>();
}

/// The same for a type and what its sums go into: itself, or fp32.
template <class Work>
void with_types(Dtype from, Dtype into, Work&& work) {
    if (from == into) {
        with_type(from, [&]<class Element>() { work.template operator()<Element, Element>(); });
    } else {
        MGPLAN_ASSERT(from == Dtype::bf16 && into == Dtype::fp32, "sums of bf16 go into bf16 or fp32");
        work.template operator()<Bf16, float>();
    }
}

}  // namespace mgplan::runtime
