#pragma once
// Initial weights: by a value's place in the whole parameter, so that every layout starts from the same model, or, on
// request, by one seed per rank as Megatron-LM seeds its generators.

#include <cstdint>
#include <optional>
#include <span>

#include "model/layers/context.hpp"
#include "plan/parameters/whole_parameter.hpp"

namespace mgplan::model {

enum class SeedKind : std::uint8_t {
    by_position,  ///< the same model under every layout
    per_rank,     ///< ranks of another tp or pp rank draw from other seeds, dp ranks from the same: rank_seed()
};

struct InitializationOptions {
    std::uint64_t seed = 1234;
    SeedKind seeds = SeedKind::by_position;
    std::optional<double> deviation;  ///< of matrices, without it ModelSpec::init_deviation; output projections of each half layer are
                                      ///< divided by sqrt(2·layers) (GPT-2)
};

/// The seed that a parameter of this rank is drawn from with SeedKind::per_rank, as Megatron-LM has it: seed + 100·pp rank
/// (training/initialize.py _set_random_seed), and on top of that 2718 + tp rank for parameters divided over tp, 1024 +
/// 100·ep rank + etp rank for experts, nothing for replicated ones, which are equal on all tp ranks
/// (core/tensor_parallel/random.py model_parallel_cuda_manual_seed). A tied table has the first stage's seed on both its
/// stages. The seeds are Megatron-LM's, the generator is not: values are drawn by name and place in the shard.
[[nodiscard]] std::uint64_t rank_seed(std::uint64_t seed, const Parameter& parameter, const ShardPlace& place);

/// Fills the weights: matrices normal, norm weights 1, biases 0, padded vocabulary rows 0.
void initialize_weights(const ModelSpec& model, std::span<const Parameter> parameters, const WeightTable& weights, const ShardPlace& place,
                        const InitializationOptions& options);

}  // namespace mgplan::model
