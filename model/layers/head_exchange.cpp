#include "model/layers/head_exchange.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/router.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

ChunkOrder::ChunkOrder(const RankContext& context, const MicrobatchContext& microbatch) {
    // Chunk c of the whole sequence is the first chunk of rank c or the second of rank 2·ranks-1-c; rank by rank its
    // place among the received chunks is 2·owner or 2·owner+1.
    const std::int64_t ranks = context.cp->size();
    rows.assign(2 * static_cast<std::size_t>(ranks), microbatch.sequence / (2 * ranks) * microbatch.batch);
    for (std::int64_t chunk = 0; chunk < 2 * ranks; ++chunk) natural.push_back(chunk < ranks ? 2 * chunk : 2 * (2 * ranks - 1 - chunk) + 1);
    zigzag.resize(natural.size());
    for (std::size_t i = 0; i < natural.size(); ++i) zigzag[static_cast<std::size_t>(natural[i])] = static_cast<std::int64_t>(i);
}

Tensor HeadExchange::to_heads(const Tensor& x) const {
    const std::int64_t ranks = context_.cp->size(), rows = x.shape()[0], heads = x.shape()[1], width = x.shape()[2];
    // Head-major, so that each rank's heads are one block of rows.
    const Tensor by_head = swap_leading(x.view({rows, ranks, heads / ranks * width}));  // (ranks, rows, …)
    Tensor received =
        context_.device->empty({ranks * rows, heads / ranks * width}, x.dtype(), MemoryCategory::communication, "exchanged heads");
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), rows);
    context_.cp->all_to_all(by_head.view({ranks * rows, heads / ranks * width}), received, counts, counts);
    return reorder_blocks(received, order_.rows, order_.natural).view({ranks * rows, heads / ranks, width});
}

Tensor HeadExchange::to_sequence(const Tensor& x) const {
    const std::int64_t ranks = context_.cp->size(), rows = x.shape()[0] / ranks, heads = x.shape()[1] * ranks, width = x.shape()[2];
    const Tensor by_rank = reorder_blocks(x.view({ranks * rows, heads / ranks * width}), order_.rows, order_.zigzag);
    Tensor received =
        context_.device->empty({ranks, rows, heads / ranks * width}, x.dtype(), MemoryCategory::communication, "exchanged rows");
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), rows);
    context_.cp->all_to_all(by_rank, received.view({ranks * rows, heads / ranks * width}), counts, counts);
    return swap_leading(received).view({rows, heads, width});
}

ColumnExchange::ColumnExchange(const RankContext& context, const MicrobatchContext& microbatch, std::vector<SharedColumns> blocks)
    : context_(context), ranks_(context.cp->size()), order_(context, microbatch), blocks_(std::move(blocks)) {
    for (const SharedColumns& block : blocks_)
        MGPLAN_ASSERT(block.shares > 0 && ranks_ % block.shares == 0 && block.width % block.shares == 0,
                      "shares divide the ranks and the columns of a block");
}

std::int64_t ColumnExchange::width() const {
    std::int64_t sum = 0;
    for (const SharedColumns& block : blocks_) sum += block.width / block.shares;
    return sum;
}

Tensor ColumnExchange::exchanged(const Tensor& x) const {
    Tensor received = context_.device->empty(x.shape(), x.dtype(), MemoryCategory::communication, "exchanged columns");
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_), x.shape()[0] / ranks_);
    context_.cp->all_to_all(x, received, counts, counts);
    return received;
}

Tensor ColumnExchange::to_heads(const Tensor& x) const {
    const std::int64_t rows = x.shape()[0];
    Tensor by_rank;  // each rank's columns are one block of rows
    if (blocks_.size() == 1 && blocks_.front().width == x.shape()[1] && blocks_.front().shares == ranks_) {
        by_rank = swap_leading(x.view({rows, ranks_, width()})).view({ranks_ * rows, width()});
    } else {
        by_rank = context_.device->empty({ranks_ * rows, width()}, x.dtype(), MemoryCategory::communication, "columns by rank");
        std::int64_t begin = 0;
        for (const SharedColumns& block : blocks_) {
            const std::int64_t share = block.width / block.shares;
            Tensor part = columns(x, block.begin, block.begin + block.width, MemoryCategory::communication);
            if (block.shares > 1) part = swap_leading(part.view({rows, block.shares, share})).view({block.shares * rows, share});
            if (block.shares == ranks_) {
                set_columns(part, by_rank, begin);
            } else {
                for (std::int64_t rank = 0; rank < ranks_; ++rank) {
                    const std::int64_t first = share_of(block, rank) * rows;
                    set_columns(part.slice(first, first + rows), by_rank.slice(rank * rows, (rank + 1) * rows), begin);
                }
            }
            begin += share;
        }
    }
    const Tensor received = exchanged(by_rank);
    by_rank = {};
    return reorder_blocks(received, order_.rows, order_.natural);
}

