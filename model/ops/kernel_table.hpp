#pragma once
// The table through which ops call a device's kernels: one function pointer per kernel, filled by the runtime of that device. Kernels
// get checked sizes and addresses, never tensors, so that they do not depend on memory management. The ops in model/ops are the
// only callers; sizes are those of the shape rules there.

#include <cstdint>
#include <string_view>

#include "model/ops/adam.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/expert_arguments.hpp"
#include "model/ops/fp8_scaling.hpp"
#include "model/ops/kernel_operands.hpp"
#include "model/ops/momentum.hpp"
#include "model/ops/normal_values.hpp"
#include "model/ops/positions.hpp"
#include "model/ops/product_algorithm.hpp"
#include "model/ops/recurrent_arguments.hpp"
#include "model/ops/rotary.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

class Device;

/// Largest tile of a product of 16-bit matrices; the op brings scratch for one fp32 tile of each matrix.
struct MatmulTile {
    static constexpr std::int64_t rows = 256, columns = 512, depth = 512;
};

/// out (m, n) = or += op(a) (m, k) · op(b) (k, n). The scratch tiles are absent unless a and b are 16-bit.
struct MatmulArguments {
    Input a, b;
    Output out;
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
    Output tile_a, tile_b, tile_out;
    Output workspace{};  ///< of a library, matmul_workspace_bytes()
    /// For fp8 matrices, b read transposed and a not: the factors from each one's codes to its values, one fp32, or by
    /// `scaling` one for each block, as Fp8ScaleLayout has them.
    Input scale_a{}, scale_b{};
    Fp8Scaling scaling_a = Fp8Scaling::tensor, scaling_b = Fp8Scaling::tensor;
    ProductAlgorithm algorithm = ProductAlgorithm::first;  ///< of devices that have several
    /// At most one of these, where adds_bias_in_product() and sums_columns_in_product() (model/ops/linear.hpp) say that the device does it:
    Input bias{};       ///< (n) of out's type, added to each row before it is rounded
    Output row_sums{};  ///< (m) of out's type, written and never added to: the sums of op(a)'s rows
};

/// largest: one fp32, the largest magnitude of x that is a number; with `raise` the larger of that and its old value.
struct LargestArguments {
    Input x;
    Output largest;
    std::int64_t elements;
    bool raise = false;
};

/// See model/ops/fp8_history.hpp.
struct FollowLargestArguments {
    Output now, history, scales;
    std::int64_t tensors, length;
    double unit;
};

/// codes (fp8 or e5m2) = x · scale, where scale maps `largest`, one fp32, to the type's largest value; inverse: one fp32, 1 / scale.
/// turned: the codes of x (rows, columns) as (columns, rows). One of codes and turned may be absent.
struct QuantiseArguments {
    Input x, largest;
    Output codes, inverse;
    std::int64_t elements;
    Output turned{};
    std::int64_t rows = 0, columns = 0;  ///< with turned codes
};

/// One of many arrays, and the place of its largest magnitude: one fp32.
struct LargestArray {
    Input x;
    Output largest;
    std::int64_t elements;
};

/// In host memory: `count` arrays that are not empty, all of one type. With `raise` each place takes the larger of its old value and the
/// array's, and several arrays may share one; without it each array has a place of its own.
struct LargestOfArraysArguments {
    const LargestArray* arrays;
    std::int64_t count;
    bool raise = true;
};

/// In host memory: `count` casts into e4m3 of arrays that are not empty, all of one type.
struct QuantiseArraysArguments {
    const QuantiseArguments* arrays;
    std::int64_t count;
};

/// codes (e4m3) = x · scale of its block along rows, scales = 1 / scale in the layout of (scale_rows, columns), 0 where no block is.
/// column_codes, column_scales: the same with blocks along columns, in the layout of (columns, rows); codes (rows, columns), or `turned`
/// (columns, rows). One pair may be absent. With squares the second has the codes and scales of the first, turned; it may be absent, the
/// first may not.
struct QuantiseBlocksArguments {
    Input x;
    Output codes, scales, column_codes, column_scales;
    std::int64_t rows, columns;
    Fp8Scaling scaling;
    bool turned;
    std::int64_t scale_rows;  ///< rows of x, or more
};

