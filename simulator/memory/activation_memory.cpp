#include "simulator/memory/activation_memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>

#include "model/pipeline/send_depth.hpp"
#include "plan/errors.hpp"
#include "simulator/memo_key.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_trace.hpp"
#include "simulator/memory/engine_policies.hpp"
#include "simulator/memory/live_states.hpp"
#include "simulator/memory/shard_layers.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

template <std::size_t kFields>
using Key = MemoKey<kFields>;
using KeyHash = MemoKeyHash;

/// The sums of a chunk's profiles that the search asks for.
struct ChunkWeight {
    std::int64_t kept = -1;  ///< from forward to backward; -1: not computed yet
    std::int64_t forward_peak = 0, backward_peak = 0;
};

/// One shard's profiles, and the weights of chunks made of them by the number of their contents.
struct ShardWeights {
    const ShardProfiles* profiles = nullptr;
    std::vector<ChunkWeight> chunks;
};

/// What a rank holds beside its layers' traces.
struct Held {
    std::vector<RankPasses::Held> tensors;
    BytesByCategory by_category{};
    std::int64_t total = 0;

    void add(MemoryCategory category, std::int64_t bytes, std::string_view tensor) {
        if (bytes == 0) return;
        tensors.push_back({category, bytes, tensor});
        by_category[static_cast<std::size_t>(category)] += bytes;
        total += bytes;
    }
};

/// Which of a split's distinct chunks stands where.
struct SplitChunks {
    std::shared_ptr<const StageSplit> split;  ///< keeps the memo's key alive
    std::vector<int> kind;                    ///< number of its contents; index = pp_rank · vpp + chunk
    std::vector<bool> uniform;                ///< by pp rank: all of its chunks are of one kind
};

}  // namespace

struct ActivationMemory::State {
    const Workload& workload;
    ShardLayers layers;
    std::unordered_map<const StageSplit*, SplitChunks> splits;
    std::vector<ChunkContents> contents;  // all that were met
    std::unordered_map<Key<12>, ShardWeights, KeyHash> weighed;
    std::unordered_map<Key<13>, Held, KeyHash> helds;
    std::unordered_map<Key<4>, std::vector<MostLive>, KeyHash> most_lives;
    std::unordered_map<Key<5>, std::vector<LiveState>, KeyHash> states;

    explicit State(const Workload& work) : workload(work), layers(work) {}

    int number_of(ChunkContents asked) {
        const auto number = std::find(contents.begin(), contents.end(), asked) - contents.begin();
        if (number == std::ssize(contents)) contents.push_back(std::move(asked));
        return static_cast<int>(number);
    }

    const ChunkContents& contents_of(const SplitChunks& split, const Layout& layout, int pp_rank, int chunk) const {
        return contents[static_cast<std::size_t>(split.kind[static_cast<std::size_t>(pp_rank * layout.vpp + chunk)])];
    }

    const SplitChunks& chunks(const Layout& layout) {
        auto [entry, fresh] = splits.try_emplace(layout.split.get());
        if (!fresh) return entry->second;
        SplitChunks& chunks = entry->second;
        chunks.split = layout.split;
        for (int rank = 0; rank < layout.split->pp(); ++rank) {
            bool uniform = true;
            std::int64_t predictions = 0;
            for (int c = 0; c < layout.split->vpp(); ++c) predictions = std::max(predictions, layout.split->chunk(rank, c).mtp);
            for (int c = 0; c < layout.split->vpp(); ++c) {
                const StageChunk& chunk = layout.split->chunk(rank, c);
                ChunkContents held{chunk.embedding, chunk.loss, {}, chunk.mtp};
                for (std::int64_t i = 0; i < chunk.decoders; ++i)
                    held.mixtures.push_back(workload.model.is_moe_layer(chunk.first_decoder + i));
                held.further_ids = predictions;
                held.mtp_is_mixture = chunk.mtp > 0 && workload.model.is_moe_layer(workload.model.layers - 1);
                chunks.kind.push_back(number_of(std::move(held)));
                uniform &= chunks.kind.back() == chunks.kind[chunks.kind.size() - 1 - static_cast<std::size_t>(c)];
            }
            chunks.uniform.push_back(uniform);
        }
        return chunks;
    }

