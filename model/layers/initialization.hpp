#pragma once
// Initial weights that depend on a value's place in the whole parameter, not on the layout, so that every layout starts
// from the same model.

#include <cstdint>
#include <span>

#include "model/layers/context.hpp"
#include "plan/parameters.hpp"

namespace mgplan::model {

struct InitializationOptions {
    std::uint64_t seed = 1234;
    double deviation = 0.02;  ///< of matrices; output projections of each half layer are divided by sqrt(2·layers) (GPT-2)
};

/// Where a rank's shard lies. Experts are divided over etp, and numbered through over ep.
struct ShardPlace {
    std::int64_t tp_rank = 0;
    std::int64_t tp = 1;
    std::int64_t etp_rank = 0;
    std::int64_t etp = 1;
    std::int64_t ep_rank = 0;
    std::int64_t ep = 1;
};

/// Fills the weights: matrices normal, norm weights 1, biases 0, padded vocabulary rows 0. Nothing on the meta device.
void initialize_weights(const ModelSpec& model, std::span<const Parameter> parameters, const WeightTable& weights, const ShardPlace& place,
                        const InitializationOptions& options);

}  // namespace mgplan::model