/// y (columns, pitch) of x (rows, columns), a byte each: bytes after the rows are 0.
struct TransposeBytesArguments {
    Input x;
    Output y;
    std::int64_t rows, columns, pitch;
};

/// weight is absent, and the bias with it, where the norm multiplies with nothing.
struct NormArguments {
    Input x, weight, bias;
    Output y, mean, inverse_deviation;
    std::int64_t rows, width;
    Normalization kind;
    double epsilon;
};

/// column_sums: scratch (parts, 2, width) in the statistics' type, absent without a weight. added: of x's size, to dx once that is rounded
/// to its type (norm.hpp); may be absent.
struct NormBackwardArguments {
    Input dy, x, weight, mean, inverse_deviation;
    Output dx, weight_gradient, bias_gradient, column_sums;
    std::int64_t rows, width;
    Normalization kind;
    std::int64_t parts = 1;
    Input added{};
};

/// y (rows, width); x (rows, 2·width) where gated. row_weights is absent where rows are not weighted.
struct ActivationArguments {
    Input x, row_weights;
    Output y;
    std::int64_t rows, width;
    Activation kind;
    bool gated;
};

struct ActivationBackwardArguments {
    Input dy, x, row_weights;
    Output dx, d_row_weights;
    std::int64_t rows, width;
    Activation kind;
    bool gated;
};

/// positive, negative: one value each.
struct XieluArguments {
    Input x, positive, negative;
    Output y;
    std::int64_t elements;
};

/// sums: scratch (parts, 2) in the statistics' type.
struct XieluBackwardArguments {
    Input dy, x, positive, negative;
    Output dx, d_positive, d_negative, sums;
    std::int64_t rows, width;
    std::int64_t parts = 1;
};

/// row_weights: absent where rows are not weighted.
struct AddBiasArguments {
    Output x;
    Input bias;
    std::int64_t rows, width;
    Input row_weights{};
};

/// column_sums: scratch (parts, width) in the statistics' type. Where rows are weighted, d_row_weights is added to.
struct BiasGradientArguments {
    Input dy;
    Output gradient, column_sums;
    std::int64_t rows, width;
    std::int64_t parts = 1;
    Input bias{}, row_weights{};
    Output d_row_weights{};
};

struct ElementwiseArguments {
    Input from;
    Output to;
    std::int64_t elements;
};

struct ScalarArguments {
    Output x;
    std::int64_t elements;
    double value;
};

struct FillNormalArguments {
    Output x;
    std::int64_t rows, columns;
    NormalDraw draw;
};

/// x becomes x within ± bound; with `clipped`, the result of that, x is its gradient, which is 0 where a bound was reached.
struct ClipArguments {
    Output x;
    Input clipped;
    std::int64_t elements;
    double bound;
};

/// Columns [begin, begin + width) of rows of `pitch` values.
struct ScaleColumnsArguments {
    Output x;
    std::int64_t rows, width, pitch, begin;
    double factor;
};

/// One of the arrays whose squares are added up, and the place of the sum: one fp64.
struct SquaredArray {
    Input x;
    Output sum;
    std::int64_t elements;
};

/// In host memory: `count` arrays that are not empty.
struct SumsOfSquaresArguments {
    const SquaredArray* arrays;
    std::int64_t count;
    Output scratch;  ///< sums_of_squares_scratch_bytes()
};

/// One fp64 each, outcome two; expert_squares may be absent.
struct ClipFactorArguments {
    Input squares, expert_squares, guard;
    Output outcome;
    double clip_norm, replicas;
};

/// Copies `width` columns of every row; pitches are elements from row to row.
struct ColumnsArguments {
    Input from;
    Output to;
    std::int64_t rows, width;
    std::int64_t from_pitch, from_begin, to_pitch, to_begin;
};

/// x (a, b, c) -> y (b, a, c)
struct SwapLeadingArguments {
    Input x;
    Output y;
    std::int64_t a, b, c;
};

/// projected (rows, heads, own + v_dim), shared (rows, width) -> k (rows, heads, own + width), v (rows, heads, v_dim). shared is absent
/// where width is 0.
struct JoinLatentKeysArguments {
    Input projected, shared;
    Output k, v;
    std::int64_t rows, heads, own, width, v_dim;
};

