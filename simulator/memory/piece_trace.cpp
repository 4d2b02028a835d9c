#include "simulator/memory/piece_trace.hpp"

#include <algorithm>
#include <memory>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/model_chunk.hpp"
#include "plan/errors.hpp"
#include "plan/parameters.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;
using model::Tensor;

/// Two layers of each kind, dense ones first, and nothing else of the model's depth.
ModelSpec shortened(const ModelSpec& model) {
    ModelSpec few = model;
    few.moe_layers.clear();
    few.mtp_layers = 0;
    if (model.moe) {
        const bool dense = std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end();
        const bool mixture = std::find(model.moe_layers.begin(), model.moe_layers.end(), true) != model.moe_layers.end();
        for (const auto& [kind, held] : {std::pair{false, dense}, std::pair{true, mixture}}) {
            if (held) few.moe_layers.insert(few.moe_layers.end(), 2, kind);
        }
        few.layers = std::ssize(few.moe_layers);
    } else {
        few.layers = 2;
    }
    return few;
}

/// Groups of one rank that pose as large as the layout says.
struct Groups {
    model::RecordingCommunicator tp, cp, ep, etp, tp_cp;
    explicit Groups(const PieceSizes& sizes)
        : tp("tp", static_cast<int>(sizes.tp), 0),
          cp("cp", static_cast<int>(sizes.cp), 0),
          ep("expert:ep", static_cast<int>(sizes.ep), 0),
          etp("expert:tp", static_cast<int>(sizes.etp), 0),
          tp_cp("tp-cp", static_cast<int>(sizes.tp * sizes.cp), 0) {}
};

model::WeightTable weights_of(model::Device& device, const ModelSpec& model, const PieceSizes& sizes,
                              const std::shared_ptr<const StageSplit>& split) {
    Layout layout;
    layout.sizes.world = sizes.tp * sizes.cp * sizes.ep * sizes.etp;
    layout.sizes.tp = sizes.tp;
    layout.sizes.cp = sizes.cp;
    layout.sizes.ep = sizes.ep;
    layout.sizes.etp = sizes.etp;
    layout.split = split;
    model::WeightTable table;
    const auto parameters = stage_parameters(model, layout, 0);
    for (const Parameter& parameter : parameters.front()) {
        const auto& s = parameter.shape;
        const model::Shape shape = s.size() == 1 ? model::Shape{s[0]} : model::Shape{s[0], s[1]};
        table.add(parameter.name, {device.empty(shape, sizes.dtype, MemoryCategory::parameters, "parameter"),
                                   device.empty(shape, sizes.grad_dtype, MemoryCategory::gradients, "gradient")});
    }
    return table;
}

}  // namespace

const PieceRange& PieceTrace::range(Piece piece, bool backward) const {
    // Layers come in pairs. Forwards run upwards, backwards downwards: the second of a pair forward is the first one backward.
    const PieceRange* found = nullptr;
    for (const PieceRange& range : pieces) {
        if (range.piece != piece || range.backward != backward) continue;
        if (found == nullptr || range.layer > found->layer) found = &range;
    }
    MGPLAN_ASSERT(found != nullptr, "the model has this piece");
    return *found;
}

bool PieceTrace::has(Piece piece) const {
    return std::any_of(pieces.begin(), pieces.end(), [&](const PieceRange& range) { return range.piece == piece; });
}

PieceTrace trace_pieces(const ModelSpec& asked, const PieceSizes& sizes, bool full) {
    const ModelSpec model = shortened(asked);
    StageSplitRequest request;
    request.layers = model.layers;
    const auto split = std::make_shared<const StageSplit>(make_stage_split(request));
    model::MetaDevice device({.keep_allocations = true, .keep_ops = false, .stands_for = sizes.traits});
    Groups groups(sizes);
    model::RankContext context;
    context.device = &device;
    context.tp = &groups.tp;
    context.cp = &groups.cp;
    context.ep = &groups.ep;
    context.etp = &groups.etp;
    context.tp_cp = &groups.tp_cp;
    context.sequence_parallel = sizes.sequence_parallel;
    context.cp_comm_type = sizes.cp_comm_type;
    context.dtype = sizes.dtype;
    context.norm_epsilon = model.norm_epsilon;
    context.rotary_base = model.rotary_base;
    model::RecomputeChoice recompute;
    recompute.modules = sizes.modules;
    if (full) {
        recompute.full = RecomputeMethod::uniform;
        recompute.layers = 2;
    }
    const model::WeightTable weights = weights_of(device, model, sizes, split);
    model::ModelChunk chunk(model, split->chunk(0, 0), weights, recompute);
    model::MicrobatchContext microbatch;
    microbatch.batch = sizes.micro_batch;
    microbatch.sequence = sizes.sequence;
    const Tensor ids = device.empty({sizes.rows()}, Dtype::int32, MemoryCategory::activations, "token ids");
    const Tensor targets = device.empty({sizes.rows()}, Dtype::int32, MemoryCategory::activations, "target ids");
    model::ChunkSaved saved;
    (void)chunk.forward(context, microbatch, ids, targets, saved);
    (void)chunk.backward(context, microbatch, {}, 1, ids, targets, saved);

    PieceTrace trace;
    trace.tensors = device.allocations();
    for (const model::RangeRecord& range : device.ranges()) {
        const bool backward = range.name.ends_with("backward");
        if (range.name.starts_with("embedding"))
            trace.pieces.push_back({Piece::embedding, backward, 0, range.begin, range.end});
        else if (range.name.starts_with("head"))
            trace.pieces.push_back({Piece::head, backward, 0, range.begin, range.end});
        else if (range.name.starts_with("layer"))
            trace.pieces.push_back(
                {model.is_moe_layer(range.number) ? Piece::mixture : Piece::dense, backward, range.number, range.begin, range.end});
        else
            trace.modules.push_back(range);
    }
    return trace;
}

}  // namespace mgplan::simulator
