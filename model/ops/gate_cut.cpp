#include "model/ops/gate_cut.hpp"

#include "model/ops/checks.hpp"

namespace mgplan::model {
namespace {

Device& device_of_gate(const Tensor& joined) {
    MGPLAN_ASSERT(joined.shape()[1] % 2 == 0, "gate and value stand side by side");
    return known_of_shapes(joined, "gate and value");
}

Tensor gate_statistics(const Tensor& joined, std::string_view name) {
    return joined.device().empty({joined.shape()[0], 2}, statistics_dtype(joined.dtype()), MemoryCategory::activations, name);
}

}  // namespace

Tensor gate_sums(const Tensor& joined) {
    Device& device = device_of_gate(joined);
    Tensor sums = gate_statistics(joined, "sums of the gate");
    device.report({"gate_sums", 1.5 * element_count(joined), joined.bytes() / 2, sums.bytes()});
    return sums;
}

void cut_gate(const Tensor& joined, const Tensor& sums) {
    Device& device = device_of_gate(joined);
    expect_shape(sums, {joined.shape()[0], 2}, "sums of the gate");
    device.report({"cut_gate", element_count(joined), joined.bytes() / 2 + sums.bytes(), joined.bytes() / 2});
}

Tensor gate_sums_backward(const Tensor& d_joined, const Tensor& uncut, const Tensor& sums) {
    Device& device = device_of_gate(d_joined);
    expect_shape(uncut, {d_joined.shape()[0], d_joined.shape()[1] / 2}, "the gate in front of the cut");
    Tensor d_sums = gate_statistics(d_joined, "gradient of the gate's sums");
    device.report({"gate_sums_backward", element_count(d_joined), d_joined.bytes() / 2 + total_bytes(uncut, sums), d_sums.bytes()});
    return d_sums;
}

void cut_gate_backward(const Tensor& d_joined, const Tensor& uncut, const Tensor& sums, const Tensor& d_sums) {
    Device& device = device_of_gate(d_joined);
    expect_shape(uncut, {d_joined.shape()[0], d_joined.shape()[1] / 2}, "the gate in front of the cut");
    device.report(
        {"cut_gate_backward", 2 * element_count(d_joined), d_joined.bytes() / 2 + total_bytes(uncut, sums, d_sums), d_joined.bytes() / 2});
}

}  // namespace mgplan::model
