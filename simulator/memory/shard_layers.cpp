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

/// Key of a trace, and of what follows from it.
struct TraceKey {
    ShardKey shard;  ///< reduced to what the part depends on: mixer_alone(), feed_forward_alone() or ends_alone()
    Part part{};
    std::int64_t rows = 0;
    std::uint64_t received = 0;  ///< of experts: bits of the argument `received` of trace_half()
    bool with_steps = true;
    bool operator==(const TraceKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [shard_, part_, rows_, received_, with_steps_] = *this;
        return hash_of(shard_, part_, rows_, received_, with_steps_);
    }
};

/// Profiles of everything except experts.
struct DenseProfiles {
    ShardValues<OpProfile> pieces;
    std::vector<OpProfile> prediction, recomputed_prediction;
    StepTable<MemoryDelta> steps;    ///< without experts
    std::vector<PassDeltas> mixers;  ///< by kind of layer; empty for those without a mixer
};

/// Recordings, before any policy: of one and of two sequences; of experts: of two numbers of rows, or of the layout's.
using Recordings = SharedMemo<TraceKey, PieceTrace>;

/// Results computed from recordings under the policies.
struct SharedProfiles {
    SharedMemo<ShardKey, DenseProfiles> dense;
    SharedMemo<TraceKey, PassProfile> halves;
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
    std::unordered_map<TraceKey, PassDeltas, MemoKeyHash> mixture_deltas;
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

    [[nodiscard]] const LayerHalf& half_of(Part part) const {
        return part.what == Part::Of::feed_forward ? kinds.feed_forwards[part.index] : kinds.mixers[part.index];
    }
    [[nodiscard]] bool of_experts(Part part) const { return part.what == Part::Of::feed_forward && half_of(part).mixture; }

    /// The layer passed to the policies of a part. Those of the ends read only what all layers share.
    [[nodiscard]] const Layer& layer_of(Part part) const {
        const bool of_half = part.what == Part::Of::mixer || part.what == Part::Of::feed_forward;
        return of_half ? half_of(part).layer : kinds.first_half().layer;
    }

    [[nodiscard]] TraceKey trace_key(const PieceSizes& sizes, Part part, double received = 1) const {
        const bool mixture = of_experts(part);
        const ShardKey shard = part.what == Part::Of::feed_forward ? feed_forward_alone(sizes, mixture)
                               : part.what == Part::Of::ends       ? ends_alone(sizes)
                                                                   : mixer_alone(sizes);
        return {shard, part, sizes.rows(), mixture ? std::bit_cast<std::uint64_t>(received) : 0, mixture ? sizes.keep_steps : true};
    }

