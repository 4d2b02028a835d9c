#include "model/layers/context_parallel.hpp"

#include <vector>

#include "model/layers/head_exchange.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/sinks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

Positions slice_of(const RankContext& context, const MicrobatchContext& microbatch, int rank) {
    return zigzag_positions(microbatch.sequence, microbatch.batch, context.cp->size(), rank);
}

/// k and v of one rank, travelling together.
struct KeysValues {
    Tensor k, v;
};

KeysValues empty_like(const RankContext& context, const KeysValues& other) {
    return {context.device->empty(other.k.shape(), other.k.dtype(), MemoryCategory::communication, "travelling keys"),
            context.device->empty(other.v.shape(), other.v.dtype(), MemoryCategory::communication, "travelling values")};
}

/// Starts sending `mine` to the next rank of the ring and receiving the previous one's.
class RingShift {
public:
    RingShift(const RankContext& context, const KeysValues& mine, const KeysValues& theirs) {
        const int next = (context.cp->rank() + 1) % context.cp->size();
        const int previous = (context.cp->rank() + context.cp->size() - 1) % context.cp->size();
        pending_.push_back(context.cp->start_send(mine.k, next));
        pending_.push_back(context.cp->start_send(mine.v, next));
        pending_.push_back(context.cp->start_receive(theirs.k, previous));
        pending_.push_back(context.cp->start_receive(theirs.v, previous));
    }
    void wait() {
        for (auto& pending : pending_) pending->wait();
    }

private:
    std::vector<std::unique_ptr<Pending>> pending_;
};

AttentionResult ring(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, const Tensor& k, const Tensor& v,
                     const CoreAttention& core) {
    const int ranks = context.cp->size(), rank = context.cp->rank();
    const Positions mine = slice_of(context, microbatch, rank);
    KeysValues held{k, v};
    AttentionResult result;
    for (int step = 0; step < ranks; ++step) {
        const int owner = (rank - step + ranks) % ranks;
        KeysValues next;
        std::unique_ptr<RingShift> shift;
        if (step + 1 < ranks) {
            next = empty_like(context, held);
            shift = std::make_unique<RingShift>(context, held, next);
        }
        const AttentionResult partial =
            attention(q, held.k, held.v, mine, slice_of(context, microbatch, owner), core.scale, core.window, core.soft_cap);
        if (step == 0)
            result = partial;
        else
            merge_attention(result, partial);
        if (shift) {
            shift->wait();
            held = next;
        }
    }
    return result;
}

AttentionGradients ring_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output, const Tensor& q,
                                 const Tensor& k, const Tensor& v, const AttentionResult& result, const CoreAttention& core) {
    const int ranks = context.cp->size(), rank = context.cp->rank();
    const Positions mine = slice_of(context, microbatch, rank);
    KeysValues held{k, v};
    KeysValues gradients;  // of the keys and values held, sent one step later than these
    AttentionGradients total;
    for (int step = 0; step < ranks; ++step) {
        const int owner = (rank - step + ranks) % ranks;
        const AttentionGradients partial = attention_backward(d_output, q, held.k, held.v, result, mine,
                                                              slice_of(context, microbatch, owner), core.scale, core.window, core.soft_cap);
        if (step == 0) {
            total.q = partial.q;
            gradients = {partial.k, partial.v};
        } else {
            add(partial.q, total.q);
            add(partial.k, gradients.k);
            add(partial.v, gradients.v);
        }
        // After the last step the gradients make one more hop and are home.
        const KeysValues received = empty_like(context, gradients);
        RingShift shift(context, gradients, received);
        if (step + 1 < ranks) {
            const KeysValues next = empty_like(context, held);
            RingShift keys(context, held, next);
            keys.wait();
            held = next;
        }
        shift.wait();
        gradients = received;
    }
    total.k = gradients.k;
    total.v = gradients.v;
    return total;
}

/// Returns all ranks' keys or values, (ranks · rows, heads, width), rank by rank.
Tensor gathered(const RankContext& context, const Tensor& part) {
    Tensor whole = context.device->empty({part.shape()[0] * context.cp->size(), part.shape()[1], part.shape()[2]}, part.dtype(),
                                         MemoryCategory::communication, kGatheredOverCp);
    context.cp->all_gather(part, whole);
    return whole;
}

