#include "model/layers/token_dispatcher.hpp"

#include <algorithm>
#include <numeric>

#include "model/layers/router.hpp"
#include "model/layers/routing_log.hpp"
#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Whether arriving blocks are not sorted by expert already.
bool needs_sorting(const RankContext& context, const DispatchPlan& plan) {
    return plan.per_expert.size() > 1 && context.ep->size() * context.etp->size() > 1;
}

/// Rows that the next step of an exchange takes up are staging; the last step's are what layers compute with.
Tensor rows_like(const RankContext& context, const Tensor& x, std::int64_t rows, bool last, std::string_view name) {
    return context.device->empty({rows, x.shape()[1]}, x.dtype(), last ? MemoryCategory::activations : MemoryCategory::communication, name);
}

}  // namespace

std::vector<std::int64_t> AllToAllDispatcher::balanced_copies(std::int64_t rows) const {
    const std::int64_t choices = rows * moe_.top_k, capacity = expert_capacity(moe_, rows);
    std::vector<std::int64_t> copies;
    for (std::int64_t expert = 0; expert < moe_.experts; ++expert) {
        const std::int64_t chosen = choices / moe_.experts + (expert < choices % moe_.experts ? 1 : 0);
        copies.push_back(capacity > 0 ? std::min(chosen, capacity) : chosen);
    }
    return copies;
}

std::vector<std::int64_t> AllToAllDispatcher::gather_counts(const RankContext& context, const std::vector<std::int64_t>& counts) const {
    Device& device = *context.device;
    const std::vector<std::int32_t> narrow(counts.begin(), counts.end());
    Tensor gathered = device.empty({std::ssize(counts)}, Dtype::int32, MemoryCategory::communication, "copies of each expert");
    device.write(gathered, narrow.data());
    for (Communicator* ranks : {context.ep, context.etp}) {
        if (ranks->size() == 1) continue;
        const Tensor whole =
            device.empty({gathered.elements() * ranks->size()}, Dtype::int32, MemoryCategory::communication, "copies of all ranks");
        ranks->all_gather(gathered, whole);
        gathered = whole;
    }
    if (!device.computes()) return {};
    std::vector<std::int32_t> all(static_cast<std::size_t>(gathered.elements()));
    device.read(gathered, all.data());
    return {all.begin(), all.end()};
}

DispatchPlan AllToAllDispatcher::plan(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& kept) const {
    const std::int64_t ep = context.ep->size(), etp = context.etp->size(), local = moe_.experts / ep, rows = kept.shape()[0];
    const std::int64_t first_expert = context.ep->rank() * local;
    DispatchPlan plan;
    RoutingTable table;  // empty where every rank has as many copies of an expert as this one
    const auto copies = [&](std::int64_t etp_rank, std::int64_t ep_rank, std::int64_t expert) {
        const std::int64_t source = (etp_rank * ep + ep_rank) * moe_.experts;
        return table.empty() ? plan.permutation.per_expert[static_cast<std::size_t>(expert)]
                             : table[static_cast<std::size_t>(source + expert)];
    };
    const RoutingPlace place{microbatch.step, microbatch.index, layer_};
    if (moe_.pad_to_capacity) {
        plan.permutation = sort_and_pad(kept, moe_.experts, expert_capacity(moe_, rows));
    } else if (context.device->computes()) {
        plan.permutation = sort_by_expert(kept, moe_.experts, {});
        // The host waits here for the counts: they are sizes of what follows.
        table = gather_counts(context, plan.permutation.per_expert);
        if (context.routing_log != nullptr) context.routing_log->record(place, table);
    } else {
        std::vector<std::int64_t> known = balanced_copies(rows);
        if (context.routing_log != nullptr && !context.routing_log->alike().empty()) {
            known = context.routing_log->alike();
        } else if (context.routing_log != nullptr && !context.routing_log->empty()) {
            table = context.routing_log->at(place);
            MGPLAN_ASSERT(std::ssize(table) == etp * ep * moe_.experts, "the log is of this layout");
            const auto begin = table.begin() + (context.etp->rank() * ep + context.ep->rank()) * moe_.experts;
            known.assign(begin, begin + moe_.experts);
        }
        plan.permutation = sort_by_expert(kept, moe_.experts, known);
        (void)gather_counts(context, known);
    }
    const auto& own = plan.permutation.per_expert;
    const auto blocks = static_cast<std::size_t>(etp * ep * local);
    plan.arriving.reserve(blocks);
    for (std::int64_t rank = 0; rank < ep; ++rank) {
        const auto begin = own.begin() + rank * local;
        plan.send_rows.push_back(std::accumulate(begin, begin + local, std::int64_t{0}));
        std::int64_t received = 0;
        for (std::int64_t e = 0; e < local; ++e) received += copies(context.etp->rank(), rank, first_expert + e);
        plan.receive_rows.push_back(received);
    }
    for (std::int64_t t = 0; t < etp; ++t) {
        std::int64_t brought = 0;
        for (std::int64_t rank = 0; rank < ep; ++rank) {
            for (std::int64_t e = 0; e < local; ++e) {
                plan.arriving.push_back(copies(t, rank, first_expert + e));
                brought += plan.arriving.back();
            }
        }
        plan.etp_rows.push_back(brought);
    }
    plan.sorted_order.resize(blocks);
    plan.arriving_order.reserve(blocks);
    plan.sorted.reserve(blocks);
    for (std::int64_t e = 0; e < local; ++e) {
        std::int64_t of_expert = 0;
        for (std::int64_t source = 0; source < etp * ep; ++source) {
            const std::int64_t block = source * local + e;
            plan.sorted_order[static_cast<std::size_t>(block)] = std::ssize(plan.arriving_order);
            plan.arriving_order.push_back(block);
            plan.sorted.push_back(plan.arriving[static_cast<std::size_t>(block)]);
            of_expert += plan.sorted.back();
        }
        plan.per_expert.push_back(of_expert);
    }
    return plan;
}

Tensor AllToAllDispatcher::to_experts(const RankContext& context, const DispatchPlan& plan, Tensor x) const {
    const bool sorts = needs_sorting(context, plan);
    if (context.ep->size() > 1) {
        const Tensor received = rows_like(context, x, sum(plan.receive_rows), context.etp->size() == 1 && !sorts, "dispatched rows");
        context.ep->all_to_all(x, received, plan.send_rows, plan.receive_rows);
        x = received;
    }
    if (context.etp->size() > 1) {
        const Tensor whole = rows_like(context, x, sum(plan.etp_rows), !sorts, "rows of all etp ranks");
        context.etp->all_gather_rows(x, whole, plan.etp_rows);
        x = whole;
    }
    return sorts ? reorder_blocks(x, plan.arriving, plan.arriving_order) : x;
}

Tensor AllToAllDispatcher::from_experts(const RankContext& context, const DispatchPlan& plan, Tensor x) const {
    if (needs_sorting(context, plan)) x = reorder_blocks(x, plan.sorted, plan.sorted_order);
    if (context.etp->size() > 1) {
        const Tensor part = rows_like(context, x, sum(plan.receive_rows), context.ep->size() == 1, "rows of this etp rank");
        context.etp->reduce_scatter_rows(x, part, plan.etp_rows, Reduction::sum);
        x = part;
    }
    if (context.ep->size() > 1) {
        const Tensor returned = rows_like(context, x, sum(plan.send_rows), true, "combined rows");
        context.ep->all_to_all(x, returned, plan.receive_rows, plan.send_rows);
        x = returned;
    }
    return x;
}

}  // namespace mgplan::model
