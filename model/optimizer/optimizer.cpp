#include "model/optimizer/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "model/ops/clip_factor.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Returns a tensor of the same number of elements, of a type no wider, from the tensor's first byte on.
Tensor in_place_of(const Tensor& tensor, Dtype dtype) {
    const std::int64_t share = bytes_of(tensor.dtype()) / bytes_of(dtype);
    MGPLAN_ASSERT(share >= 1, "what lies in place of a tensor is no wider");
    return {tensor.shape(), dtype, tensor.storage(), tensor.first_element() * share};
}

}  // namespace

bool replicated_over_tp(const Parameter& parameter) {
    return !parameter.shard_axis.has_value();
}

bool partial_gradient_over_tp(const Parameter& parameter, bool sequence_parallel) {
    return parameter.partial_gradient == PartialGradient::always ||
           (parameter.partial_gradient == PartialGradient::sequence_parallel && sequence_parallel);
}

Optimizer::Optimizer(Device& device, std::vector<ChunkBuffers*> chunks, const OptimizerGroups& groups, const OptimizerOptions& options,
                     bool sequence_parallel)
    : device_(device), chunks_(std::move(chunks)), groups_(groups), options_(options), sequence_parallel_(sequence_parallel) {
    for (ChunkBuffers* chunk : chunks_) {
        for (FlatBuffer& buffer : chunk->buffers()) {
            most_counted_ += std::ssize(buffer.layout.spans);
            const std::int64_t ranks = options_.distributed ? shards_of(buffer).size() : 1;
            const std::int64_t owned = buffer.layout.numel / ranks;
            FlatState state;
            state.elements = owned;
            // Parameters as wide as the state are their own main copy: 8 bytes of state per fp32 parameter, not 12.
            state.copies = buffer.layout.param_dtype != options_.main_dtype;
            state.matrices = buffer.layout.matrices;
            state.one_moment = state.matrices || options_.kind == OptimizerKind::sgd || options_.kind == OptimizerKind::lion;
            state.slices = cut(owned);
            most_counted_ += std::ssize(state.slices);
            if (!state.slices.empty()) allocate(state, state.slices.front());
            state.widens_gradients = bytes_of(buffer.layout.grad_dtype) < bytes_of(options_.main_dtype);
            std::int64_t begin = 0;
            for (std::size_t bucket = 0; bucket < buffer.layout.buckets.size(); ++bucket) {
                own_bucket(buffer, *chunk, bucket, begin, state);
                begin += (buffer.layout.buckets[bucket].end - buffer.layout.buckets[bucket].start) / ranks;
            }
            if (!state.slices.empty()) advance(state, state.slices.size());
            states_.push_back(std::move(state));
        }
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        if (pieces_[i].counts) counted_.push_back(i);
    }
    auto dense_end = counted_.end();
    if (adds_experts_apart()) {
        const auto is_dense = [&](std::size_t piece) { return !pieces_[piece].description->expert; };
        dense_end = std::stable_partition(counted_.begin(), counted_.end(), is_dense);
    }
    dense_ = dense_end - counted_.begin();
}

// Returns true if sums of experts are over other ranks than those of dense values: without shards, ranks of one dp·cp group have the same
// dense values, those of one edp group the same experts. With shards all ranks have different ones.
bool Optimizer::adds_experts_apart() const {
    return !options_.distributed && groups_.expert_model != nullptr;
}

std::vector<Optimizer::Slice> Optimizer::cut(std::int64_t elements) const {
    const std::int64_t stays = elements - offloaded_elements(elements, options_.on_host);
    std::vector<Slice> slices;
    if (stays > 0) slices.push_back({.begin = 0, .end = stays});
    for (std::int64_t begin = stays; begin < elements; begin += options_.staged_elements)
        slices.push_back({.begin = begin, .end = std::min(begin + options_.staged_elements, elements), .waits = true});
    return slices;
}

void Optimizer::allocate(const FlatState& state, Slice& slice) const {
    const Shape shape{slice.end - slice.begin};
    if (state.copies) slice.main = device_.zeros(shape, options_.main_dtype, MemoryCategory::optimizer, "main parameters");
    slice.exp_avg = device_.zeros(shape, state.one_moment ? options_.main_dtype : options_.exp_avg_dtype, MemoryCategory::optimizer,
                                  state.one_moment ? "momentum" : "first moments");
    if (!state.one_moment) slice.exp_avg_sq = device_.zeros(shape, options_.exp_avg_sq_dtype, MemoryCategory::optimizer, "second moments");
}

