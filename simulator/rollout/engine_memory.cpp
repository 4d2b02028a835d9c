#include "simulator/rollout/engine_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <variant>

#include "simulator/memory/device_overhead.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

std::int64_t elements_of(const LayerTensor& tensor) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    return elements;
}

/// Bytes of one tensor on a rank, of experts all that the rank holds.
double tensor_bytes(const LayerTensor& tensor, const EngineSettings& settings) {
    constexpr double kBf16 = 2, kFp8Blocks = 1 + 4.0 / (128 * 128);  // a fp32 scale for each block
    const EngineLayout& layout = settings.layout;
    auto elements = static_cast<double>(elements_of(tensor));
    if (tensor.expert && layout.expert_parallel) {
        const std::int64_t held = (tensor.copies + layout.gpus() - 1) / layout.gpus();
        elements *= static_cast<double>(held);
    } else {
        elements *= static_cast<double>(tensor.copies);
        if (tensor.shard_axis) elements /= static_cast<double>(layout.tp);
    }
    return elements * (settings.fp8_weights && tensor.dtype == DtypeClass::gemm_weight ? kFp8Blocks : kBf16);
}

/// Bytes of the kv heads that several ranks hold, beyond an even share of the packed projection.
double repeated_kv_bytes(const Attention& attention, std::int64_t hidden, const EngineSettings& settings) {
    const auto tp = static_cast<double>(settings.layout.tp), heads = static_cast<double>(attention.kv_heads);
    const double beyond = std::max(1.0, heads / tp) - heads / tp;
    return beyond * 2 * static_cast<double>(attention.head_dim * hidden) * (settings.fp8_weights ? 1 : 2);
}

/// Bytes that a prefill holds at the widest point of a layer: the residual stream, the input and the output of the half, and what it
/// computes between them.
std::int64_t widest_bytes(const Layer& layer, std::int64_t hidden, const EngineLayout& layout, std::int64_t tokens) {
    constexpr std::int64_t kBf16 = 2, kStreams = 3;
    constexpr std::int64_t kRoutedAtOnce = 32768;  // VLLM_FUSED_MOE_CHUNK_SIZE, vllm/envs.py
    const std::int64_t tp = layout.tp;
    std::int64_t widest = 0;
    if (const auto* attention = mixer_as<Attention>(layer)) {
        const std::int64_t kv = std::max<std::int64_t>(1, attention->kv_heads / tp);
        widest = attention->head_dim * (2 * attention->heads / tp + 2 * kv);  // queries, keys and values, and the output
    } else if (const auto* latent = mixer_as<LatentAttention>(layer)) {
        const std::int64_t heads = latent->heads / tp;
        widest = heads * (2 * (latent->qk_nope_head_dim + latent->qk_rope_head_dim) + 2 * latent->v_head_dim) + latent->q_lora_rank +
                 latent->kv_lora_rank;
    }
    if (const auto* mlp = feed_forward_as<Mlp>(layer)) widest = std::max(widest, (mlp->gated ? 3 : 2) * mlp->width / tp);
    widest *= tokens;
    if (const auto* mixture = feed_forward_as<Mixture>(layer)) {
        // fused_moe.py: gate and up share a buffer with the down projection's output; the activation has one of its own. Experts that are
        // divided over dp take the tokens of all its ranks, in a buffer each for their input and their output (all2all.py).
        const std::int64_t ffn = layout.expert_parallel ? mixture->expert_ffn : mixture->expert_ffn / tp;
        const std::int64_t first = (mixture->gated ? 2 : 1) * ffn;
        const std::int64_t routed = layout.expert_parallel ? tokens * layout.dp : tokens;
        const std::int64_t gathered = routed > tokens ? 2 * routed * hidden : 0;
        widest = std::max(widest, gathered + std::min(routed, kRoutedAtOnce) * mixture->top_k * (std::max(first, hidden) + ffn) +
                                      tokens * (mixture->gated ? 3 : 2) * mixture->shared_ffn / tp);
    }
    return kBf16 * (kStreams * tokens * hidden + widest);
}

/// Sequences of SGLang's largest CUDA graph on cards of 60 to 160 GB, and what it reserves for each (server_args.py,
/// _handle_gpu_memory_settings).
std::int64_t largest_graph_of_sglang(const EngineLayout& layout) {
    return layout.tp < 4 ? 256 : 512;
}
constexpr std::int64_t kGraphOfSglang = 2 << 20;

/// Sequences whose tokens are sampled at once. SGLang's bound of its scheduler is far above what its cache holds; those of its largest
/// CUDA graph are taken.
std::int64_t sampled_at_once(const EngineSettings& settings, std::int64_t sequences, std::int64_t tokens) {
    return std::min(sequences, settings.engine == RolloutEngine::vllm ? tokens : largest_graph_of_sglang(settings.layout));
}

