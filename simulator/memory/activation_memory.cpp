#include "simulator/memory/activation_memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <unordered_map>

#include "plan/text/errors.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_trace.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/memory/split_stages.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

/// Tensors that a rank holds in addition to its layers' traces.
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

/// Peak of a stage; the functions take an index among the split's distinct chunks.
template <class Bytes, class Kept, class Peak>
Bytes fullest(const StageInstants& stage, std::vector<Bytes>& kept, Kept kept_of, Peak peak_of) {
    if (stage.uniform()) {
        const int kind = stage.kinds.front();
        const Bytes each = kept_of(kind);
        return std::max(static_cast<Bytes>(stage.most.before_forward) * each + peak_of(kind, false),
                        static_cast<Bytes>(stage.most.before_backward) * each + peak_of(kind, true));
    }
    kept.clear();
    for (const int kind : stage.kinds) kept.push_back(kept_of(kind));
    Bytes most = 0;
    for (auto instant = stage.table.begin(); instant != stage.table.end(); instant += static_cast<std::ptrdiff_t>(stage.width())) {
        Bytes bytes = peak_of(stage.kinds[static_cast<std::size_t>(instant[0])], instant[1] != 0);
        for (std::size_t k = 0; k < kept.size(); ++k) bytes += static_cast<Bytes>(instant[static_cast<std::ptrdiff_t>(k) + 2]) * kept[k];
        most = std::max(most, bytes);
    }
    return most;
}

}  // namespace

struct ActivationMemory::State {
    const Workload& workload;
    std::unique_ptr<ShardLayers> own_layers;
    ShardLayers& layers;
    std::unique_ptr<SharedSchedules> own_schedules;
    std::unique_ptr<SplitStages> own_splits;
    SplitStages& splits;
    std::unordered_map<MemoKey<3>, std::int64_t, MemoKeyHash> linears;  ///< linear_elements() by tp, etp and kinds of layers
    // Reused by every call to save allocations; nothing is read from an earlier call.
    StepTable<MemoryDelta> steps;
    std::vector<double> kept;
    std::vector<std::int64_t> kept_bytes;
    std::vector<PassDeltas> of_front;

    State(const Workload& work, ShardLayers* shared, SplitStages* of_all)
        : workload(work),
          own_layers(shared == nullptr ? std::make_unique<ShardLayers>(work) : nullptr),
          layers(shared == nullptr ? *own_layers : *shared),
          own_schedules(of_all == nullptr ? std::make_unique<SharedSchedules>() : nullptr),
          own_splits(of_all == nullptr ? std::make_unique<SplitStages>(layers.kinds(), *own_schedules) : nullptr),
          splits(of_all == nullptr ? *own_splits : *of_all) {}

    /// Nothing: neither full recompute nor recompute of streams.
    static std::optional<ChunkRecompute> recompute_of(const Layout& layout) {
        if (layout.recompute == Recompute::full)
            return ChunkRecompute{layout.recompute_method.value_or(RecomputeMethod::uniform), layout.recompute_num_layers};
        if (layout.recompute == Recompute::selective && layout.recompute_modules.contains(RecomputeModule::mhc))
            return ChunkRecompute{.layers = layout.recompute_num_layers, .streams = true};
        return std::nullopt;
    }
    static const ChunkRecompute* address(const std::optional<ChunkRecompute>& recompute) { return recompute ? &*recompute : nullptr; }

    const ChunkRecipe& recipe(const Layout& layout, int number) const {
        const std::optional<ChunkRecompute> recompute = recompute_of(layout);
        return splits.recipe(number, address(recompute));
    }

    PassProfile profile_of_chunk(const ShardProfiles& profiles, const Layout& layout, int number) const {
        return chunk_profile(profiles.steps, recipe(layout, number));
    }

    /// The first stage whose rank holds the same tensors besides its layers: this one, or an earlier one.
    [[nodiscard]] static int holds_like(const Layout& layout, const SplitChunks& split, int stage) {
        return layout.engine == Engine::megatron ? split.like[static_cast<std::size_t>(stage)] : stage;
    }

    /// Sets `weights` to those of the split's distinct chunks at these indices; the other elements are undefined.
    template <class Places>
    void weigh_chunks(const Layout& layout, const SplitChunks& split, std::size_t node, const Places& places,
                      std::vector<PassDeltas>& weights) {
        const std::optional<ChunkRecompute> of_layout = recompute_of(layout);
        layers.steps(layout, static_cast<int>(node), steps);
        weights.resize(split.distinct.size());
        for (const int place : places) {
            const auto index = static_cast<std::size_t>(place);
            weights[index] = splits.recipe(split.distinct[index], address(of_layout)).compose(steps.values);
        }
    }

