#include "simulator/memory/chunk_profile.hpp"

#include <algorithm>

#include "plan/errors.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

Piece layer_piece(bool mixture) {
    return mixture ? Piece::mixture : Piece::dense;
}

/// Equal layers in a row.
struct Run {
    Piece piece;
    std::int64_t count;
};

std::vector<Run> runs_of(const std::vector<bool>& mixtures) {
    std::vector<Run> runs;
    for (const bool mixture : mixtures) {
        const Piece piece = layer_piece(mixture);
        if (!runs.empty() && runs.back().piece == piece)
            ++runs.back().count;
        else
            runs.push_back({piece, 1});
    }
    return runs;
}

/// Layers of each recomputed block, 1 and not recomputed for the others.
struct Block {
    std::size_t begin, end;
    bool recomputed;
};

std::vector<Block> blocks_of(std::size_t layers, const FullRecompute& full) {
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

/// Norms, projection, decoder layer and head of one multi-token prediction (arXiv 2412.19437, section 2.2).
struct Prediction {
    OpProfile forward, backward;
};

Prediction prediction_of(const ShardProfiles& shard, Piece layer) {
    // Kept: the hidden state and the embedded token in front of their norms, and both behind them.
    const std::int64_t kept = 4 * shard.stream;
    Prediction mtp;
    mtp.forward =
        then(shard.of(Piece::embedding).forward, change_of(MemoryCategory::activations, kept - shard.stream, "MTP projection input"));
    mtp.forward = then(then(mtp.forward, shard.of(layer).forward), shard.of(Piece::head).forward);
    mtp.backward = then(shard.of(Piece::head).backward, shard.of(layer).backward);
    const std::int64_t rest = mtp.forward.net_total() + mtp.backward.net_total();
    mtp.backward = then(mtp.backward, change_of(MemoryCategory::activations, -rest));
    mtp.backward = then(mtp.backward, shard.of(Piece::embedding).backward);
    return mtp;
}

}  // namespace

ShardProfiles shard_profiles(const PieceTrace& trace, const PieceTrace* dropped, const PieceSizes& sizes, std::int64_t hidden) {
    ShardProfiles shard;
    shard.stream = sizes.rows_outside() * hidden * bytes_of(sizes.dtype);
    shard.ids = 2 * sizes.rows() * bytes_of(Dtype::int32);
    for (const Piece piece : {Piece::embedding, Piece::dense, Piece::mixture, Piece::head}) {
        if (!trace.has(piece)) continue;
        const PieceRange &forward = trace.range(piece, false), &backward = trace.range(piece, true);
        PieceProfile& profile = shard.of(piece);
        profile.forward = profile_of(trace.tensors, forward.begin, forward.end);
        profile.backward = profile_of(trace.tensors, backward.begin, backward.end);
        if (dropped == nullptr || (piece != Piece::dense && piece != Piece::mixture)) continue;
        // The first two forwards of a kind are those of its block; later ones repeat them in the backward.
        const PieceRange *first = nullptr, *second = nullptr;
        for (const PieceRange& range : dropped->pieces) {
            if (range.piece != piece || range.backward) continue;
            if (first == nullptr)
                first = &range;
            else if (second == nullptr)
                second = &range;
        }
        MGPLAN_ASSERT(first != nullptr && second != nullptr, "each kind of layer is traced twice");
        profile.first_dropped = profile_of(dropped->tensors, first->begin, first->end);
        profile.next_dropped = profile_of(dropped->tensors, second->begin, second->end);
    }
    return shard;
}

ChunkProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const FullRecompute* full) {
    ChunkProfile chunk;
    OpProfile& f = chunk.forward;
    OpProfile& b = chunk.backward;
    f = change_of(MemoryCategory::activations, shard.ids, "token ids");
    if (contents.embedding)
        f = then(f, shard.of(Piece::embedding).forward);
    else
        f = then(f, change_of(MemoryCategory::communication, shard.stream, "received activations"));
    if (!contents.loss) b = change_of(MemoryCategory::communication, shard.stream, "received gradients");
    if (contents.loss) b = then(b, shard.of(Piece::head).backward);
    const Prediction mtp =
        contents.mtp > 0 ? prediction_of(shard, layer_piece(!contents.mixtures.empty() && contents.mixtures.back())) : Prediction{};
    for (std::int64_t i = 0; i < contents.mtp; ++i) b = then(b, mtp.backward);
    if (full == nullptr) {
        const std::vector<Run> runs = runs_of(contents.mixtures);
        for (const Run& run : runs) f = then(f, repeat(shard.of(run.piece).forward, run.count));
        for (auto run = runs.rbegin(); run != runs.rend(); ++run) b = then(b, repeat(shard.of(run->piece).backward, run->count));
    } else {
        const auto piece = [&](std::size_t layer) -> const PieceProfile& { return shard.of(layer_piece(contents.mixtures[layer])); };
        const std::vector<Block> blocks = blocks_of(contents.mixtures.size(), *full);
        for (const Block& block : blocks) {
            if (!block.recomputed) {
                f = then(f, piece(block.begin).forward);
                continue;
            }
            for (std::size_t i = block.begin; i < block.end; ++i)
                f = then(f, i == block.begin ? piece(i).first_dropped : piece(i).next_dropped);
        }
        for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
            if (block->recomputed) {
                for (std::size_t i = block->begin; i < block->end; ++i) b = then(b, piece(i).forward);
                // Nobody wants the block's output again.
                b = then(b, change_of(MemoryCategory::activations, -shard.stream));
            }
            for (std::size_t i = block->end; i-- > block->begin;) b = then(b, piece(i).backward);
        }
    }
    for (std::int64_t i = 0; i < contents.mtp; ++i) f = then(f, mtp.forward);
    if (contents.loss) {
        const PieceProfile& head = shard.of(Piece::head);
        // The losses are read and given back; everything else waits for the backward.
        f = then(f, head.forward);
        f = then(f, change_of(MemoryCategory::activations, -(head.forward.net_total() + head.backward.net_total())));
    }
    if (contents.embedding) b = then(b, shard.of(Piece::embedding).backward);
    // What goes to the next stage, and what goes back.
    if (!contents.loss) f = then(f, change_of(MemoryCategory::activations, -shard.stream));
    if (!contents.embedding) b = then(b, change_of(MemoryCategory::activations, -shard.stream));
    b = then(b, change_of(MemoryCategory::activations, -shard.ids));
    return chunk;
}

}  // namespace mgplan::simulator
