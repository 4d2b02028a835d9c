#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {

void grouped_matmul(model::Device& device, const model::GroupedMatmulArguments& x) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < x.groups; ++group) {
        const std::int64_t rows = x.rows[group];
        if (rows > 0) {
            matmul(device, {behind(x.a, row * x.k), x.b[group], behind(x.out, row * x.n), rows, x.n, x.k, false, x.transpose_b, false,
                            x.tile_a, x.tile_b, x.tile_out});
        }
        row += rows;
    }
}

void grouped_matmul_accumulate(model::Device& device, const model::GroupedAccumulateArguments& x) {
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < x.groups; ++group) {
        const std::int64_t rows = x.rows[group];
        if (rows > 0) {
            matmul(device, {behind(x.a, row * x.m), behind(x.b, row * x.n), x.out[group], x.m, x.n, rows, true, false, true, x.tile_a,
                            x.tile_b, x.tile_out});
        }
        row += rows;
    }
}

}  // namespace mgplan::runtime::cpu
