#include "simulator/memory/chunk_steps.hpp"

#include <algorithm>
#include <utility>

namespace mgplan::simulator {
namespace {

using slots::LayerStep;

/// Layers that are recomputed together, or whose streams are; all layers without recompute.
struct Block {
    std::size_t begin, end;
    bool recomputed;
};

std::vector<Block> blocks_of(std::size_t layers, const ChunkRecompute* full) {
    std::vector<Block> blocks;
    const auto wanted = full == nullptr ? 0 : static_cast<std::size_t>(std::max<std::int64_t>(full->layers, 0));
    const bool whole = full != nullptr && !full->streams, uniform = recomputes_prediction(full);
    for (std::size_t i = 0; i < layers;) {
        const std::size_t length = whole ? uniform ? std::max<std::size_t>(wanted, 1) : 1 : wanted > 0 ? wanted : layers;
        const std::size_t end = std::min(i + length, layers);
        blocks.push_back({i, end, uniform || (whole && i < wanted)});
        i = end;
    }
    return blocks;
}

/// Steps of a pass and their layers.
struct PassSteps {
    std::vector<ChunkStep>& steps;
    std::vector<std::int32_t>& layers;
};

/// Merges equal steps in sequence. `layer`: of the first of `count` consecutive layers; kOutside for none.
constexpr std::size_t kOutside = static_cast<std::size_t>(-1);
void add(PassSteps& pass, std::size_t slot, std::int64_t count = 1, std::size_t layer = kOutside) {
    if (count == 0) return;
    for (std::int64_t i = 0; i < count; ++i) pass.layers.push_back(layer == kOutside ? -1 : static_cast<std::int32_t>(layer++));
    std::vector<ChunkStep>& steps = pass.steps;
    if (!steps.empty() && steps.back().slot == slot)
        steps.back().count += count;
    else
        steps.push_back({slot, count});
}

/// Frees the streams of a block's layers, or takes them again; the block's output stays. `first`: free_streams or take_streams.
void add_streams(const ChunkContents& contents, const Block& block, LayerStep first, PassSteps& steps) {
    for (std::size_t i = block.begin, next = i; i < block.end; i = next) {
        while (next < block.end && contents.layers[next] == contents.layers[i]) ++next;
        const auto count = static_cast<std::int64_t>(next - i);
        const std::size_t streams = slots::of_layer(contents.layers[i], first);
        const bool last = next == block.end;
        add(steps, streams, last ? count - 1 : count, i);
        add(steps, streams + 1, last ? 1 : 0, next - 1);
        add(steps, streams + 2, count, i);
    }
}

void add_decoder(const ChunkContents& contents, const ChunkRecompute* full, PassSteps& forward, PassSteps& backward) {
    const auto layer = [&](std::size_t i, LayerStep step) { return slots::of_layer(contents.layers[i], step); };
    const bool streams = full != nullptr && full->streams;
    const std::vector<Block> blocks = blocks_of(contents.layers.size(), full);
    for (const Block& block : blocks) {
        for (std::size_t i = block.begin; i < block.end; ++i) {
            add(forward,
                layer(i, !block.recomputed  ? LayerStep::forward
                         : i == block.begin ? LayerStep::forward_keeping_input
                                            : LayerStep::forward_keeping_nothing),
                1, i);
        }
        if (streams) add_streams(contents, block, LayerStep::free_streams, forward);
    }
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        if (streams) add_streams(contents, *block, LayerStep::take_streams, backward);
        if (block->recomputed) {
            for (std::size_t i = block->begin; i < block->end; ++i) add(backward, layer(i, LayerStep::forward), 1, i);
            add(backward, slots::kGive);  // the block's output is not needed again
        }
        for (std::size_t i = block->end; i-- > block->begin;) add(backward, layer(i, LayerStep::backward), 1, i);
    }
}

/// The traced depth that represents this one of `depths`.
std::int64_t traced_depth(std::int64_t depth, std::int64_t depths) {
    if (depths <= kMostDepths) return depth;
    return depth == 0 ? 0 : depth + 1 == depths ? kMostDepths - 1 : 1;
}

}  // namespace

ChunkSteps chunk_steps(const ChunkContents& contents, const ChunkRecompute* full) {
    ChunkSteps steps;
    PassSteps f{steps.forward, steps.forward_layers}, b{steps.backward, steps.backward_layers};
    const bool again = recomputes_prediction(full);
    const std::size_t predictions = slots::kPredictions + (again ? slots::kStepsOfPrediction : 0);
    const auto part = [&](Piece piece, std::int64_t depth) {
        return predictions + slots::of_prediction(piece, traced_depth(depth, contents.mtp));
    };
    const auto predicted = [&](LayerStep step) { return slots::of_layer(contents.mtp_layer, step); };
    const std::size_t norm = contents.mtp > 0 ? part(Piece::norm, 0) : slots::kNorm;

    add(f, slots::kTakeIds, 2 + contents.further_ids);
    add(f, contents.embedding ? slots::kEmbedding : slots::kReceive);
    add(b, contents.loss ? slots::kLoss + 1 : slots::kReceiveGradient);
    for (std::int64_t i = contents.mtp; i-- > 0;) {
        add(b, slots::kLoss + 1);
        add(b, part(Piece::mtp_end, i) + 1);
        if (again) add(b, predicted(LayerStep::forward));
        add(b, part(Piece::mtp_rest, i) + 1);
        add(b, predicted(LayerStep::backward));
        add(b, part(Piece::mtp_front, i) + 1);
    }
    if (contents.loss) add(b, norm + 1);
    add_decoder(contents, full, f, b);
    if (contents.loss) add(f, norm);
    for (std::int64_t i = 0; i < contents.mtp; ++i) {
        add(f, part(Piece::mtp_front, i));
        add(f, predicted(again ? LayerStep::forward_keeping_input : LayerStep::forward));
        add(f, part(Piece::mtp_end, i));
        add(f, slots::kLoss);
        add(f, part(Piece::mtp_rest, i));
    }
    if (contents.loss) add(f, slots::kLoss);
    // Without the loss, the tensor sent to the next stage; without the embedding, the one sent to the previous stage.
    add(f, contents.loss ? slots::kLosses : slots::kGive);
    add(b, contents.embedding ? slots::kEmbedding + 1 : slots::kGive);
    add(b, slots::kFreeIds, 2 + contents.further_ids);
    return steps;
}

ChunkRecipe::ChunkRecipe(const ChunkContents& contents, const ChunkRecompute* full) : ChunkRecipe(chunk_steps(contents, full)) {}

ChunkRecipe::Pass::Pass(std::vector<ChunkStep> of_pass) : steps(std::move(of_pass)) {
    // A recomputed block of equal layers runs forward, frees its output and runs backward.
    constexpr std::size_t kLongestPeriod = 4;
    const auto turns = [&](std::size_t begin, std::size_t period) {
        std::size_t end = begin + period;
        while (end < steps.size() && steps[end] == steps[end - period]) ++end;
        return (end - begin) / period;
    };
    for (std::size_t i = 0; i < steps.size();) {
        std::size_t period = 1, times = 1;
        for (std::size_t p = 2; p <= kLongestPeriod && i + 2 * p <= steps.size(); ++p) {
            const std::size_t found = turns(i, p);
            if (found > 1 && found * p > period * times) period = p, times = found;
        }
        if (times == 1 && !loops.empty() && loops.back().times == 1)
            loops.back().end = i + period;
        else
            loops.push_back({i, i + period, static_cast<std::int64_t>(times)});
        i += period * times;
    }
}

}  // namespace mgplan::simulator
