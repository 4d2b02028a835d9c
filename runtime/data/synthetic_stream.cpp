#include "runtime/data/synthetic_stream.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "runtime/data/mixing.hpp"

namespace mgplan::runtime {
namespace {

constexpr std::int64_t kPiece = 4096;

/// Which of the four followers: 0 with probability 1/2, 1 with 1/4, 2 and 3 with 1/8 each.
std::uint64_t follower(std::uint64_t random) {
    const std::uint64_t eighth = random >> 61U;
    return eighth < 4 ? 0 : eighth < 6 ? 1 : eighth - 4;
}

}  // namespace

SyntheticStream::SyntheticStream(std::uint64_t seed, std::int64_t vocab)
    : seed_(mixed(seed)), ids_(static_cast<std::uint64_t>(std::clamp<std::int64_t>(vocab, 1, 256))) {}

void SyntheticStream::read(std::int64_t first, std::span<std::int32_t> tokens) const {
    std::int64_t at = first / kPiece * kPiece;
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < tokens.size(); ++at) {
        const std::uint64_t random = mixed(seed_ ^ static_cast<std::uint64_t>(at));
        id = at % kPiece == 0 ? random % ids_ : mixed(seed_ + 4 * id + follower(random) + 1) % ids_;
        if (at >= first) tokens[i++] = static_cast<std::int32_t>(id);
    }
}

std::string SyntheticStream::text() const {
    return fmt::format("a synthetic stream over {} ids", ids_);
}

}  // namespace mgplan::runtime
