#pragma once
// What forwards and backwards add to a rank's memory at the fullest instant of an iteration, for any layout of one workload:
// one trace for each shard of the model's layers, composed over chunks and schedule, with everything that layouts share kept.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/memory/routing_load.hpp"

namespace mgplan::simulator {

/// The fullest instant of the passes, with what the rank holds all the while beside parameters, gradients and optimizer.
struct PassesPeak {
    std::int64_t bytes = 0;        ///< of all categories together
    BytesByCategory at_peak{};     ///< sums to `bytes`
    BytesByCategory high_water{};  ///< each category's own maximum
    int op = 0;                    ///< running then: +k a forward, -k a backward of chunk k-1
    std::string_view tensor;       ///< taken at that instant
};

/// A rank's passes, and what it holds beside their tensors, parameters, gradients and optimizer while they run.
struct RankPasses {
    /// One tensor, or one kind of tensor.
    struct Held {
        model::MemoryCategory category{};
        std::int64_t bytes = 0;
        std::string_view tensor;
    };
    std::vector<PassProfile> chunks;  ///< what is sent to another stage is given back at the end
    std::vector<Held> held;
};

class ShardLayers;
class SplitStages;

/// Not thread-safe. The workload must outlive it. Layouts must be valid.
class ActivationMemory {
public:
    /// `layers` and `splits`: what others read too, which must outlive it; its own without.
    explicit ActivationMemory(const Workload& workload, ShardLayers* layers = nullptr, SplitStages* splits = nullptr);
    ~ActivationMemory();
    ActivationMemory(const ActivationMemory&) = delete;
    ActivationMemory& operator=(const ActivationMemory&) = delete;

    [[nodiscard]] const LayerKinds& kinds() const;
    /// All of them, or those that may be the fullest: of engine megatron's stages between the ends with the same chunks the first, for the
    /// microbatches of the others are alive no longer. The others have its peak.
    enum class Stages : std::uint8_t { all, fullest };
    /// peak().bytes of every pipeline stage, quickly: the list is overwritten.
    void peak_bytes(const Layout& layout, Stages which, std::vector<std::int64_t>& by_stage);
    /// The first stage's, without the others.
    [[nodiscard]] std::int64_t front_peak_bytes(const Layout& layout);
    /// The same of the stages from `first` on, one for each of `rows`: so many times the rows of the even split that their
    /// experts receive. Never too little. peak_bytes() of the same layout has been asked for last.
    void routed_peak_bytes(const Layout& layout, std::span<const RowFactors> rows, int first, std::vector<std::int64_t>& by_stage);
    /// Most bytes of inputs that wait in the host's memory at one time (--offload), of a stage's rank; rows spread evenly over experts.
    [[nodiscard]] std::int64_t host_bytes(const Layout& layout, int pp_rank);
    /// The same under a schedule with divided backwards: inputs come back with the input gradient.
    [[nodiscard]] std::int64_t host_bytes(const Layout& layout, int pp_rank, const RankSchedule& schedule);
    /// Bytes of inputs that a forward of a layer leaves there, by index of its kind.
    [[nodiscard]] const std::vector<std::int64_t>& offloaded_by_kind(const Layout& layout);
    /// Pieces of the layout's shard, for callers that take layers apart; without the router, unless the layout's graphs may end behind it.
    [[nodiscard]] PieceBytes pieces(const Layout& layout);
    [[nodiscard]] PassesPeak peak(const Layout& layout, int pp_rank);
    /// What peak() is made of: played over the schedule it has the same peak.
    [[nodiscard]] RankPasses passes(const Layout& layout, int pp_rank);
    /// The same tensor by tensor, each chunk once; what is held is taken in front of the passes and kept.
    [[nodiscard]] IterationTrace tensors(const Layout& layout, int pp_rank);
    /// How much fuller the fullest instant of a microbatch is than the fullest while decoder layers run: what output layer and loss take
    /// more than a layer. For a layout without a pipeline.
    [[nodiscard]] std::int64_t excess_of_head(const Layout& layout);

private:
    /// Bytes of one microbatch that wait on the host, for each of a rank's chunks; empty where nothing does.
    [[nodiscard]] std::vector<std::int64_t> host_bytes_of_chunks(const Layout& layout, int pp_rank);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
