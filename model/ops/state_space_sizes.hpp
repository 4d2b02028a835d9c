#pragma once
// Sizes of the ops that carry a state along the sequence. Rows are places of the sequence, and of each place the sequences of a
// microbatch: row = place · batch + sequence.

#include <cstdint>
#include <limits>

namespace mgplan::model {

/// Decays of lightning attention (transformers 5.23.0, modeling_minimax.py, MiniMaxLightningAttention.get_slope_rate), which nothing
/// trains: with steps of 1 a state decays by exp(-factor · exp(-slope · (first_head + h + 1))) at head h of a rank.
struct FixedDecays {
    double factor = 0;  ///< above 0; 0: decays and steps are trained
    double slope = 0;
    std::int64_t first_head = 0;  ///< heads in front of the rank's first

    [[nodiscard]] constexpr bool used() const { return factor > 0; }
};

/// Sizes of Mamba-2's scan. A row of its input holds x (heads · head_dim), B and C (groups · state each).
struct StateSpaceSizes {
    std::int64_t places = 0, batch = 1;
    std::int64_t heads = 0, head_dim = 0, groups = 1, state = 0;
    std::int64_t chunk = 128;  ///< places worked on as matrices (Megatron-core's MambaMixer: 128); values do not depend on it
    double step_low = 0, step_high = std::numeric_limits<double>::infinity();  ///< between which steps are kept
    FixedDecays fixed{};

    [[nodiscard]] constexpr std::int64_t rows() const { return places * batch; }
    [[nodiscard]] constexpr std::int64_t inner() const { return heads * head_dim; }
    [[nodiscard]] constexpr std::int64_t width() const { return inner() + 2 * groups * state; }
    [[nodiscard]] constexpr std::int64_t chunks() const { return (places + chunk - 1) / chunk; }
};

/// Sizes of the gated delta rule. A row of its input holds queries and keys (key_heads · key_dim each) and values (value_heads ·
/// value_dim).
struct DeltaRuleSizes {
    std::int64_t places = 0, batch = 1;
    std::int64_t key_heads = 0, value_heads = 0;  ///< a key head serves value_heads / key_heads consecutive value heads
    std::int64_t key_dim = 0, value_dim = 0;
    /// Places between kept states of the CPU's backward; on a GPU those worked on as matrices (flash-linear-attention: 64).
    std::int64_t chunk = 64;
    std::int64_t strength = 1;    ///< the most that a step writes: 2 gives states negative eigenvalues
    bool channel_decays = false;  ///< a decay for each value of a key (Kimi delta attention), else one for each value head

    [[nodiscard]] constexpr std::int64_t rows() const { return places * batch; }
    [[nodiscard]] constexpr std::int64_t decays_of_head() const { return channel_decays ? key_dim : 1; }
    [[nodiscard]] constexpr std::int64_t decays() const { return value_heads * decays_of_head(); }
    [[nodiscard]] constexpr std::int64_t keys() const { return key_heads * key_dim; }
    [[nodiscard]] constexpr std::int64_t values() const { return value_heads * value_dim; }
    [[nodiscard]] constexpr std::int64_t width() const { return 2 * keys() + values(); }
    [[nodiscard]] constexpr std::int64_t chunks() const { return (places + chunk - 1) / chunk; }
};

}  // namespace mgplan::model
