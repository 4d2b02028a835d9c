#include "plan/text/text.hpp"

#include <random>

#include <gtest/gtest.h>

#include "plan/text/count_text.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::text_test {
namespace {

TEST(Text, ReadsSizesWithDecimalAndBinarySuffixes) {
    EXPECT_EQ(parse_size("128M"), 128'000'000);
    EXPECT_EQ(parse_size("2GiB"), std::int64_t{2} << 30);
    EXPECT_EQ(parse_size("1.5Ki"), 1536);
    EXPECT_EQ(parse_size("17"), 17);
    EXPECT_EQ(parse_size("80gib"), std::int64_t{80} << 30);
    for (const char* bad : {"", "M", "-1", "1e30G", "nan", "12Q", "9999999999999999999"}) EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
}

TEST(Text, ReadsCountsWithBinarySuffixes) {
    EXPECT_EQ(parse_count("4k"), 4096);
    EXPECT_EQ(parse_count("4K"), 4096);
    EXPECT_EQ(parse_count("1M"), 1'048'576);
    EXPECT_EQ(parse_count("1.5k"), 1536);
    EXPECT_EQ(parse_count("2g"), std::int64_t{2} << 30);
    EXPECT_EQ(parse_count("4096"), 4096);
    for (const char* bad : {"", "k", "-1k", "-1", "0.3k", "4kB", "4Ki", "4 k", "1e300M", "nan", "9999999999G"})
        EXPECT_EQ(parse_count(bad), std::nullopt) << bad;
}

TEST(Text, RefusesWhatIsNoWholeNumber) {
    for (const char* bad : {"", " 1", "1 ", "1.0", "1e3", "0x10", "9223372036854775808", "--1", "+-1"})
        EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
    EXPECT_EQ(parse_integer("-9223372036854775808"), INT64_MIN);
    EXPECT_EQ(parse_real("NaN"), std::nullopt);
    EXPECT_EQ(parse_real("inf"), std::nullopt);
}

TEST(Text, TakesASignInFrontOfAWholeNumberHoweverLarge) {
    EXPECT_EQ(parse_integer("+5"), 5);
    EXPECT_EQ(parse_real("+0.5"), 0.5);
    for (const char* digits : {"5", "-5", "+5", "+99999999999999999999"}) EXPECT_TRUE(is_digits(digits)) << digits;
    for (const char* bad : {"", "+", "-", "+-5", "-+5", "++5", "5+", "+5k"}) EXPECT_FALSE(is_digits(bad)) << bad;
    Problems problems;
    EXPECT_EQ(read_integer(problems, "--seed", "+5", 0, 8), 5);
    EXPECT_TRUE(problems.empty());
    read_integer(problems, "--seed", "+99999999999999999999", 0, 8);
    EXPECT_EQ(problems.list()[0], "--seed = '+99999999999999999999' is a whole number out of range; use one from 0 to 8");
}

TEST(Text, NamesFieldValueRuleAndWayOut) {
    Problems problems;
    read_integer(problems, "--world", "0", 1, 8);
    read_integer(problems, "--tp", "two", 1, 8);
    read_integer(problems, "--ep", "99999999999999999999", 1, 8);
    ASSERT_EQ(problems.list().size(), 3U);
    EXPECT_EQ(problems.list()[2], "--ep = '99999999999999999999' is a whole number out of range; use one from 1 to 8");
    EXPECT_EQ(problems.list()[0], "--world = 0 is out of range; use a whole number from 1 to 8");
    EXPECT_EQ(problems.list()[1], "--tp = 'two' is not a whole number; use one from 1 to 8");
}

TEST(Text, OffersTheNearestNames) {
    const std::vector<std::string> names{"llama3-8b", "llama3-70b", "mixtral-8x7b"};
    EXPECT_EQ(nearest_names("lama3-8b", names).front(), "llama3-8b");
    EXPECT_TRUE(nearest_names("zzzzzzzzzzzzzzzz", names).empty());
}

/// The definition, by all ways of editing a prefix into a prefix.
std::size_t levenshtein(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0)
                table[i][j] = i + j;
            else
                table[i][j] = std::min({table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), table[i - 1][j] + 1, table[i][j - 1] + 1});
        }
    }
    return table[a.size()][b.size()];
}

TEST(Text, TakesNamesForNearByTheirEditDistance) {
    std::mt19937 random(7);
    const auto name = [&] {
        std::string text(random() % 12, ' ');
        for (char& c : text) c = "aAbc-"[random() % 5];
        return text;
    };
    int near = 0;
    for (int round = 0; round < 20'000; ++round) {
        const std::string typed = name(), known = name();
        const std::string a = lower_case(typed), b = lower_case(known);
        const bool expected = (!a.empty() && b.starts_with(a)) || levenshtein(a, b) <= (a.size() + 2) / 3;
        EXPECT_EQ(!nearest_names(typed, std::vector{known}).empty(), expected) << typed << " and " << known;
        near += expected ? 1 : 0;
    }
    EXPECT_GT(near, 1000);
    const std::vector<std::string> both{"--tensor-x", "--pipe-size"};  // one and two edits away
    EXPECT_EQ(nearest_names("--tensor-xy", both), std::vector<std::string>{"--tensor-x"});
}

TEST(Text, ListsDivisorsAndPutsTheCaretUnderTheSpot) {
    EXPECT_EQ(divisors(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
    EXPECT_EQ(divisors_text(64, 16), "1, 2, 4, 8 or 16");
    EXPECT_EQ(caret_under("Et*3x", 4), "    Et*3x\n        ^");
}

TEST(Text, PrintsQuantities) {
    EXPECT_EQ(with_thousands(-1234567), "-1,234,567");
    EXPECT_EQ(human_bytes(std::int64_t{3} << 29), "1.5 GiB");
    EXPECT_EQ(human_seconds(0.0125), "12.5 ms");
}

}  // namespace
}  // namespace mgplan::text_test
