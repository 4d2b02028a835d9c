#include "plan/parameters/computed_streams.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

bool has_learned_head(const ModelSpec& model) {
    return model.hyper_connections && model.hyper_connections->learned_head;
}

/// True if a part is the map that brings the model's streams together.
bool brings_streams_together(const LayerPart& part, const ModelSpec& model) {
    if (!has_learned_head(model) || model.compositions.empty()) return false;
    const std::int64_t streams = model.hyper_connections->streams;
    return part == LayerPart{"hyper_connection", {{"streams", streams}, {"maps", streams}, {"scales", 1}, {"copies", 1}}};
}

constexpr std::array kBesideStreams{ComputedBeside{"hyper_connection", brings_streams_together}};

}  // namespace

LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves) {
    return {"hyper_connection", {{"streams", streams.streams}, {"maps", streams.maps()}, {"scales", 3}, {"copies", halves}}};
}

bool maps_stand_around_halves(const ModelSpec& model, const LayerComposition& layer, std::int64_t halves) {
    std::vector<LayerPart> stated;
    for (const LayerPart& part : layer.parts) {
        if (traits_of(part).role == PartRole::stream_maps) stated.push_back(part);
    }
    if (!model.hyper_connections) return stated.empty();
    return stated.size() == 1 && stated.front() == stream_maps_part(*model.hyper_connections, halves);
}

bool streams_come_together(const ModelSpec& model) {
    const auto heads = std::count_if(model.beside_layers.begin(), model.beside_layers.end(),
                                     [&](const LayerPart& part) { return brings_streams_together(part, model); });
    return heads == (has_learned_head(model) ? 1 : 0);
}

std::span<const ComputedBeside> beside_streams() {
    return kBesideStreams;
}

}  // namespace mgplan
