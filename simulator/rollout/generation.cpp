#include "simulator/rollout/generation.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {
namespace {

/// Seconds for which the GPU waits between two decoding steps where the engine schedules only then: 5 to 6 ms with 256 sequences
/// (vllm-project/vllm issue 10634, vLLM 0.6).
constexpr double kSchedulingSeconds = 5.5e-3;

/// Bytes and FLOPs of a decoding step of one rank.
class DecodingStep {
public:
    DecodingStep(const Model& model, const EngineSettings& settings, const ClusterSpec& cluster, const Calibration& calibration)
        : model_(model), settings_(settings), cluster_(cluster), calibration_(calibration) {
        const GridAxis tp{Axis::tp, settings.layout.tp, 1}, all{Axis::ep, settings.layout.gpus(), 1};
        tensor_ = group_path(std::span(&tp, 1), cluster, calibration);
        engine_ = group_path(std::span(&all, 1), cluster, calibration);
        add_weights();
        cache_ = cache_size(model, settings, batched_tokens_of(settings, cluster));
    }

    /// Seconds of a step of `batch` sequences that hold `context` tokens each.
    [[nodiscard]] double seconds(double batch, double context) const {
        const double weights = dense_bytes_ + expert_bytes_ * touched(batch);
        const double read = weights / (cluster_.memory_bandwidth * calibration_.gemm_memory_efficiency) +
                            batch * static_cast<double>(cache_.sequence_bytes(static_cast<std::int64_t>(context))) /
                                (cluster_.memory_bandwidth * calibration_.memory_efficiency);
        return std::max(read, compute_seconds(batch)) + exchange_seconds(batch) + (settings_.schedules_ahead ? 0 : kSchedulingSeconds);
    }
    /// Seconds of the products of `tokens` tokens.
    [[nodiscard]] double compute_seconds(double tokens) const {
        const bool fp8 = settings_.fp8_weights && cluster_.peak(Precision::fp8) > 0;
        const double rate = fp8 ? cluster_.peak(Precision::fp8) * calibration_.fp8_gemm_efficiency
                                : cluster_.peak(Precision::bf16) * calibration_.gemm_efficiency;
        return 2 * active_ * tokens / static_cast<double>(settings_.layout.tp) / rate;
    }
    /// Seconds of the reductions over tp after both halves of each layer, and of the experts' tokens between dp ranks.
    [[nodiscard]] double exchange_seconds(double tokens) const {
        const auto layers = static_cast<double>(model_.kind_of_layer.size());
        const double bytes = 2 * tokens * static_cast<double>(model_.hidden);
        double one = 2 * all_reduce_seconds(bytes, tensor_, calibration_);
        if (settings_.layout.expert_parallel && settings_.layout.dp > 1)
            one += 2 * all_gather_seconds(bytes * static_cast<double>(settings_.layout.dp), engine_, calibration_);
        return layers * one;
    }

private:
    void add_weights() {
        const std::int64_t looked_up = model_.head.tied ? 0 : model_.embedding.vocab * model_.hidden;
        active_ = static_cast<double>(count_parameters(model_).active - looked_up);
        const auto all = static_cast<double>(engine_weight_bytes(model_, settings_));
        for (const std::uint16_t kind : model_.kind_of_layer) {
            const auto* mixture = feed_forward_as<Mixture>(model_.kinds[kind]);
            if (mixture == nullptr) continue;
            experts_ = mixture->experts;
            top_k_ = mixture->top_k;
            const std::int64_t parts = settings_.layout.expert_parallel ? settings_.layout.gpus() : settings_.layout.tp;
            const std::int64_t inner = mixture->latent > 0 ? mixture->latent : model_.hidden;
            expert_bytes_ += static_cast<double>((mixture->gated ? 3 : 2) * mixture->expert_ffn * inner * mixture->experts) /
                             static_cast<double>(parts) * (settings_.fp8_weights ? 1 : 2);
        }
        // The table of words is looked up, not read.
        const double table = 2 * static_cast<double>(looked_up) / static_cast<double>(settings_.layout.tp);
        dense_bytes_ = std::max(0.0, all - expert_bytes_ - table);
    }
    /// Share of the experts that at least one of the tokens chooses.
    [[nodiscard]] double touched(double batch) const {
        if (experts_ == 0) return 0;
        const double tokens = settings_.layout.expert_parallel ? batch * static_cast<double>(settings_.layout.dp) : batch;
        return 1 - std::pow(1 - static_cast<double>(top_k_) / static_cast<double>(experts_), tokens);
    }

