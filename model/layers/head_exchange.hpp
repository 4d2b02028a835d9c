#pragma once
// Exchange of heads and sequence (DeepSpeed-Ulysses, arXiv 2309.14509): context-parallel ranks that each hold all heads of a slice of the
// sequence exchange them for the whole sequence of a share of the heads, and back. Attention does so with --cp-comm-type a2a, layers with a
// state along the sequence always (Megatron-core ssm/mamba_context_parallel.py).

#include <cstdint>
#include <vector>

#include "model/layers/context.hpp"
#include "model/ops/causal_conv.hpp"

namespace mgplan::model {

/// Arguments of reorder_blocks(): the order of a sequence's chunks as a rank gets them from all ranks of cp, two from each
/// (zigzag_positions), and their natural order.
struct ChunkOrder {
    ChunkOrder(const RankContext& context, const MicrobatchContext& microbatch);

    std::vector<std::int64_t> rows;     ///< of each chunk
    std::vector<std::int64_t> natural;  ///< from rank by rank
    std::vector<std::int64_t> zigzag;   ///< to rank by rank
};

/// Exchanges whole tensors of heads.
class HeadExchange {
public:
    HeadExchange(const RankContext& context, const MicrobatchContext& microbatch) : context_(context), order_(context, microbatch) {}

    /// (rows, heads, width) of this rank -> (cp · rows, heads / cp, width) in natural order.
    [[nodiscard]] Tensor to_heads(const Tensor& x) const;
    /// The way back.
    [[nodiscard]] Tensor to_sequence(const Tensor& x) const;

private:
    const RankContext& context_;
    ChunkOrder order_;
};

/// Columns of a row that lie side by side and fall into `shares` of equal width: rank r of cp gets share r · shares / cp, so that ranks
/// which follow each other get the same one where there are fewer shares than ranks.
struct SharedColumns {
    std::int64_t begin = 0;
    std::int64_t width = 0;
    std::int64_t shares = 1;
};

/// Exchanges blocks of columns, those of one rank side by side; all blocks travel in one all-to-all.
class ColumnExchange {
public:
    /// cp has more than one rank; the shares of each block divide its number and the block's width.
    ColumnExchange(const RankContext& context, const MicrobatchContext& microbatch, std::vector<SharedColumns> blocks);

    /// (rows, any) of this rank -> (cp · rows, width()) in natural order: this rank's share of each block.
    [[nodiscard]] Tensor to_heads(const Tensor& x) const;
    /// The way back, into the blocks of `into` (rows, any). Values of ranks with the same share are added up, since they are gradients.
    void to_sequence(const Tensor& y, const Tensor& into) const;

    [[nodiscard]] std::int64_t width() const;  ///< of all shares of a rank

    /// This rank's shares of the channels of the first `blocks` blocks, one after another: a copy of those rows of `whole` (channels, …).
    [[nodiscard]] Tensor channels(const Tensor& whole, std::size_t blocks) const;
    /// Adds rows as channels() gives them to those of `whole` that they come from.
    void add_channels(const Tensor& part, const Tensor& whole, std::size_t blocks) const;
    /// This rank's share of values of heads (heads, …): the rows themselves.
    [[nodiscard]] Tensor heads(const Tensor& whole) const;

private:
    struct Rows {
        std::int64_t part, whole, count;
    };
    /// Where the rows of channels() lie in it and in the whole.
    [[nodiscard]] std::vector<Rows> rows_of_channels(std::size_t blocks) const;
    [[nodiscard]] std::int64_t share_of(const SharedColumns& block, std::int64_t rank) const { return rank * block.shares / ranks_; }
    [[nodiscard]] Tensor exchanged(const Tensor& x) const;

    const RankContext& context_;
    std::int64_t ranks_;
    ChunkOrder order_;
    std::vector<SharedColumns> blocks_;
};

/// The convolution before a state along the sequence, over all channels or over this rank's shares of them.
struct StateConv {
    const ColumnExchange* exchange = nullptr;  ///< of the channels, its first `blocks` blocks; null: all of them
    std::size_t blocks = 0;
    const Weight& weight;
    const Weight& bias;  ///< may be undefined

    /// causal_conv() of columns of x.
    [[nodiscard]] Tensor forward(const Tensor& x, Columns columns, std::int64_t batch) const;
    /// causal_conv_backward(): writes the same columns of dx, adds to the main gradients.
    void backward(const Tensor& dy, const Tensor& x, Columns columns, std::int64_t batch, const Tensor& dx) const;
};

}  // namespace mgplan::model
