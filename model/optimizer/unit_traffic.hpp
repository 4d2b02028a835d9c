#pragma once
// The data-parallel traffic of a chunk whose gradients, and with them its parameters on request, are sharded as well: Megatron-FSDP's
// optim_grads and optim_grads_params, ZeRO-2 and ZeRO-3. The units that are gathered and freed together are the chunk's sections.
//
// After Megatron-LM at d98e8a64, core/distributed/fsdp/src/megatron_fsdp (param_and_grad_buffer.py: AllGatherPipeline,
// GradReducePipeline). Unlike there, embedding and head are units like the layers, one unit is gathered ahead, and one unit's gradients
// are reduced while the next unit's are made, at any size.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/optimizer/bucket_traffic.hpp"
#include "model/optimizer/chunk_buffers.hpp"
#include "model/optimizer/chunk_traffic.hpp"

namespace mgplan::model {

/// Groups that share a chunk: the ranks that its dense and its expert parameters are divided over and, with several replicas of these
/// (HSDP), the ranks that hold the same shards.
struct ShardGroups {
    Communicator* dense = nullptr;
    Communicator* expert = nullptr;
    Communicator* dense_replicas = nullptr;  ///< nullptr: one replica
    Communicator* expert_replicas = nullptr;
};

/// Memory: a unit's parameters live from just before the section that reads them, with overlap_gather from the start of the section before
/// that, to its end; its gradients from the begin of its backward until they are reduced: at once, or with overlap_reduce when the
/// next unit's are complete. The gradients of every backward are reduced and added to the shard.
class UnitTraffic final : public ChunkTraffic {
public:
    /// `chunk`: with buckets by unit (ChunkBuffers). Everything outlives this object. `options.distributed` is not looked at.
    UnitTraffic(ChunkBuffers& chunk, const ShardGroups& groups, const BucketTrafficOptions& options);

    /// To be called once, before the first step: each rank fills one whole unit after another by `initialize`, which fills the weights of
    /// the given parameters, and keeps its shard.
    void initialize_units(const std::function<void(std::span<const Parameter>)>& initialize);

    void begin_step(std::int64_t /*microbatches*/) override {}
    void finish_reductions() override;
    void start_gathers() override;
    void finish_gathers() override;

    void before_use(int /*unit*/) override {}
    void after_backward(int /*unit*/) override {}
    void before_section(int section, int next) override;
    void after_section(int section) override;
    void before_gradients(int section) override;
    void after_gradients(int section, int next) override;

private:
    struct Unit {
        std::vector<BucketId> buckets;  ///< dense ones first
        std::vector<std::unique_ptr<Pending>> gathers;
        bool gathered = false;
    };
    /// Gradients on their way to the shards.
    struct Arriving {
        FlatBuffer* buffer = nullptr;
        std::size_t bucket = 0;
        Tensor sum;
        std::unique_ptr<Pending> pending;
    };

    [[nodiscard]] FlatBuffer& buffer_of(BucketId id) { return chunk_.buffers()[static_cast<std::size_t>(id.buffer)]; }
    [[nodiscard]] Communicator& ranks_of(const FlatBuffer& buffer) const;
    [[nodiscard]] double factor_of(const FlatBuffer& buffer) const {
        return buffer.layout.expert ? options_.expert_factor : options_.dense_factor;
    }
    void gather(Unit& unit);
    /// Waits for the running reduction, if any, and adds its result.
    void take_sums();

    ChunkBuffers& chunk_;
    ShardGroups groups_;
    BucketTrafficOptions options_;
    std::vector<Unit> units_;
    std::vector<Arriving> arriving_;
};

}  // namespace mgplan::model
