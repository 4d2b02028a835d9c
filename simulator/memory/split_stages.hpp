#pragma once
// Which chunks the stages of a split hold, and the instants at which each stage can be the fullest, for any layout of one model: what
// neither the shard nor the switches of a layout change.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "simulator/memory/chunk_weights.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// Which of a split's distinct chunks stands where.
struct SplitChunks {
    std::shared_ptr<const StageSplit> split;  ///< keeps the memo's key alive
    std::vector<int> kind;                    ///< number of its contents; index = pp_rank · vpp + chunk
    std::vector<int> distinct;                ///< the numbers among them, each once
    /// By pp_rank: the first rank between the ends with the same chunks, whose microbatches are alive for longer; of ends themselves.
    std::vector<int> like;

    /// Place of a rank's chunk in `kind`.
    [[nodiscard]] static std::size_t place_of(const Layout& layout, int pp_rank, int chunk) {
        return static_cast<std::size_t>(pp_rank) * static_cast<std::size_t>(layout.vpp) + static_cast<std::size_t>(chunk);
    }
};

/// The instants of a stage at which it can be the fullest, whatever its chunks weigh.
struct StageInstants {
    std::vector<int> kinds;  ///< places among the split's distinct chunks, each once
    MostLive most;           ///< of a stage with chunks of one kind
    /// For other stages by instant: which of `kinds` runs, whether backward, and how many microbatches of each of `kinds` are alive.
    std::vector<std::int32_t> table;
    std::int64_t open_messages = 0;  ///< on their way while the next one is made (model/pipeline/pipeline_executor.cpp)

    [[nodiscard]] bool uniform() const { return kinds.size() == 1; }
    [[nodiscard]] std::size_t width() const { return kinds.size() + 2; }
};

/// Not thread-safe. References last as long as it.
class SplitStages {
public:
    /// `schedules` must outlive it.
    SplitStages(LayerKinds kinds, SharedSchedules& schedules) : kinds_(std::move(kinds)), schedules_(schedules) {}

    [[nodiscard]] const SplitChunks& chunks(const Layout& layout);
    /// By a number of SplitChunks.
    [[nodiscard]] const ChunkContents& contents(int number) const { return contents_[static_cast<std::size_t>(number)]; }
    /// Kinds of its decoder layers, a bit for each.
    [[nodiscard]] std::uint64_t layer_kinds(int number) const { return layer_kinds_[static_cast<std::size_t>(number)]; }
    /// How a chunk with these contents runs; `full`: null but under full recompute.
    [[nodiscard]] const ChunkRecipe& recipe(int number, const ChunkRecompute* full);
    /// By pipeline stage. `split`: chunks() of the layout.
    [[nodiscard]] const std::vector<StageInstants>& instants(const Layout& layout, const SplitChunks& split);
    [[nodiscard]] const std::vector<LiveState>& live(const Layout& layout, int pp_rank);
    /// Messages that wait until the next one is to be sent (model/pipeline/pipeline_executor.cpp).
    [[nodiscard]] std::int64_t open_messages(const Layout& layout, const SplitChunks& split, int pp_rank) const;

private:
    /// How all chunks run under one mode of recompute, by number of their contents as far as they were asked for.
    struct Recipes {
        std::optional<ChunkRecompute> full;
        std::deque<std::optional<ChunkRecipe>> of;
    };

    [[nodiscard]] int number_of(ChunkContents asked);
    [[nodiscard]] StageInstants instants_of_stage(const Layout& layout, const SplitChunks& split, int pp_rank);

    LayerKinds kinds_;
    SharedSchedules& schedules_;
    std::unordered_map<const StageSplit*, SplitChunks> splits_;
    // Deques: what they hold stays where it is when they grow.
    std::deque<ChunkContents> contents_;      ///< all that were met
    std::vector<std::uint64_t> layer_kinds_;  ///< of each of them
    std::deque<Recipes> recipes_;
    std::unordered_map<MemoKey<3>, std::vector<StageInstants>, MemoKeyHash> instants_;
};

}  // namespace mgplan::simulator
