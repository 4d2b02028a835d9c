#pragma once
// Inputs of linear layers.

#include <utility>

#include "model/ops/fp8.hpp"
#include "model/ops/fp8_blocks.hpp"

namespace mgplan::model {

/// Input of a linear layer, which its backward keeps: rows as they are, or their cast.
struct LinearInput {
    LinearInput() = default;
    LinearInput(Tensor rows) : x(std::move(rows)) {}  // NOLINT(google-explicit-constructor): most layers read rows as they are
    /// The gradient of a weight reads the turned codes, if defined, and a forward the others.
    explicit LinearInput(Fp8Tensor cast) : x(std::move(cast.codes)), scale(std::move(cast.scale)) {
        if (!cast.turned.defined()) return;
        forward.codes = std::exchange(x, std::move(cast.turned));
        lie = ColumnCodes::turned;
    }
    /// Casts in blocks, along rows for a forward and along columns for the gradient of a weight.
    LinearInput(Fp8Blocks rows, Fp8Columns columns)
        : x(std::move(columns.codes)), scale(std::move(columns.scales)), lie(columns.lie), forward(std::move(rows)) {}
    Tensor x;
    Tensor scale;                            ///< of codes in fp8, of blocks along columns; undefined otherwise
    ColumnCodes lie = ColumnCodes::as_rows;  ///< of codes
    Fp8Blocks forward;                       ///< with turned codes or blocks: the forward's operand, until its last product is done
    [[nodiscard]] bool defined() const { return x.defined(); }
    [[nodiscard]] bool in_fp8() const { return scale.defined(); }
    /// Returns the cast along columns, of an input in blocks.
    [[nodiscard]] Fp8Columns columns(Fp8Scaling scaling) const { return {x, scale, scaling, lie}; }
    /// Frees the tensors that no backward reads.
    void end_forward() { forward = {}; }
};

}  // namespace mgplan::model
