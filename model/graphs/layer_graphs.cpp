#include "model/graphs/layer_graphs.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "model/ops/dropout.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

std::string name_of(const GraphPlace& place, std::string_view direction) {
    return fmt::format("the {} graph of layer {} in slot {}", direction, place.layer, place.slot);
}

/// Drops the storages of the forward's inputs and outputs that the backward does not free: the caller keeps them, if needed.
void let_go(const CapturedPass& forward, const CapturedPass& backward, PassMemory& memory) {
    for (const int number : forward.ends()) {
        if (!backward.releases(number)) memory.held[static_cast<std::size_t>(number)].reset();
    }
}

}  // namespace

GraphedPart graphed_part(EnumSet<CudaGraphScope> scopes, bool mixture) {
    using Scope = CudaGraphScope;
    const bool attention = scopes.contains(Scope::attn) || scopes.contains(Scope::layer);
    const bool mlp = scopes.contains(mixture ? Scope::moe : Scope::mlp) || scopes.contains(Scope::layer);
    if (attention && mlp) return GraphedPart::whole;
    if (mlp) return GraphedPart::mlp;
    if (mixture && scopes.contains(Scope::moe_router)) return attention ? GraphedPart::attention_router : GraphedPart::router;
    return attention ? GraphedPart::attention : GraphedPart::none;
}

LayerGraphs::LayerGraphs(Device& device, EnumSet<CudaGraphScope> scopes, bool random) : device_(device), scopes_(scopes) {
    if (random) changing_ = device.empty({kDropoutWords}, Dtype::int32, MemoryCategory::workspace, "dropout seed and offset");
}

LayerGraphs::~LayerGraphs() = default;

void LayerGraphs::write_changing(std::uint64_t dropout_seed, std::int64_t first_sequence) {
    if (changing_.defined()) write_dropout_words(changing_, dropout_seed, first_sequence);
}

std::vector<Tensor> LayerGraphs::forward(const GraphPlace& place, const Tensor& x, PassMemory& memory, const ForwardBody& body) {
    std::vector<std::pair<std::string_view, std::int64_t>> boundary;
    const PassBody tensors = [&](std::vector<Tensor> inputs) {
        std::vector<Tensor> outputs;
        for (GraphOutput& output : body(inputs.front())) {
            if (!output.name.empty() && output.tensor.defined()) boundary.emplace_back(output.name, output.tensor.bytes());
            outputs.push_back(std::move(output.tensor));
        }
        return outputs;
    };
    if (!replays()) return tensors({x});
    Pair& pair = pairs_[place];
    std::vector<Tensor> outputs;
    if (device_.computes() && pair.forward.captured()) {
        outputs = pair.forward.replay(device_, {x}, memory);
        let_go(pair.forward, pair.backward, memory);
        return outputs;
    }
    outputs = device_.computes() ? pair.forward.capture(device_, name_of(place, "forward"), {x}, tensors, pair.known) : tensors({x});
    pair.seen_forward = true;
    pair.input_bytes = x.bytes();
    pair.boundary = std::move(boundary);
    return outputs;
}

Tensor LayerGraphs::backward(const GraphPlace& place, std::vector<Tensor> gradients, PassMemory& memory, const PassBody& body) {
    if (!replays()) return std::move(body(std::move(gradients)).front());
    Pair& pair = pairs_[place];
    pair.seen_backward = true;
    if (!device_.computes()) return std::move(body(std::move(gradients)).front());
    if (!pair.backward.captured()) {
        MGPLAN_ASSERT(memory.held.empty(), "a backward is captured behind its forward's capture");
        return std::move(pair.backward.capture(device_, name_of(place, "backward"), std::move(gradients), body, pair.known).front());
    }
    Tensor dx = std::move(pair.backward.replay(device_, std::move(gradients), memory).front());
    memory.held.clear();
    return dx;
}

GraphTotals LayerGraphs::totals() const {
    GraphTotals totals;
    const bool shapes = !device_.computes();
    // Inputs have the empty name.
    std::map<std::pair<std::int64_t, std::string_view>, std::map<int, std::int64_t>> bytes;  // by slot and name: those of each chunk
    for (const auto& [place, pair] : pairs_) {
        totals.forward_graphs += (shapes ? pair.seen_forward : pair.forward.captured()) ? 1 : 0;
        totals.backward_graphs += (shapes ? pair.seen_backward : pair.backward.captured()) ? 1 : 0;
        totals.slots = std::max(totals.slots, place.slot + 1);
        totals.stretches += pair.forward.stretches() + pair.backward.stretches();
        totals.nodes += pair.forward.nodes() + pair.backward.nodes();
        bytes[{place.slot, {}}][place.chunk] += pair.input_bytes;
        for (const auto& [name, own] : pair.boundary) bytes[{place.slot, name}][place.chunk] += own;
    }
    std::map<std::string_view, std::int64_t> by_name;
    for (const auto& [where, chunks] : bytes) {
        std::int64_t most = 0;
        for (const auto& [chunk, own] : chunks) most = std::max(most, own);
        by_name[where.second] += most;
    }
    for (const auto& [name, held] : by_name) {
        if (name.empty()) {
            totals.static_input_bytes = held;
        } else if (held > 0) {
            totals.boundary.push_back({std::string(name), held});
            totals.boundary_bytes += held;
        }
    }
    return totals;
}

}  // namespace mgplan::model
