#pragma once
// Kernels are compiled for several kinds of vector unit and the copy is chosen when they run, so that one build serves every
// x86-64 processor at its speed. Plain branches rather than the loader's ifuncs, which sanitizers do not survive.

#include <cstdint>

#include "runtime/sanitizers.hpp"

namespace mgplan::runtime::cpu {

/// avx2: with FMA (Haswell, Zen and later); avx512: F, BW, DQ, VL (Skylake-X, Zen 4 and later).
enum class VectorUnits : std::uint8_t { baseline, avx2, avx512 };

/// The widest that this processor and its operating system offer.
[[nodiscard]] VectorUnits available_vector_units();
/// The units that kernels use: the widest available, unless limited.
[[nodiscard]] VectorUnits vector_units();
/// Keeps kernels of all threads to these units or narrower ones: for tests and comparisons. Not while kernels run.
void limit_vector_units(VectorUnits widest);

// Builds with sanitizers keep to the baseline: the same source, a third of the compile time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(MGPLAN_ADDRESS_SANITIZER) && !defined(MGPLAN_THREAD_SANITIZER)
#define MGPLAN_HAVE_VECTOR_COPIES 1
// flatten: everything that work calls is inlined, lambdas and templates included, and so compiled for these units, while
// their copies elsewhere stay within the baseline. What is not inlined (the C library, BLAS) chooses for itself.
template <class Work>
[[gnu::target("avx2,fma"), gnu::flatten]] inline auto run_with_avx2(const Work& work) {
    return work();
}
template <class Work>
[[gnu::target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten]] inline auto run_with_avx512(const Work& work) {
    return work();
}
#endif

/// Calls work() in the copy for this processor. Not nested: the inner copies would not be inlined.
template <class Work>
auto vectorised(const Work& work) {
#ifdef MGPLAN_HAVE_VECTOR_COPIES
    switch (vector_units()) {
        case VectorUnits::avx512:
            return run_with_avx512(work);
        case VectorUnits::avx2:
            return run_with_avx2(work);
        case VectorUnits::baseline:
            break;
    }
#endif
    return work();
}

}  // namespace mgplan::runtime::cpu
