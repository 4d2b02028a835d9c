#pragma once
// One rank whose pieces are recorded and priced one by one, with figures that are round (round_numbers.hpp).

#include <cstdint>

#include <gtest/gtest.h>

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/recorded_costs.hpp"
#include "tests/simulator/round_numbers.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator {

class RecordedPiece : public testing::Test {
protected:
    explicit RecordedPiece(const ModelSpec& model, std::int64_t tokens) : workload(workload_of(model, 8, 8, tokens)) {
        sizes.sequence = tokens;
        sizes.engine = Engine::megatron;
        sizes.keep_steps = sizes.whole_ring = true;
        sizes.traits.kind = model::DeviceKind::cuda;
        workload.cluster.compute_capability = 90;
    }

    [[nodiscard]] PieceTrace trace(Piece piece) const {
        PieceSizes own = sizes;
        own.traits.architecture = workload.cluster.compute_capability;
        own.traits.fused_attention = workload.training.attention == AttentionBackend::flash;
        own.switches = layer_switches(workload.model, workload.training);
        PieceTrace trace = piece == Piece::mixture ? trace_mixture(workload.model, own) : trace_dense_pieces(workload.model, own);
        if (own.engine == Engine::megatron)
            apply_megatron_policies(trace, {workload.model, traced_layer(workload.model, piece == Piece::mixture), workload.training, own});
        return trace;
    }

    /// Calls `use` with the steps of both passes of a recorded piece and their shard.
    template <class Use>
    [[nodiscard]] auto recorded(Piece piece, const Use& use) const {
        const TrainingRates rates(workload.cluster, calibration, workload.training);
        Shard shard{sizes};
        shard.switches = layer_switches(workload.model, workload.training);
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.rates = rates.ops();
        shard.paths = &paths;
        shard.tokens_outside = sizes.rows_outside();
        const PieceTrace of_piece = trace(piece);
        return use(of_piece.range(piece, false).steps, of_piece.range(piece, true).steps, shard);
    }

    [[nodiscard]] PieceCost cost(Piece piece) const {
        return recorded(piece, [&](const PieceSteps& forward, const PieceSteps& backward, const Shard& shard) {
            LayerCosts::Layer layer;
            layer.cost = price_piece(forward, backward, shard);
            if (piece == Piece::mixture && workload.training.overlap_moe)
                hide_exchanges(layer, {}, mixture_nodes(forward, backward, shard), shard);
            return layer.cost;
        });
    }

    [[nodiscard]] double division(Piece piece) const {
        return recorded(
            piece, [](const PieceSteps&, const PieceSteps& backward, const Shard& shard) { return division_seconds(backward, shard); });
    }

    Workload workload;
    Calibration calibration = ideal_calibration();
    LayoutPaths paths;
    PieceSizes sizes;
};

}  // namespace mgplan::simulator