void Optimizer::advance(FlatState& state, std::size_t next) const {
    for (; state.open < next; ++state.open) {
        move(state.slices[state.open], &Storage::to_host);
        if (state.open + 1 < state.slices.size()) allocate(state, state.slices[state.open + 1]);
    }
}

void Optimizer::move(const Slice& slice, void (Storage::*where)()) {
    if (!slice.waits) return;
    for (const Tensor* tensor : {&slice.main, &slice.exp_avg, &slice.exp_avg_sq}) {
        if (tensor->defined()) (*tensor->storage().*where)();
    }
}

template <class Visit>
void Optimizer::visit_slices(Visit visit) const {
    const std::span<const Piece> all = pieces_;
    for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
        const Piece& first = all[begin];
        while (end < all.size() && all[end].state == first.state && all[end].slice == first.slice) ++end;
        const Slice& slice = states_[first.state].slices[first.slice];
        move(slice, &Storage::from_host);
        visit(all.subspan(begin, end - begin));
        move(slice, &Storage::to_host);
    }
}

Communicator& Optimizer::shards_of(const FlatBuffer& buffer) const {
    return buffer.layout.expert ? *groups_.expert_dp : *groups_.dp_cp;
}

void Optimizer::own_bucket(FlatBuffer& buffer, const ChunkBuffers& chunk, std::size_t bucket, std::int64_t state_begin, FlatState& state) {
    const auto add_piece = [&](const Parameter& description, std::int64_t in_state, std::int64_t in_buffer, std::int64_t in_parameter,
                               std::int64_t size) {
        const Slice& slice = state.slices[state.open];
        const std::int64_t begin = in_state - slice.begin;
        Piece piece;
        piece.gradient = buffer.own_gradients(in_buffer, in_state, size);
        piece.rounds_aside = buffer.layout.param_dtype == Dtype::fp8;
        piece.parameter = piece.rounds_aside ? in_place_of(piece.gradient, Dtype::bf16) : buffer.own_parameters(in_buffer, in_state, size);
        piece.divided = buffer.gradient_shard.defined();
        piece.main = state.copies ? slice.main.slice(begin, begin + size) : piece.parameter;
        piece.exp_avg = slice.exp_avg.slice(begin, begin + size);
        if (!state.one_moment) piece.exp_avg_sq = slice.exp_avg_sq.slice(begin, begin + size);
        MGPLAN_ASSERT(!state.matrices || size == description.count(), "a matrix belongs to one rank whole");
        piece.state = states_.size();
        piece.slice = state.open;
        piece.in_state = in_state;
        piece.in_parameter = in_parameter;
        piece.description = &description;
        piece.decays = !description.no_weight_decay;
        // Every parameter counts once: replicated ones on the first tp (etp) rank, a tied embedding's copy not at all.
        const Communicator& replicas = description.expert ? *groups_.etp : *groups_.tp;
        piece.counts = !description.embedding_copy && (!replicated_over_tp(description) || replicas.rank() == 0);
        if (state.copies && !piece.rounds_aside) copy(piece.parameter, piece.main);
        pieces_.push_back(std::move(piece));
    };
    // A parameter's range is cut where slices are; ranges follow one another.
    const auto add_range = [&](std::int32_t parameter, std::int64_t in_state, std::int64_t in_buffer, std::int64_t in_parameter,
                               std::int64_t size) {
        const Parameter& description = chunk.parameters()[static_cast<std::size_t>(parameter)];
        for (std::int64_t done = 0; done < size;) {
            while (in_state + done >= state.slices[state.open].end) advance(state, state.open + 1);
            const std::int64_t part = std::min(size - done, state.slices[state.open].end - in_state - done);
            add_piece(description, in_state + done, in_buffer + done, in_parameter + done, part);
            done += part;
        }
    };
    if (options_.distributed) {
        for (const ShardRange& range : shard_ranges(buffer.layout, bucket, shards_of(buffer).rank())) {
            add_range(range.parameter, state_begin + range.local.start, range.world.start, range.in_param.start, range.world.size());
        }
        return;
    }
    const Bucket& whole = buffer.layout.buckets[bucket];
    for (std::int32_t i = whole.first_span; i < whole.end_span; ++i) {
        const BufferSpan& span = buffer.layout.spans[static_cast<std::size_t>(i)];
        add_range(span.parameter, state_begin + span.start - whole.start, span.start, 0, span.end - span.start);
    }
}

