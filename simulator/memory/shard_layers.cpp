#include "simulator/memory/shard_layers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "model/ops/scratch.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/training/own_fp8.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/shared_memo.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::array<double, ShardLayers::kNodes> kReceived{1.0, 1.5, 4.0, 1e9};

/// Kinds of traces. Dense pieces: of one of LayerKinds::plain_layers. `two_parts`: dense, with a sequence over a ring of two ranks, with
/// the same number of rows on each. `mixture`: of one of LayerKinds::mixture_layers.
enum class Traced : std::uint8_t { dense, prediction, recomputed_prediction, two_parts, mixture };

/// Key of a trace, and of what follows from it.
struct TraceKey {
    ShardKey shard;  ///< without_experts(), or mixture_alone()
    Traced what = Traced::dense;
    std::size_t layer = 0;       ///< index in LayerKinds::plain_layers or mixture_layers
    std::int64_t rows = 0;       ///< of a MoE layer
    std::uint64_t received = 0;  ///< of a MoE layer: bits of the argument `received` of trace_mixture()
    bool with_steps = true;
    bool operator==(const TraceKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [shard_, what_, layer_, rows_, received_, with_steps_] = *this;
        return hash_of(shard_, what_, layer_, rows_, received_, with_steps_);
    }
};

TraceKey mixture_key(const PieceSizes& sizes, std::size_t layer, double received) {
    return {mixture_alone(sizes), Traced::mixture, layer, sizes.rows(), std::bit_cast<std::uint64_t>(received), sizes.keep_steps};
}

/// Profiles of everything except MoE layers.
struct DenseProfiles {
    std::vector<PieceProfiles> pieces;  ///< by LayerKinds::plain_layers
    std::vector<OpProfile> prediction, recomputed_prediction;
    StepTable<MemoryDelta> steps;    ///< without MoE layers
    std::vector<PassDeltas> mixers;  ///< by kind of layer; empty for those without a mixer
};

/// Recordings, before any policy. Dense: traces of one and of two sequences; MoE layers: of two numbers of rows, or of the layout's.
using Recordings = SharedMemo<TraceKey, PieceTrace>;

/// Results computed from recordings under the policies.
struct SharedProfiles {
    SharedMemo<ShardKey, DenseProfiles> dense;
    SharedMemo<TraceKey, PassDeltas> mixtures;
};

}  // namespace

struct ShardLayers::State {
    const Workload& workload;
    LayerKinds kinds;
    model::KernelTraits traits;
    bool on_cpu = false;  ///< the cluster's ranks are a CPU's
    std::shared_ptr<Recordings> recordings;
    std::shared_ptr<SharedProfiles> shared;
    // This thread's cache of the shared results, which serves most lookups.
    std::unordered_map<ShardKey, const DenseProfiles*, MemoKeyHash> dense_pieces;
    std::unordered_map<TraceKey, const PassDeltas*, MemoKeyHash> mixture_deltas;
    std::unordered_map<TraceKey, PieceProfiles, MemoKeyHash> mixtures;
    std::unordered_map<TraceKey, KeptAndTaken, MemoKeyHash> routers;
    std::unordered_map<TraceKey, ShardProfiles, MemoKeyHash> shards;
    std::unordered_map<ShardKey, std::vector<std::int64_t>, MemoKeyHash> on_host;  ///< host_bytes()

    State(const Workload& work, std::shared_ptr<Recordings> recorded, std::shared_ptr<SharedProfiles> profiled)
        : workload(work),
          kinds(layer_kinds(work.model, work.training.megatron)),
          recordings(std::move(recorded)),
          shared(std::move(profiled)) {
        traits.kind = model::DeviceKind::cuda;
        traits.architecture = work.cluster.compute_capability;
        traits.fused_attention = work.training.attention == AttentionBackend::flash;
        on_cpu = work.cluster.calibration && work.cluster.calibration->device == "cpu";
    }

    [[nodiscard]] ShardKey key_of(const Layout& layout) const {
        ShardKey key = shard_key(layout);
        if (!workload.model.moe) return key;
        key.switches.dispatcher = workload.model.moe->dispatcher;
        if (layout.switches && layout.switches->dispatcher) key.switches.dispatcher = *layout.switches->dispatcher;
        return key;
    }

