#include "simulator/memory/model_state.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "model/optimizer/muon.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/rounding.hpp"
#include "plan/training/own_fp8.hpp"
#include "simulator/memory/offloaded_state.hpp"
#include "simulator/memory/sharded_state.hpp"
#include "simulator/memory/unit_state.hpp"
#include "simulator/piece/muon_record.hpp"

namespace mgplan::simulator {
namespace {

std::size_t buffer_index(bool expert, bool fp8) {
    return (expert ? 2U : 0U) + (fp8 ? 1U : 0U);
}

/// A layer's parameters with attention's output projection last, in order of use: Megatron-core registers it first.
std::vector<Parameter> in_order_of_use(std::vector<Parameter> parameters) {
    const auto has = [](std::string_view part) {
        return [part](const Parameter& parameter) { return parameter.name.find(part) != std::string::npos; };
    };
    const auto first = std::find_if(parameters.begin(), parameters.end(), has("self_attention."));
    const auto last = std::find_if_not(first, parameters.end(), has("self_attention."));
    std::stable_partition(first, last, std::not_fn(has("self_attention.linear_proj.")));
    return parameters;
}

/// True for parameters that stay in fp32 while all others have 16 bits: mixing maps of residual streams, and their final merge, on
/// Megatron-LM's branch dev (d48bd6be, core/transformer/hyper_connection.py, __init__, and transformer_block.py: mark_keep_in_fp32). Main
/// has no such parameters.
bool stays_in_fp32(const Parameter& parameter, const ModelSpec& model) {
    const bool of_streams =
        parameter.name.find("_hyper_connection.") != std::string::npos || parameter.name.find("hc_head_") != std::string::npos;
    return of_streams && model.hyper_connections && model.hyper_connections->learned_head;
}

/// Converts `parameters` elements that `bytes` counts in the model's dtype to fp32: they and their gradients are in buffers of their own,
/// and are also the optimizer's main parameters (core/optimizer/distrib_optimizer.py, shard_fp32_groups). Without the padding of these
/// buffers.
void widen_to_fp32(ModelStateBytes& bytes, std::int64_t parameters, std::int64_t shards, const TrainingSpec& training) {
    if (parameters == 0) return;
    TrainingSpec wide = training;
    wide.precision = Precision::fp32;
    wide.grad_dtype = Dtype::fp32;
    const BufferElements elements{.parameters = parameters, .buffer = parameters, .shards = shards};
    const ModelStateBytes narrow = model_state_bytes(elements, Engine::megatron, training);
    const ModelStateBytes whole = model_state_bytes(elements, Engine::megatron, wide);
    bytes.parameters += whole.parameters - narrow.parameters;
    bytes.gradients += whole.gradients - narrow.gradients;
    bytes.optimizer += whole.optimizer - narrow.optimizer;
    bytes.update += whole.update - narrow.update;
    bytes.stepping[0] += whole.stepping[0] - narrow.stepping[0];
    bytes.host += whole.host - narrow.host;
}

/// Elements of the matrices in the shard that holds most of them.
std::int64_t fullest_shard(const model::BufferLayout& buffer) {
    std::vector<std::int64_t> held(static_cast<std::size_t>(buffer.dp));
    for (const model::BufferSpan& span : buffer.spans) {
        const model::Bucket& bucket = buffer.buckets[static_cast<std::size_t>(span.bucket)];
        held[static_cast<std::size_t>((span.start - bucket.start) / ((bucket.end - bucket.start) / buffer.dp))] += span.end - span.start;
    }
    return *std::max_element(held.begin(), held.end());
}

/// State of a buffer that holds only matrices of a layer-wise optimizer, or none. Engine mgplan keeps state of the padding too.
ModelStateBytes matrices_apart_bytes(const model::BufferLayout& buffer, Engine engine, const TrainingSpec& training) {
    BufferElements elements{buffer.numel, buffer.numel, buffer.param_dtype == Dtype::fp8, buffer.sharded ? buffer.dp : 1,
                            std::ssize(buffer.spans)};
    elements.expert = buffer.expert;
    if (buffer.matrices) elements.matrices = elements.buffer;
    if (buffer.matrices && engine == Engine::megatron) elements.shard = fullest_shard(buffer);
    return model_state_bytes(elements, engine, training);
}

}  // namespace

std::size_t ModelStates::KeyHash::operator()(const Key& key) const {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(key.split);
    for (const std::int64_t field :
         {key.stages, key.tp, key.ep, key.etp, key.world, static_cast<std::int64_t>(key.engine), key.gathers_again ? 1L : 0L}) {
        hash = (hash ^ static_cast<std::uint64_t>(field)) * 1099511628211ULL;
        hash ^= hash >> 29U;
    }
    return static_cast<std::size_t>(hash);
}

ModelStates::Fp8Copies ModelStates::fp8_of(const std::vector<Parameter>& parameters) const {
    Fp8Copies sum;
    if (!quantised(workload_.training.precision)) return sum;
    const OwnFp8 runs = own_fp8(workload_.model, workload_.training);
    for (const Parameter& parameter : parameters) {
        if (!parameter.linear_weight) continue;
        const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
        const Fp8WeightBytes copies = fp8_weight_bytes(rows, columns, workload_.training.format(), workload_.cluster.compute_capability);
        sum.megatron += copies;
        sum.own += runs != OwnFp8::none ? own_fp8_weight_bytes(rows, columns, runs) : copies;
    }
    return sum;
}

model::BufferParameter ModelStates::in_buffer(const Parameter& parameter, bool in_bf16) const {
    const bool fp8 = !in_bf16 && workload_.training.fp8_parameters && parameter.linear_weight;
    return model::buffer_parameter(parameter, fp8 ? Dtype::fp8 : workload_.training.compute_dtype());
}

ModelStates::Sums ModelStates::sums_of(const std::vector<Parameter>& parameters, std::vector<std::int64_t>* alone, bool in_bf16) const {
    Sums sums{};
    for (const Parameter& each : parameters) {
        const model::BufferParameter parameter = in_buffer(each, in_bf16);
        if (parameter.shared_embedding && alone != nullptr)
            alone->push_back(parameter.numel);
        else
            sums[buffer_index(parameter.expert, parameter.dtype == Dtype::fp8)].add(parameter.numel);
    }
    return sums;
}

ModelStates::Matrices& ModelStates::Matrices::operator+=(const Matrices& other) {
    for (std::size_t i = 0; i < 2; ++i) {
        elements[i] += other.elements[i];
        largest[i] = std::max(largest[i], other.largest[i]);
    }
    return *this;
}

ModelStates::Matrices ModelStates::Matrices::times(std::int64_t count) const {
    Matrices product = *this;
    for (std::int64_t& each : product.elements) each *= count;
    if (count == 0) product.largest = {};
    return product;
}

ModelStates::Matrices ModelStates::matrices_of(const std::vector<Parameter>& parameters) const {
    Matrices sum;
    for (const Parameter& parameter : parameters) {
        if (!model::is_muon_matrix(parameter)) continue;
        const std::size_t kind = parameter.expert_group ? 1 : 0;
        sum.elements[kind] += parameter.count();
        sum.largest[kind] = std::max(sum.largest[kind], parameter.count());
    }
    return sum;
}

std::int64_t ModelStates::take_frozen(std::vector<Parameter>& parameters, bool stored_quantised) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : parameters) {
        if (!parameter.trained && !(stored_quantised && parameter.linear_weight)) elements += parameter.count();
    }
    std::erase_if(parameters, [](const Parameter& parameter) { return !parameter.trained; });
    return elements;
}

