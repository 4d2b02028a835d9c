#pragma once
// See model/ops/matmul.hpp.

#include "model/ops/checks.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Launcher>
void matmul(model::Device& device, const model::MatmulArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (x.k == 0) {
        MGPLAN_ASSERT(x.bias.data == nullptr && x.row_sums.data == nullptr, "nothing is multiplied that could add or sum up");
        if (!x.accumulate) launcher.zero(x.out.data, x.m * x.n * bytes_of(x.out.dtype));
        return;
    }
    Gemm gemm;
    gemm.transpose_a = x.transpose_a;
    gemm.transpose_b = x.transpose_b;
    gemm.m = x.m;
    gemm.n = x.n;
    gemm.k = x.k;
    gemm.beta = x.accumulate ? 1 : 0;
    gemm.input = x.a.dtype;
    gemm.output = x.out.dtype;
    gemm.a = x.a.data;
    gemm.a_pitch = x.transpose_a ? x.m : x.k;
    gemm.b = x.b.data;
    gemm.b_pitch = x.transpose_b ? x.k : x.n;
    gemm.c = x.out.data;
    gemm.c_pitch = x.n;
    gemm.algorithm = x.algorithm;
    gemm.bias = x.bias.data;
    gemm.row_sums = x.row_sums.data;
    gemm.workspace = x.workspace.data;
    gemm.workspace_bytes = model::matmul_workspace_bytes(device.traits());
    if (bytes_of(x.a.dtype) == 1) {
        gemm.other_input = x.b.dtype;
        gemm.a_scale = x.scale_a.data;
        gemm.b_scale = x.scale_b.data;
        gemm.a_scaling = x.scaling_a;
        gemm.b_scaling = x.scaling_b;
    }
    launcher.gemm(gemm);
}

}  // namespace mgplan::runtime::cuda
