#pragma once
// See model/ops/clip_factor.hpp; the formula is that of runtime/cpu/ops/clip_factor.cpp.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// A single thread: the order is that of a host that adds what it has read.
struct AddInOrder {
    const double* from;
    double* to;
    std::int64_t count;

    MGPLAN_BOTH void operator()(std::int64_t /*one*/) const {
        double sum = 0;
        for (std::int64_t i = 0; i < count; ++i) sum += from[i];
        *to = sum;
    }
};

struct ClipFactor {
    const double *squares, *expert_squares, *guard;
    double* outcome;
    double clip_norm, replicas;

    MGPLAN_BOTH static bool is_finite(double value) { return value - value == 0; }
    MGPLAN_BOTH void operator()(std::int64_t /*one*/) const {
        const double all = *squares / replicas + (expert_squares == nullptr ? 0.0 : *expert_squares), norm = square_root(all);
        double factor = 1;
        if (clip_norm > 0 && norm > clip_norm) factor = clip_norm / (norm + 1e-6);
        if (!is_finite(all) || !is_finite(*guard)) factor = infinity<double>() - infinity<double>();
        outcome[0] = all;
        outcome[1] = factor;
    }
};

template <class Launcher>
void add_in_order(model::Device& device, const model::ElementwiseArguments& x) {
    Launcher::of(device).each(1, AddInOrder{values<double>(x.from), values<double>(x.to), x.elements});
}

template <class Launcher>
void clip_factor(model::Device& device, const model::ClipFactorArguments& x) {
    Launcher::of(device).each(1, ClipFactor{values<double>(x.squares), values<double>(x.expert_squares), values<double>(x.guard),
                                            values<double>(x.outcome), x.clip_norm, x.replicas});
}

}  // namespace mgplan::runtime::cuda
