#include "simulator/memory/cuda_graphs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "simulator/memory/iteration_inputs.hpp"

namespace mgplan::simulator {
namespace {

using Scope = CudaGraphScope;

constexpr std::string_view kLayerFile = "core/transformer/transformer_layer.py";
constexpr std::string_view kMoeFile = "core/transformer/moe/moe_layer.py";
constexpr std::string_view kDispatcherFile = "core/transformer/moe/token_dispatcher.py";
constexpr std::string_view kSharedFile = "core/transformer/moe/shared_experts.py";

struct ElementType {
    std::string_view name;
    std::int64_t bytes;
    bool real;
};

constexpr ElementType kBool{"bool", 1, false}, kInt64{"int64", 8, false}, kInt32{"int32", 4, false}, kFp32{"fp32", 4, true},
    kFp64{"fp64", 8, true};

StaticTensor tensor(std::string_view name, std::vector<std::int64_t> shape, ElementType type, std::string_view source, bool kept = false) {
    const std::int64_t bytes = std::accumulate(shape.begin(), shape.end(), type.bytes, std::multiplies<>());
    return {name, std::move(shape), type.name, bytes, source, kept, type.real};
}

/// Sizes of a rank's share of a microbatch.
struct Sizes {
    const ModelSpec& model;
    const TrainingSpec& training;
    const Layout& layout;
    GraphPolicy policy;
    std::int64_t batch, sequence;   ///< micro-batch; tokens of a sequence on this cp rank
    std::int64_t rows, local_rows;  ///< tokens inside a tp region and outside
    ElementType element;

    Sizes(const Workload& work, const Layout& l, GraphPolicy p)
        : model(work.model),
          training(work.training),
          layout(l),
          policy(p),
          batch(l.micro_batch),
          sequence(work.batch.sequence / l.sizes.cp),
          rows(batch * sequence),
          local_rows(l.sequence_parallel ? rows / l.sizes.tp : rows),
          element{to_string(training.compute_dtype()), bytes_of(training.compute_dtype()), true} {}

    /// [s, b, h] of the residual stream.
    [[nodiscard]] std::vector<std::int64_t> stream() const { return {local_rows / batch, batch, model.hidden}; }
    [[nodiscard]] std::int64_t stream_bytes() const { return local_rows * model.hidden * element.bytes; }
    [[nodiscard]] bool recomputes(RecomputeModule module) const {
        return layout.recompute == Recompute::selective && layout.recompute_modules.contains(module);
    }
};

/// Tokens of one expert from one rank under a capacity (moe_utils.py get_capacity).
std::int64_t capacity_of(const Sizes& s, double factor) {
    const double mean = static_cast<double>(s.local_rows * s.model.moe->top_k) / static_cast<double>(s.model.moe->experts);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(mean * factor)));
}

/// Token copies that a rank sends to experts, as far as known before routing.
std::int64_t sent_rows(const Sizes& s) {
    const MoeSpec& moe = *s.model.moe;
    if (moe.capacity_factor > 0 && moe.pad_to_capacity) return capacity_of(s, moe.capacity_factor) * moe.experts;
    return s.local_rows * moe.top_k;
}