AttentionResult by_gathering(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, const Tensor& k,
                             const Tensor& v, const CoreAttention& core) {
    const Positions mine = slice_of(context, microbatch, context.cp->rank());
    const Tensor all_k = gathered(context, k), all_v = gathered(context, v);
    const std::int64_t rows = k.shape()[0];
    AttentionResult result;
    for (int owner = 0; owner < context.cp->size(); ++owner) {
        const AttentionResult partial =
            attention(q, all_k.slice(owner * rows, (owner + 1) * rows), all_v.slice(owner * rows, (owner + 1) * rows), mine,
                      slice_of(context, microbatch, owner), core.scale, core.window, core.soft_cap);
        if (owner == 0)
            result = partial;
        else
            merge_attention(result, partial);
    }
    return result;
}

AttentionGradients by_gathering_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                         const Tensor& q, const Tensor& k, const Tensor& v, const AttentionResult& result,
                                         const CoreAttention& core) {
    const Positions mine = slice_of(context, microbatch, context.cp->rank());
    const Tensor all_k = gathered(context, k), all_v = gathered(context, v);
    const std::int64_t rows = k.shape()[0];
    const Tensor all_dk = context.device->empty(all_k.shape(), k.dtype(), MemoryCategory::communication, kGradientsOverCp);
    const Tensor all_dv = context.device->empty(all_v.shape(), v.dtype(), MemoryCategory::communication, kGradientsOverCp);
    AttentionGradients total;
    for (int owner = 0; owner < context.cp->size(); ++owner) {
        const std::int64_t begin = owner * rows, end = begin + rows;
        const AttentionGradients partial = attention_backward(d_output, q, all_k.slice(begin, end), all_v.slice(begin, end), result, mine,
                                                              slice_of(context, microbatch, owner), core.scale, core.window, core.soft_cap);
        if (owner == 0)
            total.q = partial.q;
        else
            add(partial.q, total.q);
        copy(partial.k, all_dk.slice(begin, end));
        copy(partial.v, all_dv.slice(begin, end));
    }
    total.k = context.device->empty(k.shape(), k.dtype(), MemoryCategory::activations, "key gradients");
    total.v = context.device->empty(v.shape(), v.dtype(), MemoryCategory::activations, "value gradients");
    context.cp->reduce_scatter(all_dk, total.k, Reduction::sum);
    context.cp->reduce_scatter(all_dv, total.v, Reduction::sum);
    return total;
}

Positions whole_sequence(const MicrobatchContext& microbatch) {
    return zigzag_positions(microbatch.sequence, microbatch.batch, 1, 0);
}

/// Returns the values of the heads that this rank has between the exchanges, a part of those it has outside.
Tensor of_exchanged_heads(const RankContext& context, const Tensor& by_head) {
    const std::int64_t heads = by_head.elements() / context.cp->size();
    return by_head.slice(heads * context.cp->rank(), heads * (context.cp->rank() + 1));
}

AttentionResult by_heads(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, const Tensor& k, const Tensor& v,
                         const CoreAttention& core) {
    const HeadExchange exchange(context, microbatch);
    const Positions all = whole_sequence(microbatch);
    AttentionResult result;
    {
        // Named, because all ranks must exchange in one order, and C++ does not define that of arguments.
        const Tensor q_heads = exchange.to_heads(q), k_heads = exchange.to_heads(k), v_heads = exchange.to_heads(v);
        result = attention(q_heads, k_heads, v_heads, all, all, core.scale, core.window, core.soft_cap);
    }
    if (core.sinks.defined()) add_sinks(result, of_exchanged_heads(context, core.sinks.value));
    // The log-sum-exp stays with the exchanged heads, which the backward has too.
    return {exchange.to_sequence(result.output), result.log_sum_exp};
}

