#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/data/sequences.hpp"
#include "runtime/data/synthetic_stream.hpp"

namespace mgplan::runtime::sequences_test {
namespace {

/// Token k is k.
class Counting final : public TokenData {
public:
    explicit Counting(std::int64_t tokens) : tokens_(tokens) {}
    [[nodiscard]] std::optional<std::int64_t> tokens() const override { return tokens_; }
    void read(std::int64_t first, std::span<std::int32_t> tokens) const override {
        ASSERT_LE(first + std::ssize(tokens), tokens_);
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(first) + static_cast<std::int32_t>(i);
    }
    [[nodiscard]] std::string text() const override { return "counted tokens"; }

private:
    std::int64_t tokens_;
};

TEST(Sequences, EveryEpochVisitsEachSampleOnceInAnOrderOfItsOwn) {
    for (const std::int64_t samples : {1, 2, 3, 7, 64, 100, 257}) {
        const Sequences sequences(std::make_shared<Counting>(samples * 8 + 5), 8, 1, 11);
        ASSERT_EQ(sequences.samples(), samples);
        std::vector<std::vector<std::int64_t>> orders;
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
            auto& order = orders.emplace_back();
            for (std::int64_t i = 0; i < samples; ++i) order.push_back(sequences.sample(epoch * samples + i));
            const std::set<std::int64_t> all(order.begin(), order.end());
            EXPECT_EQ(std::ssize(all), samples);
            EXPECT_EQ(*all.begin(), 0);
            EXPECT_EQ(*all.rbegin(), samples - 1);
        }
        if (samples > 10) {
            EXPECT_NE(orders[0], orders[1]);
            EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
        }
    }
}

TEST(Sequences, ASampleBeginsWithTheLastTargetOfTheOneBefore) {
    const Sequences sequences(std::make_shared<Counting>(8 * 10 + 1), 8, 10, 3);
    std::vector<std::int32_t> tokens(9);
    for (std::int64_t i = 0; i < 20; ++i) {
        sequences.read(i, tokens);
        EXPECT_EQ(tokens.front(), sequences.sample(i) * 8);
        EXPECT_EQ(tokens.back(), tokens.front() + 8);
    }
}

TEST(Sequences, TheSeedDecidesTheOrder) {
    const auto data = std::make_shared<Counting>(801);
    const auto order = [&](std::uint64_t seed) {
        const Sequences sequences(data, 8, 1, seed);
        std::vector<std::int64_t> places;
        for (int i = 0; i < 100; ++i) places.push_back(sequences.sample(i));
        return places;
    };
    EXPECT_EQ(order(1), order(1));
    EXPECT_NE(order(1), order(2));
}

TEST(Sequences, FewerTokensThanOneStepNeedsAreRefused) {
    EXPECT_NO_THROW(Sequences(std::make_shared<Counting>(4 * 8 + 1), 8, 4, 1));
    for (const std::int64_t tokens : {0, 1, 8, 32}) {
        try {
            const Sequences sequences(std::make_shared<Counting>(tokens), 8, 4, 1);
            FAIL() << tokens;
        } catch (const ConfigError& error) {
            EXPECT_THAT(error.what(), testing::HasSubstr("fewer than one step needs, 4 sequences of 8 tokens and one more = 33"));
        }
    }
}

TEST(Sequences, EndlessDataIsReadInItsOrder) {
    const Sequences sequences(std::make_shared<SyntheticStream>(1, 300), 16, 1000, 1);
    EXPECT_EQ(sequences.samples(), 0);
    for (const std::int64_t i : {0, 5, 123456}) EXPECT_EQ(sequences.sample(i), i);
}

}  // namespace
}  // namespace mgplan::runtime::sequences_test
