#include "simulator/memory/chunk_trace.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

using Kind = ChunkStep::Kind;
using Drop = ChunkStep::Drop;

/// Allocation or free of a tensor at a time of a trace.
struct Change {
    std::int64_t when = 0;
    bool returned = false;
    std::size_t tensor = 0;
};

/// Allocations and frees within one PieceRange, in the order in which TraceProfiles counts them.
struct RangeEvents {
    const PieceTrace* trace = nullptr;
    std::vector<Change> changes;
};

/// Cache of the events of each range of a shard's traces.
class RangeEventCache {
public:
    const RangeEvents& of(const PieceTrace& trace, Piece piece, bool backward, std::int64_t layer) {
        const PieceRange& range = trace.range(piece, backward, layer);
        auto [entry, fresh] = found_.try_emplace(&range);
        RangeEvents& events = entry->second;
        if (!fresh) return events;
        events.trace = &trace;
        for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
            const model::AllocationRecord& tensor = trace.tensors[i];
            if (tensor.bytes == 0) continue;
            if (range.contains(tensor.taken)) events.changes.push_back({tensor.taken, false, i});
            if (tensor.returned >= 0 && range.contains(tensor.returned)) events.changes.push_back({tensor.returned, true, i});
        }
        std::stable_sort(events.changes.begin(), events.changes.end(),
                         [](const Change& a, const Change& b) { return a.when != b.when ? a.when < b.when : a.returned < b.returned; });
        return events;
    }

private:
    std::map<const PieceRange*, RangeEvents> found_;
};

/// One chunk's tensors from its forward to its backward.
class Chunk {
public:
    Chunk(const ShardTraces& shard, const ChunkContents& contents, const ChunkRecompute* full, RangeEventCache& events,
          std::vector<Allocation>& tensors, std::int64_t& clock)
        : shard_(shard), steps_(chunk_steps(contents, full)), events_(events), tensors_(tensors), clock_(clock) {}

    void forward() {
        for (const ChunkStep& step : steps_.forward) run(step);
    }
    void backward() {
        for (const ChunkStep& step : steps_.backward) run(step);
    }

private:
    /// A tensor of one piece or layer: its trace, its instance, its index in the trace.
    struct Key {
        const PieceTrace* trace = nullptr;
        std::int64_t instance = 0;
        std::size_t tensor = 0;
        auto operator<=>(const Key&) const = default;
    };

    std::size_t take(std::int64_t bytes) {
        tensors_.push_back({bytes, clock_++, -1});
        return tensors_.size() - 1;
    }
    void give_back(std::size_t tensor) { tensors_[tensor].returned = clock_++; }