    [[nodiscard]] PieceSizes sizes_of(const Layout& layout) const {
        PieceSizes sizes;
        static_cast<ShardKey&>(sizes) = key_of(layout);
        sizes.sequence = workload.batch.sequence;
        // fp16 is as wide as bf16, and fused kernels take both.
        const Dtype dtype = workload.training.compute_dtype();
        sizes.dtype = dtype == Dtype::fp16 ? Dtype::bf16 : dtype;
        if (layout.engine == Engine::mgplan) sizes.fp8 = own_fp8(workload.model, workload.training);
        sizes.grad_dtype = dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;  // no trace depends on it
        sizes.traits = traits;
        // The rates of a CPU are those of its own kernels, whose attention is one op whatever the dtypes are.
        if (layout.engine == Engine::mgplan && on_cpu) sizes.traits.kind = model::DeviceKind::cpu;
        sizes.offloaded = workload.training.offload.modules;
        // Both FlashAttention and cuDNN support windows (Transformer Engine, dot_product_attention/utils.py, get_attention_backend).
        sizes.fuses_windows = layout.engine == Engine::megatron;
        return sizes;
    }

    TracePointer under_policies(TracePointer trace, const PieceSizes& sizes, const Layer& layer) const {
        const bool megatron = sizes.engine == Engine::megatron;
        const bool assumes_fp8 = !megatron && sizes.keep_steps && sizes.fp8 == OwnFp8::none && quantised(workload.training.precision);
        if (!megatron && !assumes_fp8) return trace;
        const PolicyContext context{workload.model, layer, workload.training, sizes};
        // A trace created only for this call is changed in place.
        const bool own = trace.use_count() == 1;
        std::shared_ptr<PieceTrace> changed = own ? std::const_pointer_cast<PieceTrace>(std::move(trace))
                                                  : std::make_shared<PieceTrace>(sizes.keep_steps ? *trace : without_steps(*trace));
        if (megatron)
            apply_megatron_policies(*changed, context);
        else
            apply_fp8_rates(*changed, context);
        return changed;
    }

    PieceTrace trace_now(PieceSizes sizes, Traced what, std::size_t plain_layer) const {
        sizes.keep_steps = true;
        switch (what) {
            case Traced::two_parts:
                sizes.sequence = sizes.sequence / sizes.cp * 2;
                sizes.cp = 2;
                [[fallthrough]];
            case Traced::dense:
                return trace_dense_pieces(workload.model, kinds.plain_layers[plain_layer], sizes);
            case Traced::prediction:
            case Traced::recomputed_prediction:
            case Traced::mixture:
                break;
        }
        return trace_prediction(workload.model, sizes, what == Traced::recomputed_prediction);
    }

    /// Pointer to a trace that the recordings own; it owns nothing.
    static TracePointer kept(const PieceTrace& trace) { return {TracePointer{}, &trace}; }
    static TracePointer made(PieceTrace trace) { return std::make_shared<PieceTrace>(std::move(trace)); }

    /// True if the workspace of a scan or a delta rule is limited to a largest size in whole chunks: then neither its bytes nor the
    /// launches of its GEMMs grow linearly with the number of sequences.
    static bool works_by_blocks(const PieceTrace& trace) {
        return std::ranges::any_of(
            trace.tensors, [](const auto& tensor) { return tensor.name == model::kScanWorkspace || tensor.name == model::kRuleWorkspace; });
    }

    /// Larger micro-batches are extrapolated from the traces of one and two sequences unless works_by_blocks(). Includes steps if `sizes`
    /// requests them.
    TracePointer dense_trace(const PieceSizes& sizes, Traced what, std::size_t plain_layer = 0) {
        TraceKey key{without_experts(sizes), what, plain_layer};
        key.shard.switches = {};
        const auto of = [&](std::int64_t micro_batch) -> const PieceTrace& {
            key.shard.micro_batch = micro_batch;
            return recordings->of(key, [&] {
                PieceSizes few = sizes;
                few.micro_batch = micro_batch;
                return trace_now(few, what, plain_layer);
            });
        };
        if (sizes.micro_batch <= 2) return kept(of(sizes.micro_batch));
        if (sizes.engine == Engine::mgplan && works_by_blocks(of(1))) return kept(of(sizes.micro_batch));
        if (auto trace = with_rows(of(1), of(2), sizes.micro_batch, 1, sizes.keep_steps)) return made(*std::move(trace));
        return made(trace_now(sizes, what, plain_layer));
    }

