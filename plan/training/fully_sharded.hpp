#pragma once
// Data parallelism that shards more than the optimizer's state: PyTorch's FSDP2 and Megatron-FSDP as Megatron-LM starts them.

#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/training/numeric_types.hpp"

namespace mgplan {

/// Implementation of sharding: none (Megatron-LM's own data parallelism), --use-torch-fsdp2, --use-megatron-fsdp.
enum class FullyShardedKind : std::uint8_t { none, torch_fsdp2, megatron_fsdp };

/// State that is divided over the data-parallel ranks (--data-parallel-sharding-strategy): none, the optimizer's state, gradients as well,
/// parameters as well. FSDP2 divides all of it.
enum class ShardingStrategy : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };

/// Defaults are Megatron-LM's (megatron/core/distributed/distributed_data_parallel_config.py).
struct FullyShardedSpec {
    FullyShardedKind kind = FullyShardedKind::none;
    ShardingStrategy strategy = ShardingStrategy::no_shard;
    /// --outer-dp-sharding-strategy optim: with several optimizer instances the optimizer's state is divided over all of them.
    bool outer_optimizer = false;
    /// --fsdp-double-buffer (and --nccl-ub, which sets it): two buffers of a unit each that stay, instead of those that come and go.
    bool double_buffer = false;
    bool reshard_after_forward = true;    ///< FSDP2: not --torch-fsdp2-no-reshard-after-forward
    bool keep_fp8_transposes = false;     ///< --keep-fp8-transpose-cache
    std::int64_t communication_unit = 0;  ///< --suggested-communication-unit-size, elements; 0: Megatron-FSDP's rule
    /// --megatron-fsdp-main-params-dtype; nothing (auto): the parameters themselves are what is updated.
    std::optional<Dtype> main_params = Dtype::fp32;
    std::optional<Dtype> main_grads;          ///< --megatron-fsdp-main-grads-dtype; nothing (auto): the parameters' type, bf16 for fp8
    std::optional<Dtype> communicated_grads;  ///< --megatron-fsdp-grad-comm-dtype; nothing (auto): that of the main gradients

    [[nodiscard]] bool active() const { return kind != FullyShardedKind::none; }
    [[nodiscard]] bool shards_gradients() const { return active() && strategy >= ShardingStrategy::optim_grads; }
    [[nodiscard]] bool shards_parameters() const { return active() && strategy == ShardingStrategy::optim_grads_params; }

    bool operator==(const FullyShardedSpec&) const = default;
};

[[nodiscard]] constexpr std::string_view to_string(FullyShardedKind kind) {
    switch (kind) {
        case FullyShardedKind::none:
            return "none";
        case FullyShardedKind::torch_fsdp2:
            return "torch_fsdp2";
        case FullyShardedKind::megatron_fsdp:
            return "megatron_fsdp";
    }
    return "";
}

[[nodiscard]] constexpr std::string_view to_string(ShardingStrategy strategy) {
    switch (strategy) {
        case ShardingStrategy::no_shard:
            return "no_shard";
        case ShardingStrategy::optim:
            return "optim";
        case ShardingStrategy::optim_grads:
            return "optim_grads";
        case ShardingStrategy::optim_grads_params:
            return "optim_grads_params";
    }
    return "";
}

}  // namespace mgplan
