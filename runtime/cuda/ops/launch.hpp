#pragma once
// Interface that the kernels of a GPU are written against: it starts bodies and moves memory. The GPU's launcher puts work
// on a stream; the host's, in tests, does it at once. From arguments to kernels, everything between is the same code.

#include <cstddef>
#include <cstdint>

#include "model/device/device.hpp"
#include "model/device/kernel_traits.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product_algorithm.hpp"
#include "runtime/cuda/ops/portable.hpp"
#include "runtime/element_types.hpp"

namespace mgplan::runtime::cuda {

/// `batch` products c = alpha · op(a) (m, k) · op(b) (k, n) + beta · c of row-major matrices: pitches are elements from row
/// to row, strides from matrix to matrix. a and b hold `input`, c holds `output`; sums are made in statistics_dtype(input). c lies apart
/// from a and b, so that with beta 0 the product may be repeated.
struct Gemm {
    bool transpose_a = false, transpose_b = false;
    std::int64_t m = 0, n = 0, k = 0;
    double alpha = 1, beta = 0;
    Dtype input = Dtype::fp32, output = Dtype::fp32;
    const void* a = nullptr;
    std::int64_t a_pitch = 0, a_stride = 0;
    const void* b = nullptr;
    std::int64_t b_pitch = 0, b_stride = 0;
    void* c = nullptr;
    std::int64_t c_pitch = 0, c_stride = 0;
    std::int64_t batch = 1;
    void* workspace = nullptr;
    std::int64_t workspace_bytes = 0;
    /// Where a holds fp8 or e5m2: b's type, which is one of these too, and an fp32 on the device for each that its codes are multiplied
    /// with. Sums are made in fp32, and c holds any type.
    Dtype other_input = Dtype::fp8;
    const void *a_scale = nullptr, *b_scale = nullptr;
    /// Where scales are those of blocks: how they lie (model/ops/fp8_scaling.hpp).
    model::Fp8Scaling a_scaling = model::Fp8Scaling::tensor, b_scaling = model::Fp8Scaling::tensor;
    model::ProductAlgorithm algorithm = model::ProductAlgorithm::first;
    /// At most one, of a single product, both of type `output` and at multiples of 16 bytes: (n) that are added to each row before it is
    /// rounded; (m) that are overwritten with the sums of op(a)'s rows.
    const void* bias = nullptr;
    void* row_sums = nullptr;
};

using model::FusedShape;

/// The arrays of a FusedShape. `query_sums` holds zeros.
struct FusedMemory {
    const void *q = nullptr, *k = nullptr, *v = nullptr;
    void *output = nullptr, *log_sum_exp = nullptr;  ///< read in the backward
    const void* d_output = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr, *delta = nullptr, *query_sums = nullptr;
    void* workspace = nullptr;
    std::int64_t workspace_bytes = 0;
};
class FusedLibrary {
public:
    virtual ~FusedLibrary() = default;
    /// Returns true if the library can do this shape within this workspace, with arrays at these addresses.
    virtual bool accepts(const FusedShape& shape, const FusedMemory& memory) = 0;
    /// accepts() was true.
    virtual void run(const FusedShape& shape, const FusedMemory& memory, double scale) = 0;
};

// A Launcher offers:
//   static Launcher& of(model::Device&)
//   each(count, body)            body(i) for every i < count
//   packs<N>(count, body)        a body of packs (packs.hpp) over `count` values, N at a time, what is left over one by one
//   teams(count, lanes, body)    body(team, i) for every i < count, with a team of `lanes` (a power of two up to 1024)
//   copy(to, from, bytes), zero(memory, bytes)
//   gemm(Gemm)
//   library()                    FusedLibrary*, nullptr where there is none

struct alignas(16) Word16 {
    std::uint64_t low, high;
};

/// Calls work.operator()<Word>() with the widest type whose size divides all of `bytes` (sizes, offsets and addresses or-ed
/// together): for moving values without looking at them.
template <class Work>
void with_word(std::uint64_t bytes, Work&& work) {
    if (bytes % 16 == 0) return work.template operator()<Word16>();
    if (bytes % 8 == 0) return work.template operator()<std::uint64_t>();
    if (bytes % 4 == 0) return work.template operator()<std::uint32_t>();
    if (bytes % 2 == 0) return work.template operator()<std::uint16_t>();
    return work.template operator()<std::uint8_t>();
}

inline std::uint64_t address(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

/// Returns the number of lanes for a row of `width` values: few enough that most have work.
inline int lanes_for(std::int64_t width) {
    int lanes = 32;
    while (lanes < 256 && lanes * 4 < width) lanes *= 2;
    return lanes;
}

}  // namespace mgplan::runtime::cuda
