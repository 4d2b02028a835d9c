#include "simulator/memory/offloaded_layers.hpp"

#include <algorithm>

namespace mgplan::simulator {

std::int64_t offloaded_layers(const Workload& workload, const Layout& layout) {
    return layout.engine == Engine::megatron && layout.sizes.pp == 1 ? workload.training.megatron.offloaded_layers : 0;
}

std::int64_t kept_by_first_layers(const Workload& workload, ActivationMemory& activations, const Layout& layout, std::int64_t layers) {
    const PieceBytes pieces = activations.pieces(layout);
    std::int64_t bytes = 0;
    for (std::int64_t layer = 0; layer < std::min(layers, workload.model.layers); ++layer)
        bytes += pieces.layers[activations.kinds().of_layer[static_cast<std::size_t>(layer)]];
    return bytes;
}

std::int64_t spared_by_offloading(const Workload& workload, ActivationMemory& activations, const Layout& layout) {
    const std::int64_t layers = offloaded_layers(workload, layout);
    if (layers == 0) return 0;
    const std::int64_t beside_layers = kept_by_first_layers(workload, activations, layout, layers - 1);
    return std::min(kept_by_first_layers(workload, activations, layout, layers), beside_layers + activations.excess_of_head(layout));
}

}  // namespace mgplan::simulator