    TracePointer under_policies(TracePointer trace, const PieceSizes& sizes, Part part) const {
        const bool megatron = sizes.engine == Engine::megatron;
        const bool assumes_fp8 = !megatron && sizes.keep_steps && sizes.fp8 == OwnFp8::none && quantised(workload.training.precision);
        if (!megatron && !assumes_fp8) return trace;
        const PolicyContext context{workload.model, layer_of(part), workload.training, sizes};
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

    [[nodiscard]] PieceTrace trace_now(PieceSizes sizes, Part part, double received) const {
        if (!of_experts(part)) sizes.keep_steps = true;
        switch (part.what) {
            case Part::Of::mixer:
            case Part::Of::feed_forward:
                return trace_half(workload.model, half_of(part), sizes, received);
            case Part::Of::ends:
                return trace_ends(workload.model, sizes);
            case Part::Of::prediction:
            case Part::Of::recomputed_prediction:
                break;
        }
        return trace_prediction(workload.model, kinds.mixer_of_prediction(), sizes, part.what == Part::Of::recomputed_prediction);
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

    /// A part's recording for exactly these sizes, before the policies.
    const PieceTrace& recorded(const PieceSizes& sizes, Part part, double received = 1) {
        TraceKey key = trace_key(sizes, part, received);
        key.shard.switches = {};
        return recordings->of(key, [&] { return trace_now(sizes, part, received); });
    }

    /// A part's trace. Includes steps if `sizes` requests them.
    TracePointer trace_of(const PieceSizes& sizes, Part part, double received = 1) {
        return of_experts(part) ? mixture_trace(sizes, part, received) : dense_trace(sizes, part);
    }

    /// Larger micro-batches are extrapolated from the traces of one and two sequences unless works_by_blocks().
    TracePointer dense_trace(const PieceSizes& sizes, Part part) {
        const auto of = [&](std::int64_t micro_batch) -> const PieceTrace& {
            PieceSizes few = sizes;
            few.micro_batch = micro_batch;
            return recorded(few, part);
        };
        if (sizes.micro_batch <= 2) return kept(of(sizes.micro_batch));
        if (sizes.engine == Engine::mgplan && works_by_blocks(of(1))) return kept(of(sizes.micro_batch));
        if (auto trace = with_rows(of(1), of(2), sizes.micro_batch, 1, sizes.keep_steps)) return made(*std::move(trace));
        return made(trace_now(sizes, part, 1));
    }

    /// Extrapolates from the traces of two numbers of rows, both large enough for scratch with a size limit, and divisible into an even
    /// split.
    TracePointer mixture_trace(const PieceSizes& sizes, Part part, double received) {
        constexpr std::int64_t kEnough = 8192;
        const std::int64_t unit = workload.model.moe->experts * (sizes.sequence_parallel ? sizes.tp : 1);
        const std::int64_t rows = (kEnough * (sizes.sequence_parallel ? sizes.tp : 1) + unit - 1) / unit * unit;
        const auto of = [&](std::int64_t count) -> const PieceTrace& {
            PieceSizes few = sizes;
            few.sequence = count;
            few.micro_batch = few.cp = 1;
            few.keep_steps = received == 1;
            return recorded(few, part, received);
        };
        // With few copies for each expert the rounding of the even split matters.
        const std::int64_t copies = sizes.rows_outside() * workload.model.moe->top_k, experts = workload.model.moe->experts;
        if (copies % experts != 0 && copies < 64 * experts) return kept(recorded(sizes, part, received));
        if (auto trace = with_rows(of(rows), of(2 * rows), sizes.rows(), rows, sizes.keep_steps)) return made(*std::move(trace));
        return kept(recorded(sizes, part, received));
    }

    /// trace_of() after the policies.
    TracePointer record(const PieceSizes& sizes, Part part, double received = 1) {
        return under_policies(trace_of(sizes, part, received), sizes, part);
    }

    const PassProfile& half_profile(const PieceSizes& sizes, Part part, double received = 1) {
        return shared->halves.of(trace_key(sizes, part, received), [&] {
            return piece_profiles(*record(sizes, part, received))[static_cast<std::size_t>(piece_of(half_of(part)))];
        });
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
        DenseProfiles profiles;
        for (std::size_t i = 0; i < kinds.mixers.size(); ++i) profiles.pieces.mixers.push_back(half_profile(sizes, {Part::Of::mixer, i}));
        for (std::size_t i = 0; i < kinds.feed_forwards.size(); ++i) {
            const Part part{Part::Of::feed_forward, i};
            profiles.pieces.feed_forwards.push_back(of_experts(part) ? PassProfile{} : half_profile(sizes, part));
        }
        profiles.pieces.set_ends(piece_profiles(*record(sizes, {Part::Of::ends})));
        if (workload.model.mtp_layers > 0) {
            profiles.prediction = prediction_profiles(*record(sizes, {Part::Of::prediction}));
            profiles.recomputed_prediction = prediction_profiles(*record(sizes, {Part::Of::recomputed_prediction}));
        }
        profiles.steps = deltas_of(shard_profiles_of(sizes, profiles, profiles.pieces).steps);
        for (const LayerKindHalves& kind : kinds.kinds) profiles.mixers.push_back(deltas_of(profiles.pieces.mixer(kind)));
        return profiles;
    }

    [[nodiscard]] ShardProfiles shard_profiles_of(const PieceSizes& sizes, const DenseProfiles& dense,
                                                  const ShardValues<OpProfile>& pieces) const {
        ShardProfiles shard = shard_profiles(kinds, pieces, sizes, workload.model.hidden, workload.model.streams());
        shard.steps.set_predictions(false, dense.prediction);
        shard.steps.set_predictions(true, dense.recomputed_prediction);
        return shard;
    }

    KeptAndTaken router_part(const Layout& layout) {
        if (kinds.mixture() == LayerKindHalves::kNone) return {};
        const PieceSizes sizes = sizes_of(layout);
        const double received = received_at(layout, 0);
        const Part part{Part::Of::feed_forward, static_cast<std::size_t>(kinds.mixture())};
        auto [entry, fresh] = routers.try_emplace(trace_key(sizes, part, received));
        if (fresh) {
            // mgplan's graphs contain the shared experts; Megatron-LM's may leave them to run in parallel with the dispatch.
            entry->second = simulator::router_part(*record(sizes, part, received), stream_bytes(sizes), layout.engine == Engine::mgplan);
        }
        return entry->second;
    }

    void steps(const Layout& layout, int node, StepTable<MemoryDelta>& steps) {
        const PieceSizes sizes = sizes_of(layout);
        const DenseProfiles& dense = dense_profiles(sizes);
        steps = dense.steps;
        if (!workload.model.moe) return;
        const double received = received_at(layout, node);
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            const LayerKindHalves& halves = kinds.kinds[kind];
            if (halves.mixture) steps.set_layer(kind, nested(dense.mixers[kind], mixture_deltas_of(sizes, halves.feed_forward, received)));
        }
    }

    const PassDeltas& mixture_deltas_of(const PieceSizes& sizes, int feed_forward, double received) {
        const Part part{Part::Of::feed_forward, static_cast<std::size_t>(feed_forward)};
        const auto [entry, fresh] = mixture_deltas.try_emplace(trace_key(sizes, part, received));
        if (fresh) entry->second = deltas_of(half_profile(sizes, part, received));
        return entry->second;
    }

    const ShardProfiles& profiles(const Layout& layout, int node) {
        const double received = received_at(layout, node);
        auto [entry, fresh] = shards.try_emplace(TraceKey{.shard = key_of(layout), .received = std::bit_cast<std::uint64_t>(received)});
        if (!fresh) return entry->second;
        const PieceSizes sizes = sizes_of(layout);
        const DenseProfiles& dense = dense_profiles(sizes);
        ShardValues<OpProfile> pieces = dense.pieces;
        for (std::size_t i = 0; i < kinds.feed_forwards.size(); ++i) {
            const Part part{Part::Of::feed_forward, i};
            if (of_experts(part)) pieces.feed_forwards[i] = half_profile(sizes, part, received);
        }
        return entry->second = shard_profiles_of(sizes, dense, pieces);
    }

    [[nodiscard]] std::int64_t stream_bytes(const PieceSizes& sizes) const {
        return sizes.rows_outside() * workload.model.stream_width() * bytes_of(sizes.dtype);
    }

    StepTable<TensorTrace> tensor_steps(const Layout& layout, bool named) {
        const PieceSizes sizes = sizes_of(layout);
        ShardTraces traces;
        for (std::size_t i = 0; i < kinds.mixers.size(); ++i) traces.mixers.push_back(record(sizes, {Part::Of::mixer, i}));
        for (std::size_t i = 0; i < kinds.feed_forwards.size(); ++i)
            traces.feed_forwards.push_back(record(sizes, {Part::Of::feed_forward, i}, received_at(layout, 0)));
        traces.ends = record(sizes, {Part::Of::ends});
        if (workload.model.mtp_layers > 0) {
            const bool recomputed = layout.recompute == Recompute::full &&
                                    layout.recompute_method.value_or(RecomputeMethod::uniform) == RecomputeMethod::uniform;
            traces.prediction = record(sizes, {recomputed ? Part::Of::recomputed_prediction : Part::Of::prediction});
        }
        return simulator::tensor_steps(kinds, traces, sizes, stream_bytes(sizes), named);
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
    const auto add = [&](Part::Of what, int half, std::int64_t& sum) {
        if (half == LayerKindHalves::kNone) return;
        const Part part{what, static_cast<std::size_t>(half)};
        sum += sent(*record(shard, part), piece_of(state_->half_of(part)));
    };
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        add(Part::Of::mixer, kinds.kinds[kind].mixer, bytes[kind]);
        add(Part::Of::feed_forward, kinds.kinds[kind].feed_forward, bytes[kind]);
    }
    return bytes;
}

TracePointer ShardLayers::record(const PieceSizes& shard, Part part, double received) {
    PieceSizes sizes = shard;
    sizes.keep_steps = true;
    if (received == 1) return state_->record(sizes, part);
    return state_->under_policies(State::kept(state_->recorded(sizes, part, received)), sizes, part);
}

KeptAndTaken ShardLayers::router_part(const Layout& layout) {
    return state_->router_part(layout);
}

StepTable<TensorTrace> ShardLayers::tensor_steps(const Layout& layout, bool named) {
    return state_->tensor_steps(layout, named);
}

}  // namespace mgplan::simulator