/// The way back. shared: the sum over heads from the first on, from 0, made in the statistics' type.
struct SplitLatentKeysArguments {
    Input dk, dv;
    Output projected, shared;
    std::int64_t rows, heads, own, width, v_dim;
};

/// table (table_rows, width) holds the ids [first, first + table_rows).
struct EmbeddingArguments {
    Input ids, table;
    Output y;
    std::int64_t rows, width, first, table_rows;
};

struct EmbeddingBackwardArguments {
    Input dy, ids;
    Output gradient;
    std::int64_t rows, width, first, table_rows;
    Output scratch{};  ///< embedding_backward_scratch_bytes()
};

/// logits (rows, columns), of which the first `valid` stand for the vocabulary rows from `first`. Unused parts are absent.
struct CrossEntropyArguments {
    Output logits;
    Input targets, maximum, exponentials_in;
    Output maximum_out, exponentials_out, target_out;
    std::int64_t rows, columns, first, valid;
    double d_loss;
    double soft_cap = 0;  ///< backward: the logits were capped so, and gradients are those in front of the cap; 0: not
};

struct TokenLossesArguments {
    Input exponentials, target, targets;
    Output losses;
    std::int64_t rows;
};

/// sum (1) fp64 += all of losses (rows).
struct SumOfLossesArguments {
    Input losses;
    Output sum;
    std::int64_t rows;
};

struct AttentionSizes {
    Positions query_positions, key_positions;
    std::int64_t heads, kv_heads, qk_dim, v_dim;
    double scale;
    /// Query places worked on at once.
    std::int64_t block;
    /// Number of places that a query sees, its own and those before; 0: all before.
    std::int64_t window = 0;
    double soft_cap = 0;  ///< scaled scores become cap · tanh(score / cap); 0: they stay
    /// Queries, keys and values lie as PackedHeads has them, and so do their gradients; else each is (places, sequences, heads, width) of
    /// its own.
    bool packed = false;

    [[nodiscard]] std::int64_t group_heads() const { return heads / kv_heads; }
    [[nodiscard]] std::int64_t packed_group() const { return (group_heads() + 2) * qk_dim; }
    /// Elements from one kv head to the next, of its queries, its key, its value. From a row to the next it is kv_heads times this number.
    [[nodiscard]] std::int64_t query_group() const { return packed ? packed_group() : group_heads() * qk_dim; }
    [[nodiscard]] std::int64_t key_group() const { return packed ? packed_group() : qk_dim; }
    [[nodiscard]] std::int64_t value_group() const { return packed ? packed_group() : v_dim; }
    [[nodiscard]] std::int64_t output_group() const { return group_heads() * v_dim; }
};

/// Scratch in the statistics' type, for one sequence and head: keys (places, qk_dim), values (places, v_dim); for one
/// block of queries: queries (block, qk_dim), outputs (block, v_dim), scores (block, key places).
struct AttentionArguments {
    Input q, k, v;
    Output output, log_sum_exp;
    AttentionSizes sizes;
    Output scratch_keys, scratch_values, scratch_queries, scratch_outputs, scratch_scores;
    Output workspace{};  ///< on GPUs instead of the scratch: attention_workspace()
};

/// Scratch as above, and for the gradients of the keys, values, queries and scores.
struct AttentionBackwardArguments {
    Input d_output, q, k, v, output, log_sum_exp;
    Output dq, dk, dv;
    AttentionSizes sizes;
    Output scratch_keys, scratch_values, scratch_queries, scratch_outputs, scratch_scores;
    Output scratch_d_keys, scratch_d_values, scratch_d_queries, scratch_d_scores;
    Output workspace{};  ///< as above
};

/// rows = query rows · heads
struct MergeAttentionArguments {
    Output into, into_log_sum_exp;
    Input other, other_log_sum_exp;
    std::int64_t rows, width;
};

struct SinksArguments {
    Output output, log_sum_exp;
    Input sinks;
    std::int64_t rows, heads, width;
};

/// column_sums: scratch (parts, heads) in the statistics' type.
struct SinksGradientArguments {
    Input d_output, output, log_sum_exp, sinks;
    Output gradient, column_sums;
    std::int64_t rows, heads, width, parts;
};

