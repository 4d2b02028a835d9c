#include "plan/layers/mixture.hpp"

#include <algorithm>

namespace mgplan {

void list_tensors(const Mixture& mixture, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), experts = mixture.experts;
    list.norm_before_feed_forward("pre_mlp_layernorm.");
    list.replicated("mlp.router.weight", {experts, hidden});
    if (mixture.router_bias) list.replicated("mlp.router.bias", {experts});
    if (mixture.branch_norms) {
        list.replicated("mlp.router.per_expert_scale", {experts}).starts(InitialValues::ones);
        for (const std::string_view stem : {"mlp.router.layer_norm_", "mlp.experts.layer_norm_", "mlp.post_experts_layernorm."})
            list.norm(stem, hidden);
        if (mixture.shared_ffn > 0) list.norm("mlp.post_shared_experts_layernorm.", hidden);
    }
    if (mixture.latent > 0) {
        list.replicated("mlp.fc1_latent_proj.weight", {mixture.latent, hidden}).for_gemm();
        list.replicated("mlp.fc2_latent_proj.weight", {hidden, mixture.latent}).for_gemm();
    }
    const std::int64_t rows = mixture.latent > 0 ? mixture.latent : hidden, width = mixture.expert_ffn;
    const std::int64_t first = mixture.gated ? 2 * width : width;
    const int blocks = mixture.gated ? 2 : 1;
    const auto of_experts = [&](LayerTensor& tensor) -> LayerTensor& {
        tensor.expert = true;
        tensor.copies = experts;
        tensor.copies_of_token = std::min(mixture.top_k, experts);
        return tensor;
    };
    of_experts(list.sharded("mlp.experts.linear_fc1.weight", {first, rows}, 0, blocks)).for_gemm();
    if (mixture.bias) of_experts(list.sharded("mlp.experts.linear_fc1.bias", {first}, 0, blocks));
    of_experts(list.sharded("mlp.experts.linear_fc2.weight", {rows, width}, 1)).for_gemm();
    if (mixture.bias) of_experts(list.replicated("mlp.experts.linear_fc2.bias", {rows}, PartialGradient::never));
    if (mixture.shared_ffn == 0) return;
    if (mixture.shared_gate) list.replicated("mlp.shared_experts.gate_weight", {1, hidden});
    list.sharded("mlp.shared_experts.linear_fc1.weight", {mixture.gated ? 2 * mixture.shared_ffn : mixture.shared_ffn, hidden}, 0, blocks)
        .for_gemm();
    list.sharded("mlp.shared_experts.linear_fc2.weight", {hidden, mixture.shared_ffn}, 1).for_gemm();
}

}  // namespace mgplan