void ColumnExchange::to_sequence(const Tensor& y, const Tensor& into) const {
    const std::int64_t rows = into.shape()[0];
    const Tensor received = exchanged(reorder_blocks(y, order_.rows, order_.zigzag));
    std::int64_t begin = 0;
    for (const SharedColumns& block : blocks_) {
        const std::int64_t share = block.width / block.shares, copies = ranks_ / block.shares;
        const Tensor part =
            blocks_.size() == 1 ? received : columns(received, begin, begin + share, MemoryCategory::communication);  // rank by rank
        begin += share;
        if (copies == 1) {
            set_columns(swap_leading(part.view({ranks_, rows, share})).view({rows, block.width}), into, block.begin);
            continue;
        }
        for (std::int64_t index = 0; index < block.shares; ++index) {
            const auto copy_of = [&](std::int64_t number) {
                const std::int64_t first = (index * copies + number) * rows;
                return part.slice(first, first + rows);
            };
            const Tensor sum = copy_of(0);
            for (std::int64_t number = 1; number < copies; ++number) add(copy_of(number), sum);
            set_columns(sum, into, block.begin + index * share);
        }
    }
}

std::vector<ColumnExchange::Rows> ColumnExchange::rows_of_channels(std::size_t blocks) const {
    std::vector<Rows> all;
    std::int64_t part = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
        const SharedColumns& block = blocks_[i];
        const std::int64_t share = block.width / block.shares;
        all.push_back({part, block.begin - blocks_.front().begin + share_of(block, context_.cp->rank()) * share, share});
        part += share;
    }
    return all;
}

Tensor ColumnExchange::channels(const Tensor& whole, std::size_t blocks) const {
    const std::vector<Rows> all = rows_of_channels(blocks);
    const std::int64_t count = all.back().part + all.back().count;
    const Shape& shape = whole.shape();
    Tensor part = context_.device->empty(shape.rank() == 1 ? Shape{count} : Shape{count, shape[1], shape[2]}, whole.dtype(),
                                         MemoryCategory::workspace, "channels of this rank");
    for (const Rows& rows : all) copy(whole.slice(rows.whole, rows.whole + rows.count), part.slice(rows.part, rows.part + rows.count));
    return part;
}

void ColumnExchange::add_channels(const Tensor& part, const Tensor& whole, std::size_t blocks) const {
    for (const Rows& rows : rows_of_channels(blocks))
        add(part.slice(rows.part, rows.part + rows.count), whole.slice(rows.whole, rows.whole + rows.count));
}

Tensor ColumnExchange::heads(const Tensor& whole) const {
    const std::int64_t share = whole.shape()[0] / ranks_, rank = context_.cp->rank();
    return whole.slice(rank * share, (rank + 1) * share);
}

Tensor StateConv::forward(const Tensor& x, Columns columns, std::int64_t batch) const {
    if (exchange == nullptr) return causal_conv(x, columns, weight.value, bias.value, batch);
    const Tensor own_weight = exchange->channels(weight.value, blocks);
    const Tensor own_bias = bias.defined() ? exchange->channels(bias.value, blocks) : Tensor();
    return causal_conv(x, columns, own_weight, own_bias, batch);
}

void StateConv::backward(const Tensor& dy, const Tensor& x, Columns columns, std::int64_t batch, const Tensor& dx) const {
    const Tensor weight_gradient = gradient_or_room(weight), bias_gradient = gradient_or_room(bias);
    if (exchange == nullptr) {
        causal_conv_backward(dy, x, columns, weight.value, bias.value, batch, dx, weight_gradient, bias_gradient);
        return;
    }
    const auto zeros = [&](const Tensor& like, const Tensor& gradient) {
        Tensor sums = x.device().empty(like.shape(), gradient.dtype(), MemoryCategory::workspace, "channel gradients of this rank");
        fill(sums, 0);
        return sums;
    };
    const Tensor own_weight = exchange->channels(weight.value, blocks), weight_sums = zeros(own_weight, weight_gradient);
    Tensor own_bias, bias_sums;
    if (bias.defined()) {
        own_bias = exchange->channels(bias.value, blocks);
        bias_sums = zeros(own_bias, bias_gradient);
    }
    causal_conv_backward(dy, x, columns, own_weight, own_bias, batch, dx, weight_sums, bias_sums);
    if (weight.trained()) exchange->add_channels(weight_sums, weight_gradient, blocks);
    if (bias.trained()) exchange->add_channels(bias_sums, bias_gradient, blocks);
}

}  // namespace mgplan::model
