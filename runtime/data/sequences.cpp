#include "runtime/data/sequences.hpp"

#include <bit>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/data/mixing.hpp"

namespace mgplan::runtime {
namespace {

/// Place `i` of a random order of 0 … n - 1, without a table: a Feistel network of four rounds permutes the numbers of an
/// even count of bits, and what lands outside n is sent through again.
std::uint64_t shuffled(std::uint64_t i, std::uint64_t n, std::uint64_t key) {
    const auto half = static_cast<unsigned>((std::bit_width(n - 1) + 1) / 2);
    const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
    do {
        std::uint64_t left = i >> half, right = i & mask;
        for (std::uint64_t round = 0; round < 4; ++round) {
            const std::uint64_t next = left ^ (mixed(key + round * 0x632be59bd9b4e019U + right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

}  // namespace

Sequences::Sequences(std::shared_ptr<const TokenData> data, std::int64_t sequence, std::int64_t global_batch, std::uint64_t seed)
    : data_(std::move(data)), sequence_(sequence), seed_(seed) {
    const auto tokens = data_->tokens();
    if (!tokens) return;
    samples_ = *tokens < 1 ? 0 : (*tokens - 1) / sequence;
    if (samples_ < global_batch) {
        throw ConfigError(fmt::format(
            "{}: {} tokens are fewer than one step needs, {} sequences of {} tokens and one more = {}; give more data or make a plan with "
            "a smaller --global-batch or --seq",
            data_->text(), with_thousands(*tokens), global_batch, sequence, with_thousands(global_batch * sequence + 1)));
    }
}

std::int64_t Sequences::sample(std::int64_t index) const {
    if (samples_ <= 1) return samples_ == 0 ? index : 0;
    const auto epoch = static_cast<std::uint64_t>(index / samples_);
    return static_cast<std::int64_t>(
        shuffled(static_cast<std::uint64_t>(index % samples_), static_cast<std::uint64_t>(samples_), mixed(seed_ ^ mixed(epoch))));
}

void Sequences::read(std::int64_t index, std::span<std::int32_t> tokens) const {
    data_->read(sample(index) * sequence_, tokens);
}

}  // namespace mgplan::runtime
