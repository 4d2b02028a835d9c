#include "plan/parameters/divide.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace mgplan {
namespace {

Parameter shard_of(const LayerTensor& tensor, std::int64_t ranks) {
    Parameter parameter;
    parameter.shape = tensor.shape;
    parameter.shard_axis = tensor.shard_axis;
    parameter.shard_stride = tensor.equal_blocks;
    if (tensor.shard_axis) {
        parameter.shape[static_cast<std::size_t>(*tensor.shard_axis)] /= ranks;
        for (const std::int64_t rows : tensor.blocks) parameter.shard_blocks.push_back(rows / ranks);
    }
    parameter.initial = tensor.initial;
    parameter.initial_bound = tensor.initial_bound;
    parameter.partial_gradient = tensor.partial_gradient;
    parameter.expert = tensor.expert;
    parameter.trained = tensor.trained;
    parameter.no_weight_decay = tensor.shape.size() == 1;
    parameter.linear_weight = tensor.dtype == DtypeClass::gemm_weight;
    return parameter;
}

/// Ranks that divide a tensor.
std::int64_t ranks_of(const LayerTensor& tensor, const ParallelSizes& sizes) {
    return tensor.expert || tensor.on_each_expert_rank ? sizes.etp : sizes.tp;
}

std::string_view module_of(const LayerTensor& tensor) {
    return std::string_view(tensor.name).substr(0, tensor.name.rfind('.'));
}

}  // namespace

void add_shards(std::vector<Parameter>& parameters, const std::vector<LayerTensor>& tensors, const ParallelSizes& sizes,
                const std::string& prefix) {
    const auto add = [&](const LayerTensor& tensor) -> Parameter& {
        Parameter& shard = parameters.emplace_back(shard_of(tensor, ranks_of(tensor, sizes)));
        shard.name = prefix + tensor.name;
        return shard;
    };
    for (auto tensor = tensors.begin(); tensor != tensors.end();) {
        if (!tensor->expert) {
            add(*tensor).expert_group = tensor->on_each_expert_rank && sizes.separates_experts();
            ++tensor;
            continue;
        }
        // A grouped linear layer registers weight and bias of one expert after the other (Transformer Engine, GroupedLinear).
        const auto end =
            std::find_if(tensor, tensors.end(), [&](const LayerTensor& other) { return module_of(other) != module_of(*tensor); });
        for (std::int64_t expert = 0; expert < tensor->copies / sizes.ep; ++expert) {
            for (auto one = tensor; one != end; ++one) {
                Parameter& shard = add(*one);
                shard.name += std::to_string(expert);
                shard.local_expert = expert;
                shard.expert_group = sizes.separates_experts();
            }
        }
        tensor = end;
    }
}

ParameterCount count_shards(const std::vector<LayerTensor>& tensors, const ParallelSizes& sizes) {
    ParameterCount count;
    for (const LayerTensor& tensor : tensors) {
        const std::int64_t copies = tensor.expert ? tensor.copies / sizes.ep : 1;
        const std::int64_t elements = copies * shard_of(tensor, ranks_of(tensor, sizes)).count();
        if (!tensor.trained)
            count.frozen += elements;
        else if (tensor.expert || tensor.on_each_expert_rank)
            count.expert += elements;
        else
            count.dense += elements;
    }
    return count;
}

}  // namespace mgplan
