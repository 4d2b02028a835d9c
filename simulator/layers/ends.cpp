#include "simulator/layers/ends.hpp"

#include "simulator/collectives/all_reduce.hpp"
#include "simulator/layers/quantisation.hpp"

namespace mgplan::simulator {
namespace {

/// Bytes of one microbatch's gradient of the rank's table. PyTorch makes a table of zeros for it, adds the tokens' rows, and
/// Megatron-core adds the whole of it to the gradient buffer (distributed_data_parallel.py): a first stage of a
/// vocabulary of 256,000 takes 4.3 ms longer than its neighbours for it (sail-sg/VocabularyParallelism, artifact/exp_one_host.csv).
/// mgplan adds the rows to the buffer themselves.
std::int64_t table_gradient_bytes(const Shard& s) {
    if (s.engine == Engine::mgplan) return 0;
    const std::int64_t entries = s.model().padded_vocab(s.tp) / s.tp * s.model().hidden;
    return entries * (2 * s.element + 2 * bytes_of(s.workload->training.grad_dtype));
}

}  // namespace

PieceCost embedding_cost(const Shard& s) {
    const ModelSpec& model = s.model();
    PieceCost cost;
    const std::int64_t stream = s.tokens * model.hidden * s.element;
    cost.forward = s.kernels->memory_bound(static_cast<double>(2 * stream));
    cost.backward = s.kernels->memory_bound(static_cast<double>(3 * stream + table_gradient_bytes(s)));
    cost.kernels_forward = 4;
    cost.kernels_backward = 4;
    cost.exposed_forward.tp = tp_reduce_seconds(s, model.hidden);
    cost.exposed_backward.tp = tp_gather_seconds(s, model.hidden);
    return cost;
}

PieceCost head_cost(const Shard& s) {
    const ModelSpec& model = s.model();
    PieceCost cost;
    const std::int64_t vocab = model.padded_vocab(s.tp) / s.tp;
    const std::int64_t stream = s.tokens_outside * model.hidden * s.element;
    // fp8_utils.py, is_mxfp8_output_proj_active: under mxfp8 alone.
    const bool in_mxfp8 = s.megatron() != nullptr && s.megatron()->fp8_output_projection && quantised_products(s) &&
                          s.workload->training.format() == QuantisedFormat::mxfp8;
    const KernelTimes& kernels = in_mxfp8 ? *s.kernels : *s.storage_kernels;
    const double project = kernels.gemm(s.tokens, vocab, model.hidden);
    const double project_input = kernels.gemm(s.tokens, model.hidden, vocab);
    const double project_weight = kernels.weight_gradient(vocab, model.hidden, s.tokens);
    const double logits = static_cast<double>(s.tokens) * static_cast<double>(vocab);
    const bool fused = s.workload->training.fused_cross_entropy;
    // Unfused: cast to fp32, maximum, subtract, exponential, sum, divide; fused: two passes over the 16-bit logits. The unfused
    // backward scales what the forward left and casts it, plain streams both.
    const double loss_forward = s.kernels->memory_bound(logits * (fused ? 6.0 : 30.0), Traffic::cross_entropy);
    const double loss_backward =
        s.kernels->memory_bound(logits * (fused ? 6.0 : 14.0), fused ? Traffic::cross_entropy : Traffic::streaming);
    cost.forward = s.kernels->memory_bound(static_cast<double>(2 * stream)) + project + loss_forward;
    cost.backward = s.kernels->memory_bound(static_cast<double>(3 * stream)) + project_input + project_weight + loss_backward;
    cost.weight_gradient = project_weight;
    cost.forward_flops = 2.0 * logits * static_cast<double>(model.hidden);
    cost.kernels_forward = 10;
    cost.kernels_backward = 8;
    if (in_mxfp8) cost += quantise_linear(s, LinearInput::plain, s.tokens, model.hidden, vocab);
    const double gather = tp_gather_seconds(s, model.hidden);
    // Three all-reduces of one fp32 value per token: maximum, target logit, sum of exponentials.
    const double loss_reduce = s.tp == 1 ? 0 : 3 * all_reduce_seconds(static_cast<double>(s.tokens) * 4, s.paths->tp, *s.calibration);
    cost.exposed_forward.tp = tp_exposed(s, gather, project) + loss_reduce;
    cost.exposed_backward.tp = beside(s, gather, project_input) + tp_reduce_exposed(s, tp_reduce_seconds(s, model.hidden), project_weight);
    return cost;
}

}  // namespace mgplan::simulator
