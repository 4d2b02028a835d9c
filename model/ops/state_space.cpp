#include "model/ops/state_space.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

constexpr Arithmetic kByChunks{.small_products = true};

void expect_scan(const StateSpaceInputs& in, const StateSpaceSizes& sizes) {
    expect_float(in.mixed, "inputs of state_space_scan");
    MGPLAN_ASSERT(sizes.places > 0 && sizes.batch > 0 && sizes.heads > 0 && sizes.head_dim > 0 && sizes.groups > 0 && sizes.state > 0 &&
                      sizes.chunk > 0 && sizes.heads % sizes.groups == 0,
                  "state_space_scan has heads in equal groups");
    expect_shape(in.mixed, {sizes.rows(), sizes.width()}, "inputs of state_space_scan");
    if (sizes.fixed.used()) {
        MGPLAN_ASSERT(!in.projected.defined() && !in.step_bias.defined() && !in.log_decay.defined() && !in.skip.defined(),
                      "state_space_scan with fixed decays trains neither steps nor decays");
        return;
    }
    expect_dtype(in.projected, in.mixed.dtype(), "steps of state_space_scan");
    MGPLAN_ASSERT(in.projected.shape().rank() == 2 && in.projected.shape()[0] == sizes.rows() && in.step_begin >= 0 &&
                      in.step_begin + sizes.heads <= in.projected.shape()[1],
                  "the steps of state_space_scan are columns of its projection");
    for (const Tensor* tensor : {&in.step_bias, &in.log_decay, &in.skip}) {
        expect_shape(*tensor, {sizes.heads}, "a value for each head of state_space_scan");
        expect_dtype(*tensor, in.mixed.dtype(), "a value for each head of state_space_scan");
    }
    expect_same_device(in.mixed, in.projected, in.step_bias, in.log_decay, in.skip);
}

std::int64_t bytes_of_steps(const StateSpaceInputs& in, const StateSpaceSizes& sizes) {
    return in.projected.defined() ? in.projected.bytes() / in.projected.shape()[1] * sizes.heads : 0;
}

std::int64_t pitch_of_steps(const StateSpaceInputs& in) {
    return in.projected.defined() ? in.projected.shape()[1] : 0;
}

void expect_gradients(const StateSpaceInputs& in, const StateSpaceSizes& sizes, const Tensor& d_projected,
                      const StateSpaceGradients& gradients) {
    if (sizes.fixed.used()) {
        MGPLAN_ASSERT(
            !d_projected.defined() && !gradients.step_bias.defined() && !gradients.log_decay.defined() && !gradients.skip.defined(),
            "state_space_scan with fixed decays has no gradients of steps and decays");
        return;
    }
    expect_shape(d_projected, in.projected.shape(), "gradient of the projection of state_space_scan");
    expect_dtype(d_projected, in.mixed.dtype(), "gradient of the projection of state_space_scan");
    for (const Tensor* tensor : {&gradients.step_bias, &gradients.log_decay, &gradients.skip}) {
        expect_shape(*tensor, {sizes.heads}, "gradient of a value for each head of state_space_scan");
        expect_accumulator(*tensor, in.mixed, "gradient of a value for each head of state_space_scan");
    }
}

bool by_products(const Device& device) {
    return device.traits().kind != DeviceKind::cpu;
}

/// Scratch of forward and backward.
struct ScanScratch {
    Tensor steps, decays, states, scores, workspace;
};

ScanScratch scratch_of(Device& device, const StateSpaceSizes& sizes, Dtype dtype, bool backward) {
    const Dtype kept = statistics_dtype(dtype);
    const auto take = [&](const Shape& shape, std::string_view name) { return device.empty(shape, kept, MemoryCategory::workspace, name); };
    ScanScratch scratch{take({sizes.rows(), sizes.heads}, "scan steps"),
                        take({sizes.rows(), sizes.heads}, "scan decays"),
                        take({sizes.chunks(), sizes.batch, sizes.heads, sizes.head_dim * sizes.state}, "scan states"),
                        {},
                        {}};
    if (!by_products(device)) return scratch;
    scratch.scores = take({sizes.rows(), sizes.groups, sizes.chunk}, "scan scores");
    scratch.workspace = take_scratch(device, scan_workspace(device.traits(), dtype, sizes, backward).total, kScanWorkspace);
    return scratch;
}

/// Operations of the algorithm by chunks, a multiplication and an addition counted as two; of matrices below their diagonal the half.
struct ScanOperations {
    double states;  ///< states of chunks from their inputs, or one of the like products
    double scores;  ///< C Bᵀ of all groups
    double within;  ///< scores times x, or one of the like products
};