std::int64_t ModelStates::in_fp32_of(const std::vector<Parameter>& parameters) const {
    std::int64_t sum = 0;
    for (const Parameter& parameter : parameters) {
        if (stays_in_fp32(parameter, workload_.model)) sum += parameter.count();
    }
    return sum;
}

std::int64_t ModelStates::workspace_of(const std::vector<Parameter>& parameters, const ParallelSizes& sizes) const {
    std::int64_t most = 0;
    if (workload_.training.megatron.optimizer != OptimizerKind::muon) return most;
    std::vector<std::pair<std::vector<std::int64_t>, std::string>> known;  // all experts are equal
    for (const Parameter& parameter : parameters) {
        if (!model::is_muon_matrix(parameter)) continue;
        std::pair like(parameter.shape, parameter.expert ? std::string() : parameter.name);
        if (std::find(known.begin(), known.end(), like) != known.end()) continue;
        known.push_back(std::move(like));
        most = std::max(most, record_muon(parameter, workload_.model, sizes, workload_.training).workspace);
    }
    return most;
}

std::vector<model::BufferParameter> ModelStates::in_module_order(const Pieces& pieces, const Ends& ends, const StageChunk& chunk) const {
    std::vector<model::BufferParameter> list = ends.before;
    for (std::int64_t i = 0; i < chunk.decoders; ++i) {
        const auto& layer = pieces.layers[kinds_.of_layer[static_cast<std::size_t>(chunk.first_decoder + i)]].list;
        list.insert(list.end(), layer.begin(), layer.end());
    }
    list.insert(list.end(), ends.behind.begin(), ends.behind.end());
    return list;
}

