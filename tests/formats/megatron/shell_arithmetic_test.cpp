// Values as Bash computes them: each expected number is what `bash -c 'echo $((…))'` prints (5.2).
#include "formats/megatron/shell_arithmetic.hpp"

#include <map>

#include <gtest/gtest.h>

namespace mgplan::formats::shell_arithmetic_test {
namespace {

std::optional<std::int64_t> value(std::string_view expression) {
    static const std::map<std::string, std::string> variables{{"A", "12"}, {"B", "5"}, {"SUM", "A + B"}, {"EMPTY", ""}, {"ME", "ME"}};
    return shell_arithmetic(expression, [](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

TEST(ShellArithmetic, ComputesAsBashDoes) {
    EXPECT_EQ(value("1 + 2 * 3"), 7);
    EXPECT_EQ(value("(1 + 2) * 3"), 9);
    EXPECT_EQ(value("-7 / 2"), -3);
    EXPECT_EQ(value("-7 % 3"), -1);
    EXPECT_EQ(value("2 ** 3 ** 2"), 512);
    EXPECT_EQ(value("10 - 4 - 3"), 3);
    EXPECT_EQ(value("1 << 4 | 3"), 19);
    EXPECT_EQ(value("A > B ? A : B"), 12);
    EXPECT_EQ(value("A<=B || !0 && 2==2"), 1);
    EXPECT_EQ(value("0x10 + 010"), 24);
    EXPECT_EQ(value("$A / ${B}"), 2);
    EXPECT_EQ(value("SUM * 2"), 34);
    EXPECT_EQ(value("EMPTY + 1"), 1);
    EXPECT_EQ(value("~5 & 7 ^ 1"), 3);
}

TEST(ShellArithmetic, KnowsWhatItDoesNotKnow) {
    for (const char* expression : {"",
                                   "1 +",
                                   "UNSET * 2",
                                   "A = 3",
                                   "A += 3",
                                   "A++",
                                   "1 / 0",
                                   "5 % 0",
                                   "9223372036854775807 + 1",
                                   "9223372036854775808",
                                   "2 ** -1",
                                   "08",
                                   "1 2",
                                   "(1",
                                   "ME",
                                   "A[0]",
                                   "$(nproc)",
                                   "99999999999 ** 2",
                                   "1 << 70",
                                   "0x",
                                   "$",
                                   "1,2"})
        EXPECT_EQ(value(expression), std::nullopt) << expression;
    EXPECT_EQ(value(std::string(100'000, '(') + "1"), std::nullopt);
    EXPECT_EQ(value(std::string(100'000, '-') + "1"), std::nullopt);
}

}  // namespace
}  // namespace mgplan::formats::shell_arithmetic_test