/// The outputs of model/layers (moe.hpp, ChosenRows; decoder_layer.cpp names them). Most tensors in the list of Megatron-LM's dispatcher
/// are derived from one table of counts on the host.
void add_slot_outputs(GraphedLayer& layer, const Sizes& s, bool preprocess) {
    const MoeSpec& moe = *s.model.moe;
    const std::int64_t tokens = s.local_rows, ep = s.layout.sizes.ep, etp = s.layout.sizes.etp;
    const ElementType probability = s.training.compute_dtype() == Dtype::fp64 ? kFp64 : kFp32;
    const auto add = [&](std::string_view name, std::vector<std::int64_t> shape, ElementType type, std::string_view source, bool kept) {
        layer.boundary.push_back(tensor(name, std::move(shape), type, source, kept));
    };
    const auto add_residual = [&] {
        // Without attention it is the graph's input.
        const bool mixer = layer.halves.mixer;
        add("residual", mixer ? s.stream() : std::vector<std::int64_t>{0}, s.element, kLayerFile, mixer);
    };
    if (!preprocess) {
        add("hidden_states", s.stream(), s.element, kMoeFile, !s.recomputes(RecomputeModule::layernorm));
        add("probabilities", {tokens, moe.top_k}, probability, kMoeFile, true);
        add("routing_map", {tokens, moe.top_k}, kInt32, kMoeFile, true);
        add_residual();
    } else {
        const bool padded = moe.capacity_factor > 0 && moe.pad_to_capacity;
        const std::int64_t sent = sent_rows(s);
        // Without an exchange the experts keep their input, and its order.
        const bool stays = ep * etp == 1;
        add("permuted_hidden_states", {sent, s.model.routed_width()}, s.element, kDispatcherFile, stays);
        add("probabilities", {sent}, probability, kDispatcherFile, stays);
        add("reversed_permutation_map", {sent}, kInt32, kDispatcherFile, true);
        layer.outside = 0;
        for (const StaticTensor& each : layer.boundary) layer.outside += each.kept ? each.bytes : 0;
        add_residual();
        add("tokens_per_expert", padded ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{etp * ep, moe.experts}, kInt32,
            kDispatcherFile, false);
        for (const std::string_view name :
             {"input_splits", "output_splits", "output_splits_tp", "num_output_tokens", "global_tokens_per_local_expert", "routing_map"})
            add(name, {0}, kInt32, kDispatcherFile, false);
    }
    // Computed inside the graph, not in parallel with the dispatch.
    if (moe.shared_ffn > 0) add("shared_experts_output", s.stream(), s.element, kMoeFile, false);
}

/// Probabilities are computed in fp32 and, in Megatron-LM without --moe-router-dtype, stored as activations.
ElementType probability_type(const Sizes& s) {
    return s.training.megatron.router_fp32 ? kFp32 : s.element;
}

/// The layer's input, an output besides the norm's; 0 bytes if it is the graph's own input passed through.
StaticTensor graph_residual(const Sizes& s, bool after_mixer) {
    StaticTensor residual = tensor("residual", s.stream(), s.element, kLayerFile, true);
    if (!after_mixer) {
        residual.bytes = 0;
        residual.kept = false;
    }
    return residual;
}

/// Outputs of shared experts: of their first half if it runs in parallel with the dispatch, else the final output.
void add_shared_outputs(std::vector<StaticTensor>& out, const Sizes& s) {
    const MoeSpec& moe = *s.model.moe;
    if (moe.shared_ffn == 0) return;
    if (!s.training.megatron.moe_shared_expert_overlap) {
        // Computed inside the graph, not in parallel with the dispatch.
        out.push_back(tensor("shared_experts_output", s.stream(), s.element, kMoeFile));
        return;
    }
    out.push_back(tensor("shared_experts_gate_score", {moe.shared_gate ? s.local_rows : 0, 1}, s.element, kSharedFile));
    out.push_back(tensor("shared_experts_fc1_input", {s.rows, s.model.hidden}, s.element, kSharedFile));
}

