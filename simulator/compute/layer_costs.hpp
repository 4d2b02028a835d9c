#pragma once
// Seconds and kernel launches of the pieces of a model, for one microbatch on one rank.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/compute/module_work.hpp"

namespace mgplan::simulator {

/// Seconds by the communicating group.
struct GroupSeconds {
    double tp = 0, cp = 0, ep = 0;
    [[nodiscard]] double total() const { return tp + cp + ep; }
    /// Calls `change(own, others)` for every term.
    template <class Change>
    void each(const GroupSeconds& other, const Change& change) {
        change(tp, other.tp);
        change(cp, other.cp);
        change(ep, other.ep);
    }
    GroupSeconds& operator+=(const GroupSeconds& other) {
        each(other, [](double& own, double others) { own += others; });
        return *this;
    }
};

/// Time of one piece of the model for one microbatch on one rank. Its bytes are traced (simulator/memory).
struct PieceCost {
    double forward = 0;          ///< compute seconds
    double backward = 0;         ///< compute seconds without recompute
    double weight_gradient = 0;  ///< part of backward: GEMMs of weight gradients, needed only by the update
    double recompute = 0;        ///< compute seconds of the forward that selective recompute repeats
    GroupSeconds exposed_forward{}, exposed_backward{}, exposed_recompute{};  ///< not hidden by computation
    int kernels_forward = 0, kernels_backward = 0;
    double forward_flops = 0;      ///< this rank's share of model_flops() in one forward
    double recompute_flops = 0;    ///< part of forward_flops that selective recompute repeats
    ByModule<PassWork> modules{};  ///< the compute seconds by module, if counted

    /// Calls `change(own, others)` for every term.
    template <class Change>
    void each(const PieceCost& other, const Change& change) {
        change(forward, other.forward);
        change(backward, other.backward);
        change(weight_gradient, other.weight_gradient);
        change(recompute, other.recompute);
        exposed_forward.each(other.exposed_forward, change);
        exposed_backward.each(other.exposed_backward, change);
        exposed_recompute.each(other.exposed_recompute, change);
        change(kernels_forward, other.kernels_forward);
        change(kernels_backward, other.kernels_backward);
        change(forward_flops, other.forward_flops);
        change(recompute_flops, other.recompute_flops);
        modules.each(other.modules, change);
    }

    /// Adds another piece that runs after this one on the same rank.
    PieceCost& operator+=(const PieceCost& other) {
        each(other, [](auto& own, auto others) { own += others; });
        return *this;
    }
};

/// Seconds in the passes of a microbatch.
struct PassPair {
    double forward = 0, backward = 0;
};

/// Kernels that a piece launches.
struct KernelCounts {
    int forward = 0, backward = 0;
    KernelCounts() = default;
    explicit KernelCounts(const PieceCost& piece) : forward(piece.kernels_forward), backward(piece.kernels_backward) {}
    KernelCounts& operator+=(const KernelCounts& other) {
        forward += other.forward;
        backward += other.backward;
        return *this;
    }
};

/// Costs of every kind of layer of one shard, shared by all layouts with that shard.
struct LayerCosts {
    /// A whole layer.
    struct Layer {
        PieceCost cost;
        KernelCounts mixer, feed_forward;
        KernelCounts router;  ///< part of feed_forward with experts: the norm and the router
        bool mixture = false;
        /// Expert exchanges that a paired microbatch hides, so that they are not in `cost`. Passes without a pair expose them.
        PassPair hidden{};
    };
    std::vector<Layer> layers;  ///< by index of their kind (plan/parameters/layer_kinds.hpp)
    Layer mtp;                  ///< one multi-token-prediction layer with its projection; without embedding and head
    PieceCost embedding, head;
    std::int64_t boundary = 0;  ///< bytes of the residual stream between two layers, on this rank

    /// Calls `change(own, others)` for every piece.
    template <class Change>
    void each(const LayerCosts& other, const Change& change) {
        for (std::size_t kind = 0; kind < layers.size(); ++kind) change(layers[kind].cost, other.layers[kind].cost);
        for (PieceCost LayerCosts::*piece : {&LayerCosts::embedding, &LayerCosts::head}) change(this->*piece, other.*piece);
        change(mtp.cost, other.mtp.cost);
    }
};

}  // namespace mgplan::simulator