    /// Extrapolates from the traces of two numbers of rows, both large enough for scratch with a size limit, and divisible into an even
    /// split. Includes steps if `sizes` requests them.
    TracePointer mixture_trace(const PieceSizes& sizes, std::size_t layer, double received) {
        constexpr std::int64_t kEnough = 8192;
        const std::int64_t unit = workload.model.moe->experts * (sizes.sequence_parallel ? sizes.tp : 1);
        const std::int64_t rows = (kEnough * (sizes.sequence_parallel ? sizes.tp : 1) + unit - 1) / unit * unit;
        const auto of = [&](std::int64_t count) -> const PieceTrace& {
            PieceSizes few = sizes;
            few.sequence = count;
            few.micro_batch = few.cp = 1;
            few.keep_steps = received == 1;
            return recorded_mixture(few, layer, received);
        };
        // With few copies for each expert the rounding of the even split matters.
        const std::int64_t copies = sizes.rows_outside() * workload.model.moe->top_k, experts = workload.model.moe->experts;
        if (copies % experts != 0 && copies < 64 * experts) return kept(recorded_mixture(sizes, layer, received));
        if (auto trace = with_rows(of(rows), of(2 * rows), sizes.rows(), rows, sizes.keep_steps)) return made(*std::move(trace));
        return kept(recorded_mixture(sizes, layer, received));
    }

    const PieceTrace& recorded_mixture(const PieceSizes& sizes, std::size_t layer, double received) {
        TraceKey key = mixture_key(sizes, layer, received);
        key.shard.switches = {};
        return recordings->of(key, [&] { return trace_mixture(workload.model, kinds.mixture_layers[layer], sizes, received); });
    }

    /// mixture_trace() after the policies.
    TracePointer mixture_under_policies(const PieceSizes& sizes, std::size_t layer, double received) {
        return under_policies(mixture_trace(sizes, layer, received), sizes, kinds.mixture_layers[layer]);
    }

    /// Upper bound of a rank's received tokens relative to the even split: every token sends as many copies as possible to its experts.
    [[nodiscard]] double most_received(const Layout& layout) const {
        const MoeSpec& moe = *workload.model.moe;
        if (moe.pad_to_capacity || layout.sizes.ep == 1) return 1;
        const auto top_k = static_cast<double>(moe.top_k);
        const std::int64_t own_experts = moe.experts / layout.sizes.ep;
        const double most = std::min(top_k, static_cast<double>(own_experts)) * static_cast<double>(layout.sizes.ep) / top_k;
        return moe.capacity_factor > 0 ? std::max(1.0, std::min(most, moe.capacity_factor)) : most;
    }
    /// Size of Megatron-LM's fixed buffers relative to an even split, independent of routing; 0: buffers fit the tokens.
    [[nodiscard]] double fixed_rows(const Layout& layout) const {
        return layout.engine == Engine::megatron ? workload.training.megatron.expert_buffers.capacity : 0;
    }
    [[nodiscard]] double received_at(const Layout& layout, int node) const {
        if (const double fixed = fixed_rows(layout); fixed > 0) return fixed;
        return node == 0 ? 1 : std::min(kReceived[static_cast<std::size_t>(node)], most_received(layout));
    }

    const DenseProfiles& dense_profiles(const PieceSizes& sizes) {
        const auto entry = dense_pieces.try_emplace(without_experts(sizes)).first;
        if (entry->second == nullptr) entry->second = &shared->dense.of(entry->first, [&] { return dense_profiles_now(sizes); });
        return *entry->second;
    }

    DenseProfiles dense_profiles_now(const PieceSizes& sizes) {
        const auto trace = [&](Traced what, std::size_t plain_layer = 0) {
            return under_policies(dense_trace(sizes, what, plain_layer), sizes, kinds.plain_layers[plain_layer]);
        };
        DenseProfiles profiles;
        for (std::size_t layer = 0; layer < kinds.plain_layers.size(); ++layer)
            profiles.pieces.push_back(piece_profiles(*trace(Traced::dense, layer)));
        if (workload.model.mtp_layers > 0) {
            profiles.prediction = prediction_profiles(*trace(Traced::prediction));
            profiles.recomputed_prediction = prediction_profiles(*trace(Traced::recomputed_prediction));
        }
        profiles.steps = deltas_of(shard_profiles_of(sizes, profiles, {}).steps);
        for (const LayerKindHalves& kind : kinds.kinds)
            profiles.mixers.push_back(deltas_of(mixer_values<OpProfile>(kinds, profiles.pieces, kind)));
        return profiles;
    }

