#pragma once
// Sizes of one rank's share of one microbatch: the key of memos of times and traces.

#include <bit>
#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/training/own_fp8.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// A set as bits, one for each enumerator at the position of its value.
[[nodiscard]] constexpr std::uint32_t bits_of(EnumSet<RecomputeModule> modules) {
    return std::bit_cast<std::uint32_t>(modules);
}
/// The members of `modules` that `others` lacks.
[[nodiscard]] constexpr EnumSet<RecomputeModule> without(EnumSet<RecomputeModule> modules, EnumSet<RecomputeModule> others) {
    return std::bit_cast<EnumSet<RecomputeModule>>(bits_of(modules) & ~bits_of(others));
}

/// The options of LayoutSwitches that change what a layer runs under engine megatron; no recording depends on them.
struct LayerSwitches {
    TokenDispatcher dispatcher = TokenDispatcher::all_to_all;
    bool overlap_tp = false;
    std::int64_t gradient_bytes = 4;  ///< of one element

    bool operator==(const LayerSwitches&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [dispatcher_, overlap_tp_, gradient_bytes_] = *this;
        return hash_of(dispatcher_, overlap_tp_, gradient_bytes_);
    }
};

[[nodiscard]] inline LayerSwitches layer_switches(const ModelSpec& model, const TrainingSpec& training) {
    return {model.moe ? model.moe->dispatcher : TokenDispatcher::all_to_all, training.overlap_tp, bytes_of(training.grad_dtype)};
}

/// Everything that the layers of a layout depend on, in addition to the workload. Layouts with equal keys have equal traces, and, if their
/// groups use equal links, equal costs.
struct ShardKey {
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1;
    std::int64_t micro_batch = 1;  ///< sequences
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    EnumSet<RecomputeModule> modules;  ///< modules of selective recompute; empty without it
    Engine engine = Engine::mgplan;
    OwnFp8 fp8 = OwnFp8::none;  ///< format of linear layers' fp8 GEMMs as run by mgplan
    LayerSwitches switches;

    bool operator==(const ShardKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [tp_, cp_, ep_, etp_, micro_batch_, sequence_parallel_, cp_comm_type_, modules_, engine_, fp8_, switches_] = *this;
        return hash_of(tp_, cp_, ep_, etp_, micro_batch_, sequence_parallel_, cp_comm_type_, bits_of(modules_), engine_, fp8_, switches_);
    }
};

/// The key of the layout, without switches.
[[nodiscard]] inline ShardKey shard_key(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    const bool selective = layout.recompute == Recompute::selective;
    return {sizes.tp,
            sizes.cp,
            sizes.ep,
            sizes.etp,
            layout.micro_batch,
            layout.sequence_parallel,
            layout.cp_comm_type,
            selective ? layout.recompute_modules : EnumSet<RecomputeModule>{},
            layout.engine,
            OwnFp8::none,
            {}};
}

/// The key of pieces without experts: fields that only MoE depends on are set to their defaults.
[[nodiscard]] constexpr ShardKey without_experts(ShardKey key) {
    using enum RecomputeModule;
    key.ep = key.etp = 1;
    key.modules = without(key.modules, {moe_act, moe, shared_experts});
    key.switches.dispatcher = TokenDispatcher::all_to_all;
    return key;
}

/// The key of a mixer.
[[nodiscard]] constexpr ShardKey mixer_alone(ShardKey key) {
    key = without_experts(key);
    key.modules = without(key.modules, {RecomputeModule::mlp});
    return key;
}

/// The key of embedding and head, which no recompute of a module reaches.
[[nodiscard]] constexpr ShardKey ends_alone(ShardKey key) {
    key = without_experts(key);
    key.cp_comm_type = CpCommType::p2p;
    key.modules = {};
    return key;
}

/// The key of a feed-forward, which depends on rows but not on how sequences and context parallelism divide them: fields that only other
/// pieces depend on are set to their defaults.
[[nodiscard]] constexpr ShardKey feed_forward_alone(ShardKey key, bool mixture) {
    using enum RecomputeModule;
    if (!mixture) key = without_experts(key);
    key.cp = key.micro_batch = 1;
    key.cp_comm_type = CpCommType::p2p;
    key.modules = without(key.modules, {core_attn, mla_up_proj});
    if (mixture) key.modules = without(key.modules, {mlp});
    return key;
}

}  // namespace mgplan::simulator