/// Outputs of the dispatcher's first half for DeepEP and HybridEP: it leaves tokens unchanged and converts the routing over etp and ep
/// (token_dispatcher.py, MoEFlexTokenDispatcher.dispatch_preprocess): DeepEP a probability and an index for each choice, HybridEP a
/// probability and a flag for each expert.
void add_flexible_outputs(std::vector<StaticTensor>& out, const Sizes& s, bool after_mixer) {
    const MoeSpec& moe = *s.model.moe;
    const std::int64_t tokens = s.local_rows, etp = s.layout.sizes.etp;
    out.push_back(tensor("hidden_states", s.stream(), s.element, kDispatcherFile, !s.recomputes(RecomputeModule::layernorm)));
    if (moe.dispatcher == TokenDispatcher::deep_ep) {
        out.push_back(tensor("probabilities", {tokens, moe.top_k * etp}, kFp32, kDispatcherFile, true));
        out.push_back(tensor("expert_indices", {tokens, moe.top_k * etp}, kInt64, kDispatcherFile, true));
    } else {
        out.push_back(tensor("probabilities", {tokens, moe.experts * etp}, probability_type(s), kDispatcherFile, true));
        out.push_back(tensor("routing_map", {tokens, moe.experts * etp}, kBool, kDispatcherFile, true));
    }
    out.push_back(graph_residual(s, after_mixer));
    add_shared_outputs(out, s);
}

/// Outputs of Megatron-LM's graph of a router, and with `preprocess` of the dispatcher's first half.
void add_router_outputs(std::vector<StaticTensor>& out, const Sizes& s, bool preprocess, bool after_mixer) {
    const MoeSpec& moe = *s.model.moe;
    const std::int64_t experts = moe.experts, tokens = s.local_rows;
    if (!preprocess) {
        out.push_back(tensor("hidden_states", s.stream(), s.element, kMoeFile, !s.recomputes(RecomputeModule::layernorm)));
        out.push_back(tensor("probabilities", {tokens, experts}, probability_type(s), kMoeFile, true));
        out.push_back(tensor("routing_map", {tokens, experts}, kBool, kMoeFile, true));
        return;
    }
    const std::int64_t ep = s.layout.sizes.ep, etp = s.layout.sizes.etp, local = experts / ep, sent = sent_rows(s);
    const bool exchange = ep * etp > 1;
    if (moe.dispatcher == TokenDispatcher::deep_ep || moe.dispatcher == TokenDispatcher::hybrid_ep) {
        add_flexible_outputs(out, s, after_mixer);
        return;
    }
    const bool dispatches = moe.dispatcher != TokenDispatcher::all_gather;
    const auto counts = [&](std::string_view name, std::vector<std::int64_t> shape, bool there) {
        if (!there) shape = {0};
        out.push_back(tensor(name, std::move(shape), kInt64, kDispatcherFile));
    };
    if (dispatches) {
        out.push_back(tensor("permuted_hidden_states", {sent, s.model.routed_width()}, s.element, kDispatcherFile));
        out.push_back(tensor("probabilities", {sent}, probability_type(s), kDispatcherFile));
    } else {
        // Tokens are permuted after the all-gather.
        out.push_back(tensor("permuted_hidden_states", s.stream(), s.element, kDispatcherFile, !s.recomputes(RecomputeModule::layernorm)));
        out.push_back(tensor("probabilities", {tokens, experts}, probability_type(s), kDispatcherFile, true));
    }
    out.push_back(graph_residual(s, after_mixer));
    counts("tokens_per_expert", {local}, dispatches);
    counts("input_splits", {ep}, dispatches && exchange);
    counts("output_splits", {ep}, dispatches && exchange);
    counts("output_splits_tp", {etp}, dispatches && exchange);
    counts("num_output_tokens", {1}, dispatches);
    counts("global_tokens_per_local_expert", {etp * ep, local}, dispatches && local > 1);
    if (s.training.megatron.moe_permute_fusion)
        // Transformer Engine's row map (triton/permutation.py): for each token its experts, their rows, and their number.
        out.push_back(tensor("reversed_permutation_map", {dispatches ? tokens : 0, 2 * experts + 1}, kInt32, kDispatcherFile));
    else
        out.push_back(tensor("reversed_permutation_map", {dispatches ? sent : 0}, kInt64, kDispatcherFile));
    out.push_back(tensor("routing_map", {tokens, experts}, kBool, kDispatcherFile, true));
    add_shared_outputs(out, s);
}

