#include "simulator/memory/activation_memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>

#include "model/pipeline/send_depth.hpp"
#include "plan/text/errors.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_trace.hpp"
#include "simulator/memory/chunk_weights.hpp"
#include "simulator/memory/live_states.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

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
    std::vector<int> distinct;                ///< the numbers among them, each once
    /// By pp_rank: the first rank between the ends with the same chunks, whose microbatches are alive for longer; of ends themselves.
    std::vector<int> like;
};

/// The instants of a stage at which it can be the fullest, whatever its chunks weigh.
struct StageInstants {
    std::vector<int> kinds;  ///< places among the split's distinct chunks, each once
    MostLive most;           ///< of a stage with chunks of one kind
    /// Of others by instant: which of `kinds` runs, whether backward, and how many microbatches of each of `kinds` are alive.
    std::vector<std::int32_t> table;
    std::int64_t open_messages = 0;  ///< on their way while the next one is made (model/pipeline/pipeline_executor.cpp)

    [[nodiscard]] bool uniform() const { return kinds.size() == 1; }
    [[nodiscard]] std::size_t width() const { return kinds.size() + 2; }
};

/// Adds an instant unless one of the table has as many of every kind alive, and takes out those of which that can be said now.
void add_instant(StageInstants& stage, const std::vector<std::int32_t>& instant) {
    const auto width = static_cast<std::ptrdiff_t>(stage.width());
    const auto no_fuller = [&](auto a, auto b) {
        return a[0] == b[0] && a[1] == b[1] && std::equal(a + 2, a + width, b + 2, [](std::int32_t x, std::int32_t y) { return x <= y; });
    };
    for (auto known = stage.table.begin(); known != stage.table.end();) {
        if (no_fuller(instant.begin(), known)) return;
        known = no_fuller(known, instant.begin()) ? stage.table.erase(known, known + width) : known + width;
    }
    stage.table.insert(stage.table.end(), instant.begin(), instant.end());
}

/// How all chunks run under one mode of recompute, by number of their contents as far as they were asked for.
struct ChunkRecipes {
    std::optional<FullRecompute> full;
    std::vector<std::optional<ChunkRecipe>> of;
};

