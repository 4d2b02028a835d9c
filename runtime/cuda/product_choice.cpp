#include "runtime/cuda/product_choice.hpp"

namespace mgplan::runtime::cuda {

bool worth_timing(const Gemm& gemm) {
    const double flops =
        2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k) * static_cast<double>(gemm.batch);
    return gemm.algorithm == model::ProductAlgorithm::timed && bytes_of(gemm.input) <= 2 && flops >= kLeastTimedFlops;
}

Gemm of_near_size(const Gemm& gemm) {
    const auto rounded = [](std::int64_t rows) {
        std::int64_t step = 1;
        while (rows > 8 * step) step *= 2;
        return (rows + step - 1) / step * step;
    };
    Gemm near = gemm;
    if (gemm.beta == 0) {
        near.m = rounded(gemm.m);
        return near;
    }
    near.k = rounded(gemm.k);
    if (!gemm.transpose_a) near.a_pitch += near.k - gemm.k;
    if (gemm.transpose_b) near.b_pitch += near.k - gemm.k;
    return near;
}

std::size_t fastest(std::span<const std::optional<double>> seconds) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < seconds.size(); ++i) {
        if (seconds[i] && (!seconds[best] || *seconds[i] < *seconds[best])) best = i;
    }
    const bool first_will_do = !seconds.empty() && seconds[0] && *seconds[best] >= (1 - kLeastGain) * *seconds[0];
    return first_will_do ? 0 : best;
}

}  // namespace mgplan::runtime::cuda
