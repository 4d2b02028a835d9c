#include "simulator/memory/chunk_steps.hpp"

#include <algorithm>

namespace mgplan::simulator {
namespace {

using Kind = ChunkStep::Kind;
using Drop = ChunkStep::Drop;

/// Layers of one recomputed block; every layer that is not recomputed is a block of 1.
struct Block {
    std::size_t begin, end;
    bool recomputed;
};

std::vector<Block> blocks_of(std::size_t layers, const ChunkRecompute& full) {
    std::vector<Block> blocks;
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(full.layers, 0));
    for (std::size_t i = 0; i < layers;) {
        const bool uniform = full.method == RecomputeMethod::uniform;
        const std::size_t length = uniform ? std::min(std::max<std::size_t>(wanted, 1), layers - i) : 1;
        blocks.push_back({i, i + length, uniform || i < wanted});
        i += length;
    }
    return blocks;
}

ChunkStep piece(Piece which, bool backward, std::int64_t depth = 0, std::int64_t instance = -1) {
    ChunkStep step;
    step.piece = which;
    step.backward = backward;
    step.depth = depth;
    step.instance = instance;
    return step;
}

ChunkStep layer(std::uint16_t kind, bool backward, std::int64_t instance, Drop drop = Drop::none) {
    ChunkStep step;
    step.kind = Kind::layer;
    step.backward = backward;
    step.layer_kind = kind;
    step.instance = instance;
    step.drop = drop;
    return step;
}

ChunkStep tensor(Kind kind, bool backward, std::string_view name = {}) {
    ChunkStep step;
    step.kind = kind;
    step.backward = backward;
    step.tensor = name;
    return step;
}

/// Merges equal consecutive layers into one step.
void add_layer(std::vector<ChunkStep>& steps, const ChunkStep& next) {
    if (!steps.empty() && next.drop == Drop::none) {
        ChunkStep& last = steps.back();
        if (last.kind == Kind::layer && last.layer_kind == next.layer_kind && last.backward == next.backward && last.drop == Drop::none) {
            ++last.count;
            return;
        }
    }
    steps.push_back(next);
}

/// Frees the streams of layers [begin, end), or takes them again.
void add_streams(const ChunkContents& contents, std::size_t begin, std::size_t end, bool backward, std::vector<ChunkStep>& steps) {
    for (std::size_t i = begin; i < end;) {
        std::size_t next = i;
        while (next < end && contents.layers[next] == contents.layers[i]) ++next;
        ChunkStep step = tensor(backward ? Kind::remake : Kind::discard, backward);
        step.layer_kind = contents.layers[i];
        step.instance = static_cast<std::int64_t>(i);
        step.count = static_cast<std::int64_t>(next - i);
        step.ends_block = next == end;
        steps.push_back(step);
        i = next;
    }
}

void add_stream_blocks(const ChunkContents& contents, std::int64_t of_block, ChunkSteps& steps) {
    const std::size_t layers = contents.layers.size();
    const std::size_t length = of_block > 0 ? std::min(static_cast<std::size_t>(of_block), layers) : layers;
    const auto at = [&](std::size_t i, bool backward) { return layer(contents.layers[i], backward, static_cast<std::int64_t>(i)); };
    for (std::size_t begin = 0; begin < layers; begin += length) {
        const std::size_t end = std::min(begin + length, layers);
        for (std::size_t i = begin; i < end; ++i) add_layer(steps.forward, at(i, false));
        add_streams(contents, begin, end, false, steps.forward);
    }
    for (std::size_t begin = layers == 0 ? 0 : (layers - 1) / length * length, end = layers; end > 0; end = begin, begin -= length) {
        add_streams(contents, begin, end, true, steps.backward);
        for (std::size_t i = end; i-- > begin;) add_layer(steps.backward, at(i, true));
        if (begin == 0) break;
    }
}

void add_decoder(const ChunkContents& contents, const ChunkRecompute* full, ChunkSteps& steps) {
    const std::size_t layers = contents.layers.size();
    const auto at = [&](std::size_t i, bool backward, Drop drop = Drop::none) {
        return layer(contents.layers[i], backward, static_cast<std::int64_t>(i), drop);
    };
    if (full != nullptr && full->streams) {
        add_stream_blocks(contents, full->layers, steps);
        return;
    }
    if (full == nullptr) {
        for (std::size_t i = 0; i < layers; ++i) add_layer(steps.forward, at(i, false));
        for (std::size_t i = layers; i-- > 0;) add_layer(steps.backward, at(i, true));
        return;
    }
    const std::vector<Block> blocks = blocks_of(layers, *full);
    for (const Block& block : blocks) {
        for (std::size_t i = block.begin; i < block.end; ++i)
            add_layer(steps.forward, at(i, false, !block.recomputed ? Drop::none : i == block.begin ? Drop::but_input : Drop::all));
    }
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        if (block->recomputed) {
            for (std::size_t i = block->begin; i < block->end; ++i) add_layer(steps.backward, at(i, false));
            steps.backward.push_back(tensor(Kind::give, true));  // the block's output is not needed again
        }
        for (std::size_t i = block->end; i-- > block->begin;) add_layer(steps.backward, at(i, true));
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
    std::vector<ChunkStep>&f = steps.forward, &b = steps.backward;
    const bool again = recomputes_prediction(full);
    const auto layers = static_cast<std::int64_t>(contents.layers.size());
    const auto norm = [&](bool backward) {
        ChunkStep step = piece(Piece::norm, backward);
        step.predicting = contents.mtp > 0;
        return step;
    };

    const auto ids = [&](bool backward) {
        ChunkStep step = tensor(Kind::ids, backward, "token ids");
        step.count = 2 + contents.further_ids;
        return step;
    };

    f.push_back(ids(false));
    f.push_back(contents.embedding ? piece(Piece::embedding, false) : tensor(Kind::receive, false, "received activations"));
    if (!contents.loss) b.push_back(tensor(Kind::receive, true, "received gradients"));
    if (contents.loss) b.push_back(piece(Piece::loss, true));
    for (std::int64_t i = contents.mtp; i-- > 0;) {
        const std::int64_t depth = traced_depth(i, contents.mtp), instance = layers + i;
        b.push_back(piece(Piece::loss, true, 0, instance));
        b.push_back(piece(Piece::mtp_end, true, depth, instance));
        if (again) b.push_back(layer(contents.mtp_layer, false, instance));
        b.push_back(piece(Piece::mtp_rest, true, depth, instance));
        b.push_back(layer(contents.mtp_layer, true, instance));
        b.push_back(piece(Piece::mtp_front, true, depth, instance));
    }
    if (contents.loss) b.push_back(norm(true));
    add_decoder(contents, full, steps);
    if (contents.loss) f.push_back(norm(false));
    for (std::int64_t i = 0; i < contents.mtp; ++i) {
        const std::int64_t depth = traced_depth(i, contents.mtp), instance = layers + i;
        f.push_back(piece(Piece::mtp_front, false, depth, instance));
        f.push_back(layer(contents.mtp_layer, false, instance, again ? Drop::but_input : Drop::none));
        f.push_back(piece(Piece::mtp_end, false, depth, instance));
        f.push_back(piece(Piece::loss, false, 0, instance));
        f.push_back(piece(Piece::mtp_rest, false, depth, instance));
    }
    if (contents.loss) {
        f.push_back(piece(Piece::loss, false));
        f.push_back(tensor(Kind::losses, false));
    }
    if (contents.embedding) b.push_back(piece(Piece::embedding, true));
    // The tensors sent to the next stage and to the previous one.
    if (!contents.loss) f.push_back(tensor(Kind::give, false));
    if (!contents.embedding) b.push_back(tensor(Kind::give, true));
    b.push_back(ids(true));
    b.push_back(tensor(Kind::rest, true));
    return steps;
}

}  // namespace mgplan::simulator