    [[nodiscard]] ShardProfiles shard_profiles_of(const PieceSizes& sizes, const DenseProfiles& dense,
                                                  std::span<const PieceProfiles> of_mixtures) const {
        ShardProfiles shard = shard_profiles(kinds, dense.pieces, of_mixtures, sizes, workload.model.hidden, workload.model.streams());
        shard.steps.set_predictions(false, dense.prediction);
        shard.steps.set_predictions(true, dense.recomputed_prediction);
        return shard;
    }

    KeptAndTaken router_part(const Layout& layout) {
        const PieceSizes sizes = sizes_of(layout);
        const double received = received_at(layout, 0);
        auto [entry, fresh] = routers.try_emplace(mixture_key(sizes, 0, received));
        if (fresh) {
            // mgplan's graphs contain the shared experts; Megatron-LM's may leave them to run in parallel with the dispatch.
            entry->second =
                simulator::router_part(*mixture_under_policies(sizes, 0, received), stream_bytes(sizes), layout.engine == Engine::mgplan);
        }
        return entry->second;
    }

    void steps(const Layout& layout, int node, StepTable<MemoryDelta>& steps) {
        const PieceSizes sizes = sizes_of(layout);
        const DenseProfiles& dense = dense_profiles(sizes);
        steps = dense.steps;
        if (!workload.model.moe) return;
        const double received = received_at(layout, node);
        std::array<const PassDeltas*, 2> deltas{};  // by index in LayerKinds::mixture_layers
        for (std::size_t layer = 0; layer < kinds.mixture_layers.size(); ++layer)
            deltas[layer] = &mixture_deltas_of(sizes, layer, received);
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            if (kinds.kinds[kind].mixture)
                steps.set_layer(kind, nested(dense.mixers[kind], *deltas[LayerKinds::mixture_layer(kinds.kinds[kind])]));
        }
    }

    const PassDeltas& mixture_deltas_of(const PieceSizes& sizes, std::size_t layer, double received) {
        const auto entry = mixture_deltas.try_emplace(mixture_key(sizes, layer, received)).first;
        if (entry->second == nullptr) {
            entry->second = &shared->mixtures.of(entry->first, [&] {
                return deltas_of(piece_profiles(*mixture_under_policies(sizes, layer, received))[static_cast<std::size_t>(Piece::mixture)]);
            });
        }
        return *entry->second;
    }

    const ShardProfiles& profiles(const Layout& layout, int node) {
        const double received = received_at(layout, node);
        auto [entry, fresh] = shards.try_emplace(TraceKey{.shard = key_of(layout), .received = std::bit_cast<std::uint64_t>(received)});
        if (!fresh) return entry->second;
        const PieceSizes sizes = sizes_of(layout);
        const DenseProfiles& dense = dense_profiles(sizes);
        std::vector<PieceProfiles> of_mixtures;
        for (std::size_t layer = 0; layer < kinds.mixture_layers.size(); ++layer) {
            auto [found, new_mixture] = mixtures.try_emplace(mixture_key(sizes, layer, received));
            if (new_mixture) found->second = piece_profiles(*mixture_under_policies(sizes, layer, received));
            of_mixtures.push_back(found->second);
        }
        return entry->second = shard_profiles_of(sizes, dense, of_mixtures);
    }

    [[nodiscard]] std::int64_t stream_bytes(const PieceSizes& sizes) const {
        return sizes.rows_outside() * workload.model.stream_width() * bytes_of(sizes.dtype);
    }

    StepTable<TensorTrace> tensor_steps(const Layout& layout) {
        const PieceSizes sizes = sizes_of(layout);
        std::vector<PieceTrace> plain, mixtures_of_shard;
        for (std::size_t layer = 0; layer < kinds.plain_layers.size(); ++layer)
            plain.push_back(*under_policies(dense_trace(sizes, Traced::dense, layer), sizes, kinds.plain_layers[layer]));
        for (std::size_t layer = 0; layer < kinds.mixture_layers.size(); ++layer)
            mixtures_of_shard.push_back(*mixture_under_policies(sizes, layer, received_at(layout, 0)));
        TracePointer prediction;
        if (workload.model.mtp_layers > 0) {
            const bool recomputed = layout.recompute == Recompute::full &&
                                    layout.recompute_method.value_or(RecomputeMethod::uniform) == RecomputeMethod::uniform;
            prediction = under_policies(dense_trace(sizes, recomputed ? Traced::recomputed_prediction : Traced::prediction), sizes,
                                        kinds.plain_layers.front());
        }
        return simulator::tensor_steps(kinds, plain, mixtures_of_shard, prediction.get(), sizes, stream_bytes(sizes));
    }
};

