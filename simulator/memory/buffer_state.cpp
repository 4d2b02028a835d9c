#include "simulator/memory/buffer_state.hpp"

#include <algorithm>

#include "plan/text/rounding.hpp"
#include "simulator/memory/offloaded_state.hpp"

namespace mgplan::simulator {
namespace {

/// PyTorch's allocator rounds a scale's four bytes up to this.
constexpr std::int64_t kSmallestBlock = 512;

/// core/optimizer/optimizer_config.py, use_precision_aware_optimizer_no_fp8_or_ds_fp8: Transformer Engine's FusedAdam holds the main
/// parameters and reads gradients in their own type, except fp32 ones under fp8 recipes other than delayed scaling.
bool fused_adam_holds_main_parameters(const TrainingSpec& training) {
    return training.main_param_dtype != Dtype::fp32 || !quantised(training.precision) || training.format() == QuantisedFormat::delayed;
}

/// fused_adam.py, store_param_remainders (Megatron-LM's default): an fp32 main parameter is the bf16 parameter plus 16 bits. fp8 parameters
/// have no such half.
bool keeps_remainders(const BufferElements& elements, const TrainingSpec& training) {
    return fused_adam_holds_main_parameters(training) && training.main_param_dtype == Dtype::fp32 &&
           training.compute_dtype() == Dtype::bf16 && !elements.fp8;
}

OwnedElements owned_of(const BufferElements& elements, Engine engine, bool muon) {
    if (elements.shard > 0) return {elements.shard, muon ? elements.shard : 0};
    if (!muon || elements.matrices == 0) return {elements.buffer / elements.shards, 0};
    // The matrices have a buffer of their own, whose shards are padded to the fullest.
    if (engine == Engine::mgplan) return {elements.buffer / elements.shards, elements.buffer / elements.shards};
    const std::int64_t matrices =
        elements.shards == 1 ? elements.matrices : std::max(divide_up(elements.matrices, elements.shards), elements.largest_matrix);
    return {(elements.buffer - elements.matrices) / elements.shards + matrices, matrices};
}

/// Bytes of a buffer of quantised parameters. Megatron-LM packs two values of nvfp4 into a byte (core/distributed/param_and_grad_buffer.py,
/// _compute_nvfp4_packed_layout) and pads the packed values by the same rules; approximated by half of the elements' own padding.
std::int64_t quantised_bytes(std::int64_t elements, const TrainingSpec& training) {
    return training.format() == QuantisedFormat::nvfp4 ? divide_up(elements, 2) : elements;
}

}  // namespace

ModelStateBytes model_state_bytes(const BufferElements& elements, Engine engine, const TrainingSpec& training) {
    ModelStateBytes bytes;
    if (elements.buffer == 0) return bytes;
    const Dtype compute = training.compute_dtype();
    const bool widest = compute == Dtype::fp64;
    const bool mixed = compute == Dtype::bf16 || compute == Dtype::fp16;
    const bool aware = engine == Engine::megatron && mixed && training.megatron.precision_aware_optimizer;
    const Dtype main = widest ? Dtype::fp64 : mixed ? training.main_param_dtype : Dtype::fp32;
    const Dtype gradient = widest ? Dtype::fp64 : training.grad_dtype;
    const bool muon = training.megatron.optimizer == OptimizerKind::muon;
    const OptimizerKind optimizer = training.megatron.optimizer;
    // Engine mgplan keeps a single moment in the main parameters' type.
    const bool single = engine == Engine::mgplan && (optimizer == OptimizerKind::sgd || optimizer == OptimizerKind::lion);
    const auto [owned, matrices] = owned_of(elements, engine, muon);
    bytes.parameters = elements.fp8 ? quantised_bytes(elements.buffer, training) : elements.buffer * bytes_of(compute);
    bytes.gradients = elements.buffer * bytes_of(gradient);
    if (engine == Engine::megatron && training.offload.optimizer > 0) {
        divide_between_devices(bytes, owned, std::min(elements.largest, owned), mixed, training);
        return bytes;
    }
    const std::int64_t kept_main = !mixed ? 0 : aware && keeps_remainders(elements, training) ? 2 : bytes_of(main);
    bytes.optimizer += owned * kept_main;
    const bool like_adam = muon || engine == Engine::mgplan;
    if (single)
        bytes.optimizer += owned * bytes_of(main);
    else
        bytes.optimizer += (owned - matrices) * (widest ? 16 : moment_bytes(like_adam ? OptimizerKind::adam : optimizer, training));
    bytes.optimizer += matrices * (engine == Engine::mgplan ? bytes_of(main) : moment_bytes(OptimizerKind::muon, training));
    std::int64_t updated_at_once = owned;
    if (engine == Engine::megatron && training.offload.states > 0) {
        updated_at_once = keep_between_updates(bytes, elements, {owned, matrices}, kept_main, training);
    } else if (const std::int64_t away = offloaded_elements(owned, training.offload.waiting()); away > 0) {
        const std::int64_t each = bytes.optimizer / owned;
        bytes.host = away * each;
        bytes.optimizer -= bytes.host;
        bytes.staged = std::min(away, staged_elements(training.offload)) * each;
    }
    if (aware) {
        const bool by_fused_adam = fused_adam_holds_main_parameters(training);
        const std::int64_t tensors = std::min(elements.tensors, elements.tensors / elements.shards + 1);
        std::int64_t copies = 0;
        for (const Dtype state : {training.exp_avg_dtype, training.exp_avg_sq_dtype, by_fused_adam ? main : Dtype::fp32}) {
            if (state == Dtype::fp32) continue;
            copies += updated_at_once * 4;
            bytes.optimizer += tensors * kSmallestBlock * (state == Dtype::fp8 ? 4 : 1);
        }
        // fused_adam.py, step: the copies are made and freed within the step of one optimizer, and Megatron-core's ChainedOptimizer steps
        // one after the other. State that returns from the host in chunks is counted over both.
        (training.offload.states > 0 ? bytes.update : bytes.stepping[elements.expert ? 1 : 0]) += copies;
        if (by_fused_adam) return bytes;
    }
    // A gradient narrower than the main parameters is copied for the update and freed after it (Megatron-core distrib_optimizer.py and
    // optimizer.py, _copy_model_grads_to_main_grads and zero_grad).
    if (bytes_of(gradient) < bytes_of(main)) bytes.update += owned * bytes_of(main);
    return bytes;
}

}  // namespace mgplan::simulator
