#include "simulator/price/packed_attention.hpp"

#include <algorithm>
#include <cmath>

namespace mgplan::simulator {
namespace {

/// Quantile of the standard normal distribution, by bisection.
double inverse_normal(double probability) {
    double low = -10, high = 10;
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

}  // namespace

PackedAttention packed_attention(const BatchSpec& batch) {
    PackedAttention attention;
    if (batch.lengths.empty()) return attention;
    const auto places = static_cast<double>(batch.sequence);
    const double most = *std::max_element(batch.lengths.counts.begin(), batch.lengths.counts.end());  // only ratios of counts matter
    double count = 0, first = 0, second = 0, third = 0, fourth = 0;                                   // sums of powers of l / s
    const auto add = [&](double documents, std::int64_t tokens) {
        const double part = static_cast<double>(tokens) / places;
        count += documents;
        first += documents * part;
        second += documents * part * part;
        third += documents * part * part * part;
        fourth += documents * part * part * part * part;
    };
    for (std::size_t i = 0; i < batch.lengths.tokens.size(); ++i) {
        const std::int64_t whole = batch.lengths.tokens[i] / batch.sequence, rest = batch.lengths.tokens[i] % batch.sequence;
        const double documents = batch.lengths.counts[i] / most;
        add(documents * static_cast<double>(whole), batch.sequence);
        if (rest > 0) add(documents, rest);
    }
    attention.share = second / first;
    attention.length = std::max<std::int64_t>(1, std::llround(attention.share * places));
    // l^2 - share l has mean 0; the mean number of documents in a sequence is count / first.
    const double variance = (fourth - 2 * attention.share * third + attention.share * attention.share * second) / count;
    attention.deviation = std::sqrt(std::max(0.0, variance) * count / first);
    return attention;
}

double busiest_share(const PackedAttention& attention, const BatchSpec& batch, std::int64_t ranks) {
    if (ranks <= 1 || attention.deviation == 0) return attention.share;
    const double sequences = static_cast<double>(batch.global_batch) / static_cast<double>(ranks), n = static_cast<double>(ranks);
    const double above = inverse_normal((n - 0.375) / (n + 0.25)) * attention.deviation / std::sqrt(std::max(1.0, sequences));
    return std::min(1.0, attention.share + above);
}

}  // namespace mgplan::simulator
