#include "model/layers/token_dispatcher.hpp"

#include <algorithm>
#include <numeric>

#include "model/layers/router.hpp"
#include "model/layers/routing_log.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Returns true if arriving blocks are not sorted by expert already.
bool needs_sorting(const RankContext& context, const DispatchPlan& plan) {
    return plan.per_expert.size() > 1 && context.ep->size() * context.etp->size() > 1;
}

/// Returns the begin of this rank's part of a table.
RoutingTable::const_iterator own_counts(const RankContext& context, const RoutingTable& table) {
    const std::int64_t ranks = context.etp->size() * context.ep->size();
    return table.begin() + (context.etp->rank() * context.ep->size() + context.ep->rank()) * (std::ssize(table) / ranks);
}

/// Returns a tensor of `rows` rows: staging for the next step of an exchange; of the last step, an input of the layers.
Tensor rows_like(const RankContext& context, const Tensor& x, std::int64_t rows, bool last, std::string_view name) {
    return context.device->empty({rows, x.shape()[1]}, x.dtype(), last ? MemoryCategory::activations : MemoryCategory::communication, name);
}

}  // namespace

std::vector<std::int64_t> AllToAllDispatcher::balanced_copies(std::int64_t rows) const {
    const std::int64_t choices = rows * mixture_.top_k, capacity = expert_capacity(mixture_, rows);
    std::vector<std::int64_t> copies;
    for (std::int64_t expert = 0; expert < mixture_.experts; ++expert) {
        const std::int64_t chosen = choices / mixture_.experts + (expert < choices % mixture_.experts ? 1 : 0);
        copies.push_back(capacity > 0 ? std::min(chosen, capacity) : chosen);
    }
    return copies;
}

Tensor AllToAllDispatcher::gather_counts(const RankContext& context, Tensor counts) {
    for (Communicator* ranks : {context.ep, context.etp}) {
        if (ranks->size() == 1) continue;
        const Tensor whole =
            context.device->empty({counts.elements() * ranks->size()}, Dtype::int32, MemoryCategory::communication, "copies of all ranks");
        ranks->all_gather(counts, whole);
        counts = whole;
    }
    return counts;
}

RoutingTable AllToAllDispatcher::known_counts(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows,
                                              std::vector<std::int64_t>& alike) const {
    alike = balanced_copies(rows);
    if (context.routing_log == nullptr) return {};
    if (!context.routing_log->alike().empty()) {
        alike = context.routing_log->alike();
        return {};
    }
    if (context.routing_log->empty()) return {};
    return context.routing_log->at({microbatch.step, microbatch.index, number_});
}

SortedCopies AllToAllDispatcher::sort(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& kept) const {
    const std::int64_t capacity = expert_capacity(mixture_, kept.shape()[0]);
    SortedCopies sorted;
    if (mixture_.pad_to_capacity) {
        sorted.permutation = sort_and_pad(kept, mixture_.experts, capacity);
        return sorted;
    }
    const Tensor counts = count_by_expert(kept, mixture_.experts);
    std::int64_t copies = kept.elements();
    if (capacity > 0 && context.device->computes()) {
        std::vector<std::int32_t> own(static_cast<std::size_t>(mixture_.experts));
        context.device->read(counts, own.data());
        copies = std::accumulate(own.begin(), own.end(), std::int64_t{0});
    } else if (capacity > 0) {
        std::vector<std::int64_t> own;
        const RoutingTable table = known_counts(context, microbatch, kept.shape()[0], own);
        if (!table.empty()) own.assign(own_counts(context, table), own_counts(context, table) + mixture_.experts);
        copies = sum(own);
    }
    sorted.permutation = sort_by_expert(kept, counts, copies);
    sorted.counts = gather_counts(context, counts);
    return sorted;
}

