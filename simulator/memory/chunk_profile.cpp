#include "simulator/memory/chunk_profile.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;
using Kind = ChunkStep::Kind;

const OpProfile& direction(const PassProfile& profile, bool backward) {
    return backward ? profile.backward : profile.forward;
}

const PassProfile& piece_of(const ShardProfiles& shard, const ChunkStep& step, bool recomputed) {
    const PredictionProfiles& prediction = recomputed ? shard.recomputed_prediction : shard.prediction;
    const auto depth = [&]() -> const DepthProfiles& {
        MGPLAN_ASSERT(static_cast<std::size_t>(step.depth) < prediction.depths.size(), "the prediction was traced");
        return prediction.depths[static_cast<std::size_t>(step.depth)];
    };
    switch (step.piece) {
        case Piece::norm:
            return step.predicting ? prediction.norm : shard.norm;
        case Piece::loss:
            return shard.loss;
        case Piece::mtp_front:
            return depth().front;
        case Piece::mtp_end:
            return depth().end;
        case Piece::mtp_rest:
            return depth().rest;
        default:
            return shard.embedding;
    }
}

/// Bytes that norm and loss take and never free: the losses.
std::int64_t losses_of(const ShardProfiles& shard) {
    const auto rest = [](const PassProfile& piece) { return piece.forward.net_total() + piece.backward.net_total(); };
    return rest(shard.norm) + rest(shard.loss);
}

}  // namespace

OpProfile profile_of_step(const ShardProfiles& shard, const ChunkStep& step, bool recomputed) {
    switch (step.kind) {
        case Kind::ids:
            return change_of(MemoryCategory::activations, step.count * (step.backward ? -shard.ids : shard.ids), step.tensor);
        case Kind::receive:
            return change_of(MemoryCategory::communication, shard.stream, step.tensor);
        case Kind::give:
            return change_of(MemoryCategory::activations, -shard.stream);
        case Kind::discard:
        case Kind::remake: {
            const std::int64_t bytes = step.count * shard.streams_of_layer[step.layer_kind] - (step.ends_block ? shard.stream : 0);
            return change_of(MemoryCategory::activations, step.backward ? bytes : -bytes, "residual streams of a block");
        }
        case Kind::losses:
            return change_of(MemoryCategory::activations, -losses_of(shard));
        case Kind::piece:
            return direction(piece_of(shard, step, recomputed), step.backward);
        case Kind::rest:
            return {};
        case Kind::layer:
            break;
    }
    const OpProfile& layer = direction(shard.layers[step.layer_kind], step.backward);
    if (step.drop == ChunkStep::Drop::none) return repeat(layer, step.count);
    OpProfile dropped = layer;
    const bool keeps_input = step.drop == ChunkStep::Drop::but_input;
    dropped.net = keeps_input ? change_of(MemoryCategory::activations, shard.stream).net : BytesByCategory{};
    return dropped;
}

PieceProfiles piece_profiles(const PieceTrace& trace) {
    PieceProfiles profiles{};
    const TraceProfiles stretches(trace.tensors);
    for (const PieceRange& range : trace.pieces) {
        PassProfile& profile = profiles[static_cast<std::size_t>(range.piece)];
        if (&trace.range(range.piece, range.backward) != &range) continue;
        (range.backward ? profile.backward : profile.forward) = stretches.of(range.begin, range.end);
    }
    return profiles;
}

PredictionProfiles prediction_profiles(const PieceTrace& trace) {
    PredictionProfiles prediction;
    const TraceProfiles stretches(trace.tensors);
    for (const PieceRange& range : trace.pieces) {
        const auto into = [&](PassProfile& profile) {
            (range.backward ? profile.backward : profile.forward) = stretches.of(range.begin, range.end);
        };
        const auto depth = static_cast<std::size_t>(range.layer);
        if (prediction.depths.size() <= depth) prediction.depths.resize(depth + 1);
        if (range.piece == Piece::norm) into(prediction.norm);
        if (range.piece == Piece::mtp_front) into(prediction.depths[depth].front);
        if (range.piece == Piece::mtp_end) into(prediction.depths[depth].end);
        if (range.piece == Piece::mtp_rest) into(prediction.depths[depth].rest);
    }
    return prediction;
}

KeptAndTaken kept_and_taken(const PassProfile& piece) {
    return {piece.forward.net_total(), piece.backward.peak};
}

KeptAndTaken router_part(const PieceTrace& mixture, std::int64_t stream, bool with_shared) {
    const PieceRange &forward = mixture.range(Piece::mixture, false), &backward = mixture.range(Piece::mixture, true);
    const auto first = [&](std::string_view name, std::int64_t begin, std::int64_t end) -> const model::AllocationRecord& {
        const model::AllocationRecord* found = nullptr;
        for (const model::AllocationRecord& tensor : mixture.tensors) {
            const bool there = tensor.name == name && tensor.taken >= begin && tensor.taken < end;
            if (there && (found == nullptr || tensor.taken < found->taken)) found = &tensor;
        }
        MGPLAN_ASSERT(found != nullptr, name);
        return *found;
    };
    KeptAndTaken part{stream, 0};
    const std::int64_t router = first("router logits", forward.begin, forward.end).taken;
    const std::int64_t dispatch = first("token permutation", router, forward.end).taken;
    for (const model::AllocationRecord& tensor : mixture.tensors) {
        const bool of_norm = forward.contains(tensor.taken) && tensor.name.starts_with("norm ");
        const bool of_router = tensor.taken >= (with_shared ? forward.begin : router) && tensor.taken < dispatch;
        if ((of_norm || of_router) && tensor.returned >= backward.begin) part.kept += tensor.bytes;
    }
    const std::int64_t d_logits = first("router logit gradient", backward.begin, backward.end).taken;
    const std::int64_t d_input = first("input gradient", d_logits, backward.end).returned;
    const std::int64_t d_stream = first("norm input gradient", d_logits, backward.end).taken;
    const TraceProfiles stretches(mixture.tensors);
    part.taken = std::max(stretches.of(d_logits, with_shared ? d_stream : d_input).peak, stretches.of(d_stream, backward.end).peak);
    return part;
}