struct RotaryArguments {
    Input x;
    Output y;
    Positions positions;
    std::int64_t heads, head_dim, rotated;
    RotaryAngles angles;
    bool inverse;
    /// If not 0, x and y are the same and have an additional head after each `members` of the row's `heads`, which stays as it is, as do
    /// the values of a head that are not turned; if 0, these values are copied.
    std::int64_t members = 0;
};

/// y = residual (0 where absent) + x · mask / (1 - probability). `place` is read before the kernel returns; `changing` as in
/// it.
struct DropoutArguments {
    Input x, residual;
    Output y;
    std::int64_t rows, width;
    const DropoutPlace* place;
    Input changing{};
};

/// parameter: main as bf16, absent where main is the parameter.
struct AdamArray {
    Output main, exp_avg, exp_avg_sq;
    Input gradient;
    Output parameter;
    std::int64_t elements;
    double weight_decay;  ///< instead of that of the arguments
};

/// In host memory: `count` arrays that are not empty, all of the same types.
struct AdamArguments {
    const AdamArray* arrays;
    std::int64_t count;
    AdamHyperparameters hyper;
    Input factor{};  ///< one fp64 that multiplies hyper.gradient_factor, or absent; NaN: nothing changes
};

/// parameter: as above.
struct MomentumArray {
    Output main, momentum;
    Input gradient;
    Output parameter;
    std::int64_t elements;
    double weight_decay;  ///< instead of that of the arguments
};

/// As above.
struct MomentumArguments {
    const MomentumArray* arrays;
    std::int64_t count;
    MomentumHyperparameters hyper;
    Input factor{};
};

/// a: contiguous groups of rows, `rows` counts each (host memory); b: one matrix for each group (host list).
struct GroupedMatmulArguments {
    Input a;
    const Input* b;
    Output out;
    const std::int64_t* rows;
    std::int64_t groups, n, k;
    bool transpose_b;
    Output tile_a, tile_b, tile_out;
    Output workspace{};  ///< matmul_workspace_bytes()
};

/// out[g] (m, n) += a_gᵀ · b_g, with the groups' rows in a (…, m) and b (…, n).
struct GroupedAccumulateArguments {
    Input a, b;
    const Output* out;
    const std::int64_t* rows;
    std::int64_t groups, m, n;
    Output tile_a, tile_b, tile_out;
    Output workspace{};  ///< matmul_workspace_bytes()
};

struct GateRowsArguments {
    Input x, logits;
    Output y;
    std::int64_t rows, width;
};

struct GateRowsBackwardArguments {
    Input dy, x, logits;
    Output dx, d_logits;
    std::int64_t rows, width;
};

