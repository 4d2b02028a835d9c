#pragma once
// The sizes of one rank's share of one microbatch, as memos of times and traces are looked up by.

#include <bit>
#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/training/own_fp8.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// A set as one bit for each enumerator, at the place that is its value.
[[nodiscard]] constexpr std::uint32_t bits_of(EnumSet<RecomputeModule> modules) {
    return std::bit_cast<std::uint32_t>(modules);
}
/// The members of `modules` that `others` lacks.
[[nodiscard]] constexpr EnumSet<RecomputeModule> without(EnumSet<RecomputeModule> modules, EnumSet<RecomputeModule> others) {
    return std::bit_cast<EnumSet<RecomputeModule>>(bits_of(modules) & ~bits_of(others));
}

/// What the layers of a layout depend on, beside the workload. Layouts with equal keys have equal traces, and, where their groups
/// run over equal links, equal costs.
struct ShardKey {
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1;
    std::int64_t micro_batch = 1;  ///< sequences
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    EnumSet<RecomputeModule> modules;  ///< of selective recompute; empty without it
    Engine engine = Engine::mgplan;
    OwnFp8 fp8 = OwnFp8::none;  ///< how linear layers multiply in fp8, as they run here

    bool operator==(const ShardKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [tp_, cp_, ep_, etp_, micro_batch_, sequence_parallel_, cp_comm_type_, modules_, engine_, fp8_] = *this;
        return hash_of(tp_, cp_, ep_, etp_, micro_batch_, sequence_parallel_, cp_comm_type_, bits_of(modules_), engine_, fp8_);
    }
};

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
            OwnFp8::none};
}

/// The key of what does not see experts: fields that only mixtures depend on are set to their defaults, all others are kept.
[[nodiscard]] constexpr ShardKey without_experts(ShardKey key) {
    using enum RecomputeModule;
    key.ep = key.etp = 1;
    key.modules = without(key.modules, {moe_act, moe, shared_experts});
    return key;
}

/// The key of a mixture's half layer, which sees rows, however sequences and context parallelism make them: fields that only
/// the rest depends on are set to their defaults, all others are kept.
[[nodiscard]] constexpr ShardKey mixture_alone(ShardKey key) {
    using enum RecomputeModule;
    key.cp = key.micro_batch = 1;
    key.cp_comm_type = CpCommType::p2p;
    key.modules = without(key.modules, {core_attn, mlp, mla_up_proj});
    return key;
}

}  // namespace mgplan::simulator
