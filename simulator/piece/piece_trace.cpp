#include "simulator/piece/piece_trace.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/context_parallel.hpp"
#include "model/layers/decoder_layer.hpp"
#include "model/layers/expert_bias.hpp"
#include "model/layers/fp8_delayed.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/layers/routing_log.hpp"
#include "model/ops/checks.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "simulator/piece/piece_recorder.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

/// The layer as it is recorded. Features that no device computes are replaced by similar ones that keep the same memory: a norm over the
/// whole width, if ranks share kv heads, by one of each head; ranks that share a kv head, with a gate in their packed rows, by ranks of one
/// kv head each; an odd rotary width by the next even one.
Layer recordable(const ModelSpec& model, Layer layer, const PieceSizes& sizes) {
    auto* const attention = layer.mixer ? std::get_if<Attention>(&*layer.mixer) : nullptr;
    auto* const latent = layer.mixer ? std::get_if<LatentAttention>(&*layer.mixer) : nullptr;
    if (sizes.fuses_windows && (attention != nullptr || latent != nullptr)) layer.window = 0;
    if (attention != nullptr) {
        const bool shares_heads = sizes.tp > attention->kv_heads;
        if (attention->qk_norm == QkNorm::per_head || (attention->qk_norm == QkNorm::full_width && shares_heads))
            attention->qk_norm = QkNorm::shared_by_heads;
        if (attention->output_gate && shares_heads) attention->kv_heads = sizes.tp;
    }
    if (latent != nullptr) {
        if (sizes.engine == Engine::megatron && model.kinds.empty())
            latent->query_norm = latent->latent_norms && latent->q_lora_rank == 0;  // as as_built_by() has it
        if (latent->rotary && latent->qk_rope_head_dim % 2 != 0) {
            ++latent->qk_rope_head_dim;
            if (latent->qk_nope_head_dim > 1) --latent->qk_nope_head_dim;
            if (latent->index_heads > 0) latent->index_head_dim = std::max(latent->index_head_dim, latent->qk_rope_head_dim);
        }
    }
    if (feed_forward_as<Mixture>(layer) != nullptr) layer.norms.order = LayerOrder::sequential;
    // The norm that halves share is listed with the mixer, and each of them runs it.
    if (!layer.mixer && layer.norms.order == LayerOrder::parallel_shared_norm) layer.norms.order = LayerOrder::parallel;
    return layer;
}

/// Groups of one rank that report the layout's group sizes.
struct Groups {
    model::RecordingCommunicator tp, cp, ep, etp, tp_cp;
    Groups(const PieceSizes& sizes, PieceRecorder& recorder)
        : tp("tp", static_cast<int>(sizes.tp), 0),
          cp("cp", static_cast<int>(sizes.cp), 0),
          ep("expert:ep", static_cast<int>(sizes.ep), 0),
          etp("expert:tp", static_cast<int>(sizes.etp), 0),
          // A MoE layer is recorded once for every cp: its sums over tp and cp are recorded for one rank too, and cost nothing there.
          tp_cp("tp-cp", std::max(2, static_cast<int>(sizes.tp * sizes.cp)), 0) {
        if (!sizes.keep_steps) return;
        for (model::RecordingCommunicator* group : {&tp, &cp, &ep, &etp, &tp_cp}) {
            group->set_listener(&recorder);
            group->set_wait_listener(&recorder);
        }
    }
};