bool ModelStates::in_parts(const Layout& layout) const {
    return layout.engine == Engine::megatron && workload_.training.megatron.weight_shards.active();
}

void ModelStates::take_parts(std::vector<Parameter>& parameters, const Layout& layout) const {
    if (!in_parts(layout)) return;
    for (Parameter& parameter : parameters) parameter = held_part(std::move(parameter), workload_.training);
}

GatherBufferList ModelStates::gather_list(const Layout& layout, int pp_rank) const {
    const ModelSpec& model = built_for(layout);
    GatherBufferList buffers(workload_.training, workload_.cluster.compute_capability);
    std::vector<std::int64_t> layers(kinds_.size());
    for (int c = 0; c < layout.vpp; ++c) {
        StageChunk chunk = layout.split->chunk(pp_rank, c);
        const bool final_norm = has_final_norm(model, layout.engine, chunk);
        for (std::int64_t i = 0; i < chunk.decoders; ++i) ++layers[kinds_.of_layer[static_cast<std::size_t>(chunk.first_decoder + i)]];
        chunk.decoders = chunk.first_decoder = 0;
        // An embedding table that is not the output layer too has no GEMM.
        for (const Parameter& parameter : chunk_parameters(model, layout.sizes, chunk, final_norm))
            buffers.add(parameter, 1, {.multiplied = !parameter.name.starts_with("embedding.") || (model.tied_embeddings && chunk.loss)});
    }
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        if (layers[kind] == 0) continue;
        GatherBufferList::Use use{.in_bf16 = kinds_.kinds[kind].in_bf16, .repeated = layout.recompute == Recompute::full};
        for (const Parameter& parameter : in_order_of_use(decoder_layer_parameters(model, kinds_.first_layer[kind], layout.sizes, ""))) {
            buffers.add(parameter, layers[kind], use);
            use.next = true;
        }
    }
    return buffers;
}

std::vector<std::int64_t> ModelStates::gather_buffers(const Layout& layout, int pp_rank) const {
    if (!in_parts(layout)) return {};
    const GatherBufferList buffers = gather_list(layout, pp_rank);
    std::vector<std::int64_t> list = buffers.weights_one_by_one();
    const std::vector<std::int64_t> gradients = buffers.gradients_one_by_one();
    list.insert(list.end(), gradients.begin(), gradients.end());
    return list;
}

ModelStates::Pieces& ModelStates::pieces_of(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    // With more than one stage the embedding may be shared.
    const ModelSpec& model = built_for(layout);
    const Engine engine = in_parts(layout) || megatron_differs_ ? layout.engine : Engine::mgplan;
    auto [entry, fresh] = pieces_.try_emplace(Key{nullptr, 0, sizes.tp, sizes.ep, sizes.etp, sizes.pp > 1 ? 2 : 1, engine});
    Pieces& pieces = entry->second;
    if (!fresh) return pieces;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        const bool in_bf16 = kinds_.kinds[kind].in_bf16;
        auto parameters = decoder_layer_parameters(model, kinds_.first_layer[kind], sizes, "");
        take_parts(parameters, layout);
        Pieces::Layer layer;
        if (!in_bf16) layer.fp8 = fp8_of(parameters);
        const bool in_nf4 = model.adapters && model.adapters->base == FrozenStorage::nf4;
        for (const Parameter& parameter : parameters) {
            if (in_nf4 && parameter.linear_weight && !parameter.trained) layer.packed += nf4_bytes(parameter.count());
        }
        layer.frozen = take_frozen(parameters, in_nf4 || (workload_.training.fp8_parameters && !in_bf16));
        layer.sums = sums_of(parameters, nullptr, in_bf16);
        layer.matrices = matrices_of(parameters);
        layer.workspace = workspace_of(parameters, sizes);
        layer.in_fp32 = in_fp32_of(parameters);
        for (const Parameter& parameter : parameters) layer.list.push_back(in_buffer(parameter, in_bf16));
        pieces.layers.push_back(std::move(layer));
    }
    return pieces;
}

