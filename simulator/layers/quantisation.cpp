#include "simulator/layers/quantisation.hpp"

#include "simulator/collectives/all_gather.hpp"
#include "simulator/piece/fp8_operands.hpp"

namespace mgplan::simulator {
namespace {

Fp8OperandBytes operand(const Shard& s, std::int64_t rows, std::int64_t columns) {
    return fp8_operand_bytes(rows, columns, s.workload->training.format(), s.workload->cluster.compute_capability);
}

bool gathers(const Shard& s) {
    return s.sequence_parallel && s.tp > 1;
}

/// Recipes with one scale for a tensor store the same bytes in both directions; the others' scales differ, so that they quantise twice.
bool one_scale(const Shard& s) {
    const QuantisedFormat format = s.workload->training.format();
    return format == QuantisedFormat::delayed || format == QuantisedFormat::tensorwise;
}

double kernel(const Shard& s, std::int64_t bytes) {
    return bytes > 0 ? s.kernels->memory_bound(static_cast<double>(bytes)) : 0;
}

/// Recipes whose scale comes from the tensor itself read all of it for its largest magnitude first: tensorwise the only scale, nvfp4 the
/// one above its blocks'. Under tensorwise scaling norms and activations find it as they write (Transformer Engine #2004 and #2013); nvfp4
/// looks for that of the Hadamard transform too (transformer_engine/common/hadamard_transform).
double largest_magnitude(const Shard& s, LinearInput input, std::int64_t rows, std::int64_t columns) {
    const QuantisedFormat format = s.workload->training.format();
    const bool found = input != LinearInput::plain && s.calibration->producers_find_amax;
    const bool measured = format == QuantisedFormat::nvfp4 || (format == QuantisedFormat::tensorwise && !found);
    return measured ? kernel(s, rows * columns * s.element) : 0;
}

/// 16-bit elements read, quantised ones written for both products.
double quantise(const Shard& s, LinearInput input, std::int64_t rows, std::int64_t columns) {
    const int casts = s.workload->training.format() == QuantisedFormat::nvfp4 ? s.calibration->nvfp4_casts : 1;
    return largest_magnitude(s, input, rows, columns) + kernel(s, casts * rows * columns * s.element + operand(s, rows, columns).both);
}

/// One byte an element read, one written.
double transpose(const Shard& s, std::int64_t rows, std::int64_t columns) {
    const Fp8OperandBytes bytes = operand(s, rows, columns);
    return one_scale(s) ? kernel(s, 2 * (bytes.both - bytes.rowwise)) : 0;
}

/// A tensor of which a rank quantises `tokens_outside` rows and multiplies `tokens`, gathered between.
double quantise_and_gather(const Shard& s, LinearInput input, std::int64_t columns) {
    if (!one_scale(s)) return quantise(s, input, s.tokens_outside, columns);
    return largest_magnitude(s, input, s.tokens_outside, columns) +
           kernel(s, s.tokens_outside * columns * s.element + operand(s, s.tokens_outside, columns).rowwise);
}

bool fused_with_norm(const Shard& s, LinearInput input) {
    return input == LinearInput::normed && s.workload->training.format() == QuantisedFormat::delayed;
}

PieceCost seconds(double forward, double backward) {
    PieceCost cost;
    cost.forward = forward;
    cost.backward = backward;
    return cost;
}

}  // namespace

bool quantised_products(const Shard& s) {
    return quantised(s.workload->training.precision) && operand(s, 1, 1).rowwise > 0;
}

PieceCost quantise_linear(const Shard& s, LinearInput input, std::int64_t rows, std::int64_t in, std::int64_t out) {
    if (!quantised_products(s)) return {};
    return seconds(fused_with_norm(s, input) ? transpose(s, rows, in) : quantise(s, input, rows, in),
                   quantise(s, LinearInput::plain, rows, out));
}

PieceCost quantise_column_parallel(const Shard& s, LinearInput input, std::int64_t in, std::int64_t out) {
    if (!quantised_products(s)) return {};
    if (!gathers(s)) return quantise_linear(s, input, s.tokens, in, out);
    return seconds(fused_with_norm(s, input) ? 0 : quantise_and_gather(s, input, in),
                   transpose(s, s.tokens, in) + quantise(s, LinearInput::plain, s.tokens, out));
}

PieceCost quantise_row_parallel(const Shard& s, LinearInput input, std::int64_t in, std::int64_t out) {
    if (!quantised_products(s)) return {};
    if (!gathers(s)) return quantise_linear(s, input, s.tokens, in, out);
    return seconds(quantise(s, input, s.tokens, in), quantise_and_gather(s, LinearInput::plain, out) + transpose(s, s.tokens, out));
}

double gather_operand_seconds(const Shard& s, std::int64_t width) {
    if (!quantised_products(s) || !gathers(s)) return tp_gather_seconds(s, width);
    return all_gather_seconds(static_cast<double>(operand(s, s.tokens, width).rowwise), s.paths->tp, *s.calibration);
}

}  // namespace mgplan::simulator