model::WeightTable weights_of(model::Device& device, const ModelSpec& model, const ChunkLayers& layers, const PieceSizes& sizes,
                              const StageChunk& chunk) {
    const auto* const mixture = layers.decoders.empty() ? nullptr : feed_forward_as<Mixture>(layers.decoders.front());
    ParallelSizes parallel;
    parallel.tp = sizes.tp;
    parallel.cp = sizes.cp;
    // A trace excludes weights: one expert's represent all. Casts to fp8 are recorded for each.
    const bool one_expert = mixture != nullptr && sizes.fp8 == OwnFp8::none;
    parallel.ep = one_expert ? mixture->experts : sizes.ep;
    parallel.etp = sizes.etp;
    model::WeightTable table;
    std::array<std::vector<model::Weight>, 2> followed;  // all weights but experts', and experts'
    const auto experts = mixture != nullptr ? static_cast<std::size_t>(mixture->experts / sizes.ep) : 0;
    for (const Parameter& parameter : chunk_parameters(model, layers, parallel, chunk, true)) {
        const auto& s = parameter.shape;
        const model::Shape shape = s.size() == 1   ? model::Shape{s[0]}
                                   : s.size() == 2 ? model::Shape{s[0], s[1]}
                                                   : model::Shape{s[0], s[1], s[2]};
        model::Weight weight{
            device.empty(shape, sizes.dtype, MemoryCategory::parameters, "parameter"),
            parameter.trained ? device.empty(shape, sizes.grad_dtype, MemoryCategory::gradients, "gradient") : model::Tensor()};
        if (sizes.fp8 != OwnFp8::none && parameter.linear_weight) {
            weight.fp8 = model::make_fp8_weight(device, s[0], s[1], sizes.fp8);
            followed[parameter.expert ? 1 : 0].push_back(weight);
            weight.fp8->fresh = true;  // only the first microbatch of a step casts; this one represents all others
        }
        if (one_expert && parameter.expert && parameter.name.ends_with('0'))
            table.add_of_experts(parameter.name.substr(0, parameter.name.size() - 1), experts, std::move(weight));
        else
            table.add(parameter.name, std::move(weight));
    }
    if (sizes.fp8 != OwnFp8::delayed) return table;
    for (const auto& weights : followed) (void)model::Fp8Delayed(device, weights, 1);
    return table;
}

/// Context parallelism runs one step for each rank, and after the first few they are equal: fewer ranks with the same number of rows each
/// allocate and free the same tensors in the same order at their peak. widen_gathered() corrects tensors with the rows of all ranks.

/// Hierarchical exchange, rings of all-to-alls, which no device computes, is traced as a ring.
CpCommType exchange_traced(const PieceSizes& sizes) {
    return sizes.cp_comm_type == CpCommType::a2a_p2p ? CpCommType::p2p : sizes.cp_comm_type;
}

bool takes_steps(const Layer& layer, const PieceSizes& sizes) {
    // An indexer scores the keys of all ranks at once, and a state sees the whole sequence of a share of the heads.
    const auto* const latent = mixer_as<LatentAttention>(layer);
    if ((latent != nullptr && latent->index_heads > 0) || !layer.mixer || carries_state(*layer.mixer)) return false;
    const bool by_steps = exchange_traced(sizes) == CpCommType::p2p || sizes.cp_comm_type == CpCommType::all_gather;
    return !sizes.whole_ring && by_steps && sizes.cp > kRingParts && sizes.cp % kRingParts == 0;
}

PieceSizes with_few_steps(const Layer& layer, PieceSizes sizes) {
    if (!takes_steps(layer, sizes)) return sizes;
    sizes.sequence = sizes.sequence / sizes.cp * kRingParts;
    sizes.cp = kRingParts;
    return sizes;
}

/// Scales tensors with the rows of all ranks from the traced ranks of a ring to all ranks.
void widen_gathered(PieceTrace& trace, std::int64_t times) {
    for (model::AllocationRecord& tensor : trace.tensors) {
        if (tensor.name == model::kGatheredOverCp || tensor.name == model::kGradientsOverCp) tensor.bytes *= times;
    }
}

/// Copies that every rank sends to each expert; the experts of this rank, the first, get more of them.
std::vector<std::int64_t> uneven_copies(const Mixture& moe, const PieceSizes& sizes, double received) {
    const std::int64_t copies = sizes.rows_outside() * moe.top_k, local = moe.experts / sizes.ep, others = moe.experts - local;
    const auto here =
        std::min(copies, static_cast<std::int64_t>(std::llround(received * static_cast<double>(copies) / static_cast<double>(sizes.ep))));
    const auto share = [](std::int64_t sum, std::int64_t parts, std::int64_t part) { return sum / parts + (part < sum % parts ? 1 : 0); };
    std::vector<std::int64_t> row;
    for (std::int64_t expert = 0; expert < moe.experts; ++expert)
        row.push_back(expert < local ? share(here, local, expert) : share(copies - here, others, expert - local));
    return row;
}