    static FullRecompute full_recompute(const Layout& layout) {
        return {layout.recompute_method.value_or(RecomputeMethod::uniform), layout.recompute_num_layers};
    }

    PassProfile profile_of_chunk(const ShardProfiles& profiles, const Layout& layout, int number) const {
        const FullRecompute full = full_recompute(layout);
        return chunk_profile(profiles, contents[static_cast<std::size_t>(number)], layout.recompute == Recompute::full ? &full : nullptr);
    }

    /// Weights of every chunk of the split.
    const ShardWeights& weights(const Layout& layout, const SplitChunks& split, int node = 0) {
        const Key<9> shard_fields = ShardLayers::key(layout);
        Key<12> key;
        key.fields[11] = node;
        std::copy(shard_fields.fields.begin(), shard_fields.fields.end(), key.fields.begin());
        if (layout.recompute == Recompute::full) {
            key.fields[9] = 1 + static_cast<std::int64_t>(full_recompute(layout).method);
            key.fields[10] = layout.recompute_num_layers;
        }
        auto [entry, fresh] = weighed.try_emplace(key);
        ShardWeights& weights = entry->second;
        if (fresh) weights.profiles = &layers.profiles(layout, node);
        if (weights.chunks.size() < contents.size()) weights.chunks.resize(contents.size());
        for (const int number : split.kind) {
            ChunkWeight& weight = weights.chunks[static_cast<std::size_t>(number)];
            if (weight.kept >= 0) continue;
            const PassProfile profile = profile_of_chunk(*weights.profiles, layout, number);
            weight = {profile.forward.net_total(), profile.forward.peak, profile.backward.peak};
        }
        return weights;
    }

    /// What a rank of the stage holds beside its layers' traces.
    Held held(const Layout& layout, const SplitChunks& split, int pp_rank) {
        if (layout.engine == Engine::megatron) return held_by_megatron(layout, split, pp_rank);
        Held held;
        held.add(MemoryCategory::activations, open_messages(layout, split, pp_rank), "messages on their way");
        return held;
    }

    /// The sum of it, which the search asks for.
    std::int64_t held_bytes(const Layout& layout, const SplitChunks& split, int pp_rank) {
        return layout.engine == Engine::megatron ? held_by_megatron(layout, split, pp_rank).total : open_messages(layout, split, pp_rank);
    }

    /// Bytes of messages that wait until the next one is to be sent (model/pipeline/pipeline_executor.cpp).
    [[nodiscard]] std::int64_t open_messages(const Layout& layout, const SplitChunks& split, int pp_rank) const {
        if (layout.sizes.pp == 1) return 0;
        const model::SendDepth depth = model::send_depth(static_cast<int>(layout.sizes.pp), layout.vpp, layout.group_size, pp_rank);
        const auto first = static_cast<std::size_t>(pp_rank * layout.vpp), behind = first + static_cast<std::size_t>(layout.vpp);
        const auto some = [&](bool ChunkContents::*end) {
            for (std::size_t i = first; i < behind; ++i) {
                if (!(contents[static_cast<std::size_t>(split.kind[i])].*end)) return true;
            }
            return false;
        };
        const std::int64_t rows = layout.micro_batch * workload.batch.sequence / layout.sizes.cp;
        const std::int64_t stream = (layout.sequence_parallel ? rows / layout.sizes.tp : rows) * workload.model.hidden *
                                    bytes_of(workload.training.compute_dtype());
        const std::int64_t open = (some(&ChunkContents::loss) ? depth.forward : 0) + (some(&ChunkContents::embedding) ? depth.backward : 0);
        return open * stream;
    }