    /// Weights of the split's distinct chunks.
    const std::vector<PassDeltas>& weights_at(const Layout& layout, const SplitChunks& split, std::size_t node, WeighedPasses& passes) {
        std::vector<PassDeltas>& weights = passes.weights[node];
        if (weights.empty()) weigh_chunks(layout, split, node, std::views::iota(0, static_cast<int>(split.distinct.size())), weights);
        return weights;
    }

    /// The sum of held(), needed by the search.
    std::int64_t held_total(const Layout& layout, const SplitChunks& split, int rank, const PieceSizes& sizes) {
        std::int64_t total = 0;
        if (layout.engine == Engine::megatron) {
            const RankContext context = megatron_rank(layout, split, rank, sizes);
            for (const RankPolicy& policy : megatron_rank_policies()) total += policy.bytes(context);
        } else {
            total = splits.instants(layout, split)[static_cast<std::size_t>(rank)].open_messages * stream_bytes(layout);
        }
        return total;
    }

    /// Peak of a stage whose chunks have these weights, without what the rank holds in addition.
    std::int64_t peak_of_stage(const StageInstants& stage, const std::vector<PassDeltas>& weights) {
        return fullest(
            stage, kept_bytes, [&](int kind) { return weights[static_cast<std::size_t>(kind)].forward.net; },
            [&](int kind, bool backward) {
                const PassDeltas& weight = weights[static_cast<std::size_t>(kind)];
                return (backward ? weight.backward : weight.forward).peak;
            });
    }

    /// Bytes of the residual stream between stages.
    [[nodiscard]] std::int64_t stream_bytes(const Layout& layout) const {
        const std::int64_t rows = layout.micro_batch * workload.batch.sequence / layout.sizes.cp;
        return (layout.sequence_parallel ? rows / layout.sizes.tp : rows) * workload.model.stream_width() *
               bytes_of(workload.training.compute_dtype());
    }

    [[nodiscard]] RankContext megatron_rank(const Layout& layout, const SplitChunks& split, int pp_rank, const PieceSizes& sizes) {
        RankContext rank{{workload.model, layers.kinds().first_half().layer, workload.training, sizes}, layout, pp_rank};
        rank.stream = sizes.rows_outside() * workload.model.stream_width() * bytes_of(sizes.dtype);
        for (int c = 0; c < layout.vpp; ++c) {
            const int number = split.kind[SplitChunks::place_of(layout, pp_rank, c)];
            const ChunkContents& held = splits.contents(number);
            rank.embedding |= held.embedding;
            rank.loss |= held.loss;
            rank.kinds |= splits.layer_kinds(number);
        }
        if (!workload.training.offload.modules.empty()) {
            const std::vector<std::int64_t>& on_host = layers.host_bytes(layout);
            for (std::size_t kind = 0; kind < on_host.size(); ++kind) {
                if ((rank.kinds >> kind & 1) != 0) rank.offloaded_layer = std::max(rank.offloaded_layer, on_host[kind]);
            }
        }
        auto [linears_of, fresh] = linears.try_emplace({sizes.tp, sizes.etp, static_cast<std::int64_t>(rank.kinds)});
        if (fresh) linears_of->second = linear_elements(workload.model, layers.kinds(), sizes.tp, sizes.etp, rank.kinds);
        rank.linear_elements = linears_of->second;
        return rank;
    }

    /// Tensors that a rank of the stage holds in addition to its layers' traces.
    Held held(const Layout& layout, const SplitChunks& split, int pp_rank) {
        Held held;
        if (layout.engine == Engine::megatron) {
            const PieceSizes sizes = layers.sizes(layout);
            const RankContext rank = megatron_rank(layout, split, pp_rank, sizes);
            for (const RankPolicy& policy : megatron_rank_policies()) held.add(policy.category, policy.bytes(rank), policy.tensor);
        } else {
            held.add(MemoryCategory::activations, splits.open_messages(layout, split, pp_rank) * stream_bytes(layout),
                     "messages on their way");
        }
        return held;
    }

    /// `all` false: a stage that needs no more than an earlier equal one gets that one's peak.
    WeighedPasses weigh(const Layout& layout, bool all) {
        const SplitChunks& split = splits.chunks(layout);
        const std::vector<StageInstants>& stages = splits.instants(layout, split);
        const PieceSizes sizes = layers.sizes(layout);
        WeighedPasses passes;
        passes.held.reserve(stages.size());
        passes.peaks.reserve(stages.size());
        const std::vector<PassDeltas>& weights = weights_at(layout, split, 0, passes);
        for (std::size_t stage = 0; stage < stages.size(); ++stage) {
            const auto rank = static_cast<int>(stage);
            const int alike = holds_like(layout, split, rank);
            passes.held.push_back(alike < rank ? passes.held[static_cast<std::size_t>(alike)] : held_total(layout, split, rank, sizes));
            // Microbatches of the earlier stage are alive for longer; with mgplan's own engine the later one may have more open messages.
            const auto like = static_cast<std::size_t>(split.like[stage]);
            const bool no_fuller = !all && like < stage && passes.held[stage] <= passes.held[like];
            passes.peaks.push_back(no_fuller ? passes.peaks[like] : peak_of_stage(stages[stage], weights) + passes.held[stage]);
        }
        return passes;
    }
};

