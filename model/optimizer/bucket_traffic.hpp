#pragma once
// The data-parallel traffic of one model chunk's buckets: reduces gradients and gathers updated parameters on all ranks,
// at the end of the step or overlapped with the passes.
//
// After Megatron-LM: core/distributed/param_and_grad_buffer.py (start_grad_sync, finish_grad_sync,
// start_param_sync, finish_param_sync) and distributed_data_parallel.py (the hooks, the scaling factors).

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/optimizer/chunk_buffers.hpp"
#include "model/optimizer/chunk_traffic.hpp"

namespace mgplan::model {

struct BucketTrafficOptions {
    bool distributed = true;      ///< gradients reduce-scattered and parameters gathered; else gradients all-reduced
    bool overlap_reduce = false;  ///< a bucket group is reduced as soon as its gradients are complete
    bool overlap_gather = false;  ///< a bucket group's parameters are waited for where they are first used
    Reduction reduction = Reduction::sum;
    double dense_factor = 1;  ///< gradients are multiplied by it before they are reduced; at 1 the op is left out
    double expert_factor = 1;
};

/// How gradients are weighted so that their sum is that of the mean loss. Default: each rank's loss is a mean of its own
/// tokens, so both kinds get 1/(dp·cp) (an expert's edp ranks have seen the tokens of all dp·cp). With averaging
/// collectives the dense ones get 1 and experts edp/(dp·cp). With per-token loss nothing here: the sum is divided by
/// the number of tokens later. `data_ranks`: dp·cp.
[[nodiscard]] BucketTrafficOptions gradient_weights(std::int64_t data_ranks, std::int64_t expert_data_ranks, bool average_in_collective,
                                                    bool per_token_loss);

/// Owns no memory: reductions are in place in the gradient buffers, gathers in the parameter buffers. All members of a
/// group start the same operations in the same order, because that order follows from layout and schedule alone.
class BucketTraffic final : public ChunkTraffic {
public:
    /// `unit_of`: for each of the chunk's parameters, the unit that reports for it. Everything outlives this object.
    BucketTraffic(ChunkBuffers& chunk, std::span<const int> unit_of, int units, Communicator& dp_cp, Communicator& expert_dp,
                  const BucketTrafficOptions& options);

    void begin_step(std::int64_t microbatches) override;
    /// Leaves gradients outside a rank's shard as they are.
    void finish_reductions() override;
    void start_gathers() override;
    void finish_gathers() override;

    void before_use(int unit) override;
    void after_backward(int unit) override;

private:
    struct Group {
        BucketGroup buckets;
        int first_unit = 0;
        int units = 0;       ///< different ones that its parameters belong to
        int incomplete = 0;  ///< of these, in this step
        bool reduced = false;
        std::vector<std::unique_ptr<Pending>> reductions, gathers;
    };

    void reduce(Group& group);
    void gather(Group& group);
    [[nodiscard]] Communicator& ranks_of(const FlatBuffer& buffer) const;

    ChunkBuffers& chunk_;
    Communicator& dp_cp_;
    Communicator& expert_dp_;
    BucketTrafficOptions options_;
    std::vector<Group> groups_;                      ///< dense ones first
    std::vector<std::size_t> gather_order_;          ///< of groups_, by first unit
    std::vector<std::vector<std::size_t>> of_unit_;  ///< groups with parameters of each unit
    std::vector<std::int64_t> backwards_left_;       ///< by unit
    std::size_t gathering_ = 0;                      ///< groups whose gathers were not waited for yet
};

}  // namespace mgplan::model