    const Held& held_by_megatron(const Layout& layout, const SplitChunks& split, int pp_rank) {
        const Key<9> shard_fields = ShardLayers::key(layout);
        Key<13> key;
        std::copy(shard_fields.fields.begin(), shard_fields.fields.end(), key.fields.begin());
        key.fields[9] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(layout.split.get()));
        key.fields[10] = pp_rank;
        key.fields[11] = layout.num_microbatches;
        auto [entry, fresh] = helds.try_emplace(key);
        if (!fresh) return entry->second;
        const PieceSizes sizes = layers.sizes(layout);
        RankContext rank{{workload.model, workload.training, sizes}, layout, pp_rank};
        rank.stream = sizes.rows_outside() * workload.model.hidden * bytes_of(sizes.dtype);
        for (int c = 0; c < layout.vpp; ++c) {
            const ChunkContents& held = contents_of(split, layout, pp_rank, c);
            rank.embedding |= held.embedding;
            rank.loss |= held.loss;
            for (const bool mixture : held.mixtures) (mixture ? rank.mixture : rank.dense) = true;
        }
        for (const RankPolicy& policy : megatron_rank_policies()) entry->second.add(policy.category, policy.bytes(rank), policy.tensor);
        return entry->second;
    }

    /// By pipeline stage.
    const std::vector<MostLive>& most(const Layout& layout) {
        const int pp = static_cast<int>(layout.sizes.pp);
        const std::int64_t group = layout.vpp > 1 ? layout.group_size : pp;
        const std::int64_t microbatches = enough_microbatches(pp, layout.vpp, layout.num_microbatches, group);
        auto [entry, fresh] = most_lives.try_emplace(Key<4>{{pp, layout.vpp, microbatches, group}});
        if (fresh) {
            for (int rank = 0; rank < pp; ++rank) entry->second.push_back(most_live(pp, layout.vpp, microbatches, group, rank));
        }
        return entry->second;
    }

    const std::vector<LiveState>& live(const Layout& layout, int pp_rank) {
        const int pp = static_cast<int>(layout.sizes.pp);
        const std::int64_t group = layout.vpp > 1 ? layout.group_size : pp;
        const std::int64_t microbatches = enough_microbatches(pp, layout.vpp, layout.num_microbatches, group);
        auto [entry, fresh] = states.try_emplace(Key<5>{{pp, layout.vpp, microbatches, group, pp_rank}});
        if (fresh) entry->second = live_states(pp, layout.vpp, microbatches, group, pp_rank);
        return entry->second;
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

std::int64_t bytes_in(const LiveState& state, std::span<const int> kinds, const std::vector<ChunkWeight>& chunks) {
    const auto chunk = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
    const ChunkWeight& running = chunks[static_cast<std::size_t>(kinds[chunk])];
    std::int64_t bytes = state.op > 0 ? running.forward_peak : running.backward_peak;
    for (std::size_t c = 0; c < kinds.size(); ++c) bytes += state.live[c] * chunks[static_cast<std::size_t>(kinds[c])].kept;
    return bytes;
}

}  // namespace

void ActivationMemory::peak_bytes(const Layout& layout, std::vector<std::int64_t>& by_stage) {
    const SplitChunks& split = state_->chunks(layout);
    const auto& chunks = state_->weights(layout, split).chunks;
    const auto& most_alive = state_->most(layout);
    by_stage.clear();
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        const auto kinds = kinds_of(split, layout, stage);
        const MostLive& alive = most_alive[static_cast<std::size_t>(stage)];
        std::int64_t most = 0;
        if (split.uniform[static_cast<std::size_t>(stage)]) {
            const ChunkWeight& chunk = chunks[static_cast<std::size_t>(kinds.front())];
            most =
                std::max(alive.before_forward * chunk.kept + chunk.forward_peak, alive.before_backward * chunk.kept + chunk.backward_peak);
        } else {
            for (const LiveState& state : state_->live(layout, stage)) most = std::max(most, bytes_in(state, kinds, chunks));
        }
        by_stage.push_back(most + state_->held_bytes(layout, split, stage));
    }
}

PieceBytes ActivationMemory::pieces(const Layout& layout) {
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    return {kept_and_taken(shard.embedding), shard.attention_half, shard.dense_half, shard.mixture_half, shard.head()};
}