/// Bytes of a logit in the sampler: in 16 bits, in fp32, and the probability. Sorting takes in place of the probability the sorted value
/// and its index in 64 bits (torch.sort), the indices that it sorts (ATen's Sort.cu, segmented_sort_pairs) and a second buffer of both for
/// the passes of the radix sort (cub).
std::int64_t logit_bytes(const EngineSettings& settings) {
    constexpr std::int64_t kBf16 = 2, kFp32 = 4, kIndex = 8;
    const std::int64_t sorted = kFp32 + kIndex;
    return kBf16 + kFp32 + (settings.sampler == EngineSampler::sorts ? sorted + kIndex + sorted : kFp32);
}

/// Kernel nodes of one decoding step in a CUDA graph: for each layer two norms, the products, the attention, the activation and two
/// reductions, of experts also routing and sorting.
std::int64_t kernel_nodes(const Model& model) {
    constexpr std::int64_t kDense = 12, kRouting = 6;
    std::int64_t nodes = 0;
    for (const std::uint16_t kind : model.kind_of_layer)
        nodes += kDense + (feed_forward_as<Mixture>(model.kinds[kind]) != nullptr ? kRouting : 0);
    return nodes;
}

/// Number of batch sizes that are captured: 1, 2, 4, multiples of 8 below 256 and of 16 from there on, up to twice the sequences, at most
/// 512 and the tokens of a batch (vllm/config/vllm.py, _set_cudagraph_sizes).
std::int64_t captured_sizes(std::int64_t sequences, std::int64_t tokens) {
    const std::int64_t most = std::min({std::int64_t{512}, 2 * sequences, tokens});
    std::int64_t sizes = std::min<std::int64_t>(most, 255) / 8 + (most >= 256 ? (most - 256) / 16 + 1 : 0);
    for (const std::int64_t small : {1, 2, 4}) sizes += most >= small ? 1 : 0;
    return sizes;
}

/// SGLang's own default of the fraction: it reserves for activations and CUDA graphs (server_args.py, _handle_gpu_memory_settings).
double sglang_fraction(const EngineSettings& settings, const ClusterSpec& cluster, std::int64_t chunk) {
    const auto tp = static_cast<double>(settings.layout.tp);
    const auto graphs = static_cast<double>(largest_graph_of_sglang(settings.layout));
    double reserved_mb = 512 + 1.5 * static_cast<double>(std::max<std::int64_t>(chunk, 2048)) + tp / 8 * 1024 + 2 * graphs;
    if (cluster.memory_bytes > 60 * kGiB) reserved_mb = std::max(reserved_mb, 10.0 * 1024);
    return 1 - reserved_mb * 1048576 / static_cast<double>(cluster.memory_bytes);
}

}  // namespace

std::int64_t batched_tokens_of(const EngineSettings& settings, const ClusterSpec& cluster) {
    if (settings.batched_tokens) return *settings.batched_tokens;
    const std::int64_t gib = cluster.memory_bytes / kGiB;
    if (settings.engine == RolloutEngine::vllm) return gib >= 70 && cluster.compute_capability != 80 ? 16384 : 8192;
    return gib < 20 ? 2048 : gib < 60 ? 4096 : gib < 160 ? 8192 : 16384;
}

std::int64_t sequences_of(const EngineSettings& settings, const ClusterSpec& cluster) {
    if (settings.sequences) return *settings.sequences;
    if (settings.engine == RolloutEngine::sglang) return 4096;  // its scheduler's upper bound; the cache limits before
    return cluster.memory_bytes / kGiB >= 70 && cluster.compute_capability != 80 ? 1024 : 256;
}

std::int64_t engine_weight_bytes(const Model& model, const EngineSettings& settings) {
    constexpr std::int64_t kVocabularyMultiple = 64;
    double bytes = 0;
    std::vector<double> of_kind(model.kinds.size());
    for (std::size_t i = 0; i < model.kinds.size(); ++i) {
        const Layer& layer = model.kinds[i];
        for (const LayerTensor& tensor : tensors(layer, model.hidden)) of_kind[i] += tensor_bytes(tensor, settings);
        if (const auto* attention = mixer_as<Attention>(layer)) of_kind[i] += repeated_kv_bytes(*attention, model.hidden, settings);
    }
    for (const std::uint16_t kind : model.kind_of_layer) bytes += of_kind[kind];
    const std::int64_t rows = rounded_up(model.embedding.vocab, kVocabularyMultiple);
    for (const ModelPart part : {ModelPart::embedding, ModelPart::final_norm, ModelPart::output}) {
        if (part == ModelPart::output && model.head.tied) continue;
        for (const LayerTensor& tensor : tensors(model, part, rows)) bytes += tensor_bytes(tensor, settings);
    }
    return static_cast<std::int64_t>(bytes);
}

