#pragma once
// State that is divided over the data-parallel ranks, in the words of --sharding and of layout.sharding.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/training/training_spec.hpp"

namespace mgplan {

/// none: plain data parallelism. optimizer: Megatron-LM's distributed optimizer. optimizer_gradients and full: Megatron-FSDP with
/// --data-parallel-sharding-strategy optim_grads and optim_grads_params (FSDP2 is full too). hybrid: full inside each of several replicas
/// of the model (--num-distributed-optimizer-instances), HSDP.
enum class DataSharding : std::uint8_t { none, optimizer, optimizer_gradients, full, hybrid };

/// Largest number of replicas of a hybrid sharding.
inline constexpr int kMostReplicas = 65536;

/// A kind, and of hybrid the number of replicas.
struct DataShardingChoice {
    DataSharding kind = DataSharding::optimizer;
    int replicas = 1;

    bool operator==(const DataShardingChoice&) const = default;
};

[[nodiscard]] std::string_view to_string(DataSharding sharding);

/// "none", "optimizer", "optimizer_gradients", "full", or "hybrid:N" with N from 2 to 65,536; nothing for any other text.
[[nodiscard]] std::optional<DataShardingChoice> parse_data_sharding(std::string_view text);
/// The words that parse_data_sharding() takes, for messages.
[[nodiscard]] std::vector<std::string> data_sharding_words();

/// The state that a training divides.
[[nodiscard]] DataSharding data_sharding(const TrainingSpec& training);

/// The same with the number of replicas.
[[nodiscard]] DataShardingChoice data_sharding_choice(const TrainingSpec& training);

/// Makes a training divide that. Megatron-FSDP overlaps what it divides (Megatron-LM arguments.py, validate_args, at d98e8a64); the other
/// switches of FSDP stay as they are where it was on before.
void set_data_sharding(DataShardingChoice choice, TrainingSpec& training);

/// set_data_sharding() that leaves the type of gradients as it is: Megatron-FSDP's own default is bf16.
void set_data_sharding_alone(DataShardingChoice choice, TrainingSpec& training);

/// Type in which a training keeps its gradients: TrainingSpec::grad_dtype, but for FSDP, which has a type of its own (FullyShardedSpec).
[[nodiscard]] Dtype kept_gradient_dtype(const TrainingSpec& training);

}  // namespace mgplan
