#include "simulator/memory/chunk_trace.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

using slots::LayerStep;

/// Owner of ids; those of a trace's tensors follow.
constexpr std::int64_t kIds = 1, kTensorsOfTrace = std::int64_t{1} << 32U;

/// The module of Megatron-core that a piece belongs to; of a layer its name within the layer.
std::string_view module_name(Piece piece) {
    switch (piece) {
        case Piece::embedding:
            return "embedding";
        case Piece::attention:
            return "self_attention";
        case Piece::recurrent:
            return "mixer";
        case Piece::dense:
        case Piece::mixture:
            return "mlp";
        case Piece::norm:
            return "decoder.final_layernorm";
        case Piece::loss:
            return "output_layer";
        case Piece::mtp_embedding:
        case Piece::mtp_front:
        case Piece::mtp_end:
        case Piece::mtp_rest:
            return "mtp";
    }
    return {};
}

/// Tensors of the pieces of one trace.
class PieceTensors {
public:
    /// `owner`: of the trace's first tensor. `named`: keeps names.
    PieceTensors(const LayerKinds& kinds, const PieceTrace& trace, std::int64_t owner, bool named)
        : kinds_(kinds), trace_(trace), owner_(owner), named_(named), changes_(trace.tensors) {}

    TensorTrace operator()(const PieceRange& range) const {
        std::int64_t first_norm = range.end;
        for (const model::AllocationRecord& tensor : trace_.tensors) {
            if (range.contains(tensor.taken) && tensor.name == kNormOutput) first_norm = std::min(first_norm, tensor.taken);
        }
        const bool attention = range.piece == Piece::attention || range.piece == Piece::recurrent;
        const bool norm_alone = (attention && kinds_.attention_norm_alone) || (range.piece == Piece::mixture && kinds_.mixture_norm_alone);
        TensorTrace events;
        for (const auto& [when, returned, tensor] : changes_.changes(range.begin, range.end)) {
            if (returned) {
                events.free(tensor->bytes, owner_of(*tensor, range));
                continue;
            }
            events.take(tensor->bytes, owner_of(*tensor, range),
                        tensor->name == "gathered streams" || (norm_alone && tensor->name == kNormOutput && when == first_norm));
            if (named_) events.names.push_back({tensor->name, module_name(range.piece)});
        }
        return events;
    }

private:
    static constexpr std::string_view kNormOutput = "norm output";

    /// The piece owns tensors that it allocates itself, and frees or keeps.
    [[nodiscard]] std::int64_t owner_of(const model::AllocationRecord& tensor, const PieceRange& range) const {
        const auto in_piece = [&](std::int64_t when) {
            return std::ranges::any_of(trace_.pieces, [&](const PieceRange& other) {
                return other.piece == range.piece && other.layer == range.layer && other.contains(when);
            });
        };
        if (!in_piece(tensor.taken) || (tensor.returned >= 0 && !in_piece(tensor.returned))) return TensorTrace::kHandedOn;
        return owner_ + (&tensor - trace_.tensors.data());
    }

    const LayerKinds& kinds_;
    const PieceTrace& trace_;
    std::int64_t owner_;
    bool named_;
    TraceProfiles changes_;
};

/// Bytes of the losses: what the loss allocates and no piece frees.
std::int64_t bytes_of_losses(const PieceTrace& trace) {
    std::int64_t bytes = 0;
    for (const model::AllocationRecord& tensor : trace.tensors) {
        const auto frees = [&](const PieceRange& range) { return range.contains(tensor.returned); };
        if (tensor.bytes > 0 && tensor.returned >= 0 && trace.range(Piece::loss, false).contains(tensor.taken) &&
            std::ranges::none_of(trace.pieces, frees))
            bytes = tensor.bytes;
    }
    return bytes;
}

/// Sets the layers of a chunk's names. `values`: of its steps, by slot.
void set_layers(TensorTrace& chunk, const std::vector<TensorTrace>& values, const NumberedChunk& numbered) {
    std::size_t tensor = 0;
    const auto walk = [&](const std::vector<ChunkStep>& steps, const std::vector<std::int32_t>& layers) {
        auto layer = layers.begin();
        for (const ChunkStep& step : steps) {
            for (std::int64_t i = 0; i < step.count; ++i, ++layer) {
                const std::size_t end = tensor + values[step.slot].tensors.size();
                for (; tensor < end; ++tensor) {
                    if (*layer >= 0) chunk.names[tensor].layer = numbered.first_layer + *layer;
                }
            }
        }
    };
    walk(numbered.steps.forward, numbered.steps.forward_layers);
    walk(numbered.steps.backward, numbered.steps.backward_layers);
    MGPLAN_ASSERT(tensor == chunk.names.size(), "every tensor of a chunk belongs to one of its steps");
}

}  // namespace

