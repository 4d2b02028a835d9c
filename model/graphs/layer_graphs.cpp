#include "model/graphs/layer_graphs.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

std::string name_of(const GraphPlace& place, std::string_view direction) {
    return fmt::format("the {} graph of layer {} in slot {}", direction, place.layer, place.slot);
}

/// What the backward says nothing of is kept by whoever called, or by nobody.
void let_go(const CapturedPass& forward, const CapturedPass& backward, PassMemory& memory) {
    for (const int number : forward.ends()) {
        if (!backward.releases(number)) memory.held[static_cast<std::size_t>(number)].reset();
    }
}

}  // namespace

GraphedPart graphed_part(EnumSet<CudaGraphScope> scopes, bool mixture) {
    using Scope = CudaGraphScope;
    const bool attention = scopes.contains(Scope::attn) || (scopes.contains(Scope::layer) && !mixture);
    const bool mlp = !mixture && (scopes.contains(Scope::mlp) || scopes.contains(Scope::layer));
    if (attention && mlp) return GraphedPart::whole;
    if (attention) return GraphedPart::attention;
    return mlp ? GraphedPart::mlp : GraphedPart::none;
}

LayerGraphs::LayerGraphs(Device& device, EnumSet<CudaGraphScope> scopes, bool random) : device_(device), scopes_(scopes) {
    if (random) changing_ = device.empty({4}, Dtype::int32, MemoryCategory::workspace, "dropout seed and offset");
}

LayerGraphs::~LayerGraphs() = default;

void LayerGraphs::write_changing(std::uint64_t dropout_seed, std::int64_t first_sequence) {
    if (!changing_.defined()) return;
    const auto first = static_cast<std::uint64_t>(first_sequence);
    const std::array<std::uint32_t, 4> words{static_cast<std::uint32_t>(dropout_seed), static_cast<std::uint32_t>(dropout_seed >> 32),
                                             static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32)};
    device_.write(changing_, words.data());
}

Tensor LayerGraphs::forward(const GraphPlace& place, const Tensor& x, bool leaves, PassMemory& memory, const PassBody& body) {
    if (eager()) return std::move(body({x}).front());
    Pair& pair = pairs_[place];
    Tensor y;
    if (!device_.computes()) {
        y = std::move(body({x}).front());
    } else if (pair.forward.captured()) {
        y = std::move(pair.forward.replay(device_, {x}, memory).front());
        let_go(pair.forward, pair.backward, memory);
    } else {
        y = std::move(pair.forward.capture(device_, name_of(place, "forward"), {x}, body, pair.known).front());
    }
    pair.seen_forward = true;
    pair.input_bytes = x.bytes();
    pair.boundary_bytes = leaves ? y.bytes() : 0;
    return y;
}

Tensor LayerGraphs::backward(const GraphPlace& place, Tensor dy, PassMemory& memory, const PassBody& body) {
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(dy));
    if (eager()) return std::move(body(std::move(inputs)).front());
    Pair& pair = pairs_[place];
    pair.seen_backward = true;
    if (!device_.computes()) return std::move(body(std::move(inputs)).front());
    if (!pair.backward.captured()) {
        MGPLAN_ASSERT(memory.held.empty(), "a backward is captured behind its forward's capture");
        return std::move(pair.backward.capture(device_, name_of(place, "backward"), std::move(inputs), body, pair.known).front());
    }
    Tensor dx = std::move(pair.backward.replay(device_, std::move(inputs), memory).front());
    memory.held.clear();
    return dx;
}

GraphTotals LayerGraphs::totals() const {
    GraphTotals totals;
    const bool shapes = !device_.computes();
    std::map<std::pair<std::int64_t, int>, std::pair<std::int64_t, std::int64_t>> bytes;  // by slot and chunk
    for (const auto& [place, pair] : pairs_) {
        totals.forward_graphs += (shapes ? pair.seen_forward : pair.forward.captured()) ? 1 : 0;
        totals.backward_graphs += (shapes ? pair.seen_backward : pair.backward.captured()) ? 1 : 0;
        totals.slots = std::max(totals.slots, place.slot + 1);
        totals.stretches += pair.forward.stretches() + pair.backward.stretches();
        totals.nodes += pair.forward.nodes() + pair.backward.nodes();
        auto& [inputs, boundary] = bytes[{place.slot, place.chunk}];
        inputs += pair.input_bytes;
        boundary += pair.boundary_bytes;
    }
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> most;  // by slot
    for (const auto& [where, own] : bytes) {
        auto& [inputs, boundary] = most[where.first];
        inputs = std::max(inputs, own.first);
        boundary = std::max(boundary, own.second);
    }
    for (const auto& [slot, own] : most) {
        totals.static_input_bytes += own.first;
        totals.boundary_bytes += own.second;
    }
    return totals;
}

}  // namespace mgplan::model
