#pragma once
// Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011). The same on every device.

#include <array>
#include <cstdint>

namespace mgplan::model {

/// Four random words for a counter and a key.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0], second = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
                   static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
        key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
    }
    return counter;
}

/// The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): spreads every bit of the input over all bits.
[[nodiscard]] constexpr std::uint64_t spread_bits(std::uint64_t value) {
    value += 0x9E3779B97F4A7C15U;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
}

/// Key of the dropout masks of one seed and stream.
[[nodiscard]] constexpr std::array<std::uint32_t, 2> dropout_key(std::uint64_t seed, std::uint64_t stream) {
    const std::uint64_t mixed = spread_bits(spread_bits(seed) ^ stream);
    return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

/// Two words as one number, the low one first.
[[nodiscard]] constexpr std::uint64_t joined_words(std::int32_t low, std::int32_t high) {
    return std::uint64_t{static_cast<std::uint32_t>(high)} << 32 | static_cast<std::uint32_t>(low);
}

/// Random words for columns 4·quad to 4·quad + 3 of one token.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> dropout_words(std::array<std::uint32_t, 2> key, std::uint64_t sequence,
                                                                   std::uint64_t position, std::uint64_t quad) {
    return philox({static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(sequence),
                   static_cast<std::uint32_t>(sequence >> 32)},
                  key);
}

/// A word below this drops its value: probability · 2^32, rounded down.
[[nodiscard]] constexpr std::uint32_t dropout_threshold(double probability) {
    return static_cast<std::uint32_t>(probability * 4294967296.0);
}

}  // namespace mgplan::model