const ModelStates::Ends& ModelStates::ends_of(Pieces& pieces, const Layout& layout, const StageChunk& chunk) const {
    StageChunk contents = chunk;
    contents.decoders = contents.first_decoder = 0;
    const bool final_norm = has_final_norm(workload_.model, layout.engine, chunk);
    const auto same = [&](const Ends& ends) { return ends.contents == contents && ends.final_norm == final_norm; };
    if (const auto found = std::find_if(pieces.ends.begin(), pieces.ends.end(), same); found != pieces.ends.end()) return *found;
    Ends ends;
    ends.contents = contents;
    ends.final_norm = final_norm;
    auto parameters = chunk_parameters(built_for(layout), layout.sizes, contents, final_norm);
    take_parts(parameters, layout);
    ends.fp8 = fp8_of(parameters);
    ends.frozen = take_frozen(parameters, workload_.training.fp8_parameters);
    ends.sums = sums_of(parameters, &ends.alone, false);
    ends.matrices = matrices_of(parameters);
    ends.workspace = workspace_of(parameters, layout.sizes);
    ends.in_fp32 = in_fp32_of(parameters);
    for (const Parameter& parameter : parameters)
        (parameter.name.starts_with("embedding.") ? ends.before : ends.behind).push_back(in_buffer(parameter, false));
    pieces.ends.push_back(std::move(ends));
    return pieces.ends.back();
}

std::array<std::int64_t, ModelStates::kBuffers> ModelStates::largest_in_buffers(const Pieces& pieces, const Ends& ends,
                                                                                const std::vector<std::int64_t>& layers) {
    std::array<std::int64_t, kBuffers> largest{};
    const auto look_at = [&](const std::vector<model::BufferParameter>& list) {
        for (const model::BufferParameter& parameter : list) {
            std::int64_t& most = largest[buffer_index(parameter.expert, parameter.dtype == Dtype::fp8)];
            most = std::max(most, parameter.numel);
        }
    };
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        if (layers[kind] > 0) look_at(pieces.layers[kind].list);
    }
    look_at(ends.before);
    look_at(ends.behind);
    return largest;
}

