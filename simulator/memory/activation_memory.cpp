#include "simulator/memory/activation_memory.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <unordered_map>

#include "model/pipeline/send_depth.hpp"
#include "plan/errors.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/engine_policies.hpp"
#include "simulator/memory/live_states.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

template <std::size_t kFields>
struct Key {
    std::array<std::int64_t, kFields> fields{};
    bool operator==(const Key&) const = default;
};

struct KeyHash {
    template <std::size_t kFields>
    std::size_t operator()(const Key<kFields>& key) const {
        std::uint64_t hash = 1469598103934665603ULL;
        for (const auto field : key.fields) {
            hash ^= static_cast<std::uint64_t>(field);
            hash *= 1099511628211ULL;
            hash ^= hash >> 29U;
        }
        return static_cast<std::size_t>(hash);
    }
};

/// A chunk's profiles with the sums that the search asks for.
struct WeighedChunk {
    ChunkProfile profile;
    std::int64_t kept = 0;  ///< from forward to backward
    std::int64_t forward_peak = 0, backward_peak = 0;
};

struct Held {
    BytesByCategory by_category{};
    std::int64_t total = 0;
};

/// Which of a split's distinct chunks stands where.
struct SplitChunks {
    std::shared_ptr<const StageSplit> split;  ///< keeps the memo's key alive
    std::vector<ChunkContents> kinds;
    std::vector<int> kind;      ///< index = pp_rank · vpp + chunk
    std::vector<bool> uniform;  ///< by pp rank: all of its chunks are of one kind
};

SplitChunks chunks_of(const ModelSpec& model, const std::shared_ptr<const StageSplit>& split) {
    SplitChunks chunks;
    chunks.split = split;
    for (int rank = 0; rank < split->pp(); ++rank) {
        bool uniform = true;
        for (int c = 0; c < split->vpp(); ++c) {
            const StageChunk& chunk = split->chunk(rank, c);
            ChunkContents contents{chunk.embedding, chunk.loss, {}, chunk.mtp};
            for (std::int64_t i = 0; i < chunk.decoders; ++i) contents.mixtures.push_back(model.is_moe_layer(chunk.first_decoder + i));
            auto found = std::find(chunks.kinds.begin(), chunks.kinds.end(), contents);
            if (found == chunks.kinds.end()) found = chunks.kinds.insert(found, std::move(contents));
            chunks.kind.push_back(static_cast<int>(found - chunks.kinds.begin()));
            uniform &= chunks.kind.back() == chunks.kind[chunks.kind.size() - 1 - static_cast<std::size_t>(c)];
        }
        chunks.uniform.push_back(uniform);
    }
    return chunks;
}

}  // namespace

struct ActivationMemory::State {
    const Workload& workload;
    model::KernelTraits traits;
    std::unordered_map<Key<9>, ShardProfiles, KeyHash> shards;
    std::unordered_map<const StageSplit*, SplitChunks> splits;
    std::unordered_map<Key<13>, std::vector<WeighedChunk>, KeyHash> weighed;
    std::unordered_map<Key<13>, Held, KeyHash> helds;
    std::unordered_map<Key<4>, std::vector<std::vector<LiveState>>, KeyHash> states;

    explicit State(const Workload& work) : workload(work) {
        traits.kind = model::DeviceKind::cuda;
        traits.architecture = work.cluster.compute_capability;
    }

    static Key<9> shard_key(const Layout& layout) {
        std::int64_t modules = 0;
        for (unsigned bit = 0; bit < 7; ++bit)
            modules |= std::int64_t{layout.recompute_modules.contains(static_cast<RecomputeModule>(bit))} << bit;
        if (layout.recompute == Recompute::none) modules = 0;
        if (layout.recompute == Recompute::full) modules = -1;
        const ParallelSizes& s = layout.sizes;
        return {{s.tp, s.cp, s.ep, s.etp, layout.micro_batch, layout.sequence_parallel, static_cast<std::int64_t>(layout.cp_comm_type),
                 modules, static_cast<std::int64_t>(layout.engine)}};
    }

