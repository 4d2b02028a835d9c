#pragma once
// Tokens without a file: an endless text with structure that a model can learn.

#include "runtime/data/token_data.hpp"

namespace mgplan::runtime {

/// A Markov chain over the first min(vocabulary, 256) ids: each id has four successors, drawn once from the seed, with
/// probabilities 1/2, 1/4, 1/8 and 1/8 (1.75 bits, 1.21 nats a token, which a model can reach). Every token is a function
/// of the seed and its number: the chain restarts, with any id, every 4,096 tokens.
class SyntheticStream final : public TokenData {
public:
    SyntheticStream(std::uint64_t seed, std::int64_t vocab);

    [[nodiscard]] std::optional<std::int64_t> tokens() const override { return std::nullopt; }
    void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
    [[nodiscard]] std::string text() const override;

private:
    std::uint64_t seed_;
    std::uint64_t ids_;
};

}  // namespace mgplan::runtime