/// The fullest instant of a stage, from functions of a place among the split's distinct chunks.
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
    SharedSchedules& schedules;
    std::unordered_map<const StageSplit*, SplitChunks> splits;
    std::vector<ChunkContents> contents;  // all that were met
    std::vector<ChunkRecipes> recipes;
    std::unordered_map<MemoKey<3>, std::vector<StageInstants>, MemoKeyHash> instants;
    std::unordered_map<MemoKey<3>, std::int64_t, MemoKeyHash> linears;  ///< linear_elements() by tp, etp and kinds of layers
    // Of the layout at hand; members, so that they need no memory for each.
    StepDeltas steps;
    std::array<std::vector<ChunkWeight>, ShardLayers::kNodes> weights;  ///< of the split's distinct chunks
    std::array<bool, ShardLayers::kNodes> weighed{};
    std::vector<std::int64_t> held_totals;  ///< by stage
    std::vector<double> kept;
    std::vector<std::int64_t> kept_bytes, of_front;

    State(const Workload& work, ShardLayers* shared, SharedSchedules* of_all)
        : workload(work),
          own_layers(shared == nullptr ? std::make_unique<ShardLayers>(work) : nullptr),
          layers(shared == nullptr ? *own_layers : *shared),
          own_schedules(of_all == nullptr ? std::make_unique<SharedSchedules>() : nullptr),
          schedules(of_all == nullptr ? *own_schedules : *of_all) {}

    int number_of(ChunkContents asked) {
        const auto number = std::find(contents.begin(), contents.end(), asked) - contents.begin();
        if (number == std::ssize(contents)) contents.push_back(std::move(asked));
        return static_cast<int>(number);
    }

    /// Of a rank's chunk in SplitChunks::kind.
    static std::size_t place_of(const Layout& layout, int pp_rank, int chunk) {
        return static_cast<std::size_t>(pp_rank) * static_cast<std::size_t>(layout.vpp) + static_cast<std::size_t>(chunk);
    }

    const ChunkContents& contents_of(const SplitChunks& split, const Layout& layout, int pp_rank, int chunk) const {
        return contents[static_cast<std::size_t>(split.kind[place_of(layout, pp_rank, chunk)])];
    }

    const SplitChunks& chunks(const Layout& layout) {
        auto [entry, fresh] = splits.try_emplace(layout.split.get());
        if (!fresh) return entry->second;
        SplitChunks& chunks = entry->second;
        chunks.split = layout.split;
        for (int rank = 0; rank < layout.split->pp(); ++rank) {
            std::int64_t predictions = 0;
            for (int c = 0; c < layout.split->vpp(); ++c) predictions = std::max(predictions, layout.split->chunk(rank, c).mtp);
            for (int c = 0; c < layout.split->vpp(); ++c) {
                const StageChunk& chunk = layout.split->chunk(rank, c);
                ChunkContents held{chunk.embedding, chunk.loss, {}, chunk.mtp};
                const LayerKinds& kinds = layers.kinds();
                for (std::int64_t i = 0; i < chunk.decoders; ++i)
                    held.layers.push_back(kinds.without_window[kinds.of_layer[static_cast<std::size_t>(chunk.first_decoder + i)]]);
                held.further_ids = predictions;
                held.mtp_layer = chunk.mtp > 0 ? kinds.without_window[kinds.of_prediction] : std::uint16_t{0};
                chunks.kind.push_back(number_of(std::move(held)));
            }
        }
        for (const int number : chunks.kind) {
            if (std::find(chunks.distinct.begin(), chunks.distinct.end(), number) == chunks.distinct.end())
                chunks.distinct.push_back(number);
        }
        for (int rank = 0; rank < layout.split->pp(); ++rank) chunks.like.push_back(rank_like(chunks, rank, *layout.split));
        return chunks;
    }

    static int rank_like(const SplitChunks& chunks, int rank, const StageSplit& split) {
        const auto of = [&](int one) { return chunks.kind.begin() + static_cast<std::ptrdiff_t>(one) * split.vpp(); };
        for (int other = 1; other < rank && rank + 1 < split.pp(); ++other) {
            if (chunks.like[static_cast<std::size_t>(other)] == other && std::equal(of(other), of(other) + split.vpp(), of(rank)))
                return other;
        }
        return rank;
    }

    static FullRecompute full_recompute(const Layout& layout) {
        return {layout.recompute_method.value_or(RecomputeMethod::uniform), layout.recompute_num_layers};
    }

    PassProfile profile_of_chunk(const ShardProfiles& profiles, const Layout& layout, int number) const {
        const FullRecompute full = full_recompute(layout);
        return chunk_profile(profiles, contents[static_cast<std::size_t>(number)], layout.recompute == Recompute::full ? &full : nullptr);
    }

    ChunkRecipes& recipes_of(const Layout& layout) {
        const std::optional<FullRecompute> full =
            layout.recompute == Recompute::full ? std::optional(full_recompute(layout)) : std::nullopt;
        const auto found = std::find_if(recipes.begin(), recipes.end(), [&](const ChunkRecipes& known) { return known.full == full; });
        return found != recipes.end() ? *found : recipes.emplace_back(ChunkRecipes{full, {}});
    }

    /// From now on weights() are of this layout, and what is held of its first stages.
    void begin(const Layout& layout, const SplitChunks& split, int stages) {
        weighed.fill(false);
        weigh_held(layout, split, stages);
    }

    /// A stage whose rank holds the same beside its layers: this one, or one in front of it.
    [[nodiscard]] static int holds_like(const Layout& layout, const SplitChunks& split, int stage) {
        return layout.engine == Engine::megatron ? split.like[static_cast<std::size_t>(stage)] : stage;
    }

    /// Of the split's distinct chunks.
    const std::vector<ChunkWeight>& weights_at(const Layout& layout, const SplitChunks& split, std::size_t node) {
        std::vector<ChunkWeight>& weights_of_node = weights[node];
        if (weighed[node]) return weights_of_node;
        weighed[node] = true;
        ChunkRecipes& chunks = recipes_of(layout);
        const FullRecompute* full = chunks.full ? &*chunks.full : nullptr;
        layers.steps(layout, recomputes_prediction(full), static_cast<int>(node), steps);
        if (chunks.of.size() < contents.size()) chunks.of.resize(contents.size());
        weights_of_node.clear();
        for (const int number : split.distinct) {
            auto& recipe = chunks.of[static_cast<std::size_t>(number)];
            if (!recipe) recipe.emplace(contents[static_cast<std::size_t>(number)], full);
            weights_of_node.push_back(recipe->weigh(steps));
        }
        return weights_of_node;
    }

    /// The sum of it on each stage, which the search asks for.
    void weigh_held(const Layout& layout, const SplitChunks& split, int stages) {
        held_totals.clear();
        if (layout.engine == Engine::megatron) {
            const PieceSizes sizes = layers.sizes(layout);
            for (int rank = 0; rank < stages; ++rank) {
                if (const int like = holds_like(layout, split, rank); like < rank) {
                    held_totals.push_back(held_totals[static_cast<std::size_t>(like)]);
                    continue;
                }
                const RankContext context = megatron_rank(layout, split, rank, sizes);
                std::int64_t total = 0;
                for (const RankPolicy& policy : megatron_rank_policies()) total += policy.bytes(context);
                held_totals.push_back(total);
            }
            return;
        }
        const std::int64_t stream = stream_bytes(layout);
        for (const StageInstants& stage : instants_of(layout, split)) held_totals.push_back(stage.open_messages * stream);
    }

    /// Of the residual stream between stages.
    [[nodiscard]] std::int64_t stream_bytes(const Layout& layout) const {
        const std::int64_t rows = layout.micro_batch * workload.batch.sequence / layout.sizes.cp;
        return (layout.sequence_parallel ? rows / layout.sizes.tp : rows) * workload.model.hidden *
               bytes_of(workload.training.compute_dtype());
    }

    /// Messages that wait until the next one is to be sent (model/pipeline/pipeline_executor.cpp).
    [[nodiscard]] std::int64_t open_messages(const Layout& layout, const SplitChunks& split, int pp_rank) const {
        if (layout.sizes.pp == 1) return 0;
        const model::SendDepth depth = model::send_depth(static_cast<int>(layout.sizes.pp), layout.vpp, layout.group_size, pp_rank);
        const auto first = place_of(layout, pp_rank, 0), behind = first + static_cast<std::size_t>(layout.vpp);
        const auto some = [&](bool ChunkContents::*end) {
            for (std::size_t i = first; i < behind; ++i) {
                if (!(contents[static_cast<std::size_t>(split.kind[i])].*end)) return true;
            }
            return false;
        };
        return (some(&ChunkContents::loss) ? depth.forward : 0) + (some(&ChunkContents::embedding) ? depth.backward : 0);
    }

    [[nodiscard]] RankContext megatron_rank(const Layout& layout, const SplitChunks& split, int pp_rank, const PieceSizes& sizes) {
        RankContext rank{{workload.model, workload.training, sizes}, layout, pp_rank};
        rank.stream = sizes.rows_outside() * workload.model.hidden * bytes_of(sizes.dtype);
        for (int c = 0; c < layout.vpp; ++c) {
            const ChunkContents& held = contents_of(split, layout, pp_rank, c);
            rank.embedding |= held.embedding;
            rank.loss |= held.loss;
            for (const std::uint16_t kind : held.layers) rank.kinds |= std::uint64_t{1} << kind;
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

    /// What a rank of the stage holds beside its layers' traces.
    Held held(const Layout& layout, const SplitChunks& split, int pp_rank) {
        Held held;
        if (layout.engine == Engine::megatron) {
            const PieceSizes sizes = layers.sizes(layout);
            const RankContext rank = megatron_rank(layout, split, pp_rank, sizes);
            for (const RankPolicy& policy : megatron_rank_policies()) held.add(policy.category, policy.bytes(rank), policy.tensor);
        } else {
            held.add(MemoryCategory::activations, open_messages(layout, split, pp_rank) * stream_bytes(layout), "messages on their way");
        }
        return held;
    }

    /// By pipeline stage.
    const std::vector<StageInstants>& instants_of(const Layout& layout, const SplitChunks& split) {
        const int pp = static_cast<int>(layout.sizes.pp);
        const std::int64_t group = layout.vpp > 1 ? layout.group_size : pp;
        const std::int64_t microbatches = enough_microbatches(pp, layout.vpp, layout.num_microbatches, group);
        const auto split_key = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(layout.split.get()));
        auto [entry, fresh] = instants.try_emplace(MemoKey<3>{{split_key, microbatches, group}});
        if (!fresh) return entry->second;
        for (int rank = 0; rank < pp; ++rank) {
            StageInstants stage;
            std::vector<std::size_t> place;  // by chunk, in stage.kinds
            for (int c = 0; c < layout.vpp; ++c) {
                const int number = split.kind[place_of(layout, rank, c)];
                const auto at = std::find(split.distinct.begin(), split.distinct.end(), number) - split.distinct.begin();
                const auto known = std::find(stage.kinds.begin(), stage.kinds.end(), at);
                place.push_back(static_cast<std::size_t>(known - stage.kinds.begin()));
                if (known == stage.kinds.end()) stage.kinds.push_back(static_cast<int>(at));
            }
            stage.most = most_live(pp, layout.vpp, microbatches, group, rank);
            if (!stage.uniform()) {
                std::vector<std::int32_t> instant;
                for (const LiveState& state : live(layout, rank)) {
                    instant.assign(stage.width(), 0);
                    instant[0] = static_cast<std::int32_t>(place[static_cast<std::size_t>(std::abs(state.op) - 1)]);
                    instant[1] = state.op < 0 ? 1 : 0;
                    for (std::size_t c = 0; c < place.size(); ++c) instant[2 + place[c]] += state.live[c];
                    add_instant(stage, instant);
                }
            }
            stage.open_messages = open_messages(layout, split, rank);
            entry->second.push_back(std::move(stage));
        }
        return entry->second;
    }

    /// Of the first stages. `all`: otherwise a stage that is no fuller than one in front of it has that one's peak.
    void peaks_of_first(const Layout& layout, int stages, bool all, std::vector<std::int64_t>& by_stage) {
        const SplitChunks& split = chunks(layout);
        begin(layout, split, stages);
        const auto& of_chunk = weights_at(layout, split, 0);
        const auto kept_of = [&](int kind) { return of_chunk[static_cast<std::size_t>(kind)].kept; };
        const auto peak_of = [&](int kind, bool backward) {
            const ChunkWeight& weight = of_chunk[static_cast<std::size_t>(kind)];
            return backward ? weight.backward_peak : weight.forward_peak;
        };
        const auto& instants_of_stage = instants_of(layout, split);
        by_stage.clear();
        for (std::size_t stage = 0; stage < static_cast<std::size_t>(stages); ++stage) {
            const auto like = static_cast<std::size_t>(all ? static_cast<int>(stage) : holds_like(layout, split, static_cast<int>(stage)));
            by_stage.push_back(like < stage ? by_stage[like]
                                            : fullest(instants_of_stage[stage], kept_bytes, kept_of, peak_of) + held_totals[stage]);
        }
    }

    const std::vector<LiveState>& live(const Layout& layout, int pp_rank) {
        const int pp = static_cast<int>(layout.sizes.pp);
        const std::int64_t group = layout.vpp > 1 ? layout.group_size : pp;
        const std::int64_t microbatches = enough_microbatches(pp, layout.vpp, layout.num_microbatches, group);
        return schedules.live(pp, layout.vpp, microbatches, group, pp_rank);
    }
};