void TensorTrace::take(std::int64_t bytes, std::int64_t owner, bool input) {
    live.push_back({owner, bytes, std::ssize(tensors), 0, input && owner != kHandedOn});
    tensors.push_back({bytes, events++, -1});
}

void TensorTrace::free(std::int64_t bytes, std::int64_t owner, std::int64_t passed) {
    match({owner, bytes, events++, passed, false});
}

void TensorTrace::match(Open free) {
    for (auto tensor = live.rbegin(); tensor != live.rend(); ++tensor) {
        if (tensor->owner != free.owner || (free.owner == kHandedOn && tensor->bytes != free.bytes)) continue;
        if (free.passed-- > 0) continue;
        tensors[static_cast<std::size_t>(tensor->at)].returned = free.at;
        live.erase(std::next(tensor).base());
        return;
    }
    frees.push_back(free);
}

void append(TensorTrace& work, const TensorTrace& next, std::int64_t times) {
    for (; times > 0; --times) {
        const std::int64_t events = work.events, tensors = std::ssize(work.tensors);
        work.events += next.events;
        for (TensorTrace::Open free : next.frees) {
            free.at += events;
            work.match(free);
        }
        for (const Allocation& tensor : next.tensors)
            work.tensors.push_back({tensor.bytes, tensor.taken + events, tensor.returned < 0 ? -1 : tensor.returned + events});
        work.names.insert(work.names.end(), next.names.begin(), next.names.end());
        for (TensorTrace::Open tensor : next.live) {
            tensor.at += tensors;
            work.live.push_back(tensor);
        }
    }
}

TensorTrace keeping(TensorTrace forward, std::int64_t stream, bool input) {
    std::vector<TensorTrace::Open> output;
    for (std::size_t i = forward.live.size(); i-- > 0;) {
        const TensorTrace::Open& tensor = forward.live[i];
        if (output.empty() && tensor.owner == TensorTrace::kHandedOn)
            output.push_back(tensor);
        else
            forward.tensors[static_cast<std::size_t>(tensor.at)].returned = forward.events++;
    }
    forward.live.clear();
    if (!input) forward.free(stream);
    forward.live = std::move(output);
    return forward;
}