/// Result of running a model on shapes.
struct Recorded {
    std::vector<model::AllocationRecord> tensors;
    std::vector<RecordedRange> ranges;
    PieceSteps steps;
};

/// A rank that records the microbatch that runs on it.
struct RecordingRank {
    const PieceSizes sizes;
    model::MetaDevice device;
    PieceRecorder recorder;
    Groups groups;
    model::RankContext context;
    model::MicrobatchContext microbatch;

    RecordingRank(const ModelSpec& model, const PieceSizes& of)
        : sizes(of),
          device({.keep_allocations = true, .keep_ops = false, .stands_for = sizes.traits}),
          recorder(device, sizes.keep_steps, sizes.engine == Engine::mgplan),
          groups(sizes, recorder) {
        const bool own = sizes.engine == Engine::mgplan;
        context.device = &device;
        context.tp = &groups.tp;
        context.cp = &groups.cp;
        context.ep = &groups.ep;
        context.etp = &groups.etp;
        context.tp_cp = &groups.tp_cp;
        context.sequence_parallel = sizes.sequence_parallel;
        context.cp_comm_type = exchange_traced(sizes);
        context.dtype = sizes.dtype;
        context.norm_epsilon = model.norm_epsilon;
        context.adds_path_in_norms = own;  // Megatron-LM's autograd adds gradients by separate kernels
        // Transformer Engine's queries and keys are separate outputs of a rotation, and autograd joins their gradients by a copy.
        context.attends_packed = own;
        // Transformer Engine gives the gathered rows to the adapter (Megatron-Bridge peft/utils.py, sequence_parallel_input_regather is
        // off).
        context.keeps_gathered_rows = !own;
        context.biases_in_products = own;              // for Megatron-LM see policy fuse_biases
        if (own) context.offloaded = sizes.offloaded;  // for Megatron-LM see the policies of offload_policies.hpp
        microbatch.batch = sizes.micro_batch;
        microbatch.sequence = sizes.sequence;
    }

    [[nodiscard]] Recorded recorded() const {
        Recorded recorded{device.allocations(), recorder.ranges(), recorder.steps()};
        MGPLAN_ASSERT(!recorded.ranges.empty(), "a part of a layer runs ops");
        // Weights exist before anything runs and belong to no piece; those of experts are most allocations.
        const std::int64_t begin = recorded.ranges.front().begin;
        std::erase_if(recorded.tensors, [begin](const model::AllocationRecord& tensor) {
            const bool of_weight = tensor.category == MemoryCategory::parameters || tensor.category == MemoryCategory::gradients;
            return of_weight && tensor.taken < begin;
        });
        return recorded;
    }
};

/// Runs a layer's only half.
Recorded run_half(const ModelSpec& model, const Layer& layer, const PieceSizes& sizes, model::RoutingLog* routing) {
    RecordingRank rank(model, sizes);
    std::optional<model::ExpertBiases> biases;
    if (const auto* const mixture = feed_forward_as<Mixture>(layer); mixture != nullptr && mixture->expert_bias)
        rank.context.expert_biases =
            &biases.emplace(rank.device, std::vector<std::int64_t>{0}, mixture->experts, model::statistics_dtype(sizes.dtype));
    rank.context.routing_log = routing;
    // Blocks that layers share are listed with the embedding.
    const model::WeightTable weights = weights_of(rank.device, model, {{layer}, {}}, sizes, {.embedding = true, .decoders = 1});
    const model::DecoderLayer half(model::layer_site(model, layer, weights, "decoder.layers.0.", 0, sizes.modules));
    model::DecoderLayer::Saved saved;
    rank.device.set_listener(&rank.recorder);
    const auto stream = [&] {
        return rank.device.empty({sizes.rows_outside(), model.stream_width()}, sizes.dtype, MemoryCategory::activations, "residual stream");
    };
    // Parallel halves both read the layer's input and its output's gradient; their gradients of the input are added in the mixer.
    const bool beside = layer.norms.order != LayerOrder::sequential;
    model::Tensor x = stream();
    if (layer.mixer) {
        (void)half.attend(rank.context, rank.microbatch, x, saved);
        x = {};
        model::Tensor dy = stream();
        (void)half.attend_backward(rank.context, rank.microbatch, std::move(dy), saved, beside ? stream() : model::Tensor());
    } else {
        (void)half.transform(rank.context, rank.microbatch, x, beside ? stream() : x, saved);
        if (!beside) x = {};
        const model::Tensor of_both = beside ? stream() : model::Tensor();
        (void)half.transform_backward(rank.context, rank.microbatch, beside ? of_both : stream(), saved);
    }
    return rank.recorded();
}

