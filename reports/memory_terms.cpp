#include "reports/memory_terms.hpp"

#include <algorithm>

namespace mgplan::reports {

std::array<MemoryTerm, 11> memory_terms(const simulator::MemoryBreakdown& b) {
    return {{{"parameters", "param", b.parameters},
             {"gradients", "grad", b.gradients},
             {"optimizer", "optim", b.optimizer},
             {"activations", "activ", b.activations},
             {"graph static inputs", "inputs", b.graph_static_inputs},
             {"graph boundary", "bound", b.graph_boundary},
             {"graph objects", "graphs", b.graph_objects},
             {"communication", "comm", b.communication},
             {"workspace", "work", b.workspace},
             {"context", "context", b.context},
             {"fragmentation", "frag", b.fragmentation}}};
}

MemoryTerm largest_term(const simulator::MemoryBreakdown& breakdown) {
    const auto terms = memory_terms(breakdown);
    return *std::max_element(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes < b.bytes; });
}

}  // namespace mgplan::reports
