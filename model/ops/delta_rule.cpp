#include "model/ops/delta_rule.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

constexpr Arithmetic kDeltaByChunks{.small_products = true};

const Tensor& raw_decays(const DeltaRuleInputs& in) {
    return in.decays.defined() ? in.decays : in.projected;
}

void expect_rule(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    expect_float(in.mixed, "inputs of delta_rule");
    MGPLAN_ASSERT(sizes.places > 0 && sizes.batch > 0 && sizes.key_heads > 0 && sizes.value_heads % sizes.key_heads == 0 &&
                      sizes.value_heads > 0 && sizes.key_dim > 0 && sizes.value_dim > 0 && sizes.chunk > 0,
                  "key heads of delta_rule serve equally many value heads");
    expect_shape(in.mixed, {sizes.rows(), sizes.width()}, "inputs of delta_rule");
    expect_dtype(in.projected, in.mixed.dtype(), "gates of delta_rule");
    MGPLAN_ASSERT(in.projected.shape().rank() == 2 && in.projected.shape()[0] == sizes.rows() && in.beta_begin >= 0 &&
                      in.beta_begin + sizes.value_heads <= in.projected.shape()[1],
                  "the strengths of delta_rule are columns of its projection");
    const Tensor& decays = raw_decays(in);
    expect_dtype(decays, in.mixed.dtype(), "decays of delta_rule");
    MGPLAN_ASSERT(decays.shape().rank() == 2 && decays.shape()[0] == sizes.rows() && in.decay_begin >= 0 &&
                      in.decay_begin + sizes.decays() <= decays.shape()[1],
                  "the decays of delta_rule are columns of its projection");
    expect_shape(in.step_bias, {sizes.decays()}, "a bias for each decay of delta_rule");
    expect_shape(in.log_decay, {sizes.value_heads}, "a value for each head of delta_rule");
    for (const Tensor* tensor : {&in.step_bias, &in.log_decay})
        expect_dtype(*tensor, in.mixed.dtype(), "a value for each head of delta_rule");
    expect_same_device(in.mixed, in.projected, decays, in.step_bias, in.log_decay);
}

std::int64_t bytes_of_gates(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    return in.projected.bytes() / in.projected.shape()[1] * (sizes.value_heads + sizes.decays());
}

/// Scratch for what is kept of a state's rows; with a decay for each head none.
Tensor kept_by_channel(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    if (!sizes.channel_decays) return {};
    return in.mixed.device().empty({sizes.rows(), sizes.decays()}, statistics_dtype(in.mixed.dtype()), MemoryCategory::workspace,
                                   "kept shares of delta rule states");
}

/// Values of all states that a pass over the rows meets.
double state_values(const DeltaRuleSizes& sizes) {
    return static_cast<double>(sizes.rows()) * static_cast<double>(sizes.values()) * static_cast<double>(sizes.key_dim);
}

/// A GPU's loops (runtime/cuda/ops/delta_rule.hpp) walk place by place: a thread a column of a state in the forward, in the backward a team
/// of up to 256 lanes all states of a key head, one behind the other. For each value of a state they execute so many instructions, loads
/// and what finds addresses included: what the key finds, writing and reading; and back twice the first two, then what is not found, and
/// three passes over the state's gradient. `bytes`: those of the record; in the backward a chunk's states are written and read besides.
OwnKernels own_rule_kernels(const Device& device, const DeltaRuleSizes& sizes, std::int64_t bytes, Dtype kept, bool backward) {
    if (device.traits().kind == DeviceKind::cpu) return {};
    constexpr double kForward = 30, kBackward = 90;
    constexpr std::int64_t kLanes = 256;
    const double of_a_column = static_cast<double>(sizes.places * sizes.key_dim), all = state_values(sizes);
    if (!backward) return {static_cast<double>(bytes), 0, 0, kForward * all, kForward * of_a_column};
    const std::int64_t columns = sizes.value_heads / sizes.key_heads * ((sizes.value_dim + kLanes - 1) / kLanes);
    return {static_cast<double>(bytes) + 2 * all * static_cast<double>(bytes_of(kept)), 0, 0, kBackward * all,
            kBackward * of_a_column * static_cast<double>(columns)};
}

}  // namespace

Tensor delta_rule(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    expect_rule(in, sizes);
    Device& device = in.mixed.device();
    const Dtype kept = statistics_dtype(in.mixed.dtype());
    Tensor y = device.empty({sizes.rows(), sizes.values()}, in.mixed.dtype(), MemoryCategory::activations, "delta rule output");
    const auto scratch = [&](const Shape& shape, std::string_view name) {
        return device.empty(shape, kept, MemoryCategory::workspace, name);
    };
    const Tensor norms = scratch({sizes.rows(), 2, sizes.key_heads}, "inverse lengths of queries and keys");
    const Tensor keeps = kept_by_channel(in, sizes);
    const Tensor states = scratch({sizes.batch, sizes.value_heads, sizes.key_dim, sizes.value_dim}, "delta rule states");
    // For each value of a state: one operation for its decay, two each for what the key finds, for writing and for reading.
    const std::int64_t reads = total_bytes(in.mixed, in.step_bias, in.log_decay) + bytes_of_gates(in, sizes),
                       writes = total_bytes(y, norms, keeps, states);
    device.report({"delta_rule",
                   7 * state_values(sizes),
                   reads,
                   writes,
                   sizes.channel_decays ? 3 : 2,
                   {},
                   {},
                   {},
                   kDeltaByChunks,
                   own_rule_kernels(device, sizes, reads + writes, kept, false)});
    if (!device.computes()) return y;
    device.kernels().delta_rule(device, {in.mixed, in.projected, raw_decays(in), in.step_bias, in.log_decay, y, norms, keeps, states, sizes,
                                         in.projected.shape()[1], in.beta_begin, raw_decays(in).shape()[1], in.decay_begin});
    return y;
}