std::vector<Optimizer::Owned> Optimizer::owned() const {
    std::vector<Owned> all;
    all.reserve(pieces_.size());
    for (const Piece& piece : pieces_)
        all.push_back({piece.description, piece.in_parameter, piece.main, piece.exp_avg, piece.exp_avg_sq,
                       piece.rounds_aside ? piece.parameter : Tensor()});
    return all;
}

void Optimizer::take_over() {
    visit_slices([](std::span<const Piece> pieces) {
        for (const Piece& piece : pieces) {
            if (piece.main.dtype() != piece.parameter.dtype()) copy(piece.main, piece.parameter);
        }
    });
}

void Optimizer::reduce_replicated_gradients() {
    for (ChunkBuffers* chunk : chunks_) {
        for (const Parameter& parameter : chunk->parameters()) {
            const Tensor& whole = chunk->weights().at(parameter.name).gradient;
            if (groups_.tp->size() > 1 && partial_gradient_over_tp(parameter, sequence_parallel_) && whole.storage()->taken())
                groups_.tp->all_reduce(whole, Reduction::sum);
            // Both ends hold the tied table in a bucket of its own, so their shards of it are the same rows; what lies outside
            // a rank's shard is not reduced yet and not used either.
            if (parameter.shared_embedding && groups_.embedding != nullptr) {
                groups_.embedding->all_reduce(whole, Reduction::sum);
            }
        }
    }
    // Where gradients are divided, the ranks of a tp group have the same piece of each.
    for (const Piece& piece : pieces_) {
        if (piece.divided && groups_.tp->size() > 1 && partial_gradient_over_tp(*piece.description, sequence_parallel_))
            groups_.tp->all_reduce(piece.gradient, Reduction::sum);
    }
}

void Optimizer::scale_gradients(double factor) {
    for (ChunkBuffers* chunk : chunks_) {
        for (FlatBuffer& buffer : chunk->buffers()) scale(buffer.kept_gradients(), factor);
    }
}

void Optimizer::clip(const Tensor& loss, const Tensor& outcome) {
    const auto sum_tensor = [&](std::string_view name) { return device_.empty({1}, Dtype::fp64, MemoryCategory::communication, name); };
    const auto count = std::ssize(counted_);
    std::vector<Tensor> gradients;
    for (const std::size_t piece : counted_) gradients.push_back(pieces_[piece].gradient);
    const Tensor room = device_.empty({most_counted_}, Dtype::fp64, MemoryCategory::workspace, "sums of squared gradients");
    sums_ = room.slice(0, count);
    sums_of_squares(gradients, sums_);
    const Tensor squares = sum_tensor("sum of squared gradients");
    Tensor expert_squares;
    if (adds_experts_apart()) {
        expert_squares = sum_tensor("sum of experts' squared gradients");
        add_in_order(sums_.slice(dense_, count), expert_squares);
        groups_.expert_model->all_reduce(expert_squares, Reduction::sum);
    }
    add_in_order(sums_.slice(0, dense_), squares);
    Communicator& data = groups_.all_replicas != nullptr ? *groups_.all_replicas : *groups_.dp_cp;
    if (options_.distributed) data.all_reduce(squares, Reduction::sum);
    groups_.model->all_reduce(squares, Reduction::sum);
    // Every shard is there once in each replica.
    clip_factor(squares, expert_squares, loss, {options_.clip_norm, groups_.replicas}, outcome);
}

