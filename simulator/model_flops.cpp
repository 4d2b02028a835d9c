#include "simulator/cost_model.hpp"

namespace mgplan::simulator {

double model_flops(const ModelSpec& model, const BatchSpec& batch) {
    const double h = static_cast<double>(model.hidden);
    const double heads = static_cast<double>(model.heads);
    const double sequence = static_cast<double>(batch.sequence);
    const double qk = static_cast<double>(model.qk_head_dim()), v = static_cast<double>(model.v_head_dim());
    // Multiply-adds per token of one layer's attention.
    double attention = 0;
    if (model.mla) {
        const MlaSpec& mla = *model.mla;
        const double q_rank = static_cast<double>(mla.q_lora_rank), kv_rank = static_cast<double>(mla.kv_lora_rank);
        const double rope = static_cast<double>(mla.qk_rope_head_dim), nope = static_cast<double>(mla.qk_nope_head_dim);
        attention += q_rank > 0 ? h * q_rank + q_rank * heads * qk : h * heads * qk;
        attention += h * (kv_rank + rope) + kv_rank * heads * (nope + v);
    } else {
        attention += h * (heads * qk + static_cast<double>(model.kv_heads) * (qk + v));
    }
    attention += heads * v * h;
    attention += heads * (qk + v) * sequence / 2;  // causal half of QK^T and PV
    const double gated = model.gated_mlp ? 3 : 2;
    const double dense = gated * h * static_cast<double>(model.ffn);
    double mixture = 0;
    if (model.moe) {
        mixture = gated * h * (static_cast<double>(model.moe->top_k * model.moe->expert_ffn) + static_cast<double>(model.moe->shared_ffn));
    }
    double layers = 0;
    for (std::int64_t i = 0; i < model.layers; ++i) layers += attention + (model.is_moe_layer(i) ? mixture : dense);
    const double logits = h * static_cast<double>(model.padded_vocab(1));
    const double last_mlp = model.layers > 0 && model.is_moe_layer(model.layers - 1) ? mixture : dense;
    const double mtp = static_cast<double>(model.mtp_layers) * (attention + last_mlp + 2 * h * h + logits);
    // Two FLOPs per multiply-add; the backward pass costs twice the forward.
    return 6 * (layers + logits + mtp) * static_cast<double>(batch.global_batch) * sequence;
}

}  // namespace mgplan::simulator
