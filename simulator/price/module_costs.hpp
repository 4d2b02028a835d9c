#pragma once
// Division of the cost of recorded ops among the modules of a model.

#include "simulator/compute/module_work.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/training_rates.hpp"

namespace mgplan::simulator {

/// Returns the module that an op belongs to. Casts to fp8 are quantisation wherever they are. Of a mixer, GEMMs are qkv_projection, of
/// mixers without attention too; norms, rotary embeddings and the residual stream are norms_elementwise; all else (attention, scans,
/// convolutions, indexers, gates, copies between them) is attention_core. Of a feed-forward, norms and residual stream are
/// norms_elementwise and all else its own module, activations included; of a MoE layer everything that chooses experts and moves tokens is
/// router_permute. Embedding and last norm are norms_elementwise, output layer and loss output_loss. The projection of a multi-token
/// prediction depth is qkv_projection.
[[nodiscard]] ComputeModule module_of(const PieceStep& op, Piece piece);

/// Seconds, FLOPs and bytes of the ops of both passes, by module. The seconds of all modules but the host's add up to the compute seconds
/// of price_piece().
[[nodiscard]] ByModule<PassWork> module_costs(Piece piece, const PieceSteps& forward, const PieceSteps& backward, const OpRates& rates);

}  // namespace mgplan::simulator
