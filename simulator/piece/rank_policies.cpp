// Memory that engine megatron holds on a whole rank outside its layers.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "plan/parameters/parameters.hpp"
#include "simulator/piece/engine_policies.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

std::int64_t element(const RankContext& rank) {
    return bytes_of(rank.layer.sizes.dtype);
}

/// With gradient accumulation fusion the GEMM adds to the main gradient, and autograd gets an empty tensor instead: one of each weight's
/// shape, kept permanently.
std::int64_t dummy_weight_gradients(const RankContext& rank) {
    const MegatronSwitches& megatron = rank.layer.megatron();
    if (!megatron.transformer_engine || !megatron.gradient_accumulation_fusion) return 0;
    return rank.linear_elements * element(rank);
}

std::int64_t gather_buffer(const RankContext& rank) {
    if (!rank.loss || !rank.layer.sizes.sequence_parallel || rank.layer.sizes.tp == 1) return 0;
    return rank.stream * rank.layer.sizes.tp;
}

std::int64_t deferred_logits(const RankContext& rank) {
    const MegatronSwitches& megatron = rank.layer.megatron();
    if (!rank.loss || !megatron.defer_embedding_wgrad) return 0;
    const std::int64_t limit = megatron.wgrad_deferral_limit > 0 ? megatron.wgrad_deferral_limit : rank.layout.num_microbatches;
    const std::int64_t tp = rank.layer.sizes.tp, logits = rank.layer.sizes.rows() * rank.layer.model.output_rows(tp) / tp * element(rank);
    return std::min(limit, rank.layout.num_microbatches - 1) * (logits + rank.stream);
}

std::int64_t attention_mask(const RankContext& rank) {
    const PieceSizes& sizes = rank.layer.sizes;
    if (!rank.layer.megatron().attention_mask_in_dataloader || !(rank.embedding || rank.loss)) return 0;
    return sizes.micro_batch * sizes.sequence * sizes.sequence;
}

std::int64_t last_input_gradient(const RankContext& rank) {
    const bool interleaved = rank.layout.vpp > 1;
    return rank.pp_rank > 0 && !interleaved && rank.layout.num_microbatches > 1 ? rank.stream : 0;
}

std::int64_t posted_receives(const RankContext& rank) {
    return rank.layout.vpp > 1 && rank.layer.training.overlap_p2p ? 2 * rank.stream : 0;
}

/// The last layer's inputs stay because its backward is next, and during a backward the next layer's inputs return.
std::int64_t inputs_on_their_way(const RankContext& rank) {
    return rank.offloaded_layer;
}

constexpr RankPolicy kRankPolicies[] = {
    {"an empty weight gradient of each shape", "linear layers of Transformer Engine", "weight gradient", "storage type",
     "transformer_engine/pytorch/module/base.py, get_dummy_wgrad", MemoryCategory::activations, dummy_weight_gradients},
    {"the gather buffer is made once", "output layer", "gathered rows", "storage type", "megatron/core/utils.py, GlobalMemoryBuffer",
     MemoryCategory::communication, gather_buffer},
    {"weight gradients of the output layer are deferred", "output layer", "logit gradients and inputs of earlier microbatches",
     "storage type", "megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication",
     MemoryCategory::activations, deferred_logits},
    {"the attention mask comes with the batch", "data loader", "mask of micro-batch x sequence x sequence", "1 byte",
     "megatron/core/datasets/gpt_dataset.py, _get_ltor_masks_and_position_ids", MemoryCategory::activations, attention_mask},
    {"the last input gradient stays referenced", "1F1B schedule", "gradient sent to the stage before", "storage type",
     "megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving", MemoryCategory::communication,
     last_input_gradient},
    {"receives are posted ahead", "interleaved schedule with overlapped communication", "next input and next output gradient",
     "storage type", "megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving",
     MemoryCategory::communication, posted_receives},
    {"inputs of one layer are on their way", "modules of --offload-modules", "what a layer leaves on the host", "as kept",
     "megatron/core/pipeline_parallel/fine_grained_activation_offload.py, post_warmup_callback and bulk_reload",
     MemoryCategory::activations, inputs_on_their_way},
};

}  // namespace

std::span<const RankPolicy> megatron_rank_policies() {
    return kRankPolicies;
}

std::int64_t linear_elements(const ModelSpec& model, const LayerKinds& kinds, std::int64_t tp, std::int64_t etp, std::uint64_t held) {
    std::set<std::vector<std::int64_t>> shapes;
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.etp = etp;
    // All experts have the same shapes, so one represents all.
    sizes.ep = model.moe ? model.moe->experts : 1;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        if ((held >> kind & 1U) == 0) continue;
        for (const Parameter& p : decoder_layer_parameters(model, kinds.first_layer[kind], sizes, "")) {
            if (p.shape.size() == 2 && p.linear_weight && p.trained) shapes.insert(p.shape);
        }
    }
    std::int64_t elements = 0;
    for (const auto& shape : shapes) elements += shape[0] * shape[1];
    return elements;
}

}  // namespace mgplan::simulator
