#include "simulator/memory/chunk_profile.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;
using slots::LayerStep;

KeptAndTaken kept_and_taken(const PassProfile& piece) {
    return {piece.forward.net_total(), piece.backward.peak};
}

}  // namespace

PieceProfiles piece_profiles(const PieceTrace& trace) {
    const TraceProfiles stretches(trace.tensors);
    return piece_values<OpProfile>(trace, [&](const PieceRange& range) { return stretches.of(range.begin, range.end); });
}

std::vector<OpProfile> prediction_profiles(const PieceTrace& trace) {
    const TraceProfiles stretches(trace.tensors);
    return prediction_values<OpProfile>(trace, [&](const PieceRange& range) { return stretches.of(range.begin, range.end); });
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

StreamUse stream_use(const LayerKinds& kinds, const LayerKindHalves& kind) {
    const bool mixes = kind.mixer != LayerKindHalves::kNone, feeds = kind.mixture || kind.feed_forward != LayerKindHalves::kNone;
    const std::int64_t halves = (mixes ? 1 : 0) + (feeds ? 1 : 0);
    return {halves, halves + (mixes && kinds.attention_norm_alone ? 1 : 0) + (kind.mixture && kinds.mixture_norm_alone ? 1 : 0)};
}

ShardProfiles shard_profiles(const LayerKinds& kinds, const ShardValues<OpProfile>& pieces, const PieceSizes& sizes, std::int64_t hidden,
                             std::int64_t streams) {
    const auto activations = [](std::int64_t bytes, std::string_view tensor = {}) {
        return change_of(MemoryCategory::activations, bytes, tensor);
    };
    const std::int64_t one = sizes.rows_outside() * hidden * bytes_of(sizes.dtype), stream = streams * one;
    ShardProfiles shard{{stream, kinds.size()}, {}};
    shard.steps.set_pieces(kinds, pieces);
    std::vector<OpProfile>& steps = shard.steps.values;
    const PassProfile &norm = pieces.norm, &loss = pieces.loss;
    const std::int64_t ids = sizes.rows() * bytes_of(Dtype::int32);
    steps[slots::kTakeIds] = activations(ids, "token ids");
    steps[slots::kFreeIds] = activations(-ids);
    steps[slots::kReceive] = change_of(MemoryCategory::communication, stream, "received activations");
    steps[slots::kReceiveGradient] = change_of(MemoryCategory::communication, stream, "received gradients");
    steps[slots::kGive] = activations(-stream);
    // Norm and loss take the losses and never free them.
    steps[slots::kLosses] =
        activations(-(norm.forward.net_total() + norm.backward.net_total() + loss.forward.net_total() + loss.backward.net_total()));
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const StreamUse use = stream_use(kinds, kinds.kinds[i]);
        const auto set = [&](LayerStep free, LayerStep take, std::int64_t bytes) {
            steps[slots::of_layer(i, free)] = activations(-bytes);
            steps[slots::of_layer(i, take)] = activations(bytes, "residual streams of a block");
        };
        set(LayerStep::free_streams, LayerStep::take_streams, use.halves * stream);
        set(LayerStep::free_streams_but_output, LayerStep::take_streams_but_output, (use.halves - 1) * stream);
        set(LayerStep::free_inputs, LayerStep::take_inputs, use.inputs * one);
        shard.bytes.layers.push_back(steps[slots::of_layer(i, LayerStep::forward)].net_total());
    }
    for (const auto& mixer : pieces.mixers) shard.bytes.mixers.push_back(kept_and_taken(mixer));
    for (const auto& feed_forward : pieces.feed_forwards) shard.bytes.feed_forwards.push_back(kept_and_taken(feed_forward));
    shard.bytes.head = kept_and_taken(nested(norm, loss));
    return shard;
}

StepTable<MemoryDelta> deltas_of(const StepTable<OpProfile>& steps) {
    StepTable<MemoryDelta> deltas;
    deltas.stream = steps.stream;
    for (const OpProfile& step : steps.values) deltas.values.push_back(delta_of(step));
    return deltas;
}

std::int64_t peak_of_layers(const StepTable<OpProfile>& shard, const ChunkSteps& chunk) {
    std::int64_t live = 0, most = 0;
    for (const std::vector<ChunkStep>* pass : {&chunk.forward, &chunk.backward}) {
        for (const ChunkStep& step : *pass) {
            const OpProfile profile = repeat(shard.values[step.slot], step.count);
            if (slots::runs_layer(step.slot)) most = std::max(most, live + profile.peak);
            live += profile.net_total();
        }
    }
    return most;
}

PassProfile chunk_profile(const StepTable<OpProfile>& shard, const ChunkRecipe& chunk) {
    PassProfile profile = chunk.compose(shard.values);
    // Received tensors count as communication, but the layer that uses them frees them as activations: the categories are balanced here.
    OpProfile rest;
    for (std::size_t i = 0; i < rest.net.size(); ++i) rest.net[i] = -(profile.forward.net[i] + profile.backward.net[i]);
    append(profile.backward, rest);
    return profile;
}

}  // namespace mgplan::simulator
