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

    [[nodiscard]] PieceCost cost(Piece piece) const {
        const TrainingRates rates(workload.cluster, calibration, workload.training);
        Shard shard{sizes};
        shard.switches = layer_switches(workload.model, workload.training);
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.rates = rates.ops();
        shard.paths = &paths;
        shard.tokens_outside = sizes.rows_outside();
        const PieceTrace recorded = trace(piece);
        PieceCost cost = price_piece(recorded.range(piece, false).steps, recorded.range(piece, true).steps, shard);
        if (piece == Piece::mixture && workload.training.overlap_moe) {
            const MixtureNodes nodes = mixture_nodes(recorded.range(piece, false).steps, recorded.range(piece, true).steps, shard);
            LayerCosts::Layer layer{cost, true};
            hide_exchanges(layer, {}, nodes, shard);
            return layer.cost;
        }
        return cost;
    }

    Workload workload;
    Calibration calibration = ideal_calibration();
    LayoutPaths paths;
    PieceSizes sizes;
};

}  // namespace mgplan::simulator
