#pragma once
// Allocations of the layers of one shard of a model, for any layout of one workload: traces of its pieces under the engine's policies, and
// their profiles, each computed once.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_trace.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// The subject of a record: a half, by index in LayerKinds::mixers or feed_forwards, or the ends of the model.
struct Part {
    enum class Of : std::uint8_t { mixer, feed_forward, ends, prediction, recomputed_prediction };
    Of what = Of::ends;
    std::size_t index = 0;
    bool operator==(const Part&) const = default;
    [[nodiscard]] std::size_t hash() const { return hash_of(what, index); }
};

/// Not thread-safe. The workload must outlive it. Layouts must be valid. Switches of a layout are read from it (Layout::switches), not from
/// the workload.
class ShardLayers {
public:
    explicit ShardLayers(const Workload& workload);
    /// For a further thread: shares the recordings and profiles of `others`, whose workload is equal.
    ShardLayers(const Workload& workload, const ShardLayers& others);
    ~ShardLayers();
    ShardLayers(const ShardLayers&) = delete;
    ShardLayers& operator=(const ShardLayers&) = delete;

    [[nodiscard]] const LayerKinds& kinds() const;
    /// For memory: of the switches only the dispatcher is set, on which bytes depend.
    [[nodiscard]] PieceSizes sizes(const Layout& layout) const;

    /// Ratios of received tokens to the even split at which MoE layers are traced: node 0 is the even split, the last node the maximum.
    /// Bytes are interpolated between two nodes: a peak is the largest of sums that grow with the tokens, a convex function, so that the
    /// chord never underestimates it.
    static constexpr std::size_t kNodes = 4;
    [[nodiscard]] double received_at(const Layout& layout, int node) const;
    /// The reference is valid as long as this object.
    [[nodiscard]] const ShardProfiles& profiles(const Layout& layout, int node);
    /// Bytes of inputs that a forward through a layer leaves in the host's memory, by index of the layer's kind. The reference is valid as
    /// long as this object.
    [[nodiscard]] const std::vector<std::int64_t>& host_bytes(const Layout& layout);
    /// Sets `steps` to the deltas of profiles(), fast.
    void steps(const Layout& layout, int node, StepTable<MemoryDelta>& steps);
    /// router_part() of the layout's shard, for a MoE model with tokens spread evenly.
    [[nodiscard]] KeptAndTaken router_part(const Layout& layout);
    /// Traces with their steps under the engine's policies, for the time model: created at each call, or shared recordings, which live as
    /// long as the last ShardLayers that shares them.
    /// A ring of more than four ranks is represented by four parts. `received`: as in trace_half().
    [[nodiscard]] TracePointer record(const PieceSizes& shard, Part part, double received = 1);
    /// Tensors of every step, created at each call, with tokens spread evenly. `named`: with their names.
    [[nodiscard]] StepTable<TensorTrace> tensor_steps(const Layout& layout, bool named);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mgplan::simulator
