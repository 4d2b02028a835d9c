#pragma once
// Seconds in which an engine generates the responses of a step: a roofline of its prefills and decoding steps.

#include <cstdint>

#include "simulator/rollout/engine_memory.hpp"

namespace mgplan::simulator {

/// Sequences that one group of tp ranks generates. Lengths in tokens.
struct GenerationLoad {
    std::int64_t sequences = 0;
    std::int64_t prompts = 0;  ///< different ones: their cache is shared by the samples of a prompt
    std::int64_t prompt = 0;
    std::int64_t longest = 0;  ///< response
    double mean = 0;           ///< response; at most `longest`
};

/// Sequences of a full prompt and the longest response that a rank's cache holds, at most those that the engine runs at once.
[[nodiscard]] std::int64_t concurrency(const CacheSize& size, const EngineMemory& memory, const GenerationLoad& load,
                                       std::int64_t sequences);

/// Sequences of these lengths that run at once when they start together: as they grow, shorter ones end, and the pages that those leave
/// are taken by the others. At least concurrency(), at most the load's sequences and those that the engine runs at once.
[[nodiscard]] std::int64_t started_together(const CacheSize& size, const EngineMemory& memory, const GenerationLoad& load,
                                            std::int64_t sequences);

/// A decoding step reads the weights and the keys and values of all running sequences at the memory bandwidth that such kernels reach
/// here (Calibration), computes, and reduces over tp; of experts it reads those that at least one token chooses, under even routing.
/// Engines that do not schedule ahead wait for their scheduler after each step. Nothing else is in it: no sampler or detokenizer, so that
/// the seconds are a lower bound. Lengths: the share of
/// responses longer than t is (1 - t / longest)^(longest / mean - 1), so that their mean and their longest are those given; a slot that
/// ends takes the next sequence. `running`: sequences at once.
[[nodiscard]] Generation generation_time(const Model& model, const EngineSettings& settings, const ClusterSpec& cluster,
                                         const Calibration& calibration, const GenerationLoad& load, std::int64_t running);

}  // namespace mgplan::simulator
