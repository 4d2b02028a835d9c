#pragma once
// The places of the sequence that a rank's rows hold.

#include <array>
#include <cstdint>

namespace mgplan::model {

/// Rows are ordered (place in the slice, sequence of the microbatch), the latter fastest, as Megatron-LM's [s, b, h]. A
/// slice is two chunks of equal length: the balanced zigzag of context parallelism gives rank r of c chunks r and 2c-1-r;
/// without it there is one chunk, the whole sequence, of any length.
struct Positions {
    std::int64_t chunk_length = 0;
    std::array<std::int64_t, 2> first{0, 0};  ///< global position of each chunk's first token
    std::int64_t batch = 1;
    int chunks = 2;  ///< 1: `first` counts for its first entry alone

    /// Places of the slice.
    [[nodiscard]] constexpr std::int64_t places() const { return chunks * chunk_length; }
    [[nodiscard]] constexpr std::int64_t rows() const { return places() * batch; }
    /// Global position of the slice's i-th place.
    [[nodiscard]] constexpr std::int64_t at(std::int64_t place) const {
        return place < chunk_length ? first[0] + place : first[1] + place - chunk_length;
    }
};

/// Slice of rank `rank` of `ranks`; with several ranks the sequence is a multiple of 2·ranks.
[[nodiscard]] Positions zigzag_positions(std::int64_t sequence, std::int64_t batch, std::int64_t ranks, std::int64_t rank);

}  // namespace mgplan::model
