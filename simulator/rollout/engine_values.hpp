#pragma once
// Plain values of an inference engine that generates the responses of an RL job: its settings, its memory on one GPU, its speed.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mgplan::simulator {

enum class RolloutEngine : std::uint8_t { vllm, sglang };
constexpr auto words_of(RolloutEngine /*type*/) {
    return std::array<std::string_view, 2>{"vllm", "sglang"};
}

/// GPUs of one engine: `tp` ranks hold a part of each layer, `dp` such groups run sequences of their own. The experts are divided over tp,
/// or, with expert parallelism, over all tp · dp ranks (vllm docs/serving/expert_parallel_deployment.md: EP_SIZE = TP_SIZE x DP_SIZE).
struct EngineLayout {
    std::int64_t tp = 1;
    std::int64_t dp = 1;
    bool expert_parallel = false;
    [[nodiscard]] std::int64_t gpus() const { return tp * dp; }
    bool operator==(const EngineLayout&) const = default;
};

/// How the engine treats CUDA graphs of its decoding steps: takes their bytes out of the budget (vLLM from 0.21 on), captures them
/// outside of it (before), or has none (enforce_eager).
enum class EngineGraphs : std::uint8_t { counted, uncounted, none };
constexpr auto words_of(EngineGraphs /*type*/) {
    return std::array<std::string_view, 3>{"counted", "uncounted", "none"};
}

/// How the sampler finds the most probable tokens of all logits: by kernels that select them (vLLM since PR 33538 of February 2026), or by
/// sorting (before).
enum class EngineSampler : std::uint8_t { selects, sorts };
constexpr auto words_of(EngineSampler /*type*/) {
    return std::array<std::string_view, 2>{"selects", "sorts"};
}

/// An engine's settings. Those left open have the engine's own defaults.
struct EngineSettings {
    RolloutEngine engine = RolloutEngine::vllm;
    EngineLayout layout;
    std::optional<double> utilisation;        ///< share of the card: vLLM's gpu_memory_utilization, SGLang's mem_fraction_static
    std::optional<std::int64_t> cache_bytes;  ///< of keys and values on a GPU, stated (vLLM's kv_cache_memory_bytes)
    bool fp8_weights = false;                 ///< linear layers in 8 bits, with a scale for each 128 x 128 block
    bool fp8_cache = false;
    EngineGraphs graphs = EngineGraphs::counted;
    EngineSampler sampler = EngineSampler::selects;
    bool schedules_ahead = true;                 ///< prepares the next step while the GPU works: vLLM's async_scheduling, on from 0.14
    std::optional<std::int64_t> batched_tokens;  ///< of a prefill: vLLM's max_num_batched_tokens, SGLang's chunked prefill
    std::optional<std::int64_t> sequences;       ///< that run at once: vLLM's max_num_seqs
};

/// Bytes of the engine on one GPU.
struct EngineMemory {
    std::int64_t weights = 0;
    std::int64_t activations = 0;  ///< of the engine's own profile run: one prefill, and the sampler for all sequences
    std::int64_t outside = 0;      ///< NCCL and loaded kernels
    std::int64_t graphs = 0;
    std::int64_t context = 0;  ///< of the driver, in no budget
    std::int64_t cache = 0;    ///< left for keys and values; negative: the engine does not start
    double utilisation = 0;    ///< given, or the engine's default
    std::int64_t blocks = 0;   ///< pages of 16 tokens
    /// Bytes on the card while it generates.
    [[nodiscard]] std::int64_t peak() const { return context + outside + graphs + weights + activations + cache; }
    /// Bytes that stay while it sleeps: weights and cache are freed (vllm/device_allocator/cumem.py; torch_memory_saver), CUDA graphs,
    /// kernels and communicators are not.
    [[nodiscard]] std::int64_t asleep() const { return context + outside + graphs; }
};

struct Generation {
    double seconds = 0;
    double prefill_seconds = 0;           ///< part of it
    std::int64_t running = 0;             ///< sequences at once
    double decode_tokens_per_second = 0;  ///< of a GPU, over the whole time
};

}  // namespace mgplan::simulator
