#pragma once
// Cost functions shared by consecutive searches of one workload.

#include <cstddef>
#include <utility>
#include <vector>

#include "planner/search.hpp"

namespace mgplan::planner {

/// A search takes one set of cost functions (LayoutCost) per thread. The next search of the same workload and space gets the same ones,
/// with all their cached results; those of one pool share results if LayoutCost::another is set.
class PricerPool {
public:
    explicit PricerPool(CostModelFactory make) : make_(std::move(make)) {}

    /// For one search. The pool must outlive it.
    [[nodiscard]] CostModelFactory of_next_search() {
        return [this, taken = std::size_t{0}](const Workload& workload) mutable {
            if (taken == pricers_.size())
                pricers_.push_back(taken > 0 && pricers_.front().another ? pricers_.front().another() : make_(workload));
            return pricers_[taken++];
        };
    }

    /// Makes cost functions for workloads that differ only in the sharding of their state, which share results with these if
    /// LayoutCost::resharded is set. The pool must outlive them.
    [[nodiscard]] CostModelFactory of_other_sharding() const {
        return [this](const Workload& workload) {
            return !pricers_.empty() && pricers_.front().resharded ? pricers_.front().resharded(workload) : make_(workload);
        };
    }

private:
    CostModelFactory make_;
    std::vector<LayoutCost> pricers_;
};

}  // namespace mgplan::planner
