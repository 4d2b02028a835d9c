#include "plan/training/data_sharding.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace mgplan {
namespace {

/// By enumerator.
constexpr std::array<std::string_view, 5> kWords{"none", "optimizer", "optimizer_gradients", "full", "hybrid"};
static_assert(static_cast<std::size_t>(DataSharding::hybrid) + 1 == kWords.size());

}  // namespace

std::string_view to_string(DataSharding sharding) {
    return kWords[static_cast<std::size_t>(sharding)];
}

std::optional<DataShardingChoice> parse_data_sharding(std::string_view text) {
    const std::size_t colon = text.find(':');
    const auto word = std::find(kWords.begin(), kWords.end(), text.substr(0, colon));
    if (word == kWords.end()) return std::nullopt;
    DataShardingChoice choice{static_cast<DataSharding>(word - kWords.begin())};
    const bool counted = colon != std::string_view::npos;
    if (counted != (choice.kind == DataSharding::hybrid)) return std::nullopt;
    if (!counted) return choice;
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), choice.replicas);
    if (error != std::errc{} || end != digits.data() + digits.size() || choice.replicas < 2 || choice.replicas > kMostReplicas)
        return std::nullopt;
    return choice;
}

std::vector<std::string> data_sharding_words() {
    return {"none", "optimizer", "optimizer_gradients", "full", "hybrid:N with N of at least 2"};
}

DataSharding data_sharding(const TrainingSpec& training) {
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    if (!spec.active()) return training.distributed_optimizer ? DataSharding::optimizer : DataSharding::none;
    if (spec.shards_parameters()) return training.distributed_optimizer_instances > 1 ? DataSharding::hybrid : DataSharding::full;
    if (spec.shards_gradients()) return DataSharding::optimizer_gradients;
    return spec.strategy == ShardingStrategy::optim ? DataSharding::optimizer : DataSharding::none;
}

DataShardingChoice data_sharding_choice(const TrainingSpec& training) {
    const DataSharding kind = data_sharding(training);
    return {kind, kind == DataSharding::hybrid ? training.distributed_optimizer_instances : 1};
}

void set_data_sharding(DataShardingChoice choice, TrainingSpec& training) {
    FullyShardedSpec& spec = training.megatron.fully_sharded;
    training.distributed_optimizer = choice.kind != DataSharding::none;
    if (choice.kind == DataSharding::none || choice.kind == DataSharding::optimizer) {
        if (choice.kind == DataSharding::none) training.overlap_param_gather = false;
        if (choice.kind == DataSharding::none || spec.active()) training.distributed_optimizer_instances = 1;  // HSDP's replicas go too
        spec = {};
        return;
    }
    if (spec.kind == FullyShardedKind::torch_fsdp2 && choice.kind == DataSharding::full) {  // divides all of it, without that optimizer
        training.distributed_optimizer = false;
        return;
    }
    training.megatron.weight_shards = {};  // which Megatron-FSDP does in a way of its own
    spec.kind = FullyShardedKind::megatron_fsdp;
    const bool parameters = choice.kind != DataSharding::optimizer_gradients;
    spec.strategy = parameters ? ShardingStrategy::optim_grads_params : ShardingStrategy::optim_grads;
    if (!parameters) spec.outer_optimizer = false;
    training.distributed_optimizer_instances = choice.replicas;
    training.overlap_grad_reduce = true;
    training.overlap_param_gather = training.overlap_param_gather || parameters;
}

void set_data_sharding_alone(DataShardingChoice choice, TrainingSpec& training) {
    FullyShardedSpec& spec = training.megatron.fully_sharded;
    const bool had_its_own = spec.active();
    set_data_sharding(choice, training);
    if (!had_its_own && spec.kind == FullyShardedKind::megatron_fsdp) spec.main_grads = training.grad_dtype;
    training.grad_dtype = kept_gradient_dtype(training);
}

Dtype kept_gradient_dtype(const TrainingSpec& training) {
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    if (!spec.active()) return training.grad_dtype;
    const bool named = spec.kind == FullyShardedKind::megatron_fsdp && spec.main_grads;
    return named ? *spec.main_grads : training.compute_dtype();
}

}  // namespace mgplan
