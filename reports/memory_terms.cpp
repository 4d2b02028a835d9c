#include "reports/memory_terms.hpp"

#include <algorithm>

namespace mgplan::reports {

std::array<MemoryTerm, 11> memory_terms(const simulator::MemoryBreakdown& b) {
    return {{{"parameters", "param", b.parameters, "parameters"},
             {"gradients", "grad", b.gradients, "gradients"},
             {"optimizer", "optim", b.optimizer, "optimizer"},
             {"activations", "activ", b.activations, "activations"},
             {"graph static inputs", "inputs", b.graph_static_inputs, "forward2"},
             {"graph boundary", "bound", b.graph_boundary, "backward2"},
             {"graph objects", "graphs", b.graph_objects, "weight"},
             {"communication", "comm", b.communication, "communication"},
             {"workspace", "work", b.workspace, "workspace"},
             {"context", "context", b.context, "other"},
             {"fragmentation", "frag", b.fragmentation, "bubble"}}};
}

MemoryTerm largest_term(const simulator::MemoryBreakdown& breakdown) {
    const auto terms = memory_terms(breakdown);
    return *std::max_element(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes < b.bytes; });
}

}  // namespace mgplan::reports