std::int64_t CacheSize::sequence_bytes(std::int64_t length) const {
    std::int64_t bytes = full_bytes * rounded_up(length, page);
    for (const Window& window : windows) bytes += window.token_bytes * (rounded_up(std::min(window.tokens, length), page) + page);
    return bytes;
}

CacheSize cache_size(const Model& model, const EngineSettings& settings, std::int64_t batched_tokens) {
    const std::int64_t width = settings.fp8_cache ? 1 : 2;
    CacheSize size;
    for (const std::uint16_t kind : model.kind_of_layer) {
        const Layer& layer = model.kinds[kind];
        std::int64_t bytes = 0;
        if (const auto* attention = mixer_as<Attention>(layer)) {
            bytes = std::max<std::int64_t>(1, attention->kv_heads / settings.layout.tp) * 2 * attention->head_dim * width;
        } else if (const auto* latent = mixer_as<LatentAttention>(layer)) {
            constexpr std::int64_t kScale = 4;  // fp32, of the indexer's keys in 8 bits
            bytes = (latent->kv_lora_rank + latent->qk_rope_head_dim) * width;
            if (latent->index_heads > 0) bytes += latent->index_head_dim + kScale;
        }
        size.token_bytes += bytes;
        if (layer.window > 0) {
            size.windows.push_back({layer.window - 1 + batched_tokens, bytes});
        } else {
            size.full_bytes += bytes;
        }
    }
    return size;
}

EngineMemory engine_memory(const Model& model, const EngineSettings& settings, const ClusterSpec& cluster, const Calibration& calibration,
                           std::int64_t free) {
    const std::int64_t tokens = batched_tokens_of(settings, cluster), sequences = sequences_of(settings, cluster);
    EngineMemory memory;
    memory.weights = engine_weight_bytes(model, settings);
    for (const Layer& layer : model.kinds)
        memory.activations = std::max(memory.activations, widest_bytes(layer, model.hidden, settings.layout, tokens));
    // The sampler takes the logits of all ranks.
    memory.activations =
        std::max(memory.activations, sampled_at_once(settings, sequences, tokens) * model.embedding.vocab * logit_bytes(settings));
    const GridAxis tensor_ranks{Axis::tp, settings.layout.gpus(), 1};
    const GroupPath path = group_path(std::span(&tensor_ranks, 1), cluster, calibration);
    memory.outside = calibration.module_bytes + communicator_bytes(path, {.gathers = true, .large_reduces = true}, cluster);
    memory.context = calibration.driver_bytes;
    if (settings.graphs != EngineGraphs::none)
        memory.graphs = settings.engine == RolloutEngine::sglang
                            ? largest_graph_of_sglang(settings.layout) * kGraphOfSglang
                            : captured_sizes(sequences, tokens) * kernel_nodes(model) * calibration.graph_node_bytes;
    const auto total = static_cast<double>(cluster.memory_bytes);
    const double own_default = settings.engine == RolloutEngine::vllm ? 0.9 : sglang_fraction(settings, cluster, tokens);
    // A default on a shared card takes at most the free bytes, in whole hundredths.
    const bool graphs_beside = settings.graphs == EngineGraphs::uncounted || settings.engine == RolloutEngine::sglang;
    const std::int64_t beside =
        memory.context + (graphs_beside ? memory.graphs : 0) + (settings.engine == RolloutEngine::sglang ? memory.activations : 0);
    const double room = std::floor(100 * static_cast<double>(free - beside) / total) / 100;
    memory.utilisation = settings.utilisation.value_or(std::min(own_default, std::max(0.0, room)));
    if (settings.cache_bytes) {
        memory.cache = *settings.cache_bytes;
    } else if (settings.engine == RolloutEngine::vllm) {
        memory.cache = static_cast<std::int64_t>(total * memory.utilisation) - memory.weights - memory.activations - memory.outside -
                       (graphs_beside ? 0 : memory.graphs);
    } else {
        const auto before = static_cast<double>(cluster.memory_bytes - memory.context - memory.outside);
        memory.cache = static_cast<std::int64_t>(before * memory.utilisation) - memory.weights;
    }
    const CacheSize size = cache_size(model, settings, tokens);
    if (size.token_bytes > 0) memory.blocks = std::max<std::int64_t>(0, memory.cache) / (CacheSize::page * size.token_bytes);
    return memory;
}

}  // namespace mgplan::simulator
