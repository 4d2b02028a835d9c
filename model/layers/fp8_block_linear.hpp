#pragma once
// Linear layers whose weights have scales for blocks (Fp8Weight::blocks): inputs and gradients of outputs are cast twice from
// the original values, with blocks along rows and along columns, as Transformer Engine casts them (pytorch/module/linear.py).

#include <cstdint>
#include <string_view>

#include "model/layers/context.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/layers/linear_input.hpp"
#include "model/layers/underway.hpp"
#include "model/ops/product_algorithm.hpp"

namespace mgplan::model {

/// Returns true if rows that sequence parallelism gathers are cast after the gather, because blocks along columns reach from one rank's
/// rows into another's; else their codes are gathered (Transformer Engine, pytorch/distributed.py, _start_all_gather_fp8_blockwise).
[[nodiscard]] bool casts_behind_gather(const Tensor& x);

/// Returns both casts; columns are turned, unless `gathered` is set, whose gather combines those of all tp ranks.
[[nodiscard]] LinearInput cast_input(const Weight& weight, const Tensor& x, const RankContext* gathered);

/// Returns x · Wᵀ, x (rows, in), or with `gathered` the rank's share of x's rows, which are gathered over tp; casts rows that are not cast.
[[nodiscard]] Tensor multiply_input(const Weight& weight, const LinearInput& x, const RankContext* gathered, ProductAlgorithm algorithm,
                                    std::string_view name);

/// A gradient of an output (rows, out): for the gradient of the input, and for that of the weight.
struct BlockGradient {
    Fp8Blocks rows;
    Fp8Columns columns;
};
[[nodiscard]] BlockGradient cast_gradient(const Weight& weight, const Tensor& dy);
/// dy · W; lets go of the rows.
[[nodiscard]] Tensor multiply_gradient(const Weight& weight, BlockGradient& dy, ProductAlgorithm algorithm);

/// A layer's input along columns, as the gradient of a weight reads it, on its way from all tp ranks where they are gathered.
class ColumnsUnderway {
public:
    /// To be called once. Casts rows that are not cast yet, unless their codes are gathered.
    [[nodiscard]] Fp8Columns wait();

private:
    friend ColumnsUnderway start_columns(const Weight& weight, const LinearInput& x, const RankContext* gathered);
    enum class What : std::uint8_t { own, rows, codes };  ///< data that is gathered
    What what_ = What::own;
    Fp8Scaling scaling_{};
    LinearInput own_;
    Underway rows_, scales_;  ///< rows or their codes; scales of codes
};
/// Begins the gather; x and `gathered` as above.
[[nodiscard]] ColumnsUnderway start_columns(const Weight& weight, const LinearInput& x, const RankContext* gathered);
/// Adds dyᵀ · x to the weight's gradient; lets go of x once it is turned.
void add_block_gradient(const Weight& weight, const Fp8Columns& dy, Fp8Columns x, ProductAlgorithm algorithm);

}  // namespace mgplan::model