    [[nodiscard]] PieceSizes sizes_of(const Layout& layout) const {
        PieceSizes sizes;
        sizes.tp = layout.sizes.tp;
        sizes.cp = layout.sizes.cp;
        sizes.ep = layout.sizes.ep;
        sizes.etp = layout.sizes.etp;
        sizes.micro_batch = layout.micro_batch;
        sizes.sequence = workload.batch.sequence;
        sizes.sequence_parallel = layout.sequence_parallel;
        // Hierarchical exchange: rings of all-to-alls. The rings' tensors are counted.
        sizes.cp_comm_type = layout.cp_comm_type == CpCommType::a2a_p2p ? CpCommType::p2p : layout.cp_comm_type;
        if (layout.recompute == Recompute::selective) sizes.modules = layout.recompute_modules;
        sizes.dtype = workload.training.compute_dtype();
        sizes.grad_dtype = workload.training.grad_dtype;
        sizes.traits = traits;
        return sizes;
    }

    const ShardProfiles& shard(const Layout& layout, const Key<9>& key) {
        auto [entry, fresh] = shards.try_emplace(key);
        if (!fresh) return entry->second;
        const PieceSizes sizes = sizes_of(layout);
        const auto trace = [&](bool full) {
            PieceTrace result = trace_pieces(workload.model, sizes, full);
            if (layout.engine == Engine::megatron && !full) apply_megatron_policies(result, {workload.model, workload.training, sizes});
            return result;
        };
        const PieceTrace kept = trace(false);
        std::optional<PieceTrace> dropped;
        if (layout.recompute == Recompute::full) dropped = trace(true);
        entry->second = shard_profiles(kept, dropped ? &*dropped : nullptr, sizes, workload.model.hidden);
        return entry->second;
    }

    const SplitChunks& chunks(const Layout& layout) {
        auto [entry, fresh] = splits.try_emplace(layout.split.get());
        if (fresh) entry->second = chunks_of(workload.model, layout.split);
        return entry->second;
    }

    const std::vector<WeighedChunk>& weights(const Layout& layout, const SplitChunks& split) {
        const Key<9> shard_fields = shard_key(layout);
        Key<13> key;
        std::copy(shard_fields.fields.begin(), shard_fields.fields.end(), key.fields.begin());
        const bool full = layout.recompute == Recompute::full;
        key.fields[9] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(layout.split.get()));
        key.fields[10] = full ? 1 + static_cast<std::int64_t>(layout.recompute_method.value_or(RecomputeMethod::uniform)) : 0;
        key.fields[11] = full ? layout.recompute_num_layers : 0;
        auto [entry, fresh] = weighed.try_emplace(key);
        if (!fresh) return entry->second;
        const ShardProfiles& profiles = shard(layout, shard_fields);
        const FullRecompute recompute{layout.recompute_method.value_or(RecomputeMethod::uniform), layout.recompute_num_layers};
        for (const ChunkContents& contents : split.kinds) {
            WeighedChunk chunk;
            chunk.profile = chunk_profile(profiles, contents, full ? &recompute : nullptr);
            chunk.kept = chunk.profile.forward.net_total();
            chunk.forward_peak = chunk.profile.forward.peak;
            chunk.backward_peak = chunk.profile.backward.peak;
            entry->second.push_back(std::move(chunk));
        }
        return entry->second;
    }

    /// What a rank of the stage holds beside its layers' traces.
    const Held& held(const Layout& layout, const SplitChunks& split, int pp_rank) {
        const Key<9> shard_fields = shard_key(layout);
        Key<13> key;
        std::copy(shard_fields.fields.begin(), shard_fields.fields.end(), key.fields.begin());
        key.fields[9] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(layout.split.get()));
        key.fields[10] = pp_rank;
        key.fields[11] = layout.num_microbatches;
        auto [entry, fresh] = helds.try_emplace(key);
        if (!fresh || layout.engine != Engine::megatron) return entry->second;
        const PieceSizes sizes = sizes_of(layout);
        RankContext rank{{workload.model, workload.training, sizes}, layout, pp_rank};
        rank.stream = sizes.rows_outside() * workload.model.hidden * bytes_of(sizes.dtype);
        for (int c = 0; c < layout.vpp; ++c) {
            const ChunkContents& contents =
                split.kinds[static_cast<std::size_t>(split.kind[static_cast<std::size_t>(pp_rank * layout.vpp + c)])];
            rank.embedding |= contents.embedding;
            rank.loss |= contents.loss;
            for (const bool mixture : contents.mixtures) (mixture ? rank.mixture : rank.dense) = true;
        }
        for (const RankPolicy& policy : megatron_rank_policies())
            entry->second.by_category[static_cast<std::size_t>(policy.category)] += policy.bytes(rank);
        for (const std::int64_t bytes : entry->second.by_category) entry->second.total += bytes;
        return entry->second;
    }

    const std::vector<LiveState>& live(const Layout& layout, int pp_rank) {
        const int pp = static_cast<int>(layout.sizes.pp);
        auto [entry, fresh] = states.try_emplace(Key<4>{{pp, layout.vpp, layout.num_microbatches, layout.group_size}});
        if (fresh) {
            for (int rank = 0; rank < pp; ++rank)
                entry->second.push_back(live_states(pp, layout.vpp, layout.num_microbatches, layout.group_size, rank));
        }
        return entry->second[static_cast<std::size_t>(pp_rank)];
    }
};

