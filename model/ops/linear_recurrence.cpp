#include "model/ops/linear_recurrence.hpp"

#include "model/ops/checks.hpp"

namespace mgplan::model {
namespace {

void expect_recurrent_rows(const Tensor& x, std::string_view what) {
    expect_float(x, what);
    MGPLAN_ASSERT(x.shape().rank() == 2, "recurrent blocks work on rows");
    MGPLAN_ASSERT(!x.device().computes(), "recurrent blocks are known of shapes alone");
}

void expect_branch(const Tensor& x, Columns columns, std::string_view what) {
    expect_recurrent_rows(x, what);
    MGPLAN_ASSERT(columns.begin >= 0 && columns.width > 0 && columns.begin + columns.width <= x.shape()[1],
                  "columns lie within their rows");
}

/// Bytes of some columns of a tensor.
std::int64_t bytes_of_branch(const Tensor& x, Columns columns) {
    return x.bytes() / x.shape()[1] * columns.width;
}

Tensor recurrent_output(const Tensor& x, std::string_view name) {
    return x.device().empty(x.shape(), x.dtype(), MemoryCategory::activations, name);
}

void expect_gate_blocks(const Tensor& x, const Tensor& weight) {
    expect_recurrent_rows(x, "inputs of block_products");
    MGPLAN_ASSERT(weight.shape().rank() == 3, "blocks have rows and columns");
    expect_shape(x, {x.shape()[0], weight.shape()[0] * weight.shape()[2]}, "inputs of block_products");
}

Shape output_of_blocks(const Tensor& x, const Tensor& weight) {
    return {x.shape()[0], weight.shape()[0] * weight.shape()[1]};
}

constexpr Arithmetic kOfBlocks{.small_products = true, .model_share = 1};

double flops_of_blocks(const Tensor& x, const Tensor& weight) {
    return 2 * static_cast<double>(x.shape()[0]) * static_cast<double>(x.shape()[1]) * static_cast<double>(weight.shape()[1]);
}

}  // namespace

Tensor plain_conv(const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch) {
    expect_branch(x, channels, "inputs of plain_conv");
    MGPLAN_ASSERT(batch > 0 && x.shape()[0] % batch == 0, "sequences of plain_conv have rows alike");
    Device& device = x.device();
    Tensor y = device.empty({x.shape()[0], channels.width}, x.dtype(), MemoryCategory::activations, "convolution output");
    device.report({"plain_conv", 0, bytes_of_branch(x, channels) + total_bytes(weight, bias), y.bytes()});
    return y;
}

void plain_conv_backward(const Tensor& dy, const Tensor& x, Columns channels, const Tensor& weight, const Tensor& dx,
                         const Tensor& weight_gradient, const Tensor& bias_gradient) {
    expect_branch(x, channels, "inputs of plain_conv");
    expect_shape(dy, {x.shape()[0], channels.width}, "dy of plain_conv");
    expect_shape(dx, x.shape(), "dx of plain_conv");
    x.device().report({"plain_conv_backward", 0, bytes_of_branch(x, channels) + total_bytes(dy, weight),
                       bytes_of_branch(dx, channels) + total_bytes(weight_gradient, bias_gradient)});
}

Tensor block_products(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    expect_gate_blocks(x, weight);
    Tensor y = x.device().empty(output_of_blocks(x, weight), x.dtype(), MemoryCategory::activations, "block output");
    x.device().report({"block_products", flops_of_blocks(x, weight), total_bytes(x, weight, bias), y.bytes()}, kOfBlocks);
    return y;
}

Tensor block_products_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& weight_gradient,
                               const Tensor& bias_gradient) {
    expect_gate_blocks(x, weight);
    expect_shape(dy, output_of_blocks(x, weight), "dy of block_products");
    Tensor dx = recurrent_output(x, "block input gradient");
    x.device().report({"block_products_backward", 2 * flops_of_blocks(x, weight), 2 * dy.bytes() + total_bytes(x, weight),
                       total_bytes(dx, weight_gradient, bias_gradient)},
                      kOfBlocks);
    return dx;
}

Tensor linear_recurrence(const Tensor& x, const Tensor& input_gates, const Tensor& decay_gates, const Tensor& decay) {
    expect_recurrent_rows(x, "inputs of linear_recurrence");
    for (const Tensor* const gates : {&input_gates, &decay_gates}) expect_shape(*gates, x.shape(), "gates of linear_recurrence");
    expect_shape(decay, {x.shape()[1]}, "decay of linear_recurrence");
    Tensor h = recurrent_output(x, "recurrence output");
    x.device().report({"linear_recurrence", 0, total_bytes(x, input_gates, decay_gates, decay), h.bytes()});
    return h;
}

RecurrenceGradients linear_recurrence_backward(const Tensor& dh, const Tensor& h, const Tensor& x, const Tensor& input_gates,
                                               const Tensor& decay_gates, const Tensor& decay, const Tensor& decay_gradient) {
    expect_recurrent_rows(x, "inputs of linear_recurrence");
    for (const Tensor* const tensor : {&dh, &h, &input_gates, &decay_gates}) expect_shape(*tensor, x.shape(), "rows of linear_recurrence");
    RecurrenceGradients gradients{recurrent_output(x, "gradient of the recurrence's input"), recurrent_output(x, "gradient of input gates"),
                                  recurrent_output(x, "gradient of decay gates")};
    x.device().report({"linear_recurrence_backward", 0, total_bytes(dh, h, x, input_gates, decay_gates, decay),
                       total_bytes(gradients.x, gradients.input_gates, gradients.decay_gates, decay_gradient)});
    return gradients;
}

Tensor gated_by_gelu(const Tensor& h, const Tensor& gates, Columns z) {
    expect_branch(gates, z, "gates of gated_by_gelu");
    expect_shape(h, {gates.shape()[0], z.width}, "inputs of gated_by_gelu");
    Tensor y = recurrent_output(h, "gated output");
    h.device().report({"gated_by_gelu", 0, h.bytes() + bytes_of_branch(gates, z), y.bytes()});
    return y;
}

Tensor gated_by_gelu_backward(const Tensor& dy, const Tensor& h, const Tensor& gates, Columns z, const Tensor& d_gates) {
    expect_branch(gates, z, "gates of gated_by_gelu");
    expect_shape(dy, h.shape(), "dy of gated_by_gelu");
    expect_shape(d_gates, gates.shape(), "gradient of the gates of gated_by_gelu");
    Tensor dh = recurrent_output(h, "gradient of what is gated");
    h.device().report(
        {"gated_by_gelu_backward", 0, total_bytes(dy, h) + bytes_of_branch(gates, z), dh.bytes() + bytes_of_branch(d_gates, z)});
    return dh;
}

}  // namespace mgplan::model
