#include "simulator/layers/quantisation.hpp"

#include "simulator/collectives/all_gather.hpp"
#include "simulator/piece/fp8_operands.hpp"

namespace mgplan::simulator {
namespace {

Fp8OperandBytes operand(const Shard& s, std::int64_t rows, std::int64_t columns) {
    return fp8_operand_bytes(rows, columns, s.workload->training.megatron.fp8_recipe, s.workload->cluster.compute_capability);
}

bool in_fp8(const Shard& s) {
    return s.workload->training.precision == Precision::fp8 && operand(s, 1, 1).rowwise > 0;
}

bool gathers(const Shard& s) {
    return s.sequence_parallel && s.tp > 1;
}

/// Recipes with one scale for a tensor store the same bytes in both directions; the others' scales differ, so that they quantise twice.
bool one_scale(const Shard& s) {
    const Fp8Recipe recipe = s.workload->training.megatron.fp8_recipe;
    return recipe == Fp8Recipe::delayed || recipe == Fp8Recipe::tensorwise;
}

double kernel(const Shard& s, std::int64_t bytes) {
    return bytes > 0 ? s.kernels->memory_bound(static_cast<double>(bytes)) : 0;
}

/// 16-bit elements read, fp8 written for both products.
double quantise(const Shard& s, std::int64_t rows, std::int64_t columns) {
    return kernel(s, rows * columns * s.element + operand(s, rows, columns).both);
}

/// One byte an element read, one written.
double transpose(const Shard& s, std::int64_t rows, std::int64_t columns) {
    const Fp8OperandBytes bytes = operand(s, rows, columns);
    return one_scale(s) ? kernel(s, 2 * (bytes.both - bytes.rowwise)) : 0;
}

/// A tensor of which a rank quantises `tokens_outside` rows and multiplies `tokens`, gathered between.
double quantise_and_gather(const Shard& s, std::int64_t columns) {
    if (!one_scale(s)) return quantise(s, s.tokens_outside, columns);
    return kernel(s, s.tokens_outside * columns * s.element + operand(s, s.tokens_outside, columns).rowwise);
}

bool fused_with_norm(const Shard& s, LinearInput input) {
    return input == LinearInput::normed && s.workload->training.megatron.fp8_recipe == Fp8Recipe::delayed;
}

PieceCost seconds(double forward, double backward) {
    PieceCost cost;
    cost.forward = forward;
    cost.backward = backward;
    return cost;
}

}  // namespace

PieceCost quantise_linear(const Shard& s, LinearInput input, std::int64_t rows, std::int64_t in, std::int64_t out) {
    if (!in_fp8(s)) return {};
    return seconds(fused_with_norm(s, input) ? transpose(s, rows, in) : quantise(s, rows, in), quantise(s, rows, out));
}

PieceCost quantise_column_parallel(const Shard& s, LinearInput input, std::int64_t in, std::int64_t out) {
    if (!in_fp8(s)) return {};
    if (!gathers(s)) return quantise_linear(s, input, s.tokens, in, out);
    return seconds(fused_with_norm(s, input) ? 0 : quantise_and_gather(s, in), transpose(s, s.tokens, in) + quantise(s, s.tokens, out));
}

PieceCost quantise_row_parallel(const Shard& s, std::int64_t in, std::int64_t out) {
    if (!in_fp8(s)) return {};
    if (!gathers(s)) return quantise_linear(s, LinearInput::plain, s.tokens, in, out);
    return seconds(quantise(s, s.tokens, in), quantise_and_gather(s, out) + transpose(s, s.tokens, out));
}

double gather_operand_seconds(const Shard& s, std::int64_t width) {
    if (!in_fp8(s) || !gathers(s)) return tp_gather_seconds(s, width);
    return all_gather_seconds(static_cast<double>(operand(s, s.tokens, width).rowwise), s.paths->tp, *s.calibration);
}

}  // namespace mgplan::simulator