AttentionGradients by_heads_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                     const Tensor& q, const Tensor& k, const Tensor& v, const AttentionResult& result,
                                     const CoreAttention& core) {
    const HeadExchange exchange(context, microbatch);
    const Positions all = whole_sequence(microbatch);
    const AttentionResult here{exchange.to_heads(result.output), result.log_sum_exp};
    AttentionGradients gradients;
    {
        const Tensor d_heads = exchange.to_heads(d_output);
        if (core.sinks.trained())
            sinks_gradient(d_heads, here, of_exchanged_heads(context, core.sinks.value), of_exchanged_heads(context, core.sinks.gradient));
        const Tensor q_heads = exchange.to_heads(q), k_heads = exchange.to_heads(k), v_heads = exchange.to_heads(v);
        gradients = attention_backward(d_heads, q_heads, k_heads, v_heads, here, all, all, core.scale, core.window, core.soft_cap);
    }
    return {exchange.to_sequence(gradients.q), exchange.to_sequence(gradients.k), exchange.to_sequence(gradients.v)};
}

/// Returns attention of this rank's slice of the sequence, without sinks, for every kind of exchange but all-to-all.
AttentionResult by_sequence(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, const Tensor& k,
                            const Tensor& v, const CoreAttention& core) {
    if (context.cp->size() == 1) {
        const Positions all = whole_sequence(microbatch);
        return attention(q, k, v, all, all, core.scale, core.window, core.soft_cap);
    }
    if (context.cp_comm_type == CpCommType::p2p) return ring(context, microbatch, q, k, v, core);
    MGPLAN_ASSERT(context.cp_comm_type == CpCommType::all_gather, "hierarchical context parallelism is refused before it gets here");
    return by_gathering(context, microbatch, q, k, v, core);
}

AttentionGradients by_sequence_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                        const Tensor& q, const Tensor& k, const Tensor& v, const AttentionResult& result,
                                        const CoreAttention& core) {
    if (context.cp->size() == 1) {
        const Positions all = whole_sequence(microbatch);
        return attention_backward(d_output, q, k, v, result, all, all, core.scale, core.window, core.soft_cap);
    }
    if (context.cp_comm_type == CpCommType::p2p) return ring_backward(context, microbatch, d_output, q, k, v, result, core);
    return by_gathering_backward(context, microbatch, d_output, q, k, v, result, core);
}

bool exchanges_heads(const RankContext& context) {
    return context.cp->size() > 1 && context.cp_comm_type == CpCommType::a2a;
}

}  // namespace

AttentionResult sharded_attention(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const CoreAttention& core) {
    if (exchanges_heads(context)) return by_heads(context, microbatch, q, k, v, core);
    AttentionResult result = by_sequence(context, microbatch, q, k, v, core);
    if (core.sinks.defined()) add_sinks(result, core.sinks.value);
    return result;
}

AttentionGradients sharded_attention_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                              const Tensor& q, const Tensor& k, const Tensor& v, const AttentionResult& result,
                                              const CoreAttention& core) {
    if (exchanges_heads(context)) return by_heads_backward(context, microbatch, d_output, q, k, v, result, core);
    if (core.sinks.trained()) sinks_gradient(d_output, result, core.sinks.value, core.sinks.gradient);
    return by_sequence_backward(context, microbatch, d_output, q, k, v, result, core);
}

bool reads_packed_core(const RankContext& context, const MicrobatchContext& microbatch, const PackedHeads& heads,
                       const CoreAttention& core) {
    return reads_packed(*context.device, context.dtype, heads, whole_sequence(microbatch), core.window, core.soft_cap);
}

AttentionResult packed_core(const MicrobatchContext& microbatch, const Tensor& packed, const PackedHeads& heads,
                            const CoreAttention& core) {
    AttentionResult result = packed_attention(packed, heads, whole_sequence(microbatch), core.scale, core.window, core.soft_cap);
    if (core.sinks.defined()) add_sinks(result, core.sinks.value);
    return result;
}

Tensor packed_core_backward(const MicrobatchContext& microbatch, const Tensor& d_output, const Tensor& packed, const PackedHeads& heads,
                            const AttentionResult& result, const CoreAttention& core) {
    if (core.sinks.trained()) sinks_gradient(d_output, result, core.sinks.value, core.sinks.gradient);
    return packed_attention_backward(d_output, packed, heads, result, whole_sequence(microbatch), core.scale, core.window, core.soft_cap);
}

}  // namespace mgplan::model
