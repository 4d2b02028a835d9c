#pragma once
// Number of a rank's graphs, and the bytes at their fixed addresses.

#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::model {

/// Bytes of one name.
struct BoundaryTotal {
    std::string name;
    std::int64_t bytes = 0;
    bool operator==(const BoundaryTotal&) const = default;
};

/// Totals of a rank's captured graphs, or on shapes of those that would be captured. A graph of a whole iteration counts as a forward's.
struct GraphTotals {
    std::int64_t forward_graphs = 0;
    std::int64_t backward_graphs = 0;
    std::int64_t slots = 0;
    /// Inputs of forwards, and outputs of forwards that go to eager work: of each slot, and each name, those of the chunk that
    /// has most.
    std::int64_t static_input_bytes = 0;
    std::vector<BoundaryTotal> boundary;  ///< names in alphabetical order, none without bytes
    std::int64_t boundary_bytes = 0;      ///< their sum
    std::int64_t stretches = 0;           ///< pieces that collectives cut the graphs into; 0 on shapes
    std::int64_t nodes = 0;               ///< kernels, copies and fills; 0 on shapes
};

}  // namespace mgplan::model
