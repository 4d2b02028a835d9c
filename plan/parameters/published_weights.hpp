#pragma once
// Places of a model's parameters in a published checkpoint: tensors by name and shape, and the elements of each that form the rows of a
// parameter. formats/ makes it for a model type, runtime/checkpoint/ reads and writes by it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mgplan {

/// A tensor of a published checkpoint.
struct PublishedTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    bool operator==(const PublishedTensor&) const = default;

    [[nodiscard]] std::int64_t elements() const {
        std::int64_t product = 1;
        for (const std::int64_t extent : shape) product *= extent;
        return product;
    }
};

/// Rows of a whole parameter (plan/parameters/whole_parameter.hpp) that lie evenly in one tensor: row `first_row` + r, column c is the
/// tensor's element `begin` + r·row_step + c·column_step.
struct PublishedRows {
    std::size_t tensor = 0;  ///< index in PublishedWeights::tensors
    std::int64_t begin = 0;
    std::int64_t row_step = 0;
    std::int64_t column_step = 1;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    bool operator==(const PublishedRows&) const = default;
};

/// A whole parameter: its rows in ascending order, without gaps.
struct PublishedParameter {
    std::string name;  ///< as whole_name() gives it; of an expert bias "decoder.layers.3.mlp.router.expert_bias"
    std::int64_t rows = 0, columns = 1;
    double added = 0;  ///< the parameter minus the published value: 1 where norms multiply with 1 + weight
    std::vector<PublishedRows> pieces;
    bool operator==(const PublishedParameter&) const = default;
};

/// A tensor of one value, without an axis, that no training changes.
struct PublishedConstant {
    std::string name;
    double value = 0;
    bool operator==(const PublishedConstant&) const = default;
};

struct PublishedWeights {
    std::vector<PublishedTensor> tensors;  ///< each in full covered by parameters
    std::vector<PublishedParameter> parameters;
    /// Constants that readers of the checkpoint expect as well; their values in a checkpoint are not read.
    std::vector<PublishedConstant> constants;
    /// Endings of further names that checkpoints of the type may hold: buffers that follow from the config, tied copies.
    std::vector<std::string> unused_endings;
    /// The same of beginnings: layers of multi-token prediction.
    std::vector<std::string> unused_beginnings;
    std::string base_prefix;  ///< "transformer.": some checkpoints leave it out of all names
    bool operator==(const PublishedWeights&) const = default;
};

}  // namespace mgplan
