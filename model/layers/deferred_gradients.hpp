#pragma once
// Weight gradients that a schedule computes in a pass of their own, after the backward that makes the gradient of the input.

#include <deque>
#include <functional>
#include <utility>

#include "model/layers/context.hpp"

namespace mgplan::model {

/// The work that one backward of a chunk deferred to its weight-gradient pass, in the order in which an undivided backward does
/// it. Every entry owns the tensors that it reads, and nothing else: the pass keeps only these in memory.
class DeferredGradients {
public:
    void add(std::function<void()> work) { work_.push_back(std::move(work)); }
    /// Does everything, first in first out; an entry's tensors are given back as soon as it is done.
    void run() {
        while (!work_.empty()) {
            work_.front()();
            work_.pop_front();
        }
    }

private:
    std::deque<std::function<void()>> work_;
};

/// Adds to the gradients of weights: now, or in the weight-gradient pass if the schedule has one. `work` must hold all that it reads
/// by value. Matrix products are deferred (Qi et al., arXiv 2401.10241, section 2), which take most of the time; sums of
/// columns (norms, and biases but those that a product sums up) and the embedding's rows need no product and are added while the input's
/// gradient is made.
template <class Work>
void add_weight_gradient(const RankContext& context, Work work) {
    if (context.deferred != nullptr)
        context.deferred->add(std::move(work));
    else
        work();
}

}  // namespace mgplan::model
