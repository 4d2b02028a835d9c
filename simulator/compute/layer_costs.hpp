#pragma once
// Seconds and launches of the pieces of a model, for one microbatch on one rank.

#include <cstdint>
#include <vector>

namespace mgplan::simulator {

/// Seconds by the group that communicates.
struct GroupSeconds {
    double tp = 0, cp = 0, ep = 0;
    [[nodiscard]] double total() const { return tp + cp + ep; }
    GroupSeconds& operator+=(const GroupSeconds& other) {
        tp += other.tp;
        cp += other.cp;
        ep += other.ep;
        return *this;
    }
};

/// Time of one piece of the model for one microbatch on one rank. Its bytes are traced (simulator/memory).
struct PieceCost {
    double forward = 0;                                                 ///< compute seconds
    double backward = 0;                                                ///< compute seconds without recompute
    double weight_gradient = 0;                                         ///< part of backward: products that nothing but the update needs
    double recompute = 0;                                               ///< compute seconds of the forward that selective recompute repeats
    GroupSeconds exposed_forward, exposed_backward, exposed_recompute;  ///< communication that no computation hides
    /// Seconds that exchanges of experts expose beside these in a pass that no other microbatch's runs beside, where one does elsewhere.
    double unpaired_forward = 0, unpaired_backward = 0;
    /// Seconds that tp exposes beside exposed_backward where weight gradients, which hide its gathers and reductions, are put off.
    double beside_weights = 0;
    int kernels_forward = 0, kernels_backward = 0;
    double forward_flops = 0;    ///< this rank's share of model_flops() in one forward
    double recompute_flops = 0;  ///< part of forward_flops that selective recompute repeats

    /// Another piece behind this one on the same rank.
    PieceCost& operator+=(const PieceCost& other) {
        forward += other.forward;
        backward += other.backward;
        weight_gradient += other.weight_gradient;
        recompute += other.recompute;
        exposed_forward += other.exposed_forward;
        exposed_backward += other.exposed_backward;
        exposed_recompute += other.exposed_recompute;
        unpaired_forward += other.unpaired_forward;
        unpaired_backward += other.unpaired_backward;
        beside_weights += other.beside_weights;
        kernels_forward += other.kernels_forward;
        kernels_backward += other.kernels_backward;
        forward_flops += other.forward_flops;
        recompute_flops += other.recompute_flops;
        return *this;
    }
};

/// Costs of every kind of layer for one shard, shared by all layouts with that shard.
struct LayerCosts {
    /// A whole decoder layer by index of its kind (plan/parameters/layer_kinds.hpp).
    struct Layer {
        PieceCost cost;
        bool mixture = false;
    };
    std::vector<Layer> layers;
    /// Halves that CUDA graphs of single layers hold, attention without a window; of models that fields describe.
    PieceCost attention, dense_mlp, experts;
    PieceCost router;  ///< of experts: the norm and the router
    PieceCost mtp;     ///< one multi-token-prediction layer with its projection; embedding and head come on top
    bool mtp_is_mixture = false;
    PieceCost embedding, head;
    std::int64_t boundary = 0;  ///< bytes of the residual stream between two layers, on this rank
};

}  // namespace mgplan::simulator
