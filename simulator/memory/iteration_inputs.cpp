#include "simulator/memory/iteration_inputs.hpp"

#include "model/ops/dropout.hpp"

namespace mgplan::simulator {

std::vector<IterationInput> iteration_inputs(const IterationShare& share) {
    const std::int64_t microbatches = share.microbatches;
    std::vector<IterationInput> inputs;
    if (share.policy == GraphPolicy::megatron) {
        // Both the first and the last stage load everything: int64 ids, positions and targets, fp32 loss mask.
        constexpr std::int64_t kTokenBytes = 3 * 8 + 4;
        if (share.first || share.last)
            inputs.push_back({"microbatches", microbatches, microbatches * share.rows * kTokenBytes + share.mask_bytes});
        return inputs;
    }
    const std::int64_t ids = share.rows * 4;  // int32, as are dropout's seeds and offsets
    constexpr std::int64_t kDropoutBytes = model::kDropoutWords * 4;
    const std::int64_t depths = share.last && share.model != nullptr ? share.model->mtp_layers : 0;
    if (share.first) inputs.push_back({"token ids", microbatches, microbatches * ids});
    if (share.last) inputs.push_back({"target ids", microbatches, microbatches * ids});
    if (depths > 0) inputs.push_back({"further target ids", depths * microbatches, depths * microbatches * ids});
    // One tensor that all microbatches share, or that holds the values of all.
    if (share.first && share.model != nullptr && share.model->position == PositionEmbedding::learned)
        inputs.push_back({"position ids", 1, ids});
    if (share.model != nullptr && share.model->hidden_dropout > 0)
        inputs.push_back({"dropout seeds and offsets", 1, microbatches * kDropoutBytes});
    return inputs;
}

}  // namespace mgplan::simulator
