#include "simulator/memory/cuda_graphs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
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
        add("residual", layer.from_norm ? s.stream() : std::vector<std::int64_t>{0}, s.element, kLayerFile, layer.from_norm);
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
StaticTensor graph_residual(const Sizes& s, bool from_norm) {
    StaticTensor residual = tensor("residual", s.stream(), s.element, kLayerFile, true);
    if (!from_norm) {
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
void add_flexible_outputs(std::vector<StaticTensor>& out, const Sizes& s, bool from_norm) {
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
    out.push_back(graph_residual(s, from_norm));
    add_shared_outputs(out, s);
}

/// Outputs of Megatron-LM's graph of a router, and with `preprocess` of the dispatcher's first half.
void add_router_outputs(std::vector<StaticTensor>& out, const Sizes& s, bool preprocess, bool from_norm) {
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
        add_flexible_outputs(out, s, from_norm);
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
    out.push_back(graph_residual(s, from_norm));
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

/// Adds the kernels of the captured part of a layer.
void count_kernels(GraphedLayer& layer, const LayerCosts& costs, LayerKind kind, bool attention, bool mlp, bool router) {
    const auto count = [&layer](const PieceCost& piece) {
        layer.kernels_forward += piece.kernels_forward;
        layer.kernels_backward += piece.kernels_backward;
    };
    if (attention) count(costs.attention);
    if (mlp) count(kind == LayerKind::dense ? costs.dense_mlp : costs.experts);
    if (router) count(costs.router);
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
    explicit GraphSums(std::size_t chunks) : of_chunks(5 * chunks, 0) {
        auto begin = of_chunks.begin();
        for (std::span<std::int64_t>* each : {&static_inputs, &inner, &moved, &handing[0], &handing[1]}) {
            *each = std::span(begin, chunks);
            begin += static_cast<std::ptrdiff_t>(chunks);
        }
    }
    GraphSums(const GraphSums&) = delete;
    GraphSums& operator=(const GraphSums&) = delete;
    std::vector<std::int64_t> of_chunks;  ///< storage of the spans
    std::span<std::int64_t> static_inputs, inner, moved;
    /// Outputs of layers under one name.
    struct Boundary {
        std::string_view name;
        std::array<std::int64_t, 2> of_layer{};  ///< bytes of one layer of each kind
    };
    std::vector<Boundary> boundary;                    ///< in the order of appearance
    std::array<std::span<std::int64_t>, 2> handing{};  ///< by kind: layers of each chunk with an output
    std::int64_t inside = 0, outside = 0;              ///< backward temporaries
    bool attention = false, norms_ahead = false;
};

std::size_t index_of(LayerKind kind) {
    return kind == LayerKind::dense ? 0 : 1;
}

void add_layers(GraphSums& sums, GraphTerms& terms, const GraphInputs& in, LayerKind kind) {
    const std::size_t chunks = in.chunks.size();
    const bool megatron = policy_of(in.layout) == GraphPolicy::megatron;
    const ModelSpec& model = in.workload.model;
    const bool mtp_is_moe = model.moe && model.moe_layers.back();
    const auto mtp_of = [&](const ChunkCensus& chunk) { return mtp_is_moe == (kind == LayerKind::moe) ? chunk.mtp : 0; };
    const auto layers_of = [&](const ChunkCensus& chunk) {
        return (kind == LayerKind::dense ? chunk.dense : chunk.mixture) + mtp_of(chunk);
    };
    const auto held = std::accumulate(in.chunks.begin(), in.chunks.end(), std::int64_t{0},
                                      [&](std::int64_t sum, const ChunkCensus& chunk) { return sum + layers_of(chunk); });
    if (held == 0) return;
    const GraphedLayer& layer = kind == LayerKind::dense ? in.dense : in.mixture;
    if (!layer.captured) {
        const KeptAndTaken& mlp = kind == LayerKind::dense ? in.bytes.dense : in.bytes.mixture;
        sums.outside = std::max({sums.outside, in.bytes.attention.taken, mlp.taken});
        return;
    }
    sums.inside = std::max(sums.inside, layer.transient);
    sums.outside = std::max(sums.outside, layer.eager_transient);
    sums.attention |= layer.from_norm;
    sums.norms_ahead |= !layer.from_norm && !layer.to_router && layer.outside > 0;
    const std::int64_t input_bytes = all_bytes(layer.inputs), kept = layer.saved + layer.outside;
    // Tables of all experts leave the graph even if the layers keep less than that of the routing.
    const std::int64_t moving = std::min(kept, kept_bytes(layer.inputs) + kept_bytes(layer.boundary));
    const std::int64_t rest = kept - moving;
    const GraphedLayer& other = kind == LayerKind::dense ? in.mixture : in.dense;
    const bool ends_layer = !layer.to_router && (layer.whole || !layer.from_norm);
    // Slots write a layer's output directly into the input of the next layer's graph.
    const auto leaving = [&](const ChunkCensus& chunk) {
        const std::int64_t layers = layers_of(chunk), own = layers - mtp_of(chunk);
        if (megatron || !ends_layer || own == 0) return layers;
        const bool last = chunk.ends_with_mixture == (kind == LayerKind::moe);
        const std::int64_t to_other = kind == LayerKind::dense ? chunk.dense_then_mixture : chunk.mixture_then_dense;
        return layers - (layer.from_norm ? own - to_other - (last ? 1 : 0) : 0) - (other.captured && other.from_norm ? to_other : 0);
    };
    for (std::size_t c = 0; c < chunks; ++c) {
        const std::int64_t layers = layers_of(in.chunks[c]);
        sums.static_inputs[c] += layers * input_bytes;
        sums.inner[c] += layers * rest;
        sums.moved[c] += layers * moving;
        terms.nodes += in.residency.copies(static_cast<int>(c)) * layers * (layer.kernels_forward + layer.kernels_backward);
    }
    for (std::size_t c = 0; c < chunks; ++c) sums.handing[index_of(kind)][c] = leaving(in.chunks[c]);
    for (const StaticTensor& t : layer.boundary) {
        auto named = std::find_if(sums.boundary.begin(), sums.boundary.end(), [&](const auto& each) { return each.name == t.name; });
        if (named == sums.boundary.end()) named = sums.boundary.insert(named, {t.name});
        named->of_layer[index_of(kind)] += t.bytes;
        // Gradients of the outputs arrive at fixed addresses too, one set for all graphs with the same outputs.
        if (megatron && t.real) terms.static_inputs += t.bytes;
    }
}

/// Adds the held bytes of each name. Layers of both kinds share slots; if only one kind outputs a name, the number of held layers does not
/// depend on the name.
void add_boundaries(GraphTerms& terms, const GraphSums& sums, const GraphResidency& residency) {
    std::array<std::optional<std::int64_t>, 2> layers;
    const auto layers_held = [&](std::size_t kind) {
        if (!layers[kind]) layers[kind] = residency.held(sums.handing[kind]);
        return *layers[kind];
    };
    terms.boundary.reserve(sums.boundary.size());
    std::vector<std::int64_t> bytes;
    for (const auto& [name, of_layer] : sums.boundary) {
        std::int64_t held = 0;
        if (of_layer[0] == 0 || of_layer[1] == 0) {
            const std::size_t kind = of_layer[0] != 0 ? 0 : 1;
            if (of_layer[kind] != 0) held = of_layer[kind] * layers_held(kind);
        } else {
            bytes.clear();
            for (std::size_t c = 0; c < sums.inner.size(); ++c)
                bytes.push_back(of_layer[0] * sums.handing[0][c] + of_layer[1] * sums.handing[1][c]);
            held = residency.held(bytes);
        }
        terms.boundary.push_back({name, held});
        terms.boundary_bytes += held;
    }
}

}  // namespace

GraphPolicy policy_of(const Layout& layout) {
    return layout.engine == Engine::megatron ? GraphPolicy::megatron : GraphPolicy::slots;
}

GraphedLayer captured_part(EnumSet<Scope> scopes, const LayerCosts& costs, LayerKind kind) {
    const bool all = scopes.contains(Scope::layer);
    const bool attention = all || scopes.contains(Scope::attn);
    const bool mlp = all || scopes.contains(kind == LayerKind::dense ? Scope::mlp : Scope::moe);
    const bool router = kind == LayerKind::moe && !mlp && scopes.contains(Scope::moe_router);
    GraphedLayer layer;
    layer.captured = attention || mlp || router;
    if (!layer.captured) return layer;
    layer.whole = attention && mlp;
    layer.from_norm = attention;
    layer.to_router = router;
    count_kernels(layer, costs, kind, attention, mlp, router);
    return layer;
}

GraphedLayer graphed_layer(const Workload& workload, const Layout& layout, const LayerCosts& costs, LayerKind kind, GraphPolicy policy) {
    const Sizes s(workload, layout, policy);
    GraphedLayer layer = captured_part(layout.cuda_graphs, costs, kind);
    if (!layer.captured) return layer;
    layer.inputs = layer_inputs(s, layer.from_norm);
    const bool preprocess = layout.cuda_graphs.contains(Scope::moe_preprocess);
    if (layer.to_router && policy == GraphPolicy::slots) {
        add_slot_outputs(layer, s, preprocess);
    } else if (layer.to_router) {
        add_router_outputs(layer.boundary, s, preprocess, layer.from_norm);
    } else {
        // After a graph that ends inside a layer, or before an eager attention, a norm keeps its input.
        layer.boundary.push_back(tensor("hidden_states", s.stream(), s.element, kLayerFile, !layer.whole));
        layer.outside = kept_bytes(layer.boundary);
    }
    return layer;
}

void take_bytes(GraphedLayer& layer, const PieceBytes& bytes, LayerKind kind) {
    if (!layer.captured) return;
    const auto take = [&layer](const KeptAndTaken& piece, bool inside) {
        auto& transient = inside ? layer.transient : layer.eager_transient;
        transient = std::max(transient, piece.taken);
        if (inside) layer.saved += piece.kept;
    };
    const bool mlp = layer.whole || !(layer.from_norm || layer.to_router);
    take(bytes.attention, layer.from_norm);
    if (layer.to_router) take(bytes.router, true);
    take(kind == LayerKind::dense ? bytes.dense : bytes.mixture, mlp);
}

GraphTerms graph_terms(const GraphInputs& in) {
    const EnumSet<Scope> scopes = in.layout.cuda_graphs;
    if (scopes.empty()) return {};
    const GraphPolicy policy = policy_of(in.layout);
    if (scopes.contains(Scope::full_iteration)) return iteration_terms(in, policy);
    const bool megatron = policy == GraphPolicy::megatron;
    const ModelSpec& model = in.workload.model;
    const Sizes s(in.workload, in.layout, policy);

    GraphTerms terms;
    const std::size_t chunks = in.chunks.size();
    GraphSums sums(chunks);
    sums.boundary.reserve(in.dense.boundary.size() + in.mixture.boundary.size());
    for (const LayerKind kind : {LayerKind::dense, LayerKind::moe}) add_layers(sums, terms, in, kind);
    add_boundaries(terms, sums, in.residency);
    terms.static_inputs += in.residency.held(sums.static_inputs);
    // The RoPE angles are one table for all layers; latent attention computes them inside.
    if (megatron && sums.attention && model.position == PositionEmbedding::rope && !model.mla)
        terms.static_inputs += s.sequence * static_cast<std::int64_t>(static_cast<double>(model.head_dim) * model.rotary_fraction) * 4;
    terms.objects = bounded(static_cast<double>(terms.nodes) * static_cast<double>(in.node_bytes));

    terms.resident = in.residency.held(sums.inner);
    terms.activations = terms.resident;
    bool loss = false;
    for (std::size_t c = 0; c < chunks; ++c) {
        // The norm that kept a chunk's last output is not in the chunk.
        if (sums.norms_ahead && sums.inner[c] + sums.moved[c] > 0) sums.moved[c] -= s.stream_bytes();
        terms.activations -= in.alive[c] * (sums.inner[c] + sums.moved[c]);
        loss |= in.chunks[c].loss;
    }
    if (megatron) {
        // The graphs' private pool keeps the memory of their backwards, and eager work cannot use it.
        const std::int64_t eager = std::max(sums.outside, loss ? in.bytes.head.taken : 0);
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
