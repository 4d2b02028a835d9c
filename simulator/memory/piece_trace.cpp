#include "simulator/memory/piece_trace.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/context_parallel.hpp"
#include "model/layers/expert_bias.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/layers/routing_log.hpp"
#include "model/ops/checks.hpp"
#include "plan/errors.hpp"
#include "plan/parameters.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;
using model::Tensor;

/// One layer of one kind, and nothing else of the model's depth.
ModelSpec shortened(const ModelSpec& model, const PieceSizes& sizes, bool mixtures) {
    ModelSpec few = model;
    few.layers = 1;
    few.mtp_layers = 0;
    if (sizes.fuses_windows) few.sliding_window = 0;
    few.moe_layers.clear();
    if (mixtures) {
        few.moe_layers.assign(1, true);
    } else {
        few.moe.reset();
        if (few.ffn == 0) few.ffn = few.hidden;  // a model of mixtures alone, whose dense half nobody asks for
    }
    // What no device computes is traced as its nearest kin, which keeps as much: a norm over the whole width where ranks share kv
    // heads as one of each head, an odd rotary width as the next even one.
    if (few.qk_norm_full_width && sizes.tp > few.kv_heads) few.qk_norm_full_width = false;
    if (few.mla && few.mla->qk_rope_head_dim % 2 != 0) {
        ++few.mla->qk_rope_head_dim;
        if (few.mla->qk_nope_head_dim > 1) --few.mla->qk_nope_head_dim;
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

/// Context parallelism takes one step for each rank, and beyond the first few they are alike: fewer ranks with as many rows each
/// take and return the same tensors in the same order at their fullest …
constexpr std::int64_t kSteps = 4;

/// Hierarchical exchange, rings of all-to-alls, which no device computes: the rings' tensors stand for it.
CpCommType exchange_traced(const PieceSizes& sizes) {
    return sizes.cp_comm_type == CpCommType::a2a_p2p ? CpCommType::p2p : sizes.cp_comm_type;
}

bool takes_steps(const PieceSizes& sizes) {
    const bool by_steps = exchange_traced(sizes) == CpCommType::p2p || sizes.cp_comm_type == CpCommType::all_gather;
    return by_steps && sizes.cp > kSteps && sizes.cp % kSteps == 0;
}

PieceSizes with_few_steps(PieceSizes sizes) {
    if (!takes_steps(sizes)) return sizes;
    sizes.sequence = sizes.sequence / sizes.cp * kSteps;
    sizes.cp = kSteps;
    return sizes;
}

/// … but for what holds the rows of all ranks.
void widen_gathered(PieceTrace& trace, std::int64_t times) {
    for (model::AllocationRecord& tensor : trace.tensors) {
        if (tensor.name == model::kGatheredOverCp || tensor.name == model::kGradientsOverCp) tensor.bytes *= times;
    }
}

/// Copies that every rank sends to each expert, more of them to the experts of this one, the first.
model::RoutingTable uneven_copies(const MoeSpec& moe, const PieceSizes& sizes, double received) {
    const std::int64_t copies = sizes.rows_outside() * moe.top_k, local = moe.experts / sizes.ep, others = moe.experts - local;
    const auto here =
        std::min(copies, static_cast<std::int64_t>(std::llround(received * static_cast<double>(copies) / static_cast<double>(sizes.ep))));
    const auto share = [](std::int64_t sum, std::int64_t parts, std::int64_t part) { return sum / parts + (part < sum % parts ? 1 : 0); };
    model::RoutingTable table;
    for (std::int64_t source = 0; source < sizes.etp * sizes.ep; ++source) {
        for (std::int64_t expert = 0; expert < moe.experts; ++expert)
            table.push_back(expert < local ? share(here, local, expert) : share(copies - here, others, expert - local));
    }
    return table;
}

PieceTrace trace_layers(const ModelSpec& model, const PieceSizes& sizes, model::RoutingLog* routing) {
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
    context.cp_comm_type = exchange_traced(sizes);
    context.dtype = sizes.dtype;
    context.norm_epsilon = model.norm_epsilon;
    context.routing_log = routing;
    std::optional<model::ExpertBiases> biases;
    if (model.moe && model.moe->expert_bias)
        context.expert_biases =
            &biases.emplace(device, std::vector<std::int64_t>{0}, model.moe->experts, model::statistics_dtype(sizes.dtype));
    model::RecomputeChoice recompute;
    recompute.modules = sizes.modules;
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
    std::int64_t layer = 0;
    for (const model::RangeRecord& range : device.ranges()) {
        const bool backward = range.name.ends_with("backward");
        const auto add = [&](Piece piece) { trace.pieces.push_back({piece, backward, layer, range.begin, range.end}); };
        if (range.name.starts_with("layer"))
            layer = range.number;
        else if (range.name.starts_with("embedding"))
            add(Piece::embedding);
        else if (range.name.starts_with("head"))
            add(Piece::head);
        else if (range.name.starts_with("attention"))
            add(Piece::attention);
        else if (range.name.starts_with("mlp"))
            add(model.is_moe_layer(layer) ? Piece::mixture : Piece::dense);
    }
    return trace;
}

}  // namespace

const PieceRange& PieceTrace::range(Piece piece, bool backward) const {
    const PieceRange* found = nullptr;
    for (const PieceRange& range : pieces) {
        if (range.piece != piece || range.backward != backward) continue;
        if (found == nullptr || range.layer > found->layer) found = &range;
    }
    MGPLAN_ASSERT(found != nullptr, "the trace holds this piece");
    return *found;
}

PieceTrace trace_dense_pieces(const ModelSpec& model, const PieceSizes& sizes) {
    PieceTrace trace = trace_layers(shortened(model, sizes, false), with_few_steps(sizes), nullptr);
    if (takes_steps(sizes)) widen_gathered(trace, sizes.cp / kSteps);
    return trace;
}

std::optional<PieceTrace> with_rows(const PieceTrace& one, const PieceTrace& two, std::int64_t rows, std::int64_t rows_of_one) {
    if (one.tensors.size() != two.tensors.size()) return std::nullopt;
    PieceTrace result = one;
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
        const model::AllocationRecord &a = one.tensors[i], &b = two.tensors[i];
        if (a.taken != b.taken || a.returned != b.returned) return std::nullopt;
        // In two steps, for rows · bytes may leave 64 bits.
        const std::int64_t more = b.bytes - a.bytes, whole = rows / rows_of_one, rest = rows % rows_of_one;
        result.tensors[i].bytes += (whole - 1) * more + rest * (more / rows_of_one) + rest * (more % rows_of_one) / rows_of_one;
    }
    return result;
}

PieceTrace trace_mixture(const ModelSpec& model, const PieceSizes& sizes, double received) {
    PieceSizes rows = sizes;
    rows.sequence = sizes.rows();
    rows.micro_batch = rows.cp = 1;
    // A table of every source and expert, where it would be vast: as many rows in all instead, which errs upwards.
    if (received > 1 && static_cast<double>(sizes.etp) * static_cast<double>(sizes.ep) * static_cast<double>(model.moe->experts) > 1e6) {
        rows.sequence =
            static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.sequence) * received / static_cast<double>(sizes.tp))) * sizes.tp;
        return trace_layers(shortened(model, rows, true), rows, nullptr);
    }
    if (received == 1 || sizes.ep == 1) return trace_layers(shortened(model, sizes, true), rows, nullptr);
    model::RoutingLog routing;
    routing.assume(uneven_copies(*model.moe, sizes, received));
    return trace_layers(shortened(model, sizes, true), rows, &routing);
}

}  // namespace mgplan::simulator
