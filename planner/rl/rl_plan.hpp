#pragma once
// A planned step of reinforcement learning (GRPO, PPO): plain values, which reports read.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/planned_layout.hpp"
#include "simulator/rollout/engine_values.hpp"

namespace mgplan::planner {

enum class RlRole : std::uint8_t { actor, reference, critic, reward, rollout };
constexpr auto words_of(RlRole /*type*/) {
    return std::array<std::string_view, 5>{"actor", "reference", "critic", "reward", "rollout"};
}

/// State that a role moves to host memory while it waits on GPUs that it shares. `automatic`: the choice that makes the step shortest.
enum class RlOffload : std::uint8_t { automatic, none, optimizer, all };
constexpr auto words_of(RlOffload /*type*/) {
    return std::array<std::string_view, 4>{"auto", "none", "optimizer", "all"};
}

/// Sequences of one step. Lengths in tokens.
struct RlBatch {
    std::int64_t prompts = 0, samples = 1;  ///< samples: responses to each prompt
    std::int64_t prompt = 0;                ///< length
    std::int64_t response = 0;              ///< longest
    double mean_response = 0;
    std::int64_t mini_batch = 0;  ///< responses of one update of the weights; 0: all
    [[nodiscard]] std::int64_t sequences() const { return prompts * samples; }
    [[nodiscard]] std::int64_t updates() const { return mini_batch > 0 ? (sequences() + mini_batch - 1) / mini_batch : 1; }
    [[nodiscard]] double tokens() const { return static_cast<double>(sequences()) * (static_cast<double>(prompt) + mean_response); }
};

/// A part of a step. The roles named run on their GPUs one after the other.
struct RlPhase {
    std::string name;
    double seconds = 0;
    std::int64_t peak_bytes = 0;  ///< of the fullest GPU that works in it
    bool beside = false;          ///< true: on GPUs of its own, while the phase before it runs on others
};

/// A role's place and what it holds on one GPU.
struct RlRolePlan {
    RlRole role{};
    std::string model;
    std::int64_t gpus = 0;
    bool shared = false;
    std::optional<Layout> layout;  ///< of a trained role or one that only reads; nothing for the rollout engine
    std::int64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
    std::int64_t residue_bytes = 0;  ///< context, kernels, communicators and library workspaces, which nothing frees
    RlOffload offload = RlOffload::none;
    std::int64_t host_bytes = 0;  ///< in host memory for each GPU
};

/// GPUs of trainer and rollout, if they do not share them, with the rollout one step late: both work at the same time.
struct RlSplit {
    std::int64_t trainer = 0, rollout = 0;
    double seconds = 0;
};

struct RlPlan {
    RlBatch batch;
    std::int64_t world = 0;
    bool colocated = true;  ///< trainer and rollout share their GPUs
    bool overlapped = false;
    std::vector<RlRolePlan> roles;
    std::vector<RlPhase> phases;
    std::optional<PlannedLayout> actor;
    simulator::EngineSettings engine;
    simulator::EngineMemory engine_memory;
    simulator::Generation generation;
    bool measured_rate = false;    ///< generation is of a stated rate
    std::int64_t engines = 0;      ///< groups of tp ranks
    std::int64_t concurrency = 0;  ///< sequences at full length that all engines hold at once
    double offload_seconds = 0;
    std::int64_t offload_bytes = 0;  ///< that a GPU moves to the host or back in a step
    double weight_sync_seconds = 0;
    std::int64_t host_bytes_per_node = 0, host_limit_bytes = 0;
    double step_seconds = 0;
    std::optional<RlSplit> best_split;
    std::vector<std::string> why_not;  ///< one sentence for each phase that does not fit; empty: all do
    [[nodiscard]] bool fits() const { return why_not.empty(); }
};

}  // namespace mgplan::planner