/// Runs embedding, norm, loss and `depths` of multi-token prediction.
Recorded run_ends(const ModelSpec& model, const std::optional<Layer>& prediction, const PieceSizes& sizes, std::int64_t depths,
                  bool recomputed) {
    RecordingRank rank(model, sizes);
    const StageChunk contents{.embedding = true, .mtp = depths, .loss = true};
    const ChunkLayers layers{{}, prediction};
    model::RecomputeChoice recompute;
    recompute.modules = sizes.modules;
    if (recomputed) recompute.full = RecomputeMethod::uniform;
    const model::WeightTable weights = weights_of(rank.device, model, layers, sizes, contents);
    model::ModelChunk chunk(model, layers, contents, weights, recompute);
    const auto ids_of = [&](std::string_view name) {
        return rank.device.empty({sizes.rows()}, Dtype::int32, MemoryCategory::activations, name);
    };
    const model::Tensor ids = ids_of("token ids"), targets = ids_of("target ids");
    for (std::int64_t depth = 0; depth < depths; ++depth) rank.microbatch.mtp_targets.push_back(ids_of("target ids"));
    model::ChunkSaved saved;
    rank.device.set_listener(&rank.recorder);
    (void)chunk.forward(rank.context, rank.microbatch, ids, targets, saved);
    (void)chunk.backward(rank.context, rank.microbatch, {}, 1, ids, targets, saved);
    return rank.recorded();
}

bool is_backward(const RecordedRange& range) {
    return range.name.ends_with("backward");
}

/// A position in the recording: both members grow with time.
struct Instant {
    std::int64_t clock = 0;
    std::size_t step = 0;
    auto operator<=>(const Instant&) const = default;
};

Instant begin_of(const RecordedRange& range) {
    return {range.begin, range.first_step};
}

Instant end_of(const RecordedRange& range) {
    return {range.end, range.end_step};
}

void add_piece(std::vector<PieceRange>& pieces, const Recorded& recorded, Piece piece, bool backward, std::int64_t layer, Instant begin,
               Instant end) {
    const auto at = [&](Instant instant) { return recorded.steps.begin() + static_cast<std::ptrdiff_t>(instant.step); };
    pieces.push_back({piece, backward, layer, begin.clock, end.clock, PieceSteps(at(begin), at(end))});
}

/// Adds the parts of a head before and after its loss, and the loss itself. Ranges are sorted by their beginning.
void add_head(const Recorded& recorded, std::size_t head, std::vector<PieceRange>& pieces) {
    const std::vector<RecordedRange>& ranges = recorded.ranges;
    const bool backward = is_backward(ranges[head]);
    Instant first = end_of(ranges[head]), last = begin_of(ranges[head]);
    for (std::size_t i = head + 1; i < ranges.size() && ranges[i].depth > ranges[head].depth; ++i) {
        // The GEMMs that merge streams are part of the norm.
        if (ranges[i].depth > ranges[head].depth + 1 || ranges[i].name.starts_with("gate")) continue;
        first = std::min(first, begin_of(ranges[i]));
        last = std::max(last, end_of(ranges[i]));
        if (ranges[i].name.starts_with("loss"))
            add_piece(pieces, recorded, Piece::loss, backward, 0, begin_of(ranges[i]), end_of(ranges[i]));
    }
    add_piece(pieces, recorded, Piece::norm, backward, 0, backward ? last : begin_of(ranges[head]),
              backward ? end_of(ranges[head]) : first);
}

