#include "runtime/cpu/ops/vector_units.hpp"

#include <algorithm>
#include <atomic>

namespace mgplan::runtime::cpu {
namespace {

VectorUnits detect() {
#ifdef MGPLAN_HAVE_VECTOR_COPIES
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) return VectorUnits::avx512;
    if (avx2) return VectorUnits::avx2;
#endif
    return VectorUnits::baseline;
}

std::atomic<VectorUnits>& used() {
    static std::atomic<VectorUnits> units = available_vector_units();
    return units;
}

}  // namespace

VectorUnits available_vector_units() {
    static const VectorUnits units = detect();
    return units;
}

VectorUnits vector_units() {
    return used().load(std::memory_order_relaxed);
}

void limit_vector_units(VectorUnits widest) {
    used().store(std::min(widest, available_vector_units()), std::memory_order_relaxed);
}

}  // namespace mgplan::runtime::cpu