ActivationMemory::ActivationMemory(const Workload& workload, ShardLayers* layers, SharedSchedules* schedules)
    : state_(std::make_unique<State>(workload, layers, schedules)) {}
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

}  // namespace

void ActivationMemory::peak_bytes(const Layout& layout, Stages which, std::vector<std::int64_t>& by_stage) {
    state_->peaks_of_first(layout, static_cast<int>(layout.sizes.pp), which == Stages::all, by_stage);
}

std::int64_t ActivationMemory::front_peak_bytes(const Layout& layout) {
    state_->peaks_of_first(layout, 1, true, state_->of_front);
    return state_->of_front.front();
}

PieceBytes ActivationMemory::pieces(const Layout& layout) {
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    PieceBytes pieces{shard.attention_half, shard.dense_half, shard.mixture_half, {}, shard.head(), {}};
    for (const PassProfile& layer : shard.layers) pieces.layers.push_back(layer.forward.net_total());
    if (layout.cuda_graphs.contains(CudaGraphScope::moe_router)) pieces.router = state_->layers.router_part(layout);
    return pieces;
}

void ActivationMemory::routed_peak_bytes(const Layout& layout, std::span<const RowFactors> rows, int first,
                                         std::vector<std::int64_t>& by_stage) {
    const SplitChunks& split = state_->chunks(layout);
    const auto& stages = state_->instants_of(layout, split);
    std::array<double, ShardLayers::kNodes> nodes{};
    std::array<const std::vector<ChunkWeight>*, ShardLayers::kNodes> weights{};
    for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node] = state_->layers.received_at(layout, static_cast<int>(node));
    const auto at = [&](std::size_t node) {
        if (weights[node] == nullptr) weights[node] = &state_->weights_at(layout, split, node);
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
        const std::size_t stage = static_cast<std::size_t>(first) + i;
        const Between saved = between(rows[i].saved), running = between(rows[i].peak);
        const double most = fullest(
            stages[stage], state_->kept, [&](int kind) { return saved.of(&ChunkWeight::kept, kind); },
            [&](int kind, bool backward) { return running.of(backward ? &ChunkWeight::backward_peak : &ChunkWeight::forward_peak, kind); });
        by_stage.push_back(static_cast<std::int64_t>(std::ceil(most)) + state_->held_totals[stage]);
    }
}

