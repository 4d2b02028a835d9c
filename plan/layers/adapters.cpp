#include "plan/layers/adapters.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mgplan {
namespace {

constexpr std::string_view kWeight = ".weight";

/// The tensors of the pair that one weight (out, in) has.
std::array<LayerTensor, 2> pair_beside(const LayerTensor& weight, std::string_view module, const Adapters& adapters) {
    const std::int64_t rank = adapters.rank;
    LayerTensor in, out;
    in.name = std::string(module) + ".adapter.linear_in.weight";
    out.name = std::string(module) + ".adapter.linear_out.weight";
    in.shape = {rank, weight.shape.at(1)};
    out.shape = {weight.shape.at(0), rank};
    out.starts(InitialValues::constant, 0);
    if (weight.shard_axis) {
        in.shard_axis = weight.shard_axis;
        out.shard_axis = 0;
        if (weight.shard_axis == 0) {
            out.equal_blocks = weight.equal_blocks;
            out.blocks = weight.blocks;
        }
    } else {
        in.partial_gradient = out.partial_gradient = PartialGradient::sequence_parallel;
    }
    for (LayerTensor* one : {&in, &out}) {
        one->on_each_expert_rank = weight.expert && adapters.shared_by_experts;
        if (!weight.expert || adapters.shared_by_experts) continue;
        one->expert = true;
        one->copies = weight.copies;
        one->copies_of_token = weight.copies_of_token;
    }
    return {std::move(in), std::move(out)};
}

}  // namespace

bool Adapters::stand_beside(std::string_view module) const {
    const std::array<std::pair<std::string_view, bool>, 17> known{{{"self_attention.linear_qkv", qkv},
                                                                   {"self_attention.linear_proj", proj},
                                                                   {"mlp.linear_fc1", fc1},
                                                                   {"mlp.linear_fc2", fc2},
                                                                   {"mlp.shared_experts.linear_fc1", fc1},
                                                                   {"mlp.shared_experts.linear_fc2", fc2},
                                                                   {"mlp.experts.linear_fc1", experts},
                                                                   {"mlp.experts.linear_fc2", experts},
                                                                   {"self_attention.linear_q_proj", latent},
                                                                   {"self_attention.linear_q_down_proj", latent},
                                                                   {"self_attention.linear_q_up_proj", latent},
                                                                   {"self_attention.linear_kv_down_proj", latent},
                                                                   {"self_attention.linear_kv_up_proj", latent},
                                                                   {"mixer.in_proj", in_proj},
                                                                   {"mixer.out_proj", out_proj},
                                                                   {"self_attention.in_proj", in_proj},
                                                                   {"self_attention.out_proj", out_proj}}};
    return std::any_of(known.begin(), known.end(), [&](const auto& one) { return one.first == module && one.second; });
}

void add_adapters(const Adapters& adapters, std::vector<LayerTensor>& tensors) {
    std::vector<LayerTensor> all;
    const auto module_of = [](const LayerTensor& tensor) { return std::string_view(tensor.name).substr(0, tensor.name.rfind('.')); };
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        LayerTensor& tensor = tensors[i];
        tensor.trained = false;
        all.push_back(tensor);
        // A norm inside a linear layer is of the same module.
        const bool last = i + 1 == tensors.size() || module_of(tensors[i + 1]) != module_of(tensor);
        if (!last || !adapters.stand_beside(module_of(tensor))) continue;
        const std::string weight = std::string(module_of(tensor)) + std::string(kWeight);
        const auto found = std::find_if(all.begin(), all.end(), [&](const LayerTensor& one) { return one.name == weight; });
        for (LayerTensor& one : pair_beside(*found, module_of(tensor), adapters)) all.push_back(std::move(one));
    }
    tensors = std::move(all);
}

}  // namespace mgplan
