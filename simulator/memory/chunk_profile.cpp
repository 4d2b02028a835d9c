#include "simulator/memory/chunk_profile.hpp"

#include <algorithm>

#include "plan/errors.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;

/// Equal layers in a row.
struct Run {
    bool mixture;
    std::int64_t count;
};

std::vector<Run> runs_of(const std::vector<bool>& mixtures) {
    std::vector<Run> runs;
    for (const bool mixture : mixtures) {
        if (!runs.empty() && runs.back().mixture == mixture)
            ++runs.back().count;
        else
            runs.push_back({mixture, 1});
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
PassProfile prediction_of(const ShardProfiles& shard, const PassProfile& layer, bool recomputed) {
    if (recomputed) {
        // The embedded token and the hidden state are kept, and the layer's output; the rest comes again.
        OpProfile inner = then(change_of(MemoryCategory::activations, 2 * shard.stream, "MTP projection input"), layer.forward);
        const OpProfile again = inner;
        inner.net = change_of(MemoryCategory::activations, shard.stream).net;
        PassProfile mtp;
        mtp.forward = then(shard.embedding.forward, change_of(MemoryCategory::activations, shard.stream, "MTP projection input"));
        mtp.forward = then(then(mtp.forward, inner), shard.head.forward);
        mtp.backward = then(then(shard.head.backward, again), layer.backward);
        const std::int64_t rest = mtp.forward.net_total() + mtp.backward.net_total();
        mtp.backward = then(mtp.backward, change_of(MemoryCategory::activations, -rest));
        mtp.backward = then(mtp.backward, shard.embedding.backward);
        return mtp;
    }
    // Kept: the hidden state and the embedded token in front of their norms, and both behind them.
    PassProfile mtp;
    mtp.forward = then(shard.embedding.forward, change_of(MemoryCategory::activations, 3 * shard.stream, "MTP projection input"));
    mtp.forward = then(then(mtp.forward, layer.forward), shard.head.forward);
    mtp.backward = then(shard.head.backward, layer.backward);
    const std::int64_t rest = mtp.forward.net_total() + mtp.backward.net_total();
    mtp.backward = then(mtp.backward, change_of(MemoryCategory::activations, -rest));
    mtp.backward = then(mtp.backward, shard.embedding.backward);
    return mtp;
}

/// A forward that keeps nothing: it runs as any other and gives everything but its output back when it has ended; its input
/// goes too, unless it is the first of a recomputed block (model_chunk.cpp).
OpProfile dropped(const OpProfile& forward, bool first, std::int64_t stream) {
    OpProfile profile = forward;
    profile.net = first ? change_of(MemoryCategory::activations, stream).net : BytesByCategory{};
    return profile;
}

}  // namespace

PieceProfiles piece_profiles(const PieceTrace& trace) {
    PieceProfiles profiles{};
    for (const PieceRange& range : trace.pieces) {
        PassProfile& profile = profiles[static_cast<std::size_t>(range.piece)];
        if (&trace.range(range.piece, range.backward) != &range) continue;
        (range.backward ? profile.backward : profile.forward) = profile_of(trace.tensors, range.begin, range.end);
    }
    return profiles;
}

KeptAndTaken kept_and_taken(const PassProfile& piece) {
    return {piece.forward.net_total(), piece.backward.peak};
}

ShardProfiles shard_profiles(const PieceProfiles& dense, const PieceProfiles* mixture, const PieceSizes& sizes, std::int64_t hidden) {
    const auto of = [](const PieceProfiles& profiles, Piece piece) -> const PassProfile& {
        return profiles[static_cast<std::size_t>(piece)];
    };
    const auto layer = [&](const PassProfile& mlp) {
        const PassProfile& attention = of(dense, Piece::attention);
        return PassProfile{then(attention.forward, mlp.forward), then(mlp.backward, attention.backward)};
    };
    ShardProfiles shard;
    shard.stream = sizes.rows_outside() * hidden * bytes_of(sizes.dtype);
    shard.ids = 2 * sizes.rows() * bytes_of(Dtype::int32);
    shard.embedding = of(dense, Piece::embedding);
    shard.head = of(dense, Piece::head);
    shard.attention_half = kept_and_taken(of(dense, Piece::attention));
    shard.dense_half = kept_and_taken(of(dense, Piece::dense));
    if (mixture != nullptr) shard.mixture_half = kept_and_taken(of(*mixture, Piece::mixture));
    shard.dense = layer(of(dense, Piece::dense));
    if (mixture != nullptr) shard.mixture = layer(of(*mixture, Piece::mixture));
    return shard;
}

PassProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const FullRecompute* full) {
    PassProfile chunk;
    OpProfile& f = chunk.forward;
    OpProfile& b = chunk.backward;
    f = change_of(MemoryCategory::activations, shard.ids, "token ids");
    if (contents.embedding)
        f = then(f, shard.embedding.forward);
    else
        f = then(f, change_of(MemoryCategory::communication, shard.stream, "received activations"));
    if (!contents.loss) b = change_of(MemoryCategory::communication, shard.stream, "received gradients");
    if (contents.loss) b = then(b, shard.head.backward);
    PassProfile mtp;
    if (contents.mtp > 0)
        mtp = prediction_of(shard, shard.layer(contents.mtp_is_mixture), full != nullptr && full->method == RecomputeMethod::uniform);
    for (std::int64_t i = 0; i < contents.mtp; ++i) b = then(b, mtp.backward);
    if (full == nullptr) {
        const std::vector<Run> runs = runs_of(contents.mixtures);
        for (const Run& run : runs) f = then(f, repeat(shard.layer(run.mixture).forward, run.count));
        for (auto run = runs.rbegin(); run != runs.rend(); ++run) b = then(b, repeat(shard.layer(run->mixture).backward, run->count));
    } else {
        const auto piece = [&](std::size_t layer) -> const PassProfile& { return shard.layer(contents.mixtures[layer]); };
        const std::vector<Block> blocks = blocks_of(contents.mixtures.size(), *full);
        for (const Block& block : blocks) {
            if (!block.recomputed) {
                f = then(f, piece(block.begin).forward);
                continue;
            }
            for (std::size_t i = block.begin; i < block.end; ++i) f = then(f, dropped(piece(i).forward, i == block.begin, shard.stream));
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
        const PassProfile& head = shard.head;
        // The losses are read and given back; everything else waits for the backward.
        f = then(f, head.forward);
        f = then(f, change_of(MemoryCategory::activations, -(head.forward.net_total() + head.backward.net_total())));
    }
    if (contents.embedding) b = then(b, shard.embedding.backward);
    // What goes to the next stage, and what goes back.
    if (!contents.loss) f = then(f, change_of(MemoryCategory::activations, -shard.stream));
    if (!contents.embedding) b = then(b, change_of(MemoryCategory::activations, -shard.stream));
    b = then(b, change_of(MemoryCategory::activations, -shard.ids));
    // Layers give their input and their output's gradient back as activations; what was received is communication.
    OpProfile received;
    const std::int64_t streams = (contents.embedding ? 0 : shard.stream) + (contents.loss ? 0 : shard.stream);
    received.net[static_cast<std::size_t>(MemoryCategory::activations)] = streams;
    received.net[static_cast<std::size_t>(MemoryCategory::communication)] = -streams;
    b = then(b, received);
    return chunk;
}

}  // namespace mgplan::simulator
