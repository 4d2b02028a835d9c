// Every code of both fp8 formats against the formula of their specification, and every rounding between them.

#include "runtime/fp8.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/fp8_blocks.hpp"

namespace mgplan::runtime::fp8_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// OCP 8-bit Floating Point Specification, tables 1 and 2.
double value_of(unsigned code, int mantissa, int bias) {
    const int exponent = static_cast<int>((code & 0x7fU) >> mantissa);
    const double fraction = static_cast<double>(code & ((1U << mantissa) - 1U)) / (1 << mantissa), sign = (code & 0x80U) != 0 ? -1 : 1;
    return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

template <class Code>
Code of_bits(unsigned bits) {
    Code code;
    code.bits = static_cast<std::uint8_t>(bits);
    return code;
}

template <class Code>
void check_every_code(int mantissa, int bias, unsigned largest) {
    for (unsigned bits = 0; bits < 256; ++bits) {
        const float value = of_bits<Code>(bits);
        if ((bits & 0x7fU) > largest) {
            const bool infinite = mantissa == 2 && (bits & 0x7fU) == largest + 1;
            EXPECT_EQ(std::isinf(value), infinite) << bits;
            EXPECT_EQ(std::isnan(value), !infinite) << bits;
            continue;
        }
        EXPECT_EQ(static_cast<double>(value), value_of(bits, mantissa, bias)) << bits;
        EXPECT_EQ(Code(value).bits, bits);
    }
    EXPECT_EQ(static_cast<double>(Code::Format::largest()), value_of(largest, mantissa, bias));
}

TEST(Fp8, EveryCodeHasTheValueOfItsSpecification) {
    check_every_code<E4m3>(3, 7, 0x7e);
    check_every_code<E5m2>(2, 15, 0x7b);
    EXPECT_EQ(float(of_bits<E4m3>(0x7e)), 448);
    EXPECT_EQ(float(of_bits<E5m2>(0x7b)), 57344);
}

template <class Code>
void check_roundings(int mantissa, int bias, unsigned largest) {
    for (unsigned bits = 0; bits < largest; ++bits) {
        const double below = value_of(bits, mantissa, bias), above = value_of(bits + 1, mantissa, bias);
        const auto middle = static_cast<float>((below + above) / 2);
        const unsigned even = bits % 2 == 0 ? bits : bits + 1;
        for (const unsigned sign : {0U, 0x80U}) {
            const float s = sign == 0 ? 1.0F : -1.0F;
            EXPECT_EQ(Code(s * middle).bits, sign | even) << middle;
            EXPECT_EQ(Code(s * std::nextafter(middle, 0.0F)).bits, sign | bits) << middle;
            EXPECT_EQ(Code(s * std::nextafter(middle, kInfinity)).bits, sign | (bits + 1)) << middle;
            EXPECT_EQ(Code(s * std::nextafter(static_cast<float>(below), kInfinity)).bits, sign | bits);
            EXPECT_EQ(Code(s * std::nextafter(static_cast<float>(above), 0.0F)).bits, sign | (bits + 1));
        }
    }
    const float most = Code::Format::largest();
    for (const float beyond : {std::nextafter(most, kInfinity), 1.05F * most, 2 * most, std::numeric_limits<float>::max(), kInfinity}) {
        EXPECT_EQ(Code(beyond).bits, largest) << beyond;
        EXPECT_EQ(Code(-beyond).bits, largest | 0x80U) << beyond;
    }
    for (const float tiny : {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()}) EXPECT_EQ(Code(tiny).bits, 0);
    for (const float sign : {1.0F, -1.0F}) {
        const Code nan(std::copysign(std::numeric_limits<float>::quiet_NaN(), sign));
        EXPECT_TRUE(std::isnan(float(nan)));
        EXPECT_EQ(nan.bits, 0x7f) << "cuda_fp8.hpp: a NaN in fp32 becomes one without a sign, and all bits of it are set";
    }
    EXPECT_EQ(Code(-0.0F).bits, 0x80U);
}

TEST(Fp8, RoundsToTheNearestTiesToEvenAndSaturates) {
    check_roundings<E4m3>(3, 7, 0x7e);
    check_roundings<E5m2>(2, 15, 0x7b);
}

TEST(Fp8, ScalesMakeTheLargestValueTheFormats) {
    EXPECT_EQ(fp8_scale<E4m3Format>(7), 64);
    EXPECT_EQ(fp8_scale<E5m2Format>(2), 28672);
    EXPECT_EQ(fp8_scale<E4m3Format>(3), 448.0F / 3);
    for (const float none : {0.0F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) EXPECT_EQ(fp8_scale<E4m3Format>(none), 1);
    EXPECT_EQ(fp8_scale<E4m3Format>(1e-38F), std::numeric_limits<float>::max());
}

TEST(Fp8Blocks, AreScaledByTheLargestPowerOfTwoThatFits) {
    for (const auto& [largest, factor] :
         {std::pair(448.0F, 1.0F), {447.0F, 1.0F}, {449.0F, 0.5F}, {1.0F, 256.0F}, {1.75F, 256.0F}, {1.76F, 128.0F}, {1e-3F, 262144.0F}}) {
        EXPECT_EQ(ScaleInFp32::factor(largest), factor) << largest;
        EXPECT_EQ(ScaleInFp32::stored(largest), 1 / factor) << largest;
        if (largest != 448 && largest != 1.75F) {
            EXPECT_EQ(ScaleInE8m0::factor(largest), factor) << largest;
        }
        EXPECT_EQ(ScaleInE8m0::value(ScaleInE8m0::stored(largest)) * ScaleInE8m0::factor(largest), 1) << largest;
    }
    for (const float none : {0.0F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) EXPECT_EQ(ScaleInFp32::factor(none), 1);
    EXPECT_EQ(ScaleInFp32::factor(1e-38F), std::ldexp(1.0F, 127)) << "the quotient is no fp32";
    EXPECT_EQ(ScaleInE8m0::exponent(0), 0U);
    EXPECT_EQ(ScaleInE8m0::exponent(kInfinity), 254U);
    EXPECT_EQ(ScaleInE8m0::factor(kInfinity), std::ldexp(1.0F, -127));
    EXPECT_EQ(ScaleInE8m0::value({0}), std::ldexp(1.0F, -127));
}

}  // namespace
}  // namespace mgplan::runtime::fp8_test
