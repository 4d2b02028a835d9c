#include "model/graphs/iteration_graph.hpp"

#include "plan/text/errors.hpp"

namespace mgplan::model {

void IterationGraph::run(const std::vector<Tensor>& inputs, const Tensor& loss, const std::function<void()>& passes) {
    if (++runs_ == 1) return passes();
    if (pass_.captured()) {
        PassMemory memory;
        static_cast<void>(pass_.replay(device_, inputs, memory));
        return;
    }
    seen_ = true;
    input_bytes_ = 0;
    for (const Tensor& input : inputs) input_bytes_ += input.storage()->bytes();
    loss_bytes_ = loss.defined() ? loss.bytes() : 0;
    if (!device_.computes()) return passes();
    KnownStorages known;
    const PassBody body = [&](const std::vector<Tensor>& /*inputs*/) {
        passes();
        return std::vector<Tensor>{};
    };
    static_cast<void>(pass_.capture(device_, "the graph of the iteration", inputs, body, known));
    MGPLAN_ASSERT(known.numbers.size() == inputs.size(), "the passes keep no memory that they took");
}

GraphTotals IterationGraph::totals() const {
    GraphTotals totals;
    if (!seen_) return totals;
    totals.forward_graphs = 1;
    totals.static_input_bytes = input_bytes_;
    if (loss_bytes_ > 0) totals.boundary.push_back({"loss", loss_bytes_});
    totals.boundary_bytes = loss_bytes_;
    totals.stretches = pass_.stretches();
    totals.nodes = pass_.nodes();
    return totals;
}

}  // namespace mgplan::model