DispatchPlan AllToAllDispatcher::plan(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& counts,
                                      std::int64_t rows) const {
    const std::int64_t ep = context.ep->size(), etp = context.etp->size(), local = mixture_.experts / ep;
    const std::int64_t first_expert = context.ep->rank() * local;
    DispatchPlan plan;
    RoutingTable table;  // empty if all ranks have equal numbers of copies of each expert
    std::vector<std::int64_t> own;
    if (mixture_.pad_to_capacity) {
        own.assign(static_cast<std::size_t>(mixture_.experts), expert_capacity(mixture_, rows));
    } else if (context.device->computes()) {
        std::vector<std::int32_t> read(static_cast<std::size_t>(counts.elements()));
        context.device->read(counts, read.data());
        table.assign(read.begin(), read.end());
        if (context.routing_log != nullptr) context.routing_log->record({microbatch.step, microbatch.index, number_}, table);
    } else {
        table = known_counts(context, microbatch, rows, own);
    }
    if (!table.empty()) {
        MGPLAN_ASSERT(std::ssize(table) == etp * ep * mixture_.experts, "there is a count for each expert and rank");
        own.assign(own_counts(context, table), own_counts(context, table) + mixture_.experts);
    }
    MGPLAN_ASSERT(mixture_.capacity_factor > 0 || !context.device->computes() || sum(own) == rows * mixture_.top_k,
                  "without a capacity every choice is some expert's");
    MGPLAN_ASSERT(std::ranges::all_of(own, [](std::int64_t count) { return count >= 0; }), "counts are not negative");
    // The counts of this rank's experts as (etp rank, ep rank) has them.
    const std::int64_t stride = table.empty() ? 0 : mixture_.experts;
    const std::int64_t* const first = (table.empty() ? own.data() : table.data()) + first_expert;
    const auto counts_of = [&](std::int64_t etp_rank, std::int64_t ep_rank) { return first + (etp_rank * ep + ep_rank) * stride; };
    for (std::int64_t rank = 0; rank < ep; ++rank) {
        const auto begin = own.begin() + rank * local;
        plan.send_rows.push_back(std::accumulate(begin, begin + local, std::int64_t{0}));
        const std::int64_t* const received = counts_of(context.etp->rank(), rank);
        plan.receive_rows.push_back(std::accumulate(received, received + local, std::int64_t{0}));
    }
    plan.per_expert.resize(static_cast<std::size_t>(local));
    for (std::int64_t t = 0; t < etp; ++t) {
        std::int64_t brought = 0;
        for (std::int64_t rank = 0; rank < ep; ++rank) {
            const std::int64_t* const counts_there = counts_of(t, rank);
            for (std::int64_t e = 0; e < local; ++e) {
                plan.per_expert[static_cast<std::size_t>(e)] += counts_there[e];
                brought += counts_there[e];
                plan.blocks += counts_there[e] > 0 ? 1 : 0;
            }
        }
        plan.etp_rows.push_back(brought);
    }
    if (!context.device->computes()) {
        // No row moves, so one block of all rows is enough: thousands would slow a search, which plans for tens of thousands of shapes.
        plan.arriving = plan.sorted = {sum(plan.per_expert)};
        plan.arriving_order = plan.sorted_order = {0};
        return plan;
    }
    const std::int64_t sources = etp * ep;
    const auto blocks = static_cast<std::size_t>(sources * local);
    plan.arriving.reserve(blocks);
    for (std::int64_t t = 0; t < etp; ++t) {
        for (std::int64_t rank = 0; rank < ep; ++rank)
            plan.arriving.insert(plan.arriving.end(), counts_of(t, rank), counts_of(t, rank) + local);
    }
    plan.sorted.reserve(blocks);
    plan.sorted_order.resize(blocks);
    plan.arriving_order.reserve(blocks);
    for (std::int64_t e = 0; e < local; ++e) {
        for (std::int64_t source = 0; source < sources; ++source) {
            const std::int64_t block = source * local + e;
            plan.sorted_order[static_cast<std::size_t>(block)] = std::ssize(plan.arriving_order);
            plan.arriving_order.push_back(block);
            plan.sorted.push_back(plan.arriving[static_cast<std::size_t>(block)]);
        }
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
    return sorts ? reorder_blocks(x, plan.arriving, plan.arriving_order, plan.blocks) : x;
}

Tensor AllToAllDispatcher::from_experts(const RankContext& context, const DispatchPlan& plan, Tensor x) const {
    if (needs_sorting(context, plan)) x = reorder_blocks(x, plan.sorted, plan.sorted_order, plan.blocks);
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
