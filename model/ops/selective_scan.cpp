#include "model/ops/selective_scan.hpp"

#include "model/ops/checks.hpp"

namespace mgplan::model {
namespace {

/// Places between kept states (csrc/selective_scan/selective_scan.cpp).
constexpr std::int64_t kPlacesOfPiece = 2048;

void expect_selective_scan(const SelectiveScanInputs& in) {
    expect_float(in.x, "inputs of selective_scan");
    MGPLAN_ASSERT(in.x.shape().rank() == 2 && in.write.shape().rank() == 2, "selective_scan reads rows");
    MGPLAN_ASSERT(in.batch > 0 && in.rows() % in.batch == 0, "sequences of selective_scan have rows alike");
    expect_shape(in.steps, {in.rows(), in.channels()}, "steps of selective_scan");
    expect_shape(in.write, {in.rows(), in.state()}, "B of selective_scan");
    expect_shape(in.read, {in.rows(), in.state()}, "C of selective_scan");
    MGPLAN_ASSERT(in.gates.shape().rank() == 2 && in.gates.shape()[0] == in.rows() && in.gate_begin >= 0 &&
                      in.gate_begin + in.channels() <= in.gates.shape()[1],
                  "the gates of selective_scan are columns of its projection");
    expect_shape(in.step_bias, {in.channels()}, "biases of the steps of selective_scan");
    expect_shape(in.log_decay, {in.channels(), in.state()}, "decays of selective_scan");
    expect_shape(in.skip, {in.channels()}, "D of selective_scan");
    expect_same_device(in.x, in.steps, in.write, in.read, in.gates, in.log_decay);
    MGPLAN_ASSERT(!in.x.device().computes(), "selective scans are known of shapes alone");
}

/// Rows, channels and values of a state: what each operation is done for.
double scanned_elements(const SelectiveScanInputs& in) {
    return static_cast<double>(in.rows()) * static_cast<double>(in.channels()) * static_cast<double>(in.state());
}

std::int64_t selective_bytes_read(const SelectiveScanInputs& in) {
    return total_bytes(in.x, in.steps, in.write, in.read, in.step_bias, in.log_decay, in.skip) + in.x.bytes();  // z is as large as x
}

}  // namespace

SelectiveScanResult selective_scan(const SelectiveScanInputs& in) {
    expect_selective_scan(in);
    Device& device = in.x.device();
    const std::int64_t pieces = (in.rows() / in.batch + kPlacesOfPiece - 1) / kPlacesOfPiece;
    const auto take = [&](const Shape& shape, Dtype dtype, std::string_view name) {
        return device.empty(shape, dtype, MemoryCategory::activations, name);
    };
    SelectiveScanResult result{take(in.x.shape(), in.x.dtype(), "scan output"),
                               take({in.batch, in.channels(), pieces, 2 * in.state()}, Dtype::fp32, "scan states"),
                               take(in.x.shape(), in.x.dtype(), "gated scan output")};
    device.report({"selective_scan", kSelectiveScanFlops * scanned_elements(in), selective_bytes_read(in),
                   total_bytes(result.scanned, result.states, result.gated)},
                  {.exponentials = scanned_elements(in), .instructions = kSelectiveScanInstructions * scanned_elements(in)});
    return result;
}

SelectiveScanGradients selective_scan_backward(const Tensor& dy, const SelectiveScanInputs& in, const SelectiveScanResult& result,
                                               const Tensor& d_gates, const Tensor& d_step_bias, const Tensor& d_log_decay,
                                               const Tensor& d_skip) {
    expect_selective_scan(in);
    expect_shape(dy, in.x.shape(), "dy of selective_scan");
    expect_shape(d_gates, in.gates.shape(), "gradient of the projection of selective_scan");
    expect_shape(d_step_bias, in.step_bias.shape(), "gradient of the steps' biases of selective_scan");
    expect_shape(d_log_decay, in.log_decay.shape(), "gradient of the decays of selective_scan");
    expect_shape(d_skip, in.skip.shape(), "gradient of D of selective_scan");
    Device& device = in.x.device();
    const auto gradient_of = [&](const Tensor& x, std::string_view name) {
        return device.empty(x.shape(), x.dtype(), MemoryCategory::activations, name);
    };
    // All channels add to those of B and C, in fp32.
    const auto sum_of = [&](const Tensor& x, std::string_view name) {
        return device.empty(x.shape(), Dtype::fp32, MemoryCategory::workspace, name);
    };
    const Tensor write_sums = sum_of(in.write, "sums of B's gradient"), read_sums = sum_of(in.read, "sums of C's gradient");
    SelectiveScanGradients gradients{gradient_of(in.x, "gradient of the scan's input"), gradient_of(in.steps, "gradient of the steps"),
                                     gradient_of(in.write, "gradient of B"), gradient_of(in.read, "gradient of C")};
    device.report({"selective_scan_backward", kSelectiveScanBackwardFlops * scanned_elements(in),
                   selective_bytes_read(in) + total_bytes(dy, result.scanned, result.states),
                   total_bytes(gradients.x, gradients.steps, gradients.write, gradients.read, write_sums, read_sums) + in.x.bytes()},
                  {.exponentials = scanned_elements(in), .instructions = kSelectiveScanBackwardInstructions * scanned_elements(in)});
    return gradients;
}

}  // namespace mgplan::model
