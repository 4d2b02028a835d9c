#pragma once
// Compute time by the module of the model that causes it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mgplan::simulator {

/// Modules among which compute time is divided (module_of(), simulator/price/module_costs.hpp). `optimizer`: passes over gradients inside
/// of backwards, which engine mgplan needs for sharded ones; the update itself is no compute time. `host`: waits for kernel launches, and
/// copies to and from the host.
enum class ComputeModule : std::uint8_t {
    qkv_projection,
    attention_core,
    dense_mlp,
    experts,
    router_permute,
    norms_elementwise,
    output_loss,
    optimizer,
    quantisation,
    host
};
struct ModuleName {
    std::string_view json, text;
};
/// By ComputeModule.
inline constexpr std::array<ModuleName, 10> kComputeModules{{{"qkv_projection", "QKV, projections"},
                                                             {"attention_core", "attention core"},
                                                             {"dense_mlp", "dense MLP"},
                                                             {"experts", "experts"},
                                                             {"router_permute", "router, permute"},
                                                             {"norms_elementwise", "norms, elementwise"},
                                                             {"output_loss", "output layer, loss"},
                                                             {"optimizer", "gradient sums"},
                                                             {"quantisation", "quantisation"},
                                                             {"host", "host"}}};

/// Work of one module.
struct ModuleWork {
    double seconds = 0;
    double flops = 0;  ///< of GEMMs, attention and scans, those of recompute included
    double bytes = 0;  ///< read and written by ops

    /// Calls `change(own, others)` for every term.
    template <class Change>
    void each(const ModuleWork& other, const Change& change) {
        change(seconds, other.seconds);
        change(flops, other.flops);
        change(bytes, other.bytes);
    }
};

/// Work of a module in the passes of a piece.
struct PassWork {
    ModuleWork forward, backward, recompute;  ///< as in PieceCost
    template <class Change>
    void each(const PassWork& other, const Change& change) {
        forward.each(other.forward, change);
        backward.each(other.backward, change);
        recompute.each(other.recompute, change);
    }
};

/// Work of all modules, by ComputeModule. Empty if it is not counted, as in searches.
template <class Work>
struct ByModule {
    std::vector<Work> works{};

    [[nodiscard]] bool counted() const { return !works.empty(); }
    /// Must be counted.
    [[nodiscard]] const Work& at(ComputeModule module) const { return works[static_cast<std::size_t>(module)]; }
    Work& operator[](ComputeModule module) {
        if (works.empty()) works.resize(kComputeModules.size());
        return works[static_cast<std::size_t>(module)];
    }
    /// Calls `change(own, others)` for every term of every module that `other` counts.
    template <class Change>
    void each(const ByModule& other, const Change& change) {
        if (other.works.size() > works.size()) works.resize(other.works.size());
        for (std::size_t i = 0; i < other.works.size(); ++i) works[i].each(other.works[i], change);
    }
    /// Adds `times` copies of `other`.
    void add(const ByModule& other, double times) {
        each(other, [times](double& own, double others) { own += times * others; });
    }
};

}  // namespace mgplan::simulator