ModelStateBytes ModelStates::chunk_bytes(Pieces& pieces, const Layout& layout, int pp_rank, int chunk_number) const {
    const TrainingSpec& training = workload_.training;
    const StageChunk& chunk = layout.split->chunk(pp_rank, chunk_number);
    const auto kind_of = [&](std::int64_t layer) { return kinds_.of_layer[static_cast<std::size_t>(layer)]; };
    const auto elements_of = [&](const StageChunk& part) {
        const Ends& its = ends_of(pieces, layout, part);
        std::int64_t elements = 0;
        for (const std::int64_t numel : its.alone) elements += numel;
        for (std::size_t b = 0; b < kBuffers; ++b) {
            elements += its.sums[b].numel;
            for (std::int64_t i = 0; i < part.decoders; ++i) elements += pieces.layers[kind_of(part.first_decoder + i)].sums[b].numel;
        }
        return elements;
    };
    std::int64_t rank_elements = 0;  // of all chunks, if a flag divides them; before `ends`, since ends_of() may move these
    for (int c = 0; training.megatron.num_buckets > 0 && c < layout.vpp; ++c) rank_elements += elements_of(layout.split->chunk(pp_rank, c));
    const Ends& ends = ends_of(pieces, layout, chunk);

    std::vector<std::int64_t> layers(kinds_.size());  // by index of their kind
    for (std::int64_t i = 0; i < chunk.decoders; ++i) ++layers[kind_of(chunk.first_decoder + i)];
    if (layout.engine == Engine::megatron && training.megatron.fully_sharded.active())
        return sharded_chunk_bytes(pieces, ends, layout, layers);
    Sums sums = ends.sums;
    for (std::size_t b = 0; b < kBuffers; ++b) {
        for (std::size_t kind = 0; kind < layers.size(); ++kind) sums[b] += pieces.layers[kind].sums[b].times(layers[kind]);
    }

    model::BufferOptions options = model::buffer_options(layout, training, pp_rank, chunk_number);
    if (in_parts(layout)) options = over_parts(options, training.megatron.weight_shards);
    if (layout.engine == Engine::megatron) model::set_buckets_of_flags(options, training, rank_elements);
    std::array<std::int64_t, kBuffers> numel{}, largest_shard{};  // per bucket; a rank's part of a parameter is within it
    largest_shard.fill(std::numeric_limits<std::int64_t>::max());
    const std::int64_t groups[] = {options.dp, options.dp, options.edp, options.edp};
    ModelStateBytes bytes;
    if (options.matrices_apart) {
        for (const model::BufferLayout& buffer : model::buffers_of(in_module_order(pieces, ends, chunk), options)) {
            numel[buffer_index(buffer.expert, buffer.param_dtype == Dtype::fp8)] += buffer.numel;
            bytes += matrices_apart_bytes(buffer, layout.engine, training);
        }
    } else if (options.distributed_optimizer && model::effective_bucket_size(options)) {
        const std::vector<model::BufferParameter> list = in_module_order(pieces, ends, chunk);
        for (const model::BufferLayout& buffer : model::buffers_of(list, options)) {
            const std::size_t b = buffer_index(buffer.expert, buffer.param_dtype == Dtype::fp8);
            numel[b] = buffer.numel;
            largest_shard[b] = 0;
            for (const model::Bucket& bucket : buffer.buckets)
                largest_shard[b] = std::max(largest_shard[b], (bucket.end - bucket.start) / buffer.dp);
        }
    } else {
        for (std::size_t b = 0; b < kBuffers; ++b) {
            const std::span<const std::int64_t> alone = b == 0 ? std::span(ends.alone) : std::span<const std::int64_t>();
            numel[b] = model::uncut_buffer_numel(sums[b], alone, groups[b], options);
        }
    }
    Matrices matrices = ends.matrices;
    for (std::size_t kind = 0; kind < layers.size(); ++kind) matrices += pieces.layers[kind].matrices.times(layers[kind]);
    std::array<std::int64_t, kBuffers> largest{};
    if (layout.engine == Engine::megatron && training.offload.waiting() > 0) largest = largest_in_buffers(pieces, ends, layers);
    for (std::size_t b = 0; b < kBuffers && !options.matrices_apart; ++b) {
        const std::int64_t shards = training.distributed_optimizer ? groups[b] : 1;
        const std::int64_t tensors = sums[b].count + (b == 0 ? std::ssize(ends.alone) : 0);
        BufferElements elements{.parameters = sums[b].numel,
                                .buffer = numel[b],
                                .fp8 = b % 2 == 1,
                                .shards = shards,
                                .tensors = tensors,
                                .largest = std::min(largest[b], largest_shard[b]),
                                .expert = b >= 2};
        // fp8 parameters are all matrices; the other matrices are in the buffers of the other parameters.
        const std::size_t kind = b / 2;
        const std::int64_t quantised = sums[buffer_index(kind == 1, true)].numel;
        elements.matrices = elements.fp8 ? elements.parameters : std::max<std::int64_t>(0, matrices.elements[kind] - quantised);
        elements.largest_matrix = std::min(elements.matrices, matrices.largest[kind]);
        bytes += model_state_bytes(elements, layout.engine, training);
    }
    if (layout.engine == Engine::megatron) {
        std::int64_t in_fp32 = ends.in_fp32;
        for (std::size_t kind = 0; kind < layers.size(); ++kind) in_fp32 += pieces.layers[kind].in_fp32 * layers[kind];
        widen_to_fp32(bytes, in_fp32, training.distributed_optimizer ? groups[0] : 1, training);
    }
    std::int64_t frozen = ends.frozen;
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        frozen += pieces.layers[kind].frozen * layers[kind];
        bytes.parameters += pieces.layers[kind].packed * layers[kind];
    }
    bytes.parameters += frozen * bytes_of(training.compute_dtype());
    Fp8WeightBytes fp8 = ends.fp8.of(layout.engine);
    for (std::size_t kind = 0; kind < layers.size(); ++kind) fp8 += pieces.layers[kind].fp8.of(layout.engine).times(layers[kind]);
    bytes.parameters += fp8.total();
    // If weights are stored in fp8, the buffer is the first copy. With mxfp8 the weights are outside of it, and the buffer is the
    // gradients' own memory (core/distributed/param_and_grad_buffer.py, shared_buffer).
    if (training.fp8_parameters && fp8.rowwise > 0 && !workload_.model.adapters)
        bytes.parameters -= training.megatron.fp8_recipe == Fp8Recipe::mxfp8 ? numel[1] + numel[3] : fp8.rowwise;
    return bytes;
}

