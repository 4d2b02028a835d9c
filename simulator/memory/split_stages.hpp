#pragma once
// Chunks of the stages of a split, and the candidates for each stage's peak, for any layout of one model: independent of shard and
// switches.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// Positions of a split's distinct chunks.
struct SplitChunks {
    std::shared_ptr<const StageSplit> split;  ///< keeps the memo's key alive
    std::vector<int> kind;                    ///< number of its contents; index = pp_rank · vpp + chunk
    std::vector<int> distinct;                ///< the numbers among them, each once
    /// By pp_rank: the first inner rank with the same chunks, which has the most live microbatches; for the first and last rank the rank
    /// itself.
    std::vector<int> like;

    /// Index of a rank's chunk in `kind`.
    [[nodiscard]] static std::size_t place_of(const Layout& layout, int pp_rank, int chunk) {
        return static_cast<std::size_t>(pp_rank) * static_cast<std::size_t>(layout.vpp) + static_cast<std::size_t>(chunk);
    }
};

/// States of a stage that can be its peak, whatever the sizes of its chunks.
struct StageInstants {
    std::vector<int> kinds;  ///< indices among the split's distinct chunks, each once
    MostLive most;           ///< for a stage with chunks of one kind
    /// For other stages, per state: index in `kinds` of the running chunk, 1 if backward, and live microbatches of each of `kinds`.
    std::vector<std::int32_t> table;
    std::int64_t open_messages = 0;  ///< messages in transit while the next one is computed (model/pipeline/pipeline_executor.cpp)

    [[nodiscard]] bool uniform() const { return kinds.size() == 1; }
    [[nodiscard]] std::size_t width() const { return kinds.size() + 2; }
};

/// Not thread-safe. References are valid as long as it.
class SplitStages {
public:
    /// `schedules` must outlive it.
    SplitStages(LayerKinds kinds, SharedSchedules& schedules) : kinds_(std::move(kinds)), schedules_(schedules) {}

    [[nodiscard]] const SplitChunks& chunks(const Layout& layout);
    /// Layer counts of the layout's split.
    [[nodiscard]] const SplitCensus& census(const Layout& layout);
    /// Contents of a chunk, by its number in SplitChunks.
    [[nodiscard]] const ChunkContents& contents(int number) const { return contents_[static_cast<std::size_t>(number)]; }
    /// Kinds of the chunk's decoder layers, one bit for each.
    [[nodiscard]] std::uint64_t layer_kinds(int number) const { return layer_kinds_[static_cast<std::size_t>(number)]; }
    /// Order of the pieces of a chunk with these contents; `full`: null without full recompute.
    [[nodiscard]] const ChunkRecipe& recipe(int number, const ChunkRecompute* full);
    /// By pipeline stage. `split`: chunks() of the layout.
    [[nodiscard]] const std::vector<StageInstants>& instants(const Layout& layout, const SplitChunks& split);
    [[nodiscard]] const std::vector<LiveState>& live(const Layout& layout, int pp_rank);
    /// Number of messages that wait until the next one is sent (model/pipeline/pipeline_executor.cpp).
    [[nodiscard]] std::int64_t open_messages(const Layout& layout, const SplitChunks& split, int pp_rank) const;

private:
    /// Recipes of chunks under one mode of recompute, by number of their contents; created on demand.
    struct Recipes {
        std::optional<ChunkRecompute> full;
        std::deque<std::optional<ChunkRecipe>> of;
    };

    [[nodiscard]] int number_of(ChunkContents asked);
    [[nodiscard]] StageInstants instants_of_stage(const Layout& layout, const SplitChunks& split, int pp_rank);

    LayerKinds kinds_;
    SharedSchedules& schedules_;
    std::unordered_map<const StageSplit*, SplitChunks> splits_;
    std::unordered_map<const StageSplit*, SplitCensus> censuses_;
    // Deques keep the addresses of their elements when they grow.
    std::deque<ChunkContents> contents_;      ///< contents of all chunks that occurred
    std::vector<std::uint64_t> layer_kinds_;  ///< bits of the layer kinds in each of them
    std::deque<Recipes> recipes_;
    std::unordered_map<MemoKey<3>, std::vector<StageInstants>, MemoKeyHash> instants_;
};

}  // namespace mgplan::simulator