void ActivationMemory::routed_peak_bytes(const Layout& layout, std::span<const RowFactors> rows, int first,
                                         std::vector<std::int64_t>& by_stage) {
    const SplitChunks& split = state_->chunks(layout);
    const auto& most_alive = state_->most(layout);
    std::array<double, ShardLayers::kNodes> nodes{};
    std::array<const std::vector<ChunkWeight>*, ShardLayers::kNodes> weights{};
    for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node] = state_->layers.received_at(layout, static_cast<int>(node));
    const auto at = [&](std::size_t node) {
        if (weights[node] == nullptr) weights[node] = &state_->weights(layout, split, static_cast<int>(node)).chunks;
        return weights[node];
    };
    /// Weights of the chunks at two neighbouring nodes, and how far on the way from one to the other.
    struct Between {
        const std::vector<ChunkWeight>*low, *high;
        double share;
        [[nodiscard]] double of(std::int64_t ChunkWeight::*member, int kind) const {
            const auto index = static_cast<std::size_t>(kind);
            const auto a = static_cast<double>((*low)[index].*member), b = static_cast<double>((*high)[index].*member);
            return a + share * (b - a);
        }
    };
    const auto between = [&](double received) {
        std::size_t node = 0;
        while (node + 2 < nodes.size() && received > nodes[node + 1]) ++node;
        const double low = nodes[node], high = nodes[node + 1];
        if (received <= low || high <= low) return Between{at(node), at(node), 0};
        return Between{at(node), at(node + 1), std::min(1.0, (received - low) / (high - low))};
    };
    by_stage.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const int stage = first + static_cast<int>(i);
        const auto kinds = kinds_of(split, layout, stage);
        const MostLive& alive = most_alive[static_cast<std::size_t>(stage)];
        const Between saved = between(rows[i].saved), running = between(rows[i].peak);
        double most = 0;
        if (split.uniform[static_cast<std::size_t>(stage)]) {
            const double kept = saved.of(&ChunkWeight::kept, kinds.front());
            most = std::max(static_cast<double>(alive.before_forward) * kept + running.of(&ChunkWeight::forward_peak, kinds.front()),
                            static_cast<double>(alive.before_backward) * kept + running.of(&ChunkWeight::backward_peak, kinds.front()));
        } else {
            for (const LiveState& state : state_->live(layout, stage)) {
                const auto chunk = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
                double bytes = running.of(state.op > 0 ? &ChunkWeight::forward_peak : &ChunkWeight::backward_peak, kinds[chunk]);
                for (std::size_t c = 0; c < kinds.size(); ++c) bytes += state.live[c] * saved.of(&ChunkWeight::kept, kinds[c]);
                most = std::max(most, bytes);
            }
        }
        by_stage.push_back(static_cast<std::int64_t>(std::ceil(most)) + state_->held_bytes(layout, split, stage));
    }
}

RankPasses ActivationMemory::passes(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const ShardWeights& weights = state_->weights(layout, split);
    RankPasses passes;
    for (const int number : kinds_of(split, layout, pp_rank))
        passes.chunks.push_back(state_->profile_of_chunk(*weights.profiles, layout, number));
    passes.held = state_->held(layout, split, pp_rank).tensors;
    return passes;
}

IterationTrace ActivationMemory::tensors(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    std::vector<ChunkContents> chunks;
    for (const int number : kinds_of(split, layout, pp_rank)) chunks.push_back(state_->contents[static_cast<std::size_t>(number)]);
    const FullRecompute full = State::full_recompute(layout);
    IterationTrace trace = chunk_traces(state_->layers.traces(layout), chunks, layout.recompute == Recompute::full ? &full : nullptr);
    const Held held = state_->held(layout, split, pp_rank);
    auto before = -static_cast<std::int64_t>(held.tensors.size());
    for (const RankPasses::Held& tensor : held.tensors) trace.tensors.push_back({tensor.bytes, before++, -1});
    return trace;
}

PassesPeak ActivationMemory::peak(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const ShardWeights& weights = state_->weights(layout, split);
    const auto& chunks = weights.chunks;
    const auto kinds = kinds_of(split, layout, pp_rank);
    std::vector<PassProfile> profiles;  // by chunk
    for (const int number : kinds) profiles.push_back(state_->profile_of_chunk(*weights.profiles, layout, number));
    PassesPeak peak;
    for (const LiveState& state : state_->live(layout, pp_rank)) {
        const auto running = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
        const PassProfile& profile = profiles[running];
        const OpProfile& op = state.op > 0 ? profile.forward : profile.backward;
        BytesByCategory held{};
        for (std::size_t c = 0; c < kinds.size(); ++c) {
            const OpProfile& kept = profiles[c].forward;
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
    const Held always = state_->held(layout, split, pp_rank);
    peak.bytes += always.total;
    for (std::size_t i = 0; i < always.by_category.size(); ++i) {
        peak.at_peak[i] += always.by_category[i];
        peak.high_water[i] += always.by_category[i];
    }
    return peak;
}

}  // namespace mgplan::simulator