/// True if a kind of layers attends: Megatron-LM's MambaLayer takes no mask and no positions.
bool attends(const LayerKinds& kinds, const LayerKindHalves& kind) {
    return kind.mixer != LayerKindHalves::kNone && scope_of(*kinds.mixers[static_cast<std::size_t>(kind.mixer)].layer.mixer) == Scope::attn;
}

/// Width of the RoPE angles, which are one table for all layers; 0 without, and with latent attention, which computes them inside.
std::int64_t rotary_width(const LayerKinds& kinds) {
    std::int64_t width = 0;
    for (const LayerHalf& half : kinds.mixers) {
        if (mixer_as<LatentAttention>(half.layer) != nullptr) return 0;
        const auto* const attention = mixer_as<Attention>(half.layer);
        if (attention != nullptr && attention->rotary)
            width = std::max(width, static_cast<std::int64_t>(static_cast<double>(attention->head_dim) * attention->rotary->fraction));
    }
    return width;
}

/// The inputs of a layer's graph.
std::vector<StaticTensor> layer_inputs(const Sizes& s, bool attention) {
    std::vector<StaticTensor> inputs{tensor("hidden_states", s.stream(), s.element, kLayerFile, true)};
    // Megatron-LM passes a mask to a graph with attention, whether or not the attention kernel uses it.
    if (attention && s.policy == GraphPolicy::megatron)
        inputs.push_back(tensor("attention_mask", {s.batch, 1, s.sequence, s.sequence * s.layout.sizes.cp}, kBool, kLayerFile));
    return inputs;
}

/// Bytes of the tensors with `kept` set.
std::int64_t kept_bytes(const std::vector<StaticTensor>& tensors) {
    std::int64_t bytes = 0;
    for (const StaticTensor& t : tensors) bytes += t.kept ? t.bytes : 0;
    return bytes;
}

std::int64_t all_bytes(const std::vector<StaticTensor>& tensors) {
    std::int64_t bytes = 0;
    for (const StaticTensor& t : tensors) bytes += t.bytes;
    return bytes;
}

/// Converts a product to 64 bits; limits absurd sizes to 2^59.
std::int64_t bounded(double product) {
    return static_cast<std::int64_t>(std::min(product, 0x1p59));
}

/// Adds to the bytes of a name.
void add_boundary(GraphTerms& terms, std::string_view name, std::int64_t bytes) {
    auto found = std::find_if(terms.boundary.begin(), terms.boundary.end(), [&](const BoundaryBytes& b) { return b.name == name; });
    if (found == terms.boundary.end()) found = terms.boundary.insert(found, {name, 0});
    found->bytes += bytes;
    terms.boundary_bytes += bytes;
}