/// Adds one depth's pieces around its layer, which has only a mixer.
void add_depth(const Recorded& recorded, std::size_t mtp, std::vector<PieceRange>& pieces) {
    const std::vector<RecordedRange>& ranges = recorded.ranges;
    const RecordedRange& depth = ranges[mtp];
    const bool backward = is_backward(depth);
    const auto within = [&](std::string_view name) -> const RecordedRange* {
        for (std::size_t i = mtp + 1; i < ranges.size() && ranges[i].depth > depth.depth; ++i) {
            if (ranges[i].name == name) return &ranges[i];
        }
        return nullptr;
    };
    const auto at = [&](std::string_view name) -> const RecordedRange& {
        const RecordedRange* range = within(name);
        MGPLAN_ASSERT(range != nullptr, name);
        return *range;
    };
    const auto add = [&](Piece piece, Instant begin, Instant end) {
        add_piece(pieces, recorded, piece, backward, depth.number, begin, end);
    };
    const auto add_front = [&](Instant begin, Instant end, const RecordedRange& embedding) {
        add(Piece::mtp_front, begin, end);
        PieceSteps& steps = pieces.back().steps;
        const auto first = steps.begin() + static_cast<std::ptrdiff_t>(embedding.first_step - begin.step);
        steps.erase(first, first + static_cast<std::ptrdiff_t>(embedding.end_step - embedding.first_step));
    };
    if (!backward) {
        const RecordedRange &embedding = at("mtp embedding forward"), &loss = at("loss forward");
        add(Piece::mtp_embedding, begin_of(embedding), end_of(embedding));
        add_front(begin_of(depth), begin_of(at("attention forward")), embedding);
        add(Piece::mtp_end, end_of(at("attention forward")), begin_of(loss));
        add(Piece::mtp_rest, end_of(loss), end_of(depth));
        return;
    }
    const RecordedRange &embedding = at("mtp embedding backward"), &layer = at("attention backward");
    const RecordedRange* again = within("attention forward");
    add(Piece::mtp_embedding, begin_of(embedding), end_of(embedding));
    add(Piece::mtp_end, end_of(at("loss backward")), begin_of(again != nullptr ? *again : layer));
    add(Piece::mtp_rest, again != nullptr ? end_of(*again) : begin_of(layer), begin_of(layer));
    add_front(end_of(layer), end_of(depth), embedding);
}

}  // namespace

const PieceRange& PieceTrace::range(Piece piece, bool backward, std::int64_t layer) const {
    const PieceRange* found = nullptr;
    for (const PieceRange& range : pieces) {
        if (range.piece != piece || range.backward != backward || (layer >= 0 && range.layer != layer)) continue;
        if (found == nullptr || range.layer > found->layer) found = &range;
    }
    MGPLAN_ASSERT(found != nullptr, "the trace holds this piece");
    return *found;
}

