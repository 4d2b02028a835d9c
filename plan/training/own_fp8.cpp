#include "plan/training/own_fp8.hpp"

#include <string_view>

#include <fmt/format.h>

namespace mgplan {

std::vector<std::string> own_fp8_obstacles(const ModelSpec& model, const TrainingSpec& training) {
    if (!quantised(training.precision)) return {};
    const std::string_view word = precision_text(training);
    std::vector<std::string> obstacles;
    const Fp8Recipe recipe = training.megatron.fp8_recipe;
    if (training.precision != Precision::fp8) {
        obstacles.push_back(fmt::format("{} (use fp8-current, fp8-delayed, fp8-blockwise, mxfp8 or bf16)", word));
        return obstacles;
    }
    const auto refuse = [&](bool here, std::string_view what) {
        if (here) obstacles.push_back(fmt::format("{} with {}", word, what));
    };
    const bool in_blocks = recipe == Fp8Recipe::blockwise || recipe == Fp8Recipe::mxfp8;
    refuse(model.mla.has_value() && model.mla->index_heads > 0, "attention to keys that an indexer chooses (use bf16)");
    refuse(!model.kinds.empty(), "layers of different kinds (use bf16)");
    refuse(model.normed_residual.has_value(), "a residual path that begins behind the norm (use bf16)");
    refuse(model.hyper_connections.has_value(), "residual streams (use bf16)");
    // Codes of blocks are e4m3 all.
    refuse(training.megatron.fp8_gradients_in_e4m3 && !in_blocks, "gradients in e4m3 (use --fp8-format hybrid)");
    refuse(training.fp8_parameters && in_blocks,
           "parameters stored in fp8 (leave out --fp8-param-gather, or use fp8-current or fp8-delayed)");
    refuse(
        training.fp8_parameters && !in_blocks && !training.distributed_optimizer,
        "parameters stored in fp8 and no distributed optimizer, whose gathers they serve (leave out --fp8-param-gather, or use --sharding "
        "optimizer)");
    refuse(training.fp8_parameters && !in_blocks && training.megatron.optimizer == OptimizerKind::muon,
           "parameters stored in fp8 that Muon moves (leave out --fp8-param-gather)");
    refuse(training.megatron.fp8_attention, "attention in fp8 (leave out --fp8-dot-product-attention)");
    refuse(training.megatron.bf16_layers_at_start + training.megatron.bf16_layers_at_end > 0,
           "layers that stay in bf16 (leave out --first-last-layers-bf16)");
    refuse(training.megatron.fully_sharded.active(), "sharded parameters or gradients (use --sharding optimizer)");
    refuse(training.offload.active(), "memory of the host (leave out --offload)");
    return obstacles;
}

OwnFp8 own_fp8(const ModelSpec& model, const TrainingSpec& training) {
    if (training.precision != Precision::fp8 || !own_fp8_obstacles(model, training).empty()) return OwnFp8::none;
    switch (training.megatron.fp8_recipe) {
        case Fp8Recipe::delayed:
            return OwnFp8::delayed;
        case Fp8Recipe::tensorwise:
            return OwnFp8::current;
        case Fp8Recipe::blockwise:
            return OwnFp8::blockwise;
        case Fp8Recipe::mxfp8:
            return OwnFp8::mxfp8;
    }
    return OwnFp8::none;
}

}  // namespace mgplan
