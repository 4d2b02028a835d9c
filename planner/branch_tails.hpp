#pragma once
// Finds the layouts of a branch that cannot fit, or are too slow, with one bound for many of them.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

/// A branch is a set of layouts that differ only in recompute, CUDA graphs and switches. Among the switches only dispatchers change the
/// memory of layers, so that one bound holds for all overlaps and dtypes.
class BranchTails {
public:
    /// Both arguments must outlive it. `everywhere`: bounds the bytes of all stages, and keeps dtypes apart.
    BranchTails(const LayoutCost& cost, const SearchSpace& space, bool everywhere) : cost_(cost), space_(space), everywhere_(everywhere) {}

    /// Starts another branch.
    void begin_branch() { tails_.clear(); }

    /// Returns false if the layout exceeds `limit` bytes for every choice of overlaps and dtypes, or `enough` seconds due to full
    /// recompute; then lowers `cut_at_least` to at most their seconds. Neither limit may grow within a branch.
    [[nodiscard]] bool may_come_in(const Layout& layout, std::int64_t limit, double enough, double& cut_at_least);

private:
    struct Tail {
        EnumSet<CudaGraphScope> cuda_graphs;
        EnumSet<RecomputeModule> modules;
        Recompute recompute = Recompute::none;
        std::optional<RecomputeMethod> method;
        std::int64_t layers = 0;
        std::optional<TokenDispatcher> dispatcher;
        bool bf16_gradients = false, bf16_moments = false;  ///< set only with `everywhere`
        bool operator==(const Tail&) const = default;
    };
    struct Known {
        Tail tail;
        bool may_come_in = true;
    };

    [[nodiscard]] bool takes_longer(const Layout& layout, double enough, double& cut_at_least) const;

    const LayoutCost& cost_;
    const SearchSpace& space_;
    bool everywhere_;
    std::vector<Known> tails_;  ///< results of this branch
    std::size_t next_ = 0;      ///< index in tails_: layouts come in the same order for each choice of switches
};

}  // namespace mgplan::planner