PieceRange& PieceTrace::range(Piece piece, bool backward, std::int64_t layer) {
    return const_cast<PieceRange&>(std::as_const(*this).range(piece, backward, layer));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

PieceTrace trace_ends(const ModelSpec& model, const PieceSizes& sizes) {
    Recorded recorded = run_ends(model, {}, sizes, 0, false);
    PieceTrace trace;
    trace.tensors = std::move(recorded.tensors);
    for (std::size_t i = 0; i < recorded.ranges.size(); ++i) {
        const RecordedRange& range = recorded.ranges[i];
        if (range.name.starts_with("embedding"))
            add_piece(trace.pieces, recorded, Piece::embedding, is_backward(range), 0, begin_of(range), end_of(range));
        else if (range.name.starts_with("head"))
            add_head(recorded, i, trace.pieces);
    }
    return trace;
}

PieceTrace trace_prediction(const ModelSpec& model, const LayerHalf& mixer, const PieceSizes& sizes, bool recomputed) {
    ModelSpec few = model;
    few.mtp_layers = std::min(model.mtp_layers, kMostDepths);
    few.mtp_repeated = false;  // a depth runs the same ops whether or not it shares weights
    few.window_layers.clear();
    Layer traced = recordable(few, mixer.layer, sizes);
    if (!sizes.fuses_windows) traced.window = few.window_of_layer(1);
    Recorded recorded = run_ends(few, traced, with_few_steps(traced, sizes), few.mtp_layers, recomputed);
    PieceTrace trace;
    trace.tensors = std::move(recorded.tensors);
    for (std::size_t i = 0; i < recorded.ranges.size(); ++i) {
        if (recorded.ranges[i].name.starts_with("head")) add_head(recorded, i, trace.pieces);
        if (recorded.ranges[i].name == "mtp forward" || recorded.ranges[i].name == "mtp backward") add_depth(recorded, i, trace.pieces);
    }
    // A recomputed layer frees its tensors as soon as it has run; tensors that it keeps are counted with its layer.
    for (const PieceRange& end : trace.pieces) {
        if (end.piece != Piece::mtp_end || end.backward) continue;
        const std::int64_t layer = trace.range(Piece::mtp_front, false, end.layer).end;
        for (model::AllocationRecord& tensor : trace.tensors) {
            const bool of_layer = tensor.taken >= layer && tensor.taken < end.begin;
            if (of_layer && end.contains(tensor.returned)) tensor.returned = end.begin - 1;
        }
    }
    return trace;
}

PieceTrace without_steps(const PieceTrace& trace) {
    PieceTrace result;
    result.tensors = trace.tensors;
    result.pieces.reserve(trace.pieces.size());
    for (const PieceRange& range : trace.pieces)
        result.pieces.push_back({range.piece, range.backward, range.layer, range.begin, range.end, {}});
    return result;
}

std::optional<PieceTrace> with_rows(const PieceTrace& one, const PieceTrace& two, std::int64_t rows, std::int64_t rows_of_one,
                                    bool with_steps) {
    if (one.tensors.size() != two.tensors.size()) return std::nullopt;
    PieceTrace result = with_steps ? one : without_steps(one);
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
        const model::AllocationRecord &a = one.tensors[i], &b = two.tensors[i];
        if (a.taken != b.taken || a.returned != b.returned) return std::nullopt;
        grow_size(result.tensors[i].bytes, b.bytes, rows, rows_of_one);
    }
    if (!with_steps) return result;
    if (one.pieces.size() != two.pieces.size()) return std::nullopt;
    for (std::size_t i = 0; i < one.pieces.size(); ++i) {
        if (!grow_steps(result.pieces[i].steps, two.pieces[i].steps, rows, rows_of_one)) return std::nullopt;
    }
    return result;
}

PieceTrace trace_half(const ModelSpec& model, const LayerHalf& half, const PieceSizes& sizes, double received) {
    const Layer layer = recordable(model, half.layer, sizes);
    PieceSizes traced = with_few_steps(layer, sizes);
    std::optional<model::RoutingLog> routing;
    if (!layer.mixer) {
        traced.sequence = sizes.rows();
        traced.micro_batch = traced.cp = 1;
    }
    if (received > 1) {
        const Mixture& mixture = *feed_forward_as<Mixture>(layer);
        const auto ep = static_cast<double>(sizes.ep), tp = static_cast<double>(sizes.tp);
        // Lists the number of rows from every source to every expert; if that list would be huge, or `received` exceeds what all sources
        // send, traces the same total number of rows instead, which overestimates.
        if (received > ep || static_cast<double>(sizes.etp) * ep * static_cast<double>(mixture.experts) > 1e6)
            traced.sequence = static_cast<std::int64_t>(std::ceil(static_cast<double>(traced.sequence) * received / tp)) * sizes.tp;
        else
            routing.emplace().assume_alike(uneven_copies(mixture, sizes, received));
    }
    Recorded recorded = run_half(model, layer, traced, routing ? &*routing : nullptr);
    PieceTrace trace;
    trace.tensors = std::move(recorded.tensors);
    for (const RecordedRange& range : recorded.ranges) {
        if (range.depth == 0) add_piece(trace.pieces, recorded, piece_of(half), is_backward(range), 0, begin_of(range), end_of(range));
    }
    if (takes_steps(layer, sizes)) widen_gathered(trace, sizes.cp / kRingParts);
    return trace;
}

}  // namespace mgplan::simulator
