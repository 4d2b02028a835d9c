#include "simulator/memory/chunk_weights.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

using Kind = ChunkStep::Kind;
using Drop = ChunkStep::Drop;

/// First `a`, then `b`: then() of profiles summed over categories.
MemoryDelta then(const MemoryDelta& a, const MemoryDelta& b) {
    return {a.net + b.net, std::max(a.peak, a.net + b.peak)};
}

/// If each repetition adds memory, the last one has the peak; otherwise the first.
MemoryDelta repeat(const MemoryDelta& a, std::int64_t times) {
    return {times * a.net, a.peak + std::max<std::int64_t>(0, (times - 1) * a.net)};
}

// Slots: a forward has an even number, its backward the next odd one.
constexpr std::size_t kNorm = 0, kPredictingNorm = 2, kLoss = 4, kEmbedding = 6, kIds = 8, kReceive = 10, kGive = 11, kLosses = 12;
constexpr std::size_t kDepths = 13, kSlotsOfDepth = 6;
// Slots of each kind of layer: forward, backward, forwards that drop all or all except their input; its streams freed and taken again.
constexpr std::size_t kLayers = kDepths + kSlotsOfDepth * static_cast<std::size_t>(kMostDepths), kSlotsOfLayer = 6;

}  // namespace

MemoryDelta delta_of(const OpProfile& profile) {
    return {profile.net_total(), profile.peak};
}

PassDeltas deltas_of(const PassProfile& profile) {
    return {delta_of(profile.forward), delta_of(profile.backward)};
}

std::optional<std::size_t> StepDeltas::slot_of(const ChunkStep& step) {
    const std::size_t backward = step.backward ? 1 : 0;
    const auto of_depth = [&](std::size_t part) {
        return kDepths + static_cast<std::size_t>(step.depth) * kSlotsOfDepth + part + backward;
    };
    switch (step.kind) {
        case Kind::ids:
            return kIds + backward;
        case Kind::receive:
            return kReceive;
        case Kind::give:
            return kGive;
        case Kind::losses:
            return kLosses;
        case Kind::discard:
        case Kind::remake:
            return kLayers + kSlotsOfLayer * step.layer_kind + 4 + backward;
        case Kind::rest:
            return std::nullopt;
        case Kind::layer: {
            const std::size_t layer = kLayers + kSlotsOfLayer * step.layer_kind;
            return layer + (step.drop == Drop::none ? backward : step.drop == Drop::but_input ? 2U : 3U);
        }
        case Kind::piece:
            break;
    }
    switch (step.piece) {
        case Piece::norm:
            return (step.predicting ? kPredictingNorm : kNorm) + backward;
        case Piece::loss:
            return kLoss + backward;
        case Piece::mtp_front:
            return of_depth(0);
        case Piece::mtp_end:
            return of_depth(2);
        case Piece::mtp_rest:
            return of_depth(4);
        default:
            return kEmbedding + backward;
    }
}

void StepDeltas::set_layer(std::size_t kind, const PassDeltas& layer) {
    const std::size_t first = kLayers + kSlotsOfLayer * kind;
    deltas_[first] = layer.forward;
    deltas_[first + 1] = layer.backward;
    deltas_[first + 2] = {stream_, layer.forward.peak};
    deltas_[first + 3] = {0, layer.forward.peak};
    const std::int64_t streams = streams_of_layer_[kind];
    deltas_[first + 4] = {-streams, 0};
    deltas_[first + 5] = {streams, streams};
}