    /// Frees the latest tensor of this size that other pieces allocated.
    void give_back_handed(std::int64_t bytes) {
        for (std::size_t i = handed_.size(); i-- > 0;) {
            if (tensors_[handed_[i]].bytes != bytes) continue;
            give_back(handed_[i]);
            handed_.erase(handed_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
    }

    void run(const ChunkStep& step) {
        switch (step.kind) {
            case Kind::ids:
                for (std::int64_t i = 0; i < step.count; ++i) {
                    if (step.backward)
                        give_back_ids();
                    else
                        ids_.push_back(take(shard_.ids));
                }
                return;
            case Kind::receive:
                handed_.push_back(take(shard_.stream));
                return;
            case Kind::give:
                give_back_handed(shard_.stream);
                return;
            case Kind::discard:
                discard_streams(step);
                return;
            case Kind::remake:
                remake_streams(step);
                return;
            case Kind::losses:
                give_back_losses();
                return;
            case Kind::rest:
                for (const auto& [key, tensor] : own_) give_back(tensor);
                for (const std::size_t tensor : handed_) give_back(tensor);
                own_.clear();
                handed_.clear();
                return;
            case Kind::layer:
                for (std::int64_t i = 0; i < step.count; ++i) run_layer(step, step.backward ? step.instance - i : step.instance + i);
                return;
            case Kind::piece:
                run_piece(step);
                return;
        }
    }

    void give_back_ids() {
        if (ids_.empty()) return;
        give_back(ids_.back());
        ids_.pop_back();
    }

    void run_layer(const ChunkStep& step, std::int64_t instance) {
        const LayerKindHalves& kind = shard_.kinds->kinds[step.layer_kind];
        const auto plain = [&](int half) -> const PieceTrace& { return shard_.layers[shard_.kinds->plain_layer(kind, half)]; };
        const auto play_mixer = [&] {
            if (kind.mixer == LayerKindHalves::kNone) return;
            const Piece piece = piece_of_mixer(shard_.kinds->mixers[static_cast<std::size_t>(kind.mixer)]);
            play(plain(kind.mixer), piece, step.backward, -1, instance, false);
        };
        const auto play_feed_forward = [&] {
            if (kind.mixture)
                play(shard_.layers[shard_.kinds->plain_layers.size() + LayerKinds::mixture_layer(kind)], Piece::mixture, step.backward, -1,
                     instance, false);
            else if (kind.feed_forward != LayerKindHalves::kNone)
                play(plain(kind.feed_forward), Piece::dense, step.backward, -1, instance, false);
        };
        const std::size_t before = tensors_.size();
        if (step.backward) {
            play_feed_forward();
            play_mixer();
            return;
        }
        play_mixer();
        play_feed_forward();
        if (step.drop == Drop::none) return;
        // A layer's output is the last tensor that it hands on; everything else is freed, including an input that is not needed again.
        const bool has_output = !handed_.empty() && handed_.back() >= before;
        const std::size_t output = has_output ? handed_.back() : 0;
        std::vector<std::size_t> inputs;
        for (const std::size_t tensor : handed_) {
            if (tensor < before)
                inputs.push_back(tensor);
            else if (!has_output || tensor != output)
                give_back(tensor);
        }
        handed_ = std::move(inputs);
        for (auto entry = own_.begin(); entry != own_.end();) {
            if (entry->second < before) {
                ++entry;
                continue;
            }
            give_back(entry->second);
            entry = own_.erase(entry);
        }
        if (step.drop == Drop::all) give_back_handed(shard_.stream);
        if (has_output) handed_.push_back(output);
    }

    /// True for tensors that a half-layer reads from the streams: their sum, or the output of a separate norm before it.
    [[nodiscard]] bool read_by_half(const Key& key) const {
        const std::vector<model::AllocationRecord>& tensors = key.trace->tensors;
        const model::AllocationRecord& tensor = tensors[key.tensor];
        if (tensor.name == "gathered streams") return true;
        if (tensor.name != "norm output") return false;
        const auto first_of = [&](Piece piece) {
            if (!key.trace->holds(piece)) return false;
            const PieceRange& forward = key.trace->range(piece, false);
            return forward.contains(tensor.taken) && std::none_of(tensors.begin(), tensors.end(), [&](const auto& other) {
                       return other.name == "norm output" && other.taken < tensor.taken && forward.contains(other.taken);
                   });
        };
        return (shard_.kinds->attention_norm_alone && (first_of(Piece::attention) || first_of(Piece::recurrent))) ||
               (shard_.kinds->mixture_norm_alone && first_of(Piece::mixture));
    }

    /// Frees the tensors that the halves of these layers read from the streams, and the streams after them except a block's last.
    void discard_streams(const ChunkStep& step) {
        for (auto entry = own_.begin(); entry != own_.end();) {
            const Key& key = entry->first;
            const bool of_step = key.instance >= step.instance && key.instance < step.instance + step.count;
            if (!of_step || !read_by_half(key)) {
                ++entry;
                continue;
            }
            give_back(entry->second);
            gathered_.push_back(key);
            entry = own_.erase(entry);
        }
        std::int64_t left = streams_behind(step);
        for (std::size_t i = handed_.size(), skipped = 0; i-- > 0 && left > 0;) {
            if (tensors_[handed_[i]].bytes != shard_.stream || skipped++ == 0) continue;
            give_back(handed_[i]);
            handed_.erase(handed_.begin() + static_cast<std::ptrdiff_t>(i));
            --left;
        }
    }

    void remake_streams(const ChunkStep& step) {
        for (std::int64_t left = streams_behind(step); left > 0; --left) handed_.push_back(take(shard_.stream));
        for (const Key& key : gathered_) {
            if (key.instance >= step.instance && key.instance < step.instance + step.count)
                own_.insert_or_assign(key, take(key.trace->tensors[key.tensor].bytes));
        }
        std::erase_if(gathered_, [&](const Key& key) { return own_.contains(key); });
    }

    /// Number of streams after the halves of these layers that are freed.
    [[nodiscard]] std::int64_t streams_behind(const ChunkStep& step) const {
        const LayerKindHalves& kind = shard_.kinds->kinds[step.layer_kind];
        const bool mixes = kind.mixer != LayerKindHalves::kNone, feeds = kind.mixture || kind.feed_forward != LayerKindHalves::kNone;
        return step.count * ((mixes ? 1 : 0) + (feeds ? 1 : 0)) - (step.ends_block ? 1 : 0);
    }

    void run_piece(const ChunkStep& step) {
        switch (step.piece) {
            case Piece::norm:
                play(step.predicting ? *shard_.prediction : shard_.layers.front(), Piece::norm, step.backward, -1, step.instance, false);
                return;
            case Piece::loss:
                play(shard_.layers.front(), Piece::loss, step.backward, -1, step.instance, true);
                return;
            case Piece::mtp_front:
            case Piece::mtp_end:
            case Piece::mtp_rest:
                play(*shard_.prediction, step.piece, step.backward, step.depth, step.instance, false);
                return;
            default:
                play(shard_.layers.front(), Piece::embedding, step.backward, -1, step.instance, false);
        }
    }

    /// Plays the events of one piece. `loss`: tensors that the loss leaves alive are the losses.
    void play(const PieceTrace& trace, Piece piece, bool backward, std::int64_t layer, std::int64_t instance, bool loss) {
        for (const Change& change : events_.of(trace, piece, backward, layer).changes) {
            const model::AllocationRecord& tensor = trace.tensors[change.tensor];
            const Key key{&trace, instance, change.tensor};
            if (!change.returned) {
                const std::size_t taken = take(tensor.bytes);
                if (loss && tensor.returned >= 0 && losses(trace, tensor)) losses_ = tensor.bytes;
                if (stays(trace, piece, layer, tensor))
                    own_.insert_or_assign(key, taken);
                else
                    handed_.push_back(taken);
                continue;
            }
            if (const auto own = own_.find(key); own != own_.end()) {
                give_back(own->second);
                own_.erase(own);
            } else {
                give_back_handed(tensor.bytes);
            }
        }
    }

    /// True if the loss's tensor is freed outside of all pieces: the losses, which are read there.
    static bool losses(const PieceTrace& trace, const model::AllocationRecord& tensor) {
        return std::none_of(trace.pieces.begin(), trace.pieces.end(),
                            [&](const PieceRange& range) { return range.contains(tensor.returned); });
    }

    /// True if the piece that allocates a tensor also frees it, in the same trace.
    static bool stays(const PieceTrace& trace, Piece piece, std::int64_t layer, const model::AllocationRecord& tensor) {
        if (tensor.returned < 0) return true;
        for (const bool backward : {false, true}) {
            if (trace.range(piece, backward, layer).contains(tensor.returned)) return true;
        }
        return false;
    }

    void give_back_losses() {
        if (losses_ > 0) give_back_handed(losses_);
    }

    const ShardTraces& shard_;
    ChunkSteps steps_;
    RangeEventCache& events_;
    std::vector<Allocation>& tensors_;
    std::int64_t& clock_;
    std::map<Key, std::size_t> own_;   ///< allocated and freed by the same piece
    std::vector<std::size_t> handed_;  ///< allocated by one piece and freed by another; in order
    std::vector<Key> gathered_;        ///< freed, and taken again before the backward
    std::vector<std::size_t> ids_;
    std::int64_t losses_ = 0;  ///< bytes of the losses
};

}  // namespace

IterationTrace chunk_traces(const ShardTraces& shard, std::span<const ChunkContents> chunks, const ChunkRecompute* full) {
    IterationTrace trace;
    RangeEventCache events;
    std::int64_t clock = 0;
    std::vector<Chunk> list;
    list.reserve(chunks.size());
    for (const ChunkContents& contents : chunks) list.emplace_back(shard, contents, full, events, trace.tensors, clock);
    const auto run = [&](std::size_t chunk, bool backward) {
        const std::int64_t begin = clock;
        backward ? list[chunk].backward() : list[chunk].forward();
        const auto op = static_cast<int>(chunk) + 1;
        trace.passes.push_back({backward ? -op : op, begin, clock});
    };
    for (std::size_t c = 0; c < list.size(); ++c) run(c, false);
    for (std::size_t c = list.size(); c-- > 0;) run(c, true);
    return trace;
}

}  // namespace mgplan::simulator