ModelStateBytes ModelStates::sharded_chunk_bytes(const Pieces& pieces, const Ends& ends, const Layout& layout,
                                                 const std::vector<std::int64_t>& layers) const {
    const auto unit_of = [](const Sums& sums, const Fp8WeightBytes& quantised) {
        UnitElements unit;
        for (std::size_t kind = 0; kind < 2; ++kind) {
            unit.plain[kind] = sums[buffer_index(kind == 1, false)].numel;
            unit.quantised[kind] = sums[buffer_index(kind == 1, true)].numel;
        }
        unit.quantised_bytes = quantised;
        return unit;
    };
    const TrainingSpec& training = workload_.training;
    // Copies of weights that are not stored in fp8 are not sharded.
    const auto stored = [&](const Fp8WeightBytes& bytes) { return training.fp8_parameters ? bytes : Fp8WeightBytes{}; };
    ShardedChunk chunk;
    Fp8WeightBytes copies = ends.fp8.megatron;
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        if (layers[kind] == 0) continue;
        const UnitElements layer = unit_of(pieces.layers[kind].sums, stored(pieces.layers[kind].fp8.megatron));
        chunk.layers += layer.times(layers[kind]);
        if (layer.elements() > chunk.largest_layer.elements()) chunk.largest_layer = layer;
        copies += pieces.layers[kind].fp8.megatron.times(layers[kind]);
    }
    Sums front{};
    for (const model::BufferParameter& parameter : ends.before)
        front[buffer_index(parameter.expert, parameter.dtype == Dtype::fp8)].add(parameter.numel);
    Sums back{};
    for (const model::BufferParameter& parameter : ends.behind)
        back[buffer_index(parameter.expert, parameter.dtype == Dtype::fp8)].add(parameter.numel);
    chunk.front = unit_of(front, {});
    chunk.back = unit_of(back, stored(ends.fp8.megatron));

    const std::int64_t instances = std::max(1, training.distributed_optimizer_instances);
    const ParallelSizes& sizes = layout.sizes;
    const ShardingRanks ranks{
        {std::max<std::int64_t>(1, layout.dp() * sizes.cp / instances), std::max<std::int64_t>(1, layout.edp() / instances)}, instances};
    ModelStateBytes bytes = sharded_state_bytes(chunk, ranks, training);
    if (!training.fp8_parameters) bytes.parameters += copies.total();
    return bytes;
}

std::int64_t ModelStates::expert_bias_bytes(const Layout& layout, int pp_rank) const {
    const ModelSpec& model = workload_.model;
    if (!model.moe || !model.moe->expert_bias) return 0;
    std::int64_t mixtures = 0, tables = 0;
    for (int chunk = 0; chunk < layout.vpp; ++chunk) {
        const StageChunk& contents = layout.split->chunk(pp_rank, chunk);
        for (std::int64_t i = contents.first_decoder; i < contents.first_decoder + contents.decoders; ++i)
            if (chooses_by_words(model, i))
                ++tables;
            else if (model.is_moe_layer(i))
                ++mixtures;
        if (model.is_moe_layer(model.layers)) mixtures += model.mtp_weights(contents.mtp);
    }
    const bool wide = workload_.training.compute_dtype() == Dtype::fp64;
    const std::int64_t each =
        layout.engine == Engine::megatron ? 2 * bytes_of(Dtype::fp32) : bytes_of(wide ? Dtype::fp64 : Dtype::fp32) + bytes_of(Dtype::int32);
    return mixtures * model.moe->experts * each + tables * model.vocab * model.moe->top_k * bytes_of(Dtype::int32);
}

std::int64_t ModelStates::stage_workspace(Pieces& pieces, const Layout& layout, int pp_rank) const {
    std::int64_t most = 0;
    for (int chunk = 0; chunk < layout.vpp; ++chunk) {
        const StageChunk& contents = layout.split->chunk(pp_rank, chunk);
        most = std::max(most, ends_of(pieces, layout, contents).workspace);
        for (std::int64_t i = 0; i < contents.decoders; ++i)
            most = std::max(most, pieces.layers[kinds_.of_layer[static_cast<std::size_t>(contents.first_decoder + i)]].workspace);
    }
    return most;
}

