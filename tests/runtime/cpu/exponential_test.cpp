#include "runtime/cpu/ops/exponential.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace mgplan::runtime::cpu::exponential_test {
namespace {

TEST(Exponential, IsWithinTwoUnitsOfTheLastPlace) {
    double worst = 0;
    for (double x = -87.3; x < 88.7; x += 0.00037) {
        const auto rounded = static_cast<float>(x);
        const double exact = std::exp(static_cast<double>(rounded));
        const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
        worst = std::max(worst, std::abs(static_cast<double>(exponential(rounded)) - exact) / unit);
    }
    EXPECT_LE(worst, 2);
}

TEST(Exponential, KeepsItsEnds) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(exponential(0.0F), 1.0F);
    EXPECT_EQ(exponential(-kInfinity), 0.0F);
    EXPECT_EQ(exponential(-1e30F), 0.0F);
    EXPECT_EQ(exponential(kInfinity), kInfinity);
    EXPECT_EQ(exponential(89.0F), kInfinity);
    EXPECT_TRUE(std::isfinite(exponential(88.7228F)));
    EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(exponential(-std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace mgplan::runtime::cpu::exponential_test
