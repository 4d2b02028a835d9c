#pragma once
// Pricers that several searches of one workload take turns with.

#include <cstddef>
#include <utility>
#include <vector>

#include "planner/search.hpp"

namespace mgplan::planner {

/// A search takes as many pricers as it has threads. The next one of the same workload and space gets them again, with all that they know;
/// what one of them finds out its fellows need not, where they share (LayoutCost::another).
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

private:
    CostModelFactory make_;
    std::vector<LayoutCost> pricers_;
};

}  // namespace mgplan::planner
