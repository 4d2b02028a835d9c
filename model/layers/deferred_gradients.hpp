#pragma once
// Weight gradients that a schedule computes in a pass of their own, after the backward that makes the gradient of the input.

#include <deque>
#include <functional>
#include <utility>

#include "model/layers/context.hpp"

namespace mgplan::model {

/// The work that one backward of a chunk left for its weight-gradient pass, in the order in which an undivided backward does
/// it. Every entry owns the tensors that it reads, and nothing else: they are what the pass keeps in memory.
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

/// Adds to the gradients of weights: now, or in the weight-gradient pass where the schedule has one. What `work` reads it must
/// hold by value. Matrix products are divided so (Qi et al., arXiv 2401.10241, section 2), which is most of the time; sums of
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