ScanOperations operations_of(const StateSpaceSizes& sizes) {
    const double rows = static_cast<double>(sizes.rows()), inner = static_cast<double>(sizes.inner()), n = static_cast<double>(sizes.state),
                 q = static_cast<double>(sizes.chunk), groups = static_cast<double>(sizes.groups);
    return {2 * rows * inner * n, rows * groups * q * n, rows * inner * q};
}

/// Kernels of a scan on a device: the CPU's four and seven, or each block's operands, products and what is between them.
std::int64_t scan_launches(const Device& device, Dtype dtype, const StateSpaceSizes& sizes, bool backward) {
    const std::int64_t steps = backward && !sizes.fixed.used() ? 1 + 3 * column_sum_launches(sizes.chunks() * sizes.batch) : 0;
    if (!by_products(device)) return (backward ? 6 : 4) + steps;
    const ScanWorkspace space = scan_workspace(device.traits(), dtype, sizes, backward);
    const std::int64_t rounded = space.states < 0 ? 0 : 1;
    return backward ? 3 + (19 + 2 * rounded) * space.blocks + steps : 2 + (10 + rounded) * space.blocks;
}

/// Returns a GPU's work (runtime/cuda/ops/state_space.hpp). Bytes are those of whole arrays, each once for a kernel that reads it and once
/// for one that writes it; parameters and their sums aside. A last chunk that is shorter counts as its rows of a whole one. Instructions
/// are those of the bodies' loops, including address computations.
OwnKernels own_scan_kernels(const Device& device, Dtype dtype, const StateSpaceSizes& sizes, bool backward) {
    if (!by_products(device)) return {};
    const auto real = [](std::int64_t count) { return static_cast<double>(count); };
    const double narrow = real(bytes_of(dtype)), wide = real(bytes_of(statistics_dtype(dtype)));
    const ScanWorkspace space = scan_workspace(device.traits(), dtype, sizes, backward);
    const double values = real(sizes.rows() * sizes.inner()), maps = real(sizes.rows() * sizes.groups * sizes.state);
    const double weights = real(sizes.rows() * sizes.heads * space.length), pairs = real(sizes.rows() * sizes.groups * space.length);
    const double ends = real(sizes.chunks() * sizes.batch * sizes.heads), state = real(sizes.head_dim * sizes.state);
    const double states = ends * state, n = real(sizes.state), rounded = space.states < 0 ? 0 : states;
    const double steps = real(sizes.rows() * sizes.heads), raw = sizes.fixed.used() ? 0 : steps;
    OwnKernels own;
    own.exponentials = 2 * values + weights;
    own.instructions = 60 * values + 12 * weights;
    const auto move = [&](double of_storage, double of_statistics) { own.bytes += of_storage * narrow + of_statistics * wide; };
    move(raw, 3 * steps);                             // steps and decays
    move(8 * maps, 0);                                // B and C, for states and for what is read
    move(4 * values, 4 * steps);                      // x by steps, likewise
    move(values + maps, states);                      // terms that chunks add to states
    move(0, 2 * states + ends);                       // states
    move(2 * maps, pairs);                            // scores
    move(weights, pairs + steps);                     // weights
    move(rounded + maps + states, rounded + values);  // read from states
    move(weights + values, values);                   // read within chunks
    own.product_flops = 2 * (2 * values * n + pairs * n + values * real(space.length));
    if (!backward) {
        move(2 * values, 2 * values + steps);  // the output
        return own;
    }
    own.exponentials += 2 * values;
    own.instructions += 80 * values + 4 * weights;
    move(6 * values, 0);                              // dy as it is and decayed, x decayed once more
    move(values + maps, states);                      // terms that chunks add to gradients of states
    move(0, 2 * states + ends);                       // these
    move(2 * values, weights);                        // dy xᵀ
    move(pairs, weights);                             // by decays, over a group's heads
    move(weights + values, values);                   // gradients of later reads within chunks
    move(rounded + maps + states, rounded + values);  // and of states
    move(2 * (pairs + maps), 2 * maps);               // dB and dC within chunks
    move(2 * (values + states), 4 * maps);            // and by states
    move(2 * maps, 2 * maps);                         // to their rows
    move(5 * values, 4 * values + 5 * steps);         // dx, and sums of each row and head
    // Raw steps; what a chunk leaves to the next.
    if (!sizes.fixed.used()) move(2 * steps, 5 * steps + 2 * (states - real(sizes.batch * sizes.heads) * state));
    own.product_flops += 2 * (4 * values * n + 2 * pairs * n + 2 * values * real(space.length));
    return own;
}

}  // namespace