StepTable<TensorTrace> tensor_steps(const LayerKinds& kinds, const ShardTraces& traces, const PieceSizes& sizes, std::int64_t stream,
                                    bool named) {
    StepTable<TensorTrace> steps(stream, kinds.size());
    std::int64_t owner = 0;
    const auto tensors_of = [&](const PieceTrace& trace) { return PieceTensors(kinds, trace, owner += kTensorsOfTrace, named); };
    const auto values_of = [&](const PieceTrace& trace) { return piece_values<TensorTrace>(trace, tensors_of(trace)); };
    ShardValues<TensorTrace> pieces;
    const auto add = [&](const std::vector<LayerHalf>& halves, const auto& of_halves, auto& into) {
        for (std::size_t i = 0; i < halves.size(); ++i)
            into.push_back(values_of(*of_halves[i])[static_cast<std::size_t>(piece_of(halves[i]))]);
    };
    add(kinds.mixers, traces.mixers, pieces.mixers);
    add(kinds.feed_forwards, traces.feed_forwards, pieces.feed_forwards);
    pieces.set_ends(values_of(*traces.ends));
    steps.set_pieces(kinds, pieces);
    if (traces.prediction != nullptr) {
        const PieceTensors tensors = tensors_of(*traces.prediction);
        for (const bool recomputed : {false, true})
            steps.set_predictions(recomputed, prediction_values<TensorTrace>(*traces.prediction, tensors));
    }
    std::vector<TensorTrace>& values = steps.values;
    const std::int64_t ids = sizes.rows() * bytes_of(Dtype::int32);
    const auto take = [&](TensorTrace& step, std::int64_t bytes, const TensorName& name, std::int64_t of = TensorTrace::kHandedOn) {
        step.take(bytes, of);
        if (named) step.names.push_back(name);
    };
    take(values[slots::kTakeIds], ids, {"tokens, targets", "batch"}, kIds);
    values[slots::kFreeIds].free(ids, kIds);
    take(values[slots::kReceive], stream, {"received hidden states", "pipeline"});
    take(values[slots::kReceiveGradient], stream, {"received gradient", "pipeline"});
    values[slots::kGive].free(stream);
    if (const std::int64_t losses = bytes_of_losses(*traces.ends); losses > 0) values[slots::kLosses].free(losses);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const auto of = [&](LayerStep step) -> TensorTrace& { return values[slots::of_layer(i, step)]; };
        // The latest stream is the output of a block.
        for (std::int64_t half = 0, halves = stream_use(kinds, kinds.kinds[i]).halves; half < halves; ++half) {
            of(LayerStep::free_streams).free(stream, TensorTrace::kHandedOn, 1);
            take(of(LayerStep::take_streams), stream, {"recomputed streams", "hyper_connection"});
            if (half == 0) continue;
            of(LayerStep::free_streams_but_output).free(stream, TensorTrace::kHandedOn, 1);
            take(of(LayerStep::take_streams_but_output), stream, {"recomputed streams", "hyper_connection"});
        }
        const TensorTrace& forward = of(LayerStep::forward);
        for (const TensorTrace::Open& tensor : forward.live) {
            if (!tensor.input) continue;
            of(LayerStep::free_inputs).free(tensor.bytes, tensor.owner);
            take(of(LayerStep::take_inputs), tensor.bytes, named ? forward.names[static_cast<std::size_t>(tensor.at)] : TensorName{},
                 tensor.owner);
        }
    }
    return steps;
}

IterationTrace chunk_traces(const StepTable<TensorTrace>& shard, std::span<const ChunkRecipe* const> chunks,
                            std::span<const NumberedChunk> numbered) {
    struct Chunk {
        TensorTrace whole;
        std::int64_t forward = 0;             ///< time at which the backward begins
        std::array<std::int64_t, 2> shift{};  ///< from times of the chunk to those of the iteration: forward, backward
    };
    std::vector<Chunk> list;
    for (const ChunkRecipe* chunk : chunks) {
        BothPasses<TensorTrace> passes = chunk->compose(shard.values);
        const std::int64_t forward = passes.forward.events;
        TensorTrace& whole = list.emplace_back(Chunk{std::move(passes.forward), forward, {}}).whole;
        append(whole, passes.backward);
        if (!numbered.empty()) set_layers(whole, shard.values, numbered[list.size() - 1]);
        for (const TensorTrace::Open& tensor : whole.live) whole.tensors[static_cast<std::size_t>(tensor.at)].returned = whole.events++;
    }
    IterationTrace trace;
    std::int64_t clock = 0;
    const auto run = [&](std::size_t index, bool backward) {
        Chunk& chunk = list[index];
        const std::int64_t first = backward ? chunk.forward : 0, begin = clock;
        clock += backward ? chunk.whole.events - first : chunk.forward;
        chunk.shift[backward ? 1 : 0] = begin - first;
        const auto op = static_cast<int>(index) + 1;
        trace.passes.push_back({backward ? -op : op, begin, clock});
    };
    for (std::size_t c = 0; c < list.size(); ++c) run(c, false);
    for (std::size_t c = list.size(); c-- > 0;) run(c, true);
    for (const TracedPass& pass : trace.passes) {
        const Chunk& chunk = list[static_cast<std::size_t>(std::abs(pass.op)) - 1];
        const auto at = [&](std::int64_t when) { return when + chunk.shift[when < chunk.forward ? 0 : 1]; };
        for (std::size_t i = 0; i < chunk.whole.tensors.size(); ++i) {
            const Allocation& tensor = chunk.whole.tensors[i];
            if ((tensor.taken < chunk.forward) != (pass.op > 0)) continue;
            trace.tensors.push_back({tensor.bytes, at(tensor.taken), at(tensor.returned)});
            if (!numbered.empty()) trace.names.push_back(chunk.whole.names[i]);
        }
    }
    return trace;
}

}  // namespace mgplan::simulator