    const Model& model_;
    const EngineSettings& settings_;
    const ClusterSpec& cluster_;
    const Calibration& calibration_;
    GroupPath tensor_, engine_;
    CacheSize cache_;
    double active_ = 0, dense_bytes_ = 0, expert_bytes_ = 0;
    std::int64_t experts_ = 0, top_k_ = 0;
};

}  // namespace

std::int64_t concurrency(const CacheSize& size, const EngineMemory& memory, const GenerationLoad& load, std::int64_t sequences) {
    const std::int64_t one = size.sequence_bytes(load.prompt + load.longest);
    const std::int64_t held = one > 0 ? std::max<std::int64_t>(0, memory.cache) / one : sequences;
    return std::min(held, sequences);
}

std::int64_t started_together(const CacheSize& size, const EngineMemory& memory, const GenerationLoad& load, std::int64_t sequences) {
    constexpr int kIntervals = 128;
    const double power = static_cast<double>(load.longest) / load.mean - 1;  // of the share that is not yet at its end
    double most = 0;
    for (int i = 1; i <= kIntervals; ++i) {
        const double at = static_cast<double>(i) / kIntervals, left = power > 0 ? std::pow(1 - at, power) : 1;
        const auto length = load.prompt + std::llround(at * static_cast<double>(load.longest));
        most = std::max(most, left * static_cast<double>(size.sequence_bytes(length)));
    }
    const std::int64_t whole = concurrency(size, memory, load, sequences);
    if (most <= 0 || whole < 1) return whole;
    const auto held = static_cast<std::int64_t>(static_cast<double>(std::max<std::int64_t>(0, memory.cache)) / most);
    return std::min({std::max(held, whole), sequences, std::max(load.sequences, whole)});
}

Generation generation_time(const Model& model, const EngineSettings& settings, const ClusterSpec& cluster, const Calibration& calibration,
                           const GenerationLoad& load, std::int64_t running) {
    Generation result;
    if (load.sequences == 0) return result;
    const DecodingStep step(model, settings, cluster, calibration);
    result.running = std::min(running, load.sequences);
    const auto batch = static_cast<double>(result.running), prompt = static_cast<double>(load.prompt);
    const auto longest = static_cast<double>(load.longest);
    const double power = longest / load.mean - 1;
    const double prompt_tokens = static_cast<double>(load.prompts) * prompt;
    result.prefill_seconds = step.compute_seconds(prompt_tokens) + step.exchange_seconds(prompt_tokens);
    // Sequences that wait for a slot: all slots are taken until the last of them starts.
    const double waiting = static_cast<double>(load.sequences) - batch;
    const double full_steps = waiting * load.mean / batch;
    // A running sequence is seen at a mean of E[t^2] / 2 E[t] tokens, longest / (power + 2) with these lengths.
    result.seconds = result.prefill_seconds + full_steps * step.seconds(batch, prompt + longest / (power + 2));
    // Then the slots end one by one.
    constexpr int kIntervals = 128;
    for (int i = 0; i < kIntervals; ++i) {
        const double at = (i + 0.5) / kIntervals;
        const double left = std::max(1.0, batch * std::pow(1 - at, power));
        result.seconds += longest / kIntervals * step.seconds(left, prompt + at * longest);
    }
    result.decode_tokens_per_second =
        static_cast<double>(load.sequences) * load.mean / result.seconds / static_cast<double>(settings.layout.tp);
    return result;
}

}  // namespace mgplan::simulator