/// Terms of one graph for all microbatches. Its inputs are the batch, its outputs the losses: Megatron-LM's of each microbatch
/// (StaticBufferLoader), mgplan's in fp64 summed over all, plus one of each depth of multi-token prediction.
GraphTerms iteration_terms(const GraphInputs& in, GraphPolicy policy) {
    GraphTerms terms;
    const Sizes s(in.workload, in.layout, policy);
    const std::int64_t microbatches = in.layout.num_microbatches;
    bool first = false, last = false;
    std::int64_t nodes = 0;
    for (const ChunkCensus& chunk : in.chunks) {
        first |= chunk.embedding;
        last |= chunk.loss;
        const auto add = [&](const PieceCost& piece, std::int64_t count) {
            nodes += count * (piece.kernels_forward + piece.kernels_backward);
        };
        for (std::size_t kind = 0; kind < chunk.kinds.size(); ++kind) add(in.layers.layers[kind].cost, chunk.kinds[kind]);
        add(in.layers.mtp.cost, chunk.mtp);
        add(in.layers.embedding, chunk.mtp + (chunk.embedding ? 1 : 0));
        if (chunk.loss) add(in.layers.head, 1 + in.workload.model.mtp_layers);
    }
    const ModelSpec& model = in.workload.model;
    IterationShare share{policy, microbatches, first, last, &model, s.rows};
    if (s.training.megatron.attention_mask_in_dataloader) {
        const double sequence = static_cast<double>(in.workload.batch.sequence);
        share.mask_bytes = bounded(static_cast<double>(microbatches * s.batch) * sequence * sequence);
    }
    for (const IterationInput& input : iteration_inputs(share)) terms.static_inputs += input.bytes;
    if (policy == GraphPolicy::slots) {
        // Eager passes hold the ids and targets of the microbatch of each live chunk.
        for (std::size_t c = 0; c < in.chunks.size(); ++c)
            terms.activations -= in.alive[c] * 4 * s.rows * (2 + (in.chunks[c].mtp > 0 ? model.mtp_layers : 0));
    }
    const std::int64_t losses = policy == GraphPolicy::megatron ? microbatches * 4 : (1 + model.mtp_layers) * 8;
    add_boundary(terms, "loss", last ? losses : 0);
    terms.nodes = microbatches * nodes;
    terms.objects = bounded(static_cast<double>(terms.nodes) * static_cast<double>(in.node_bytes));
    terms.pool_is_private = policy == GraphPolicy::megatron;
    return terms;
}

/// Sums over the layers of all chunks; each vector has one entry per chunk.
struct GraphSums {
    explicit GraphSums(std::size_t chunks) : static_inputs(chunks, 0), inner(chunks, 0), moved(chunks, 0) {}
    std::vector<std::int64_t> static_inputs, inner, moved;
    /// Outputs of layers under one name.
    struct Boundary {
        std::string_view name;
        std::vector<std::int64_t> of_chunks;  ///< bytes of all layers of each chunk; empty: none
    };
    std::vector<Boundary> boundary;        ///< in the order of appearance
    std::vector<std::size_t> outputs;      ///< GraphedLayer::outputs_like of the layers so far
    std::int64_t inside = 0, outside = 0;  ///< backward temporaries
    bool attention = false;
};

/// Bytes of the outputs that have gradients.
std::int64_t gradient_bytes(const GraphedLayer& layer) {
    std::int64_t bytes = 0;
    for (const StaticTensor& t : layer.boundary) bytes += t.real ? t.bytes : 0;
    return bytes;
}

/// Number of layers of a kind in a chunk that may be in graphs, with those of multi-token prediction.
std::int64_t layers_of(const GraphInputs& in, const ChunkCensus& chunk, std::size_t kind) {
    const std::int64_t own = kind < chunk.kinds.size() ? chunk.kinds[kind] : 0;
    return own + (kind == in.kinds.of_prediction && in.kinds.prediction_in_graphs ? chunk.mtp : 0);
}

/// Number of layers of a kind in a chunk that a layer follows of which `is_next` is true.
template <class Predicate>
std::int64_t followed(const ChunkCensus& chunk, std::size_t kind, const GraphInputs& in, const Predicate& is_next) {
    std::int64_t count = 0;
    for (const ChunkCensus::Neighbours& pair : chunk.neighbours) {
        if (pair.kind == kind && is_next(in.graphed.kinds[pair.next])) count += pair.count;
    }
    return count;
}