KeptAndTaken ShardProfiles::head() const {
    return kept_and_taken({then(norm.forward, loss.forward), then(loss.backward, norm.backward)});
}

PassProfile mixer_profile(const LayerKinds& kinds, std::span<const PieceProfiles> plain, const LayerKindHalves& kind) {
    if (kind.mixer == LayerKindHalves::kNone) return {};
    const LayerHalf& mixer = kinds.mixers[static_cast<std::size_t>(kind.mixer)];
    return plain[kinds.plain_layer(kind, kind.mixer)][static_cast<std::size_t>(piece_of_mixer(mixer))];
}

ShardProfiles shard_profiles(const LayerKinds& kinds, std::span<const PieceProfiles> plain, std::span<const PieceProfiles> mixtures,
                             const PieceSizes& sizes, std::int64_t hidden, std::int64_t streams) {
    const auto of = [](const PieceProfiles& profiles, Piece piece) -> const PassProfile& {
        return profiles[static_cast<std::size_t>(piece)];
    };
    ShardProfiles shard;
    const std::int64_t stream = sizes.rows_outside() * hidden * bytes_of(sizes.dtype);
    shard.stream = streams * stream;
    shard.ids = sizes.rows() * bytes_of(Dtype::int32);
    const PieceProfiles& first = plain.front();
    shard.embedding = of(first, Piece::embedding);
    shard.norm = of(first, Piece::norm);
    shard.loss = of(first, Piece::loss);
    shard.attention_half = kept_and_taken(of(first, Piece::attention));
    shard.dense_half = kept_and_taken(of(first, Piece::dense));
    if (!mixtures.empty()) shard.mixture_half = kept_and_taken(of(mixtures.front(), Piece::mixture));
    for (const LayerKindHalves& kind : kinds.kinds) {
        PassProfile& layer = shard.layers.emplace_back();
        // Streams after each half-layer; before it their sum, and its norm if that is traced separately.
        const bool mixes = kind.mixer != LayerKindHalves::kNone, feeds = kind.mixture || kind.feed_forward != LayerKindHalves::kNone;
        const int norms = (mixes && kinds.attention_norm_alone ? 1 : 0) + (kind.mixture && kinds.mixture_norm_alone ? 1 : 0);
        shard.streams_of_layer.push_back((((mixes ? 1 : 0) + (feeds ? 1 : 0)) * (streams + 1) + norms) * stream);
        if (kind.mixture && mixtures.empty()) continue;
        const PassProfile mixer = mixer_profile(kinds, plain, kind);
        PassProfile feed_forward;
        if (kind.mixture)
            feed_forward = of(mixtures[LayerKinds::mixture_layer(kind)], Piece::mixture);
        else if (kind.feed_forward != LayerKindHalves::kNone)
            feed_forward = of(plain[kinds.plain_layer(kind, kind.feed_forward)], Piece::dense);
        layer = {then(mixer.forward, feed_forward.forward), then(feed_forward.backward, mixer.backward)};
    }
    return shard;
}

std::int64_t peak_of_layers(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full) {
    const ChunkSteps steps = chunk_steps(contents, full);
    const bool recomputed = recomputes_prediction(full);
    std::int64_t live = 0, most = 0;
    for (const std::vector<ChunkStep>* pass : {&steps.forward, &steps.backward}) {
        for (const ChunkStep& step : *pass) {
            const OpProfile profile = profile_of_step(shard, step, recomputed);
            if (step.kind == Kind::layer) most = std::max(most, live + profile.peak);
            live += profile.net_total();
        }
    }
    return most;
}

PassProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full) {
    const ChunkSteps steps = chunk_steps(contents, full);
    const bool recomputed = recomputes_prediction(full);
    PassProfile chunk;
    for (const ChunkStep& step : steps.forward) chunk.forward = then(chunk.forward, profile_of_step(shard, step, recomputed));
    for (const ChunkStep& step : steps.backward) chunk.backward = then(chunk.backward, profile_of_step(shard, step, recomputed));
    // Received tensors count as communication, but the layer that uses them frees them as activations: the categories are balanced here.
    OpProfile rest;
    for (std::size_t i = 0; i < rest.net.size(); ++i) rest.net[i] = -(chunk.forward.net[i] + chunk.backward.net[i]);
    chunk.backward = then(chunk.backward, rest);
    return chunk;
}

}  // namespace mgplan::simulator
