#pragma once
// What layers cost at least, whatever is switched on for them: for bounds of a search.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// Each piece as fast as in either; of no layers yet, those of `other`.
void take_least(LayerCosts& least, const LayerCosts& other);

/// Without the host's launches, which graphs leave out.
void take_launches_off(LayerCosts& costs);

/// Without what is exposed in passes that run alone where others are paired.
void take_unpaired_off(LayerCosts& costs);

/// Without launches and communication.
void take_all_but_compute_off(LayerCosts& costs);

/// Seconds of the device for a microbatch in all layers, ends and depths of multi-token prediction, with nothing repeated.
[[nodiscard]] double seconds_of_model(const LayerCosts& costs, const LayerKinds& kinds, std::int64_t mtp_layers);

/// Seconds of the device for a microbatch in one of each piece.
struct PieceSeconds {
    struct Piece {
        double once = 0;   ///< forward and backward, with nothing repeated
        double again = 0;  ///< the forward once more
    };
    std::vector<Piece> layers;  ///< by index of their kind
    Piece mtp, embedding, head;
};
[[nodiscard]] PieceSeconds seconds_of_pieces(const LayerCosts& costs);

/// Seconds of an iteration, or less, by both figures of TimePrediction: a stage runs all its passes behind the first chunks of those in
/// front of it. `repeats`: what the layout's full recompute repeats counts; otherwise nothing is repeated. `mtp_layers`: of the model.
/// `divided`: parameters or gradients are divided over data-parallel ranks, so that no chunk's own time is known.
[[nodiscard]] double seconds_of_stages(const Layout& layout, bool repeats, const SplitCensus& split, const PieceSeconds& pieces,
                                       std::int64_t mtp_layers, bool divided);

struct PassPair {
    double forward = 0, backward = 0;  ///< seconds
};

/// The products of the experts of a rank with its even share of rows, in a mixture layer; the gate's are left out.
[[nodiscard]] PassPair expert_products(const Layout& layout, const Workload& workload, const KernelTimes& kernels);

/// Adds them to every layer with a mixture.
void add_to_mixtures(LayerCosts& costs, const PassPair& seconds);

}  // namespace mgplan::simulator