void add_layers(GraphSums& sums, GraphTerms& terms, const GraphInputs& in, std::size_t kind, std::int64_t stream) {
    const std::size_t chunks = in.chunks.size();
    const bool megatron = policy_of(in.layout) == GraphPolicy::megatron;
    const auto held = std::accumulate(in.chunks.begin(), in.chunks.end(), std::int64_t{0},
                                      [&](std::int64_t sum, const ChunkCensus& chunk) { return sum + layers_of(in, chunk, kind); });
    if (held == 0) return;
    const GraphedLayer& layer = in.graphed.kinds[kind];
    const LayerKindHalves& halves = in.kinds.kinds[kind];
    if (!layer.halves.any()) {
        sums.outside = std::max({sums.outside, in.graphed.bytes.mixer(halves).taken, in.graphed.bytes.feed_forward(halves).taken});
        return;
    }
    sums.inside = std::max(sums.inside, layer.transient);
    sums.outside = std::max(sums.outside, layer.eager_transient);
    sums.attention |= layer.halves.mixer && attends(in.kinds, halves);
    const std::int64_t input_bytes = all_bytes(layer.inputs), kept = layer.saved + layer.outside;
    // Tables of all experts leave the graph even if the layers keep less than that of the routing.
    const std::int64_t moving = std::min(kept, kept_bytes(layer.inputs) + kept_bytes(layer.boundary));
    const std::int64_t rest = kept - moving;
    const KernelCounts kernels = in.layers.layers.empty() ? KernelCounts{} : kernels_in(layer.halves, in.layers.layers[kind]);
    std::vector<std::int64_t> handing(chunks);  // layers of each chunk with an output
    for (std::size_t c = 0; c < chunks; ++c) {
        const ChunkCensus& chunk = in.chunks[c];
        const std::int64_t layers = layers_of(in, chunk, kind);
        sums.static_inputs[c] += layers * input_bytes;
        sums.inner[c] += layers * rest;
        sums.moved[c] += layers * moving;
        terms.nodes += in.residency.copies(static_cast<int>(c)) * layers * (kernels.forward + kernels.backward);
        handing[c] = layers;
        if (!layer.ends_layer) continue;
        // The norm of an eager layer keeps its input. Slots write a layer's output directly into the input of the next layer's graph.
        sums.moved[c] += stream * (followed(chunk, kind, in, [](const GraphedLayer& next) { return !next.starts_layer; }) +
                                   (layer.starts_layer || kind != in.kinds.of_prediction ? 0 : chunk.mtp));
        if (!megatron) handing[c] -= followed(chunk, kind, in, [](const GraphedLayer& next) { return next.starts_layer; });
    }
    // Gradients of outputs arrive at fixed addresses, one set for all graphs with the same outputs (make_graphed_callables,
    // static_grad_outputs_dict).
    if (megatron && std::find(sums.outputs.begin(), sums.outputs.end(), layer.outputs_like) == sums.outputs.end()) {
        sums.outputs.push_back(layer.outputs_like);
        terms.static_inputs += gradient_bytes(layer);
    }
    for (const StaticTensor& t : layer.boundary) {
        auto named = std::find_if(sums.boundary.begin(), sums.boundary.end(), [&](const auto& each) { return each.name == t.name; });
        if (named == sums.boundary.end()) {
            named = sums.boundary.insert(named, {t.name, {}});
        }
        if (t.bytes == 0) continue;
        named->of_chunks.resize(chunks);
        for (std::size_t c = 0; c < chunks; ++c) named->of_chunks[c] += t.bytes * handing[c];
    }
}

/// Adds the held bytes of each name. What is held grows with the amounts, so that names with proportional amounts are computed once.
void add_boundaries(GraphTerms& terms, const GraphSums& sums, const GraphResidency& residency) {
    std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> known;  // amounts divided by their common divisor, and bytes held
    terms.boundary.reserve(sums.boundary.size());
    for (const auto& [name, of_chunks] : sums.boundary) {
        std::vector<std::int64_t> amounts = of_chunks;
        const std::int64_t divisor = std::accumulate(amounts.begin(), amounts.end(), std::int64_t{0}, std::gcd<std::int64_t, std::int64_t>);
        std::int64_t held = 0;
        if (divisor > 0) {
            for (std::int64_t& amount : amounts) amount /= divisor;
            auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == amounts; });
            if (found == known.end()) {
                const std::int64_t once = residency.held(amounts);
                found = known.insert(found, {std::move(amounts), once});
            }
            held = divisor * found->second;
        }
        terms.boundary.push_back({name, held});
        terms.boundary_bytes += held;
    }
}

