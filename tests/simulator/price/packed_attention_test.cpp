// Attention of packed sequences against sequences that are filled document by document.

#include "simulator/price/packed_attention.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace mgplan::simulator::packed_attention_test {
namespace {

/// Shares of a whole sequence's pairs, sequence by sequence of one long stream of documents, each cut where a sequence ends.
std::vector<double> packed(const BatchSpec& batch, std::size_t sequences, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::discrete_distribution<std::size_t> draw(batch.lengths.counts.begin(), batch.lengths.counts.end());
    std::vector<double> shares;
    std::int64_t left = 0;
    while (shares.size() < sequences) {
        double pairs = 0;
        for (std::int64_t places = batch.sequence; places > 0;) {
            if (left == 0) left = batch.lengths.tokens[draw(random)];
            const std::int64_t part = std::min(left, places);
            pairs += static_cast<double>(part) * static_cast<double>(part);
            left -= part;
            places -= part;
        }
        shares.push_back(pairs / (static_cast<double>(batch.sequence) * static_cast<double>(batch.sequence)));
    }
    return shares;
}

TEST(PackedAttention, IsAllOfASequenceThatIsOneDocument) {
    EXPECT_EQ(packed_attention({8, 4096}).share, 1);
    const BatchSpec whole{8, 4096, {{4096}, {3}}};
    EXPECT_DOUBLE_EQ(packed_attention(whole).share, 1);
    EXPECT_EQ(packed_attention(whole).length, 4096);
    EXPECT_DOUBLE_EQ(busiest_share(packed_attention(whole), whole, 8), 1);
    // Longer ones are as many whole sequences, halves a half of the pairs.
    EXPECT_DOUBLE_EQ(packed_attention({8, 4096, {{8192}, {3}}}).share, 1);
    EXPECT_DOUBLE_EQ(packed_attention({8, 4096, {{2048}, {3}}}).share, 0.5);
    EXPECT_DOUBLE_EQ(packed_attention({8, 4096, {{2048, 4096}, {2, 1}}}).share, 0.75);  // half of the tokens in each
}

TEST(PackedAttention, TakesCountsAsShares) {
    const PackedAttention few = packed_attention({64, 4096, {.tokens = {512, 3000}, .counts = {1e-320, 1e-320}}});
    const PackedAttention many = packed_attention({64, 4096, {.tokens = {512, 3000}, .counts = {1e15, 1e15}}});
    EXPECT_EQ(few.share, many.share);
    EXPECT_GT(few.share, 0);
    EXPECT_EQ(few.length, many.length);
    EXPECT_EQ(few.deviation, many.deviation);
}

TEST(PackedAttention, HasTheMeanAndTheBusiestRankOfDrawnDocuments) {
    const BatchSpec batch{512, 32768, {{200, 1000, 5000, 16000}, {60, 30, 8, 2}}};
    constexpr std::int64_t kRanks = 16;
    constexpr std::size_t kSteps = 200;
    const PackedAttention attention = packed_attention(batch);
    const std::vector<double> shares = packed(batch, kSteps * static_cast<std::size_t>(batch.global_batch), 7);
    double mean = 0, busiest = 0;
    const auto each = static_cast<std::size_t>(batch.global_batch / kRanks);
    for (std::size_t step = 0; step < kSteps; ++step) {
        double most = 0;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(kRanks); ++rank) {
            double sum = 0;
            for (std::size_t i = 0; i < each; ++i) sum += shares[(step * static_cast<std::size_t>(kRanks) + rank) * each + i];
            most = std::max(most, sum / static_cast<double>(each));
            mean += sum / static_cast<double>(each * static_cast<std::size_t>(kRanks) * kSteps);
        }
        busiest += most / static_cast<double>(kSteps);
    }
    // Documents that a sequence's end cuts have fewer pairs: in the drawn ones, not in the formula.
    EXPECT_LT(mean, attention.share);
    EXPECT_GT(mean, 0.75 * attention.share);
    EXPECT_NEAR(busiest / mean, busiest_share(attention, batch, kRanks) / attention.share, 0.03);
    EXPECT_GT(busiest_share(attention, batch, 2 * kRanks), busiest_share(attention, batch, kRanks));
    EXPECT_EQ(busiest_share(attention, batch, 1), attention.share);
}

}  // namespace
}  // namespace mgplan::simulator::packed_attention_test
