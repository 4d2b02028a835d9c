#pragma once
// Matrix products of OpenBLAS for row-major arrays, on the calling thread alone.

#include <cstdint>

namespace mgplan::runtime {

/// One operand or result: its first element and the elements from row to row.
template <class Element>
struct Matrix {
    Element* data;
    std::int64_t pitch;
};

/// c (m, n) = alpha · op(a) (m, k) · op(b) (k, n) + beta · c, where op transposes. With beta = 0, c need not be
/// initialised. Sizes and pitches below 2^31 (assertion). Many threads may call at once.
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Matrix<const float> a,
          Matrix<const float> b, float beta, Matrix<float> c);
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, Matrix<const double> a,
          Matrix<const double> b, double beta, Matrix<double> c);

}  // namespace mgplan::runtime
