#pragma once
// The shards of tensors that one rank holds: all lists of parameters are divided here.

#include <string>
#include <vector>

#include "plan/layers/layer_tensor.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan {

/// Appends a rank's shards: over tp, of experts over ep and etp. Sizes divide what they shard. Names begin with `prefix`.
void add_shards(std::vector<Parameter>& parameters, const std::vector<LayerTensor>& tensors, const ParallelSizes& sizes,
                const std::string& prefix);

/// The elements of these shards.
[[nodiscard]] ParameterCount count_shards(const std::vector<LayerTensor>& tensors, const ParallelSizes& sizes);

}  // namespace mgplan