/// Sets saved, transient and eager_transient.
void take_bytes(GraphedLayer& layer, const PieceBytes& bytes, const LayerKindHalves& kind) {
    if (!layer.halves.any()) return;
    const auto take = [&layer](const KeptAndTaken& piece, bool inside) {
        auto& transient = inside ? layer.transient : layer.eager_transient;
        transient = std::max(transient, piece.taken);
        if (inside) layer.saved += piece.kept;
    };
    take(bytes.mixer(kind), layer.halves.mixer);
    if (layer.halves.router) take(bytes.router, true);
    take(bytes.feed_forward(kind), layer.halves.feed_forward);
}

/// Shapes and types of the outputs that have gradients.
std::vector<std::pair<std::vector<std::int64_t>, std::string_view>> shapes_with_gradients(const GraphedLayer& layer) {
    std::vector<std::pair<std::vector<std::int64_t>, std::string_view>> shapes;
    for (const StaticTensor& t : layer.boundary) {
        if (t.real && t.bytes > 0) shapes.emplace_back(t.shape, t.dtype);
    }
    return shapes;
}

}  // namespace

GraphPolicy policy_of(const Layout& layout) {
    return layout.engine == Engine::megatron ? GraphPolicy::megatron : GraphPolicy::slots;
}

KernelCounts kernels_in(const CapturedHalves& halves, const LayerCosts::Layer& layer) {
    KernelCounts kernels;
    if (halves.mixer) kernels += layer.mixer;
    if (halves.feed_forward) kernels += layer.feed_forward;
    if (halves.router) kernels += layer.router;
    return kernels;
}

GraphedLayer graphed_layer(const Workload& workload, const Layout& layout, const LayerKinds& kinds, std::size_t kind, GraphPolicy policy) {
    const Sizes s(workload, layout, policy);
    const LayerKindHalves& halves = kinds.kinds[kind];
    GraphedLayer layer;
    layer.halves = captured_halves(layout.cuda_graphs, kinds, halves);
    if (!layer.halves.any()) return layer;
    const bool mixes = halves.mixer != LayerKindHalves::kNone, feeds = halves.feed_forward != LayerKindHalves::kNone;
    layer.starts_layer = layer.halves.mixer || !mixes;
    layer.ends_layer = layer.halves.feed_forward || !feeds;
    layer.inputs = layer_inputs(s, layer.halves.mixer && attends(kinds, halves));
    const bool preprocess = layout.cuda_graphs.contains(Scope::moe_preprocess);
    if (layer.halves.router && policy == GraphPolicy::slots) {
        add_slot_outputs(layer, s, preprocess);
    } else if (layer.halves.router) {
        add_router_outputs(layer.boundary, s, preprocess, layer.halves.mixer);
    } else {
        // After a graph that ends inside a layer the norm of the rest keeps its input.
        layer.boundary.push_back(tensor("hidden_states", s.stream(), s.element, kLayerFile, !layer.ends_layer));
        layer.outside = kept_bytes(layer.boundary);
    }
    return layer;
}

GraphedLayers graphed_layers(const Workload& workload, const Layout& layout, const LayerKinds& kinds, PieceBytes bytes) {
    GraphedLayers graphed{std::move(bytes), {}};
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        GraphedLayer layer = graphed_layer(workload, layout, kinds, kind, policy_of(layout));
        take_bytes(layer, graphed.bytes, kinds.kinds[kind]);
        const auto like = std::find_if(graphed.kinds.begin(), graphed.kinds.end(), [&](const GraphedLayer& known) {
            return shapes_with_gradients(known) == shapes_with_gradients(layer);
        });
        layer.outputs_like = static_cast<std::size_t>(like - graphed.kinds.begin());
        graphed.kinds.push_back(std::move(layer));
    }
    return graphed;
}

