#pragma once
// A gate whose largest values alone pass: values above the bound mean + z · deviation of their row, less that bound, and 0 below it, with z
// from the wanted share of zeros (transformers 5.23.0, modeling_gemma3n.py, Gemma3nTextMLP._gaussian_topk). Implemented for shapes alone
// (layers_known_of_shapes()). `joined` (rows, 2·width) holds gate and value side by side; G are the bytes of rows · width.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Sum and sum of squares of each row of the gate (rows, 2), in the type of statistics: of this rank's columns. Reads G.
[[nodiscard]] Tensor gate_sums(const Tensor& joined);
/// Cuts the gate in place. Reads G, writes G.
void cut_gate(const Tensor& joined, const Tensor& sums);

/// Gradients of the sums (rows, 2) from that of the cut gate, of this rank's columns; `uncut` (rows, width): the gate before the cut.
/// Reads 2 G.
[[nodiscard]] Tensor gate_sums_backward(const Tensor& d_joined, const Tensor& uncut, const Tensor& sums);
/// The gradient of the cut gate becomes that of the gate. Reads 2 G, writes G.
void cut_gate_backward(const Tensor& d_joined, const Tensor& uncut, const Tensor& sums, const Tensor& d_sums);

}  // namespace mgplan::model