ActivationMemory::ActivationMemory(const Workload& workload) : state_(std::make_unique<State>(workload)) {}
ActivationMemory::~ActivationMemory() = default;

namespace {

/// Kinds of a rank's chunks.
std::span<const int> kinds_of(const SplitChunks& split, const Layout& layout, int pp_rank) {
    const auto vpp = static_cast<std::size_t>(layout.vpp);
    return {split.kind.data() + static_cast<std::size_t>(pp_rank) * vpp, vpp};
}

std::int64_t bytes_in(const LiveState& state, std::span<const int> kinds, const std::vector<WeighedChunk>& chunks) {
    const auto chunk = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
    const WeighedChunk& running = chunks[static_cast<std::size_t>(kinds[chunk])];
    std::int64_t bytes = state.op > 0 ? running.forward_peak : running.backward_peak;
    for (std::size_t c = 0; c < kinds.size(); ++c) bytes += state.live[c] * chunks[static_cast<std::size_t>(kinds[c])].kept;
    return bytes;
}

}  // namespace

std::int64_t ActivationMemory::peak_bytes(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const auto& chunks = state_->weights(layout, split);
    const auto kinds = kinds_of(split, layout, pp_rank);
    std::int64_t most = 0;
    for (const LiveState& state : state_->live(layout, pp_rank)) most = std::max(most, bytes_in(state, kinds, chunks));
    return most + state_->held(layout, split, pp_rank).total;
}

PassesPeak ActivationMemory::peak(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const auto& chunks = state_->weights(layout, split);
    const auto kinds = kinds_of(split, layout, pp_rank);
    PassesPeak peak;
    for (const LiveState& state : state_->live(layout, pp_rank)) {
        const auto running = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
        const ChunkProfile& profile = chunks[static_cast<std::size_t>(kinds[running])].profile;
        const OpProfile& op = state.op > 0 ? profile.forward : profile.backward;
        BytesByCategory held{};
        for (std::size_t c = 0; c < kinds.size(); ++c) {
            const OpProfile& kept = chunks[static_cast<std::size_t>(kinds[c])].profile.forward;
            for (std::size_t i = 0; i < held.size(); ++i) held[i] += state.live[c] * kept.net[i];
        }
        for (std::size_t i = 0; i < held.size(); ++i) peak.high_water[i] = std::max(peak.high_water[i], held[i] + op.high_water[i]);
        const std::int64_t bytes = bytes_in(state, kinds, chunks);
        if (bytes <= peak.bytes) continue;
        peak.bytes = bytes;
        peak.op = state.op;
        peak.tensor = op.peak_tensor;
        for (std::size_t i = 0; i < held.size(); ++i) peak.at_peak[i] = held[i] + op.at_peak[i];
    }
    const Held& always = state_->held(layout, split, pp_rank);
    peak.bytes += always.total;
    for (std::size_t i = 0; i < always.by_category.size(); ++i) {
        peak.at_peak[i] += always.by_category[i];
        peak.high_water[i] += always.by_category[i];
    }
    return peak;
}

}  // namespace mgplan::simulator