bool ModelStates::holds_alike(const StageChunk& a, const StageChunk& b) const {
    if (a.embedding != b.embedding || a.loss != b.loss || a.mtp != b.mtp || a.decoders != b.decoders) return false;
    if (has_final_norm(workload_.model, Engine::megatron, a) != has_final_norm(workload_.model, Engine::megatron, b)) return false;
    const auto layers_of = [&](const StageChunk& chunk) { return kinds_.of_layer.begin() + chunk.first_decoder; };
    return std::equal(layers_of(a), layers_of(a) + a.decoders, layers_of(b));
}

bool ModelStates::holds_alike(const StageSplit& split, int stage, int other) const {
    for (int c = 0; c < split.vpp(); ++c) {
        if (!holds_alike(split.chunk(stage, c), split.chunk(other, c))) return false;
    }
    return true;
}

std::vector<ModelStateBytes> ModelStates::all_stages(const Layout& layout, const Key& key) {
    Pieces& pieces = pieces_of(layout);
    const bool by_units = layout.engine == Engine::mgplan && workload_.training.megatron.fully_sharded.shards_gradients();
    std::vector<ModelStateBytes> stages(static_cast<std::size_t>(layout.sizes.pp));
    std::vector<int> different;  // the first of each group of stages with equal contents
    Key of_chunks = key;
    of_chunks.split = nullptr;
    of_chunks.stages = layout.sizes.pp;
    std::vector<KnownChunk>& of_all_splits = chunks_[of_chunks];
    std::vector<KnownChunk> of_split;  // few: most chunks of a split have equal contents
    const auto bytes_of_chunk = [&](int stage, int number) {
        const StageChunk& chunk = layout.split->chunk(stage, number);
        const bool cut = stage == 0 && number == 0;
        const auto known_in = [&](const std::vector<KnownChunk>& chunks) {
            const auto known = std::find_if(chunks.begin(), chunks.end(),
                                            [&](const KnownChunk& each) { return each.cut == cut && holds_alike(each.contents, chunk); });
            return known != chunks.end() ? &*known : nullptr;
        };
        if (const KnownChunk* known = known_in(of_split)) return known->bytes;
        const KnownChunk* known = known_in(of_all_splits);
        if (known == nullptr) known = &of_all_splits.emplace_back(KnownChunk{chunk, cut, chunk_bytes(pieces, layout, stage, number)});
        return of_split.emplace_back(*known).bytes;
    };
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        ModelStateBytes& bytes = stages[static_cast<std::size_t>(stage)];
        // The first stage equals no other.
        const auto like = std::find_if(different.begin(), different.end(), [&](int other) {
            return other > 0 && holds_alike(*layout.split, other, stage) &&
                   expert_bias_bytes(layout, other) == expert_bias_bytes(layout, stage);
        });
        if (like != different.end()) {
            bytes = stages[static_cast<std::size_t>(*like)];
            continue;
        }
        different.push_back(stage);
        if (by_units) bytes = stage_by_units(pieces, layout, stage);
        for (int chunk = 0; chunk < layout.vpp && !by_units; ++chunk) bytes += bytes_of_chunk(stage, chunk);
        if (in_parts(layout)) {
            const GatherBuffers gathered = gather_list(layout, stage).bytes();
            bytes.parameters += gathered.weights;
            bytes.gradients += gathered.gradients;
        }
        bytes.parameters += expert_bias_bytes(layout, stage);
        bytes.update += bytes.staged + most_moving(bytes, workload_.training) + std::max(bytes.stepping[0], bytes.stepping[1]);
        // Matrices are orthogonalised one after the other.
        if (layout.engine == Engine::mgplan && !by_units) bytes.update += stage_workspace(pieces, layout, stage);
    }
    return stages;
}

const ModelStates::Stages& ModelStates::stages(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    const bool gathers_again = in_parts(layout) && layout.recompute == Recompute::full;
    const Key key{layout.split.get(), 0, sizes.tp, sizes.ep, sizes.etp, sizes.world, layout.engine, gathers_again};
    if (last_ == nullptr || !(key == last_key_)) {
        auto [entry, fresh] = entries_.try_emplace(key);
        if (fresh) {
            Stages& stages = entry->second.stages;
            stages.of = all_stages(layout, key);
            const auto fullest =
                std::max_element(stages.of.begin(), stages.of.end(), [](const auto& a, const auto& b) { return a.alone() < b.alone(); });
            stages.fullest = static_cast<int>(fullest - stages.of.begin());
            entry->second.split = layout.split;
        }
        last_ = &entry->second;
        last_key_ = key;
    }
    return last_->stages;
}

}  // namespace mgplan::simulator