Tensor delta_rule_backward(const Tensor& dy, const DeltaRuleInputs& in, const DeltaRuleSizes& sizes, const Tensor& d_projected,
                           const Tensor& step_bias_gradient, const Tensor& log_decay_gradient, const Tensor& d_decays) {
    expect_rule(in, sizes);
    expect_shape(dy, {sizes.rows(), sizes.values()}, "dy of delta_rule");
    expect_dtype(dy, in.mixed.dtype(), "dy of delta_rule");
    expect_shape(d_projected, in.projected.shape(), "gradient of the projection of delta_rule");
    expect_dtype(d_projected, in.mixed.dtype(), "gradient of the projection of delta_rule");
    const Tensor& of_decays = in.decays.defined() ? d_decays : d_projected;
    expect_shape(of_decays, raw_decays(in).shape(), "gradient of the decays of delta_rule");
    expect_dtype(of_decays, in.mixed.dtype(), "gradient of the decays of delta_rule");
    expect_shape(step_bias_gradient, {sizes.decays()}, "gradient of a bias for each decay of delta_rule");
    expect_shape(log_decay_gradient, {sizes.value_heads}, "gradient of a value for each head of delta_rule");
    for (const Tensor* tensor : {&step_bias_gradient, &log_decay_gradient})
        expect_accumulator(*tensor, in.mixed, "gradient of a value for each head of delta_rule");
    expect_same_device(in.mixed, dy, d_projected, of_decays);
    Device& device = in.mixed.device();
    const Dtype kept = statistics_dtype(in.mixed.dtype());
    Tensor dx = device.empty(in.mixed.shape(), in.mixed.dtype(), MemoryCategory::activations, "delta rule input gradient");
    const auto scratch = [&](const Shape& shape, std::string_view name) {
        return device.empty(shape, kept, MemoryCategory::workspace, name);
    };
    const std::int64_t batch = sizes.batch, heads = sizes.key_heads, state = sizes.key_dim * sizes.value_dim;
    const Tensor norms = scratch({sizes.rows(), 2, heads}, "inverse lengths of queries and keys");
    const Tensor keeps = kept_by_channel(in, sizes);
    const Tensor chunk_states = scratch({batch, heads, sizes.chunks(), state}, "delta rule states by chunk");
    const Tensor place_states = scratch({batch, heads, sizes.chunk, state}, "delta rule states by place");
    const Tensor state_gradients = scratch({batch, heads, state}, "delta rule state gradients");
    const Tensor vectors = scratch({batch, heads, 3, sizes.value_dim}, "delta rule vectors");
    const Tensor unit_gradients = scratch({sizes.rows(), 2, heads, sizes.key_dim}, "gradients of unit queries and keys");
    const Tensor sums = scratch({batch, sizes.decays() + sizes.value_heads}, "delta rule parameter sums");
    // The states twice again (5 each), then seven products with them of two operations and one decay.
    const std::int64_t reads = total_bytes(dy, in.mixed, in.step_bias, in.log_decay) + bytes_of_gates(in, sizes) + chunk_states.bytes();
    const std::int64_t writes = dx.bytes() + bytes_of_gates(in, sizes) + total_bytes(norms, keeps, chunk_states, unit_gradients);
    device.report({"delta_rule_backward",
                   25 * state_values(sizes),
                   reads,
                   writes,
                   (sizes.channel_decays ? 4 : 3) + 2 * column_sum_launches(batch),
                   {},
                   {},
                   {},
                   kDeltaByChunks,
                   own_rule_kernels(device, sizes, reads + writes, kept, true)});
    if (!device.computes()) return dx;
    device.kernels().delta_rule_backward(device, {dy,
                                                  in.mixed,
                                                  in.projected,
                                                  raw_decays(in),
                                                  in.step_bias,
                                                  in.log_decay,
                                                  dx,
                                                  d_projected,
                                                  of_decays,
                                                  step_bias_gradient,
                                                  log_decay_gradient,
                                                  norms,
                                                  keeps,
                                                  chunk_states,
                                                  place_states,
                                                  state_gradients,
                                                  vectors,
                                                  unit_gradients,
                                                  sums,
                                                  sizes,
                                                  in.projected.shape()[1],
                                                  in.beta_begin,
                                                  raw_decays(in).shape()[1],
                                                  in.decay_begin});
    return dx;
}

}  // namespace mgplan::model
