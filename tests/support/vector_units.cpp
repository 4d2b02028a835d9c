// Limits the CPU kernels of a test program to the vector units that MGPLAN_TEST_VECTOR_UNITS names (baseline, avx2 or avx512), so that its
// expectations are checked with the code that another processor runs. Without the variable kernels use the widest units available.

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::tests {
namespace {

class LimitedVectorUnits : public testing::Environment {
public:
    void SetUp() override {
        const char* const name = std::getenv("MGPLAN_TEST_VECTOR_UNITS");
        if (name == nullptr) return;
        using runtime::cpu::VectorUnits;
        const std::string units = name;
        if (units != "baseline" && units != "avx2" && units != "avx512")
            throw std::runtime_error("MGPLAN_TEST_VECTOR_UNITS is " + units + "; use baseline, avx2 or avx512");
        runtime::cpu::limit_vector_units(units == "baseline" ? VectorUnits::baseline
                                         : units == "avx2"   ? VectorUnits::avx2
                                                             : VectorUnits::avx512);
    }
};

const auto* const limited = testing::AddGlobalTestEnvironment(new LimitedVectorUnits);

}  // namespace
}  // namespace mgplan::tests
