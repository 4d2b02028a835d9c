#pragma once
// The three sums of a chunk's profile that a search asks for, without its profile: profiles of pieces come down to two numbers
// each, chunks to the order in which pieces run, and a chunk's sums are a few additions for each run of equal layers.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_steps.hpp"

namespace mgplan::simulator {

/// Change of live bytes over some work, all categories together: an OpProfile without its categories.
struct MemoryDelta {
    std::int64_t net = 0;   ///< bytes alive at the end minus those at the beginning
    std::int64_t peak = 0;  ///< most bytes above those at the beginning; at least 0
    bool operator==(const MemoryDelta&) const = default;
};
[[nodiscard]] MemoryDelta delta_of(const OpProfile& profile);

/// What a forward changes, and what its backward does.
struct PassDeltas {
    MemoryDelta forward, backward;
};
[[nodiscard]] PassDeltas deltas_of(const PassProfile& profile);

/// What a chunk of one shard holds and takes, for one microbatch, in bytes.
struct ChunkWeight {
    std::int64_t kept = 0;  ///< from forward to backward
    std::int64_t forward_peak = 0, backward_peak = 0;
    bool operator==(const ChunkWeight&) const = default;
};

/// Memory deltas of every kind of step that a chunk of one shard can have.
class StepDeltas {
public:
    StepDeltas() = default;
    /// For a shard without mixtures, or with all of them. `recomputed`: multi-token predictions are recomputed.
    StepDeltas(const ShardProfiles& shard, bool recomputed);

    /// Puts in the kind of layer that consists of this mixer and this mixture; a layer without a mixer has PassDeltas{} for it.
    void set_mixture(std::size_t kind, const PassDeltas& mixer, const PassDeltas& mixture);

private:
    friend class ChunkRecipe;
    /// Where a step stands that is one of `count` equal ones; nothing for steps after which nobody looks.
    static std::optional<std::size_t> slot_of(const ChunkStep& step);
    void set_layer(std::size_t kind, const PassDeltas& layer);

    std::int64_t stream_ = 0;
    std::vector<std::int64_t> streams_of_layer_;  ///< ShardProfiles::streams_of_layer
    /// Norm (predicting or not), loss, embedding, what is neither piece nor layer; parts of predictions; layers. Copied over one of as
    /// many kinds it needs no memory.
    std::vector<MemoryDelta> deltas_;
};

/// In which order the pieces of a chunk run, equal ones in a row as one: what chunk_steps() lists, made once for all shards.
class ChunkRecipe {
public:
    /// `full`: null without full recompute.
    ChunkRecipe(const ChunkContents& contents, const ChunkRecompute* full);

    /// The sums of chunk_profile() of the same chunk. No allocation.
    [[nodiscard]] ChunkWeight weigh(const StepDeltas& steps) const;

private:
    struct Run {
        std::uint16_t slot = 0;
        std::int64_t count = 1;
        bool operator==(const Run&) const = default;
    };
    /// Runs [begin, end), so many times.
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
