#pragma once
// See model/ops/grouped_matmul.hpp. One product after another on the stream; they share the workspace.

#include "runtime/cuda/ops/matmul.hpp"

namespace mgplan::runtime::cuda {

template <class Launcher>
void grouped_matmul(model::Device& device, const model::GroupedMatmulArguments& x) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < x.groups; ++group) {
        const std::int64_t rows = x.rows[group];
        if (rows > 0) {
            model::MatmulArguments one{behind(x.a, row * x.k),
                                       x.b[group],
                                       behind(x.out, row * x.n),
                                       rows,
                                       x.n,
                                       x.k,
                                       false,
                                       x.transpose_b,
                                       false,
                                       {},
                                       {},
                                       {},
                                       x.workspace};
            one.algorithm = model::ProductAlgorithm::near;
            matmul<Launcher>(device, one);
        }
        row += rows;
    }
}

template <class Launcher>
void grouped_matmul_accumulate(model::Device& device, const model::GroupedAccumulateArguments& x) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < x.groups; ++group) {
        const std::int64_t rows = x.rows[group];
        if (rows > 0) {
            model::MatmulArguments one{
                behind(x.a, row * x.m), behind(x.b, row * x.n), x.out[group], x.m, x.n, rows, true, false, true, {}, {}, {}, x.workspace};
            one.algorithm = model::ProductAlgorithm::near;
            matmul<Launcher>(device, one);
        }
        row += rows;
    }
}

}  // namespace mgplan::runtime::cuda