GraphTerms graph_terms(const GraphInputs& in) {
    const EnumSet<Scope> scopes = in.layout.cuda_graphs;
    if (scopes.empty()) return {};
    const GraphPolicy policy = policy_of(in.layout);
    if (scopes.contains(Scope::full_iteration)) return iteration_terms(in, policy);
    const bool megatron = policy == GraphPolicy::megatron;
    const Sizes s(in.workload, in.layout, policy);

    GraphTerms terms;
    const std::size_t chunks = in.chunks.size();
    GraphSums sums(chunks);
    for (std::size_t kind = 0; kind < in.kinds.size(); ++kind) add_layers(sums, terms, in, kind, s.stream_bytes());
    const bool predicts = std::any_of(in.chunks.begin(), in.chunks.end(), [](const ChunkCensus& chunk) { return chunk.mtp > 0; });
    if (predicts && !in.kinds.prediction_in_graphs) {
        const LayerKindHalves& prediction = in.kinds.kinds[in.kinds.of_prediction];
        sums.outside = std::max({sums.outside, in.graphed.bytes.mixer(prediction).taken, in.graphed.bytes.feed_forward(prediction).taken});
    }
    add_boundaries(terms, sums, in.residency);
    terms.static_inputs += in.residency.held(sums.static_inputs);
    if (megatron && sums.attention) terms.static_inputs += s.sequence * rotary_width(in.kinds) * 4;
    terms.objects = bounded(static_cast<double>(terms.nodes) * static_cast<double>(in.node_bytes));

    terms.resident = in.residency.held(sums.inner);
    terms.activations = terms.resident;
    bool loss = false;
    for (std::size_t c = 0; c < chunks; ++c) {
        terms.activations -= in.alive[c] * (sums.inner[c] + sums.moved[c]);
        loss |= in.chunks[c].loss;
    }
    if (megatron) {
        // The graphs' private pool keeps the memory of their backwards, and eager work cannot use it.
        const std::int64_t eager = std::max(sums.outside, loss ? in.graphed.bytes.head.taken : 0);
        terms.activations += sums.inside + eager - std::max(sums.inside, eager);
        terms.resident += sums.inside;
        terms.pool = terms.resident + terms.boundary_bytes;
    }
    return terms;
}

std::int64_t hidden_by_graphs(const GraphTerms& terms, const MemoryBreakdown& at_peak) {
    const std::int64_t eager = at_peak.activations - terms.resident + at_peak.communication;
    return std::max<std::int64_t>(0, std::min(terms.pool, eager));
}

PaddingCost padding_cost(const Workload& workload, const Layout& layout, double capacity_factor) {
    const Sizes s(workload, layout, policy_of(layout));
    const MoeSpec& moe = *workload.model.moe;
    const std::int64_t width = moe.expert_ffn / layout.sizes.etp;
    const std::int64_t first = workload.model.gated_mlp ? 2 * width : width;
    PaddingCost cost;
    cost.capacity_factor = capacity_factor;
    cost.capacity = capacity_of(s, capacity_factor);
    cost.sent_rows = cost.capacity * moe.experts;
    const std::int64_t extra_sent = cost.sent_rows - s.local_rows * moe.top_k;
    cost.extra_rows = extra_sent * layout.sizes.etp;
    // Kept by experts per token (model/layers/experts.hpp): input, before and after the activation, its probability.
    cost.extra_bytes = cost.extra_rows * ((workload.model.routed_width() + first + width) * s.element.bytes + 4);
    cost.extra_flops = 3 * 2.0 * static_cast<double>(cost.extra_rows) * static_cast<double>(workload.model.routed_width()) *
                       static_cast<double>(first + width);
    // Dispatch and combine, forward and backward.
    if (layout.sizes.ep > 1) cost.extra_traffic = 4 * extra_sent * workload.model.routed_width() * s.element.bytes;
    return cost;
}

}  // namespace mgplan::simulator