StepDeltas::StepDeltas(const ShardProfiles& shard, bool recomputed)
    : stream_(shard.stream), streams_of_layer_(shard.streams_of_layer), deltas_(kLayers + kSlotsOfLayer * shard.layers.size()) {
    const auto put = [&](ChunkStep step) {
        const auto slot = slot_of(step);
        deltas_[*slot] = delta_of(profile_of_step(shard, step, recomputed));
    };
    for (const bool backward : {false, true}) {
        for (const Piece piece : {Piece::norm, Piece::loss, Piece::embedding}) put({.piece = piece, .backward = backward});
        put({.piece = Piece::norm, .backward = backward, .predicting = true});
        put({.kind = Kind::ids, .backward = backward});
        const auto& depths = (recomputed ? shard.recomputed_prediction : shard.prediction).depths;
        for (std::int64_t depth = 0; depth < std::min(kMostDepths, std::ssize(depths)); ++depth) {
            for (const Piece piece : {Piece::mtp_front, Piece::mtp_end, Piece::mtp_rest})
                put({.piece = piece, .backward = backward, .depth = depth});
        }
    }
    for (const Kind kind : {Kind::receive, Kind::give, Kind::losses}) put({.kind = kind});
    for (std::size_t kind = 0; kind < shard.layers.size(); ++kind) set_layer(kind, deltas_of(shard.layers[kind]));
}

void StepDeltas::set_mixture(std::size_t kind, const PassDeltas& mixer, const PassDeltas& mixture) {
    set_layer(kind, {then(mixer.forward, mixture.forward), then(mixture.backward, mixer.backward)});
}

ChunkRecipe::ChunkRecipe(const ChunkContents& contents, const ChunkRecompute* full) {
    const ChunkSteps steps = chunk_steps(contents, full);
    forward_ = fold(steps.forward);
    backward_ = fold(steps.backward);
}

ChunkRecipe::Pass ChunkRecipe::fold(const std::vector<ChunkStep>& steps) {
    // A recomputed block of equal layers runs forward, frees its output and runs backward.
    constexpr std::size_t kLongestPeriod = 4;
    Pass pass;
    for (const ChunkStep& step : steps) {
        const auto slot = StepDeltas::slot_of(step);
        if (!slot) continue;
        const auto add = [&](std::size_t of, std::int64_t count) {
            if (!pass.runs.empty() && pass.runs.back().slot == of)
                pass.runs.back().count += count;
            else
                pass.runs.push_back({static_cast<std::uint16_t>(of), count});
        };
        // A block's output stays, so it is not taken again.
        if (step.kind == Kind::remake && step.ends_block) add(kGive, 1);
        add(*slot, step.count);
        if (step.kind == Kind::discard && step.ends_block) add(kReceive, 1);
    }
    const auto turns = [&](std::size_t begin, std::size_t period) {
        std::size_t end = begin + period;
        while (end < pass.runs.size() && pass.runs[end] == pass.runs[end - period]) ++end;
        return (end - begin) / period;
    };
    for (std::size_t i = 0; i < pass.runs.size();) {
        std::size_t period = 1, times = 1;
        for (std::size_t p = 2; p <= kLongestPeriod && i + 2 * p <= pass.runs.size(); ++p) {
            const std::size_t found = turns(i, p);
            if (found > 1 && found * p > period * times) period = p, times = found;
        }
        if (times == 1 && !pass.loops.empty() && pass.loops.back().times == 1)
            pass.loops.back().end = i + period;
        else
            pass.loops.push_back({i, i + period, static_cast<std::int64_t>(times)});
        i += period * times;
    }
    return pass;
}

MemoryDelta ChunkRecipe::play(const Pass& pass, const StepDeltas& steps) {
    MemoryDelta all;
    for (const Loop& loop : pass.loops) {
        MemoryDelta turn;
        for (std::size_t i = loop.begin; i < loop.end; ++i) {
            const Run& run = pass.runs[i];
            turn = then(turn, repeat(steps.deltas_[run.slot], run.count));
        }
        all = then(all, repeat(turn, loop.times));
    }
    return all;
}

ChunkWeight ChunkRecipe::weigh(const StepDeltas& steps) const {
    const MemoryDelta forward = play(forward_, steps), backward = play(backward_, steps);
    return {forward.net, forward.peak, backward.peak};
}

}  // namespace mgplan::simulator