/// Every kernel of a device. Kernels run in call order; those that return a value wait for it.
struct KernelTable {
    void (*matmul)(Device&, const MatmulArguments&);
    void (*largest)(Device&, const LargestArguments&);
    void (*quantise)(Device&, const QuantiseArguments&);
    void (*largest_of_arrays)(Device&, const LargestOfArraysArguments&);
    void (*quantise_arrays)(Device&, const QuantiseArraysArguments&);
    void (*quantise_blocks)(Device&, const QuantiseBlocksArguments&);
    void (*transpose_bytes)(Device&, const TransposeBytesArguments&);
    void (*follow_largest)(Device&, const FollowLargestArguments&);
    void (*grouped_matmul)(Device&, const GroupedMatmulArguments&);
    void (*grouped_matmul_accumulate)(Device&, const GroupedAccumulateArguments&);
    void (*norm)(Device&, const NormArguments&);
    void (*norm_backward)(Device&, const NormBackwardArguments&);
    void (*activation)(Device&, const ActivationArguments&);
    void (*activation_backward)(Device&, const ActivationBackwardArguments&);
    void (*xielu)(Device&, const XieluArguments&);
    void (*xielu_backward)(Device&, const XieluBackwardArguments&);
    void (*gate_rows)(Device&, const GateRowsArguments&);
    void (*gate_rows_backward)(Device&, const GateRowsBackwardArguments&);
    void (*add_bias)(Device&, const AddBiasArguments&);
    void (*bias_gradient)(Device&, const BiasGradientArguments&);
    void (*copy)(Device&, const ElementwiseArguments&);
    void (*add)(Device&, const ElementwiseArguments&);
    void (*scale)(Device&, const ScalarArguments&);
    void (*soft_cap)(Device&, const ScalarArguments&);
    void (*clip)(Device&, const ClipArguments&);
    void (*fill)(Device&, const ScalarArguments&);
    void (*fill_normal)(Device&, const FillNormalArguments&);
    void (*sums_of_squares)(Device&, const SumsOfSquaresArguments&);
    void (*add_in_order)(Device&, const ElementwiseArguments&);
    void (*clip_factor)(Device&, const ClipFactorArguments&);
    void (*copy_columns)(Device&, const ColumnsArguments&);
    void (*scale_columns)(Device&, const ScaleColumnsArguments&);
    void (*swap_leading)(Device&, const SwapLeadingArguments&);
    void (*join_latent_keys)(Device&, const JoinLatentKeysArguments&);
    void (*split_latent_keys)(Device&, const SplitLatentKeysArguments&);
    void (*embedding)(Device&, const EmbeddingArguments&);
    void (*embedding_backward)(Device&, const EmbeddingBackwardArguments&);
    void (*row_maximum)(Device&, const CrossEntropyArguments&);
    void (*softmax_sums)(Device&, const CrossEntropyArguments&);
    void (*token_losses)(Device&, const TokenLossesArguments&);
    void (*sum_of_losses)(Device&, const SumOfLossesArguments&);
    void (*cross_entropy_backward)(Device&, const CrossEntropyArguments&);
    void (*attention)(Device&, const AttentionArguments&);
    void (*attention_backward)(Device&, const AttentionBackwardArguments&);
    void (*merge_attention)(Device&, const MergeAttentionArguments&);
    void (*add_sinks)(Device&, const SinksArguments&);
    void (*sinks_gradient)(Device&, const SinksGradientArguments&);
    void (*rotary)(Device&, const RotaryArguments&);
    void (*dropout)(Device&, const DropoutArguments&);
    void (*adam_step)(Device&, const AdamArguments&);
    void (*momentum_step)(Device&, const MomentumArguments&);
    void (*route)(Device&, const RouteArguments&);
    void (*route_backward)(Device&, const RouteBackwardArguments&);
    void (*keep_within_capacity)(Device&, const CapacityArguments&);
    void (*auxiliary_loss)(Device&, const AuxiliaryLossArguments&);
    void (*auxiliary_loss_backward)(Device&, const AuxiliaryLossArguments&);
    void (*count_by_expert)(Device&, const CountByExpertArguments&);
    void (*sort_by_expert)(Device&, const SortByExpertArguments&);
    void (*permute_rows)(Device&, const PermuteArguments&);
    void (*unpermute_rows)(Device&, const PermuteArguments&);
    void (*permute_probabilities)(Device&, const PermuteArguments&);
    void (*unpermute_probabilities)(Device&, const PermuteArguments&);
    void (*reorder_blocks)(Device&, const ReorderBlocksArguments&);
    void (*causal_conv)(Device&, const CausalConvArguments&);
    void (*causal_conv_backward)(Device&, const CausalConvBackwardArguments&);
    void (*short_conv)(Device&, const ShortConvArguments&);
    void (*short_conv_backward)(Device&, const ShortConvBackwardArguments&);
    void (*gated_norm)(Device&, const GatedNormArguments&);
    void (*gated_norm_backward)(Device&, const GatedNormBackwardArguments&);
    void (*state_space_scan)(Device&, const StateSpaceArguments&);
    void (*state_space_scan_backward)(Device&, const StateSpaceBackwardArguments&);
    void (*delta_rule)(Device&, const DeltaRuleArguments&);
    void (*delta_rule_backward)(Device&, const DeltaRuleBackwardArguments&);
};

/// The first kernel that a table lacks; empty where it has all.
[[nodiscard]] std::string_view missing_kernel(const KernelTable& table);

/// Returns the table, to be used when a device is made of it; asserts that it has every kernel, since a call of a missing one would crash.
[[nodiscard]] const KernelTable& with_every_kernel(const KernelTable& table);

}  // namespace mgplan::model