StepResult Optimizer::result(const std::array<double, 2>& outcome, std::span<const double> own) const {
    MGPLAN_ASSERT(own.size() == counted_.size(), "each piece in the norm has its sum");
    StepResult result;
    const double squares = outcome[0];
    result.updated = std::isfinite(squares);
    result.grad_norm = std::sqrt(squares);
    if (result.updated) return result;
    // Ranks whose own gradients are finite see it in the sum alone.
    std::size_t to_blame = pieces_.size();
    for (std::size_t i = 0; i < own.size(); ++i) {
        if (!std::isfinite(own[i])) to_blame = std::min(to_blame, counted_[i]);
    }
    result.saw_it = to_blame < pieces_.size();
    result.problem =
        fmt::format("the {} is {}", result.saw_it ? "gradient of " + pieces_[to_blame].description->name : "norm of all gradients",
                    std::isnan(squares) ? "NaN" : "infinite");
    return result;
}

std::vector<Tensor> Optimizer::main_gradients() const {
    std::vector<Tensor> wide(states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
        if (states_[i].widens_gradients)
            wide[i] = device_.empty({states_[i].elements}, options_.main_dtype, MemoryCategory::optimizer, "main gradients");
    }
    for (const Piece& piece : pieces_) {
        if (const Tensor& flat = wide[piece.state]; flat.defined())
            copy(piece.gradient, flat.slice(piece.in_state, piece.in_state + piece.gradient.elements()));
    }
    return wide;
}

void Optimizer::update(std::span<const Piece> pieces, const Gradients& gradients, const AdamHyperparameters& hyper) const {
    const FlatState& state = states_[pieces.front().state];
    const Tensor& wide = gradients.wide[pieces.front().state];
    const auto gradient_of = [&](const Piece& piece) {
        return wide.defined() ? wide.slice(piece.in_state, piece.in_state + piece.gradient.elements()) : piece.gradient;
    };
    const auto copy_of = [&](const Piece& piece) { return state.copies && !piece.rounds_aside ? piece.parameter : Tensor(); };
    if (state.matrices) {
        if (std::isnan(gradients.muon_factor)) return;
        for (const Piece& piece : pieces) {
            Communicator* ranks = piece.description->expert ? groups_.etp : groups_.tp;
            muon_step({piece.main, piece.exp_avg, gradient_of(piece), piece.description, ranks, piece.parameter.dtype()}, options_.muon,
                      {hyper.learning_rate, piece.decays ? hyper.weight_decay : 0, hyper.gradient_factor * gradients.muon_factor});
            if (state.copies) copy(piece.main, piece.parameter);
        }
    } else if (state.one_moment) {
        MomentumHyperparameters own = options_.kind == OptimizerKind::lion ? options_.lion : options_.sgd;
        own.learning_rate = hyper.learning_rate;
        own.weight_decay = hyper.weight_decay;
        own.gradient_factor = hyper.gradient_factor;
        std::vector<MomentumArrays> arrays;
        for (const Piece& piece : pieces) arrays.push_back({piece.main, piece.exp_avg, gradient_of(piece), copy_of(piece), piece.decays});
        momentum_step(arrays, own, gradients.factor);
    } else {
        std::vector<AdamArrays> arrays;
        for (const Piece& piece : pieces)
            arrays.push_back({piece.main, piece.exp_avg, piece.exp_avg_sq, gradient_of(piece), copy_of(piece), piece.decays});
        adam_step(arrays, hyper, gradients.factor);
    }
    // In place of gradients, so after all that read them.
    for (const Piece& piece : pieces) {
        if (piece.rounds_aside) copy(piece.main, piece.parameter);
    }
}

void Optimizer::step(double learning_rate, std::int64_t step_number, const Tensor& loss, const Tensor& outcome, bool assume_finite) {
    Gradients gradients{.wide = main_gradients(), .factor = outcome.slice(1, 2)};
    clip(loss, outcome);
    if (std::any_of(states_.begin(), states_.end(), [](const FlatState& state) { return state.matrices; })) {
        device_.read(gradients.factor, &gradients.muon_factor);
        if (!device_.computes() && !assume_finite) gradients.muon_factor = std::numeric_limits<double>::quiet_NaN();
    }
    AdamHyperparameters hyper = options_.adam;
    hyper.learning_rate = learning_rate;
    hyper.step = step_number;
    visit_slices([&](std::span<const Piece> pieces) { update(pieces, gradients, hyper); });
}

}  // namespace mgplan::model