ActivationMemory::ActivationMemory(const Workload& workload, ShardLayers* layers, SplitStages* splits)
    : state_(std::make_unique<State>(workload, layers, splits)) {}
ActivationMemory::~ActivationMemory() = default;

const LayerKinds& ActivationMemory::kinds() const {
    return state_->layers.kinds();
}

namespace {

/// Kinds of a rank's chunks.
std::span<const int> kinds_of(const SplitChunks& split, const Layout& layout, int pp_rank) {
    const auto vpp = static_cast<std::size_t>(layout.vpp);
    return {split.kind.data() + static_cast<std::size_t>(pp_rank) * vpp, vpp};
}

/// Weights of the chunks at two adjacent nodes, and the position between them.
struct Between {
    const std::vector<PassDeltas>*low, *high;
    double share;
    template <class Bytes>
    [[nodiscard]] double of(int kind, Bytes bytes) const {
        const auto index = static_cast<std::size_t>(kind);
        const auto a = static_cast<double>(bytes((*low)[index])), b = static_cast<double>(bytes((*high)[index]));
        return a + share * (b - a);
    }
};

}  // namespace

WeighedPasses ActivationMemory::weigh(const Layout& layout, Stages which) {
    return state_->weigh(layout, which == Stages::all);
}

std::int64_t ActivationMemory::front_peak_bytes(const Layout& layout) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const StageInstants& front = state_->splits.instants(layout, split).front();
    state_->weigh_chunks(layout, split, 0, front.kinds, state_->of_front);
    return state_->peak_of_stage(front, state_->of_front) + state_->held_total(layout, split, 0, state_->layers.sizes(layout));
}

PieceBytes ActivationMemory::pieces(const Layout& layout) {
    PieceBytes pieces = state_->layers.profiles(layout, 0).bytes;
    if (layout.cuda_graphs.contains(CudaGraphScope::moe_router)) pieces.router = state_->layers.router_part(layout);
    return pieces;
}

std::vector<std::int64_t> ActivationMemory::routed_peaks(const Layout& layout, WeighedPasses& passes, std::span<const RowFactors> rows,
                                                         int first) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const auto& stages = state_->splits.instants(layout, split);
    std::array<double, ShardLayers::kNodes> nodes{};
    std::array<const std::vector<PassDeltas>*, ShardLayers::kNodes> weights{};
    for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node] = state_->layers.received_at(layout, static_cast<int>(node));
    const auto at = [&](std::size_t node) {
        if (weights[node] == nullptr) weights[node] = &state_->weights_at(layout, split, node, passes);
        return weights[node];
    };
    const auto between = [&](double received) {
        std::size_t node = 0;
        while (node + 2 < nodes.size() && received > nodes[node + 1]) ++node;
        const double low = nodes[node], high = nodes[node + 1];
        if (received <= low || high <= low) return Between{at(node), at(node), 0};
        return Between{at(node), at(node + 1), std::min(1.0, (received - low) / (high - low))};
    };
    std::vector<std::int64_t> by_stage;
    by_stage.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t stage = static_cast<std::size_t>(first) + i;
        const Between saved = between(rows[i].saved), running = between(rows[i].peak);
        const double most = fullest(
            stages[stage], state_->kept,
            [&](int kind) { return saved.of(kind, [](const PassDeltas& chunk) { return chunk.forward.net; }); },
            [&](int kind, bool backward) {
                return running.of(kind, [&](const PassDeltas& chunk) { return (backward ? chunk.backward : chunk.forward).peak; });
            });
        by_stage.push_back(static_cast<std::int64_t>(std::ceil(most)) + passes.held[stage]);
    }
    return by_stage;
}

RankPasses ActivationMemory::passes(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    RankPasses passes;
    for (const int number : kinds_of(split, layout, pp_rank)) passes.chunks.push_back(state_->profile_of_chunk(shard, layout, number));
    passes.held = state_->held(layout, split, pp_rank).tensors;
    return passes;
}

