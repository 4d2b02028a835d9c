#include "simulator/memory/model_state.hpp"

#include <numeric>

namespace mgplan::simulator {
namespace {

ModelStateBytes buffer_bytes(std::int64_t elements, std::int64_t shards, const TrainingSpec& training) {
    ModelStateBytes bytes;
    if (elements == 0) return bytes;
    const Dtype compute = training.compute_dtype();
    const bool mixed = compute == Dtype::bf16 || compute == Dtype::fp16;
    // Main parameters are a copy only where the parameters themselves are narrower; a gradient narrower than fp32 is
    // copied to fp32 for the update and freed behind it (Megatron-core distrib_optimizer.py and optimizer.py,
    // _copy_model_grads_to_main_grads and zero_grad).
    std::int64_t state = bytes_of(training.exp_avg_dtype) + bytes_of(training.exp_avg_sq_dtype);
    if (compute == Dtype::fp64) state = 16;
    if (mixed) state += bytes_of(training.main_param_dtype);
    const std::int64_t copy = mixed && bytes_of(training.grad_dtype) < 4 ? 4 : 0;
    const std::int64_t weight = training.fp8_parameters ? 1 : bytes_of(compute);
    if (training.distributed_optimizer) {
        const std::int64_t unit = std::lcm(shards, std::int64_t{128});
        const std::int64_t padded = (elements + unit - 1) / unit * unit;
        bytes.parameters = padded * weight;
        bytes.gradients = padded * bytes_of(training.grad_dtype);
        bytes.optimizer = padded / shards * state;
        bytes.update = padded / shards * copy;
    } else {
        bytes.parameters = elements * weight;
        bytes.gradients = elements * bytes_of(training.grad_dtype);
        bytes.optimizer = elements * state;
        bytes.update = elements * copy;
    }
    return bytes;
}

}  // namespace

ModelStateBytes model_state_bytes(const ParameterCount& count, const Layout& layout, const TrainingSpec& training) {
    const std::int64_t instances = std::max(1, training.distributed_optimizer_instances);
    const ModelStateBytes dense = buffer_bytes(count.dense, std::max<std::int64_t>(1, layout.dp() * layout.sizes.cp / instances), training);
    const ModelStateBytes expert = buffer_bytes(count.expert, std::max<std::int64_t>(1, layout.edp() / instances), training);
    return {dense.parameters + expert.parameters, dense.gradients + expert.gradients, dense.optimizer + expert.optimizer,
            dense.update + expert.update};
}

}  // namespace mgplan::simulator
