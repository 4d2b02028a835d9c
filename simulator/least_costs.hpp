#pragma once
// Lower bounds of layer costs over all switches, for the search.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// Sets each piece to the faster of the two; copies `other` if `least` has no layers yet. Hidden exchanges become 0.
void take_least(LayerCosts& least, const LayerCosts& other);

/// Device seconds of one microbatch in all layers, embedding, head and multi-token predictions, without recompute.
[[nodiscard]] double seconds_of_model(const LayerCosts& costs, const LayerKinds& kinds, std::int64_t mtp_layers);

/// Device seconds of one microbatch in one of each piece.
struct PieceSeconds {
    struct Piece {
        double once = 0;   ///< forward and backward, without recompute
        double again = 0;  ///< the forward alone, as recompute repeats it
    };
    std::vector<Piece> layers;  ///< by index of the layer kind
    Piece mtp, embedding, head;
};
[[nodiscard]] PieceSeconds seconds_of_pieces(const LayerCosts& costs);

/// Lower bound in seconds of an iteration, for both figures of TimePrediction: a stage runs all its passes after the first chunks of the
/// stages before it. `repeats`: counts the layout's full recompute; otherwise no recompute. `mtp_layers`: of the model. `divided`:
/// parameters or gradients are sharded over data-parallel ranks, so that the time of a single chunk is unknown.
[[nodiscard]] double seconds_of_stages(const Layout& layout, bool repeats, const SplitCensus& split, const PieceSeconds& pieces,
                                       std::int64_t mtp_layers, bool divided);

/// Seconds of the experts' GEMMs in one MoE layer on a rank with an even share of the tokens, without the GEMM of the gate.
[[nodiscard]] PassPair expert_products(const Layout& layout, const Workload& workload, const KernelTimes& kernels);

/// Adds these seconds to every MoE layer.
void add_to_mixtures(LayerCosts& costs, const PassPair& seconds);

}  // namespace mgplan::simulator