ShardLayers::ShardLayers(const Workload& workload)
    : state_(std::make_unique<State>(workload, std::make_shared<Recordings>(), std::make_shared<SharedProfiles>())) {}
ShardLayers::ShardLayers(const Workload& workload, const ShardLayers& others)
    : state_(std::make_unique<State>(workload, others.state_->recordings, others.state_->shared)) {}
ShardLayers::~ShardLayers() = default;

const LayerKinds& ShardLayers::kinds() const {
    return state_->kinds;
}

PieceSizes ShardLayers::sizes(const Layout& layout) const {
    return state_->sizes_of(layout);
}

double ShardLayers::received_at(const Layout& layout, int node) const {
    return state_->received_at(layout, node);
}

const ShardProfiles& ShardLayers::profiles(const Layout& layout, int node) {
    return state_->profiles(layout, node);
}

void ShardLayers::steps(const Layout& layout, int node, StepTable<MemoryDelta>& steps) {
    state_->steps(layout, node, steps);
}

namespace {

PieceSizes with_kept_steps(PieceSizes sizes) {
    sizes.keep_steps = true;
    return sizes;
}

}  // namespace

const std::vector<std::int64_t>& ShardLayers::host_bytes(const Layout& layout) {
    const PieceSizes shard = sizes(layout);
    auto [entry, fresh] = state_->on_host.try_emplace(shard);
    std::vector<std::int64_t>& bytes = entry->second;
    if (!fresh) return bytes;
    const LayerKinds& kinds = state_->kinds;
    bytes.resize(kinds.size());
    if (shard.offloaded.empty()) return bytes;
    const auto sent = [](const PieceTrace& trace, Piece piece) {
        std::int64_t sum = trace.range(piece, false).to_host;
        for (const PieceStep& step : trace.range(piece, false).steps) sum += step.op.name == "copy_to_host" ? step.op.bytes_read : 0;
        return sum;
    };
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        const LayerKindHalves& halves = kinds.kinds[kind];
        if (halves.mixer != LayerKindHalves::kNone)
            bytes[kind] += sent(*dense_steps(shard, kinds.plain_layer(halves, halves.mixer)), Piece::attention);
        if (halves.mixture)
            bytes[kind] += sent(*mixture_steps(shard, LayerKinds::mixture_layer(halves), 1), Piece::mixture);
        else if (halves.feed_forward != LayerKindHalves::kNone)
            bytes[kind] += sent(*dense_steps(shard, kinds.plain_layer(halves, halves.feed_forward)), Piece::dense);
    }
    return bytes;
}

TracePointer ShardLayers::dense_steps(const PieceSizes& shard, std::size_t plain_layer, RingParts parts) {
    PieceSizes sizes = with_kept_steps(shard);
    TracePointer trace = state_->dense_trace(sizes, parts == RingParts::two ? Traced::two_parts : Traced::dense, plain_layer);
    if (parts == RingParts::two) {
        sizes.sequence = sizes.sequence / sizes.cp * 2;
        sizes.cp = 2;
    }
    return state_->under_policies(std::move(trace), sizes, state_->kinds.plain_layers[plain_layer]);
}

TracePointer ShardLayers::prediction_steps(const PieceSizes& shard) {
    const PieceSizes sizes = with_kept_steps(shard);
    return state_->under_policies(state_->dense_trace(sizes, Traced::prediction), sizes, state_->kinds.plain_layers.front());
}

TracePointer ShardLayers::mixture_steps(const PieceSizes& shard, std::size_t layer, double received) {
    const PieceSizes sizes = with_kept_steps(shard);
    TracePointer trace =
        received == 1 ? state_->mixture_trace(sizes, layer, 1) : State::kept(state_->recorded_mixture(sizes, layer, received));
    return state_->under_policies(std::move(trace), sizes, state_->kinds.mixture_layers[layer]);
}

KeptAndTaken ShardLayers::router_part(const Layout& layout) {
    return state_->router_part(layout);
}

StepTable<TensorTrace> ShardLayers::tensor_steps(const Layout& layout) {
    return state_->tensor_steps(layout);
}

}  // namespace mgplan::simulator