RankPasses ActivationMemory::passes(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    RankPasses passes;
    for (const int number : kinds_of(split, layout, pp_rank)) passes.chunks.push_back(state_->profile_of_chunk(shard, layout, number));
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

const std::vector<std::int64_t>& ActivationMemory::offloaded_by_kind(const Layout& layout) {
    return state_->layers.host_bytes(layout);
}

std::vector<std::int64_t> ActivationMemory::host_bytes_of_chunks(const Layout& layout, int pp_rank) {
    std::vector<std::int64_t> of_chunk;
    if (state_->workload.training.offload.modules.empty()) return of_chunk;
    const std::vector<std::int64_t>& of_kind = state_->layers.host_bytes(layout);
    const SplitChunks& split = state_->chunks(layout);
    for (const int number : kinds_of(split, layout, pp_rank)) {
        const ChunkContents& contents = state_->contents[static_cast<std::size_t>(number)];
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
    for (const LiveState& state : state_->live(layout, pp_rank)) {
        if (state.op < 0) continue;  // brings some back
        std::int64_t bytes = of_chunk[static_cast<std::size_t>(state.op - 1)];
        for (std::size_t c = 0; c < of_chunk.size(); ++c) bytes += state.live[c] * of_chunk[c];
        most = std::max(most, bytes);
    }
    return most;
}

PassesPeak ActivationMemory::peak(const Layout& layout, int pp_rank) {
    const SplitChunks& split = state_->chunks(layout);
    const ShardProfiles& shard = state_->layers.profiles(layout, 0);
    const auto kinds = kinds_of(split, layout, pp_rank);
    std::vector<PassProfile> profiles;  // by chunk
    for (const int number : kinds) profiles.push_back(state_->profile_of_chunk(shard, layout, number));
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
