#pragma once
// Costs of every kind of layer for one shard, computed once and shared by all layouts with that shard.

#include "plan/parameters.hpp"
#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

struct LayerCosts {
    PieceCost dense, mixture;                    ///< whole decoder layers
    PieceCost windowed_dense, windowed_mixture;  ///< the same with the model's sliding window
    PieceCost attention, dense_mlp, experts;     ///< their halves, attention without a window
    PieceCost router;                            ///< of experts: the norm and the router
    PieceCost mtp;                               ///< one multi-token-prediction layer with its projection; embedding and head come on top
    PieceCost embedding, head;
    std::int64_t boundary = 0;  ///< bytes of the residual stream between two layers, on this rank
};

/// Parameter counts of the same pieces on one rank.
struct PieceParameters {
    ParameterCount dense, mixture, mtp, embedding, head, head_with_copy;
};

[[nodiscard]] LayerCosts layer_costs(const Shard& shard);
[[nodiscard]] PieceParameters piece_parameters(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp);

}  // namespace mgplan::simulator
