#pragma once
// Memory of an inference engine on one GPU: weights, cache of keys and values, and the rest that its documented rules leave it.

#include <cstdint>
#include <vector>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layers/layer.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/rollout/engine_values.hpp"

namespace mgplan::simulator {

/// Tokens of a prefill and sequences at once that an engine takes for a card where the settings leave them open (vllm/engine/arg_utils.py,
/// get_batch_defaults, of its Python class; SGLang's server_args.py).
[[nodiscard]] std::int64_t batched_tokens_of(const EngineSettings& settings, const ClusterSpec& cluster);
[[nodiscard]] std::int64_t sequences_of(const EngineSettings& settings, const ClusterSpec& cluster);

/// Bytes of the model's weights on one GPU of the engine: the vocabulary rounded up to 64 rows (vocab_parallel_embedding.py), a kv head
/// on several ranks where tp is larger than their number, no multi-token prediction.
[[nodiscard]] std::int64_t engine_weight_bytes(const Model& model, const EngineSettings& settings);

/// Size of the cache. A sequence's pages are of `page` tokens.
struct CacheSize {
    static constexpr std::int64_t page = 16;  ///< vLLM's block_size; SGLang counts single tokens
    std::int64_t token_bytes = 0;             ///< of one token in all layers of a rank
    /// Bytes of a sequence of `length` tokens on one rank: layers with a window keep its tokens alone, and those of one prefill
    /// (vllm/v1/kv_cache_interface.py, SlidingWindowSpec).
    [[nodiscard]] std::int64_t sequence_bytes(std::int64_t length) const;

    std::int64_t full_bytes = 0;  ///< part of token_bytes in layers that keep all tokens
    struct Window {
        std::int64_t tokens = 0, token_bytes = 0;
    };
    std::vector<Window> windows;
};

/// Bytes of keys and values: kv heads of a rank x (width of keys + of values), at least one head; with latents the latent and the rotary
/// part, which no rank divides (vllm/v1/kv_cache_interface.py).
[[nodiscard]] CacheSize cache_size(const Model& model, const EngineSettings& settings, std::int64_t batched_tokens);

/// Rules: vLLM, cache = total x utilisation - (peak of the profile run with the weights) - outside, since 0.21 also - graphs
/// (vllm/v1/worker/gpu_worker.py, determine_available_memory). SGLang, cache = free before the weights x fraction - weights
/// (kv_cache_configurator.py). `free`: bytes of the card that others leave, which bounds a default utilisation.
[[nodiscard]] EngineMemory engine_memory(const Model& model, const EngineSettings& settings, const ClusterSpec& cluster,
                                         const Calibration& calibration, std::int64_t free);

}  // namespace mgplan::simulator
