#pragma once
// Which layouts of a branch cannot fit, or take too long, found out once for many of them.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

/// A branch are layouts that differ in recompute, CUDA graphs and switches alone. Of the switches only dispatchers change what layers keep,
/// so that one bound holds for all overlaps and types.
class BranchTails {
public:
    /// Both must outlive it. `everywhere`: asks for the bytes of all stages, and tells types apart.
    BranchTails(const LayoutCost& cost, const SearchSpace& space, bool everywhere) : cost_(cost), space_(space), everywhere_(everywhere) {}

    /// What comes next is another branch.
    void begin_branch() { tails_.clear(); }

    /// False where no choice of overlaps and types brings the layout into `limit` bytes, or full recompute makes all of them take more than
    /// `enough` seconds: `cut_at_least` becomes no more than what they take. Neither may grow within a branch.
    [[nodiscard]] bool may_come_in(const Layout& layout, std::int64_t limit, double enough, double& cut_at_least);

private:
    struct Tail {
        EnumSet<CudaGraphScope> cuda_graphs;
        EnumSet<RecomputeModule> modules;
        Recompute recompute = Recompute::none;
        std::optional<RecomputeMethod> method;
        std::int64_t layers = 0;
        std::optional<TokenDispatcher> dispatcher;
        bool bf16_gradients = false, bf16_moments = false;  ///< where types are told apart
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
    std::vector<Known> tails_;  ///< of this branch
    std::size_t next_ = 0;      ///< of tails_: layouts come in the same order for each choice of switches
};

}  // namespace mgplan::planner
