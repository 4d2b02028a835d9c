#pragma once
// Memory that forwards and backwards add to a rank at its peak in an iteration, for any layout of one workload: one trace for each shard of
// the model's layers, composed over chunks and schedule; results that layouts share are cached.

#include <array>
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
#include "simulator/memory/shard_layers.hpp"

namespace mgplan::simulator {

/// Peak of the passes, with everything that the rank holds throughout except parameters, gradients and optimizer.
struct PassesPeak {
    std::int64_t bytes = 0;        ///< sum over all categories
    BytesByCategory at_peak{};     ///< sums to `bytes`
    BytesByCategory high_water{};  ///< each category's own maximum
    int op = 0;                    ///< op at the peak: +k a forward, -k a backward of chunk k-1
    std::string_view tensor;       ///< the tensor allocated at the peak
};

/// A rank's passes, and the tensors it holds during all of them, except parameters, gradients and optimizer.
struct RankPasses {
    /// One tensor, or all tensors of one kind.
    struct Held {
        model::MemoryCategory category{};
        std::int64_t bytes = 0;
        std::string_view tensor;
    };
    std::vector<PassProfile> chunks;  ///< tensors sent to another stage count as freed at the end of the pass
    std::vector<Held> held;
};

class SplitStages;

/// Peaks of a layout's passes, and the parts of which routed_peaks() computes them for other numbers of tokens.
struct WeighedPasses {
    std::vector<std::int64_t> peaks;  ///< by stage
    std::vector<std::int64_t> held;   ///< by stage: bytes of a rank in addition to its chunks
    /// Deltas of the split's distinct chunks, by node (ShardLayers::received_at); empty until a node is needed.
    std::array<std::vector<PassDeltas>, ShardLayers::kNodes> weights;
};

/// Not thread-safe. The workload must outlive it. Layouts must be valid.
class ActivationMemory {
public:
    /// `layers` and `splits` are shared with others and must outlive it; null: it creates its own.
    explicit ActivationMemory(const Workload& workload, ShardLayers* layers = nullptr, SplitStages* splits = nullptr);
    ~ActivationMemory();
    ActivationMemory(const ActivationMemory&) = delete;
    ActivationMemory& operator=(const ActivationMemory&) = delete;

    [[nodiscard]] const LayerKinds& kinds() const;
    /// all: every stage. fullest: with engine megatron, of inner stages with equal chunks only the first, which has the most live
    /// microbatches; the others get its peak.
    enum class Stages : std::uint8_t { all, fullest };
    /// Fast version of peak().bytes for every pipeline stage.
    [[nodiscard]] WeighedPasses weigh(const Layout& layout, Stages which);
    /// peak().bytes of the first stage, fast.
    [[nodiscard]] std::int64_t front_peak_bytes(const Layout& layout);
    /// Peak bytes of the stages from `first` on, one for each element of `rows`: the factors by which their experts receive more tokens
    /// than in the even split. Never too low. `passes`: weigh() of the same layout.
    [[nodiscard]] std::vector<std::int64_t> routed_peaks(const Layout& layout, WeighedPasses& passes, std::span<const RowFactors> rows,
                                                         int first);
    /// Peak bytes of inputs offloaded to the host (--offload) by one rank of a stage; tokens spread evenly over experts.
    [[nodiscard]] std::int64_t host_bytes(const Layout& layout, int pp_rank);
    /// Peak bytes of offloaded inputs under a schedule with split backwards: inputs return for the input gradient.
    [[nodiscard]] std::int64_t host_bytes(const Layout& layout, int pp_rank, const RankSchedule& schedule);
    /// Bytes of inputs that a layer's forward leaves on the host, by index of the layer's kind.
    [[nodiscard]] const std::vector<std::int64_t>& offloaded_by_kind(const Layout& layout);
    /// Kept and taken bytes of the pieces of the layout's shard; of the router only if the layout's graphs may end after it.
    [[nodiscard]] PieceBytes pieces(const Layout& layout);
    [[nodiscard]] PassesPeak peak(const Layout& layout, int pp_rank);
    /// The profiles of which peak() consists; played over the schedule they have the same peak.
    [[nodiscard]] RankPasses passes(const Layout& layout, int pp_rank);
    /// Trace of a rank's passes per tensor, each chunk once; tensors held throughout are taken before the passes and kept. `named`: with
    /// IterationTrace::names.
    [[nodiscard]] IterationTrace tensors(const Layout& layout, int pp_rank, bool named = false);
    /// Difference between the peak of a microbatch and the peak while decoder layers run: the extra memory of output layer and loss. For a
    /// layout without a pipeline.
    [[nodiscard]] std::int64_t excess_of_head(const Layout& layout);

private:
    /// Bytes of one microbatch offloaded to the host, for each chunk of the rank; empty if nothing is offloaded.
    [[nodiscard]] std::vector<std::int64_t> host_bytes_of_chunks(const Layout& layout, int pp_rank);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
