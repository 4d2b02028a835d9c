#pragma once
// Fast computation of the three sums of a chunk's profile that a search needs, without the profile: each piece is reduced to two numbers,
// each chunk to the order of its pieces, and the sums are a few additions per run of equal layers.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_steps.hpp"

namespace mgplan::simulator {

/// Change of live bytes over some work, summed over categories: an OpProfile without its categories.
struct MemoryDelta {
    std::int64_t net = 0;   ///< live bytes at the end minus those at the beginning
    std::int64_t peak = 0;  ///< peak bytes above the beginning; at least 0
    bool operator==(const MemoryDelta&) const = default;
};
[[nodiscard]] MemoryDelta delta_of(const OpProfile& profile);

/// Changes over a forward, and over its backward.
struct PassDeltas {
    MemoryDelta forward, backward;
};
[[nodiscard]] PassDeltas deltas_of(const PassProfile& profile);

/// Kept and peak bytes of a chunk of one shard, for one microbatch.
struct ChunkWeight {
    std::int64_t kept = 0;  ///< from forward to backward
    std::int64_t forward_peak = 0, backward_peak = 0;
    bool operator==(const ChunkWeight&) const = default;
};

/// Memory deltas of every kind of step that a chunk of one shard can have.
class StepDeltas {
public:
    StepDeltas() = default;
    /// For a shard without MoE layers, or with all of them. `recomputed`: multi-token predictions are recomputed.
    StepDeltas(const ShardProfiles& shard, bool recomputed);

    /// Sets the kind of layer that consists of this mixer and this MoE half-layer; a layer without a mixer passes PassDeltas{}.
    void set_mixture(std::size_t kind, const PassDeltas& mixer, const PassDeltas& mixture);

private:
    friend class ChunkRecipe;
    /// Index in deltas_ of one of the step's `count` equal steps; nothing for steps that no peak depends on.
    static std::optional<std::size_t> slot_of(const ChunkStep& step);
    void set_layer(std::size_t kind, const PassDeltas& layer);

    std::int64_t stream_ = 0;
    std::vector<std::int64_t> streams_of_layer_;  ///< ShardProfiles::streams_of_layer
    /// Norm (predicting or not), loss, embedding, steps that are neither piece nor layer; parts of predictions; layers. Assignment from an
    /// object with the same number of kinds allocates nothing.
    std::vector<MemoryDelta> deltas_;
};

/// Order in which the pieces of a chunk run, with runs of equal ones merged: the list of chunk_steps(), built once for all shards.
class ChunkRecipe {
public:
    /// `full`: null without full recompute.
    ChunkRecipe(const ChunkContents& contents, const ChunkRecompute* full);

    /// The sums of chunk_profile() of the same chunk. Allocates nothing.
    [[nodiscard]] ChunkWeight weigh(const StepDeltas& steps) const;

private:
    struct Run {
        std::uint16_t slot = 0;
        std::int64_t count = 1;
        bool operator==(const Run&) const = default;
    };
    /// Runs [begin, end), repeated `times` times.
    struct Loop {
        std::size_t begin = 0, end = 0;
        std::int64_t times = 1;
    };
    struct Pass {
        std::vector<Run> runs;
        std::vector<Loop> loops;
    };
    static Pass fold(const std::vector<ChunkStep>& steps);
    static MemoryDelta play(const Pass& pass, const StepDeltas& steps);

    Pass forward_, backward_;
};

}  // namespace mgplan::simulator