Tensor state_space_scan(const StateSpaceInputs& in, const StateSpaceSizes& sizes) {
    expect_scan(in, sizes);
    Device& device = in.mixed.device();
    Tensor y = device.empty({sizes.rows(), sizes.inner()}, in.mixed.dtype(), MemoryCategory::activations, "scan output");
    const ScanScratch scratch = scratch_of(device, sizes, in.mixed.dtype(), false);
    const ScanOperations operations = operations_of(sizes);
    device.report({"state_space_scan",
                   2 * operations.states + operations.scores + operations.within,
                   total_bytes(in.mixed, in.step_bias, in.log_decay, in.skip) + bytes_of_steps(in, sizes) + scratch.states.bytes(),
                   y.bytes() + total_bytes(scratch.steps, scratch.decays, scratch.states),
                   scan_launches(device, in.mixed.dtype(), sizes, false),
                   {},
                   {},
                   {},
                   kByChunks,
                   own_scan_kernels(device, in.mixed.dtype(), sizes, false)});
    if (!device.computes()) return y;
    device.kernels().state_space_scan(
        device, {in.mixed, in.projected, in.step_bias, in.log_decay, in.skip, y, scratch.steps, scratch.decays, scratch.states, sizes,
                 pitch_of_steps(in), in.step_begin, scratch.scores, scratch.workspace});
    return y;
}

Tensor state_space_scan_backward(const Tensor& dy, const StateSpaceInputs& in, const StateSpaceSizes& sizes, const Tensor& d_projected,
                                 const StateSpaceGradients& gradients) {
    expect_scan(in, sizes);
    expect_shape(dy, {sizes.rows(), sizes.inner()}, "dy of state_space_scan");
    expect_dtype(dy, in.mixed.dtype(), "dy of state_space_scan");
    expect_gradients(in, sizes, d_projected, gradients);
    expect_same_device(in.mixed, dy, d_projected);
    Device& device = in.mixed.device();
    const Dtype kept = statistics_dtype(in.mixed.dtype());
    Tensor dx = device.empty(in.mixed.shape(), in.mixed.dtype(), MemoryCategory::activations, "scan input gradient");
    const ScanScratch scratch = scratch_of(device, sizes, in.mixed.dtype(), true);
    const Tensor state_gradients = device.empty(scratch.states.shape(), kept, MemoryCategory::workspace, "scan state gradients");
    const Tensor sums =
        device.empty({sizes.chunks() * sizes.batch, 3, sizes.heads}, kept, MemoryCategory::workspace, "scan parameter sums");
    Tensor pair_sums;
    if (scratch.scores.defined())
        pair_sums = device.empty({sizes.rows(), std::max(sizes.groups * sizes.chunk, 3 * sizes.heads)}, kept, MemoryCategory::workspace,
                                 "scan pair sums");
    const ScanOperations operations = operations_of(sizes);
    // States and their gradients, four products of a state with a row's vector; within chunks scores, dy xᵀ, and three products with them.
    device.report({"state_space_scan_backward",
                   6 * operations.states + 3 * operations.scores + 2 * operations.within,
                   total_bytes(dy, in.mixed, in.step_bias, in.log_decay, in.skip) + bytes_of_steps(in, sizes) + 2 * scratch.states.bytes(),
                   dx.bytes() + bytes_of_steps(in, sizes) + total_bytes(scratch.steps, scratch.decays, scratch.states, state_gradients),
                   scan_launches(device, in.mixed.dtype(), sizes, true),
                   {},
                   {},
                   {},
                   kByChunks,
                   own_scan_kernels(device, in.mixed.dtype(), sizes, true)});
    if (!device.computes()) return dx;
    device.kernels().state_space_scan_backward(device, {dy,
                                                        in.mixed,
                                                        in.projected,
                                                        in.step_bias,
                                                        in.log_decay,
                                                        in.skip,
                                                        dx,
                                                        d_projected,
                                                        gradients.step_bias,
                                                        gradients.log_decay,
                                                        gradients.skip,
                                                        scratch.steps,
                                                        scratch.decays,
                                                        scratch.states,
                                                        state_gradients,
                                                        sums,
                                                        sizes,
                                                        pitch_of_steps(in),
                                                        in.step_begin,
                                                        scratch.scores,
                                                        pair_sums,
                                                        scratch.workspace});
    return dx;
}

}  // namespace mgplan::model