IterationTrace ActivationMemory::tensors(const Layout& layout, int pp_rank, bool named) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const std::optional<ChunkRecompute> recompute = State::recompute_of(layout);
    std::vector<const ChunkRecipe*> chunks;
    std::vector<NumberedChunk> numbered;
    for (const int number : kinds_of(split, layout, pp_rank)) {
        const std::int64_t first = layout.split->chunk(pp_rank, static_cast<int>(chunks.size())).first_decoder;
        if (named) numbered.push_back({chunk_steps(state_->splits.contents(number), State::address(recompute)), first});
        chunks.push_back(&state_->recipe(layout, number));
    }
    IterationTrace trace = chunk_traces(state_->layers.tensor_steps(layout, named), chunks, numbered);
    const Held held = state_->held(layout, split, pp_rank);
    auto before = -static_cast<std::int64_t>(held.tensors.size());
    for (const RankPasses::Held& tensor : held.tensors) {
        trace.tensors.push_back({tensor.bytes, before++, -1});
        if (named) trace.names.push_back({tensor.tensor, "held throughout"});
    }
    return trace;
}

std::int64_t ActivationMemory::excess_of_head(const Layout& layout) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    const int number = kinds_of(split, layout, 0).front();
    const std::optional<ChunkRecompute> recompute = State::recompute_of(layout);
    const PassProfile chunk = state_->profile_of_chunk(shard, layout, number);
    const std::int64_t most = std::max(chunk.forward.peak, chunk.forward.net_total() + chunk.backward.peak);
    return most - peak_of_layers(shard.steps, chunk_steps(state_->splits.contents(number), State::address(recompute)));
}

const std::vector<std::int64_t>& ActivationMemory::offloaded_by_kind(const Layout& layout) {
    return state_->layers.host_bytes(layout);
}

std::vector<std::int64_t> ActivationMemory::host_bytes_of_chunks(const Layout& layout, int pp_rank) {
    std::vector<std::int64_t> of_chunk;
    if (state_->workload.training.offload.modules.empty()) return of_chunk;
    const std::vector<std::int64_t>& of_kind = state_->layers.host_bytes(layout);
    const SplitChunks& split = state_->splits.chunks(layout);
    for (const int number : kinds_of(split, layout, pp_rank)) {
        const ChunkContents& contents = state_->splits.contents(number);
        std::int64_t bytes = contents.mtp * of_kind[contents.mtp_layer];
        for (const std::uint16_t kind : contents.layers) bytes += of_kind[kind];
        of_chunk.push_back(bytes);
    }
    return of_chunk;
}

std::int64_t ActivationMemory::host_bytes(const Layout& layout, int pp_rank, const RankSchedule& schedule) {
    const std::vector<std::int64_t> of_chunk = host_bytes_of_chunks(layout, pp_rank);
    if (of_chunk.empty()) return 0;
    std::int64_t now = 0, most = 0;
    for (const PipelineOp& op : schedule.ops) {
        const std::int64_t bytes = of_chunk[static_cast<std::size_t>(op.chunk)];
        if (op.pass == Pass::forward)
            now += bytes;
        else if (op.pass != Pass::weight_gradient)
            now -= bytes;
        most = std::max(most, now);
    }
    return most;
}

std::int64_t ActivationMemory::host_bytes(const Layout& layout, int pp_rank) {
    const std::vector<std::int64_t> of_chunk = host_bytes_of_chunks(layout, pp_rank);
    if (of_chunk.empty()) return 0;
    std::int64_t most = 0;
    for (const LiveState& state : state_->splits.live(layout, pp_rank)) {
        if (state.op < 0) continue;  // a backward brings some back
        std::int64_t bytes = of_chunk[static_cast<std::size_t>(state.op - 1)];
        for (std::size_t c = 0; c < of_chunk.size(); ++c) bytes += state.live[c] * of_chunk[c];
        most = std::max(most, bytes);
    }
    return most;
}

PassesPeak ActivationMemory::peak(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->splits.chunks(layout);
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    const auto kinds = kinds_of(split, layout, pp_rank);
    std::vector<PassProfile> profiles;  // by chunk
    for (const int number : kinds) profiles.push_back(state_->profile_of_chunk(shard, layout, number));
    PassesPeak peak;
    for (const LiveState& state : state_->splits.live(layout, pp_rank)) {
        const auto running = static_cast<std::size_t>(state.op > 0 ? state.op - 1 : -state.op - 1);
        const PassProfile& profile = profiles[running];
        const OpProfile& op = state.op > 0 ? profile.forward : profile.backward;
        BytesByCategory held{};
        for (std::size_t c = 0; c < kinds.size(); ++c) {
            const OpProfile& kept = profiles[c].forward;
            for (std::size_t i = 0; i < held.size(); ++i) held[i] += state.live[c] * kept.net[i];
        }
        for (std::size_t i = 0; i < held.size(); ++i) peak.high_water[i] = std::max(peak.high_water[i], held[i] + op.high_water[i]);
        std::int64_t bytes = op.peak;
        for (const std::int64_t category : held) bytes += category;
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
