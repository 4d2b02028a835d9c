#include "runtime/training_run/rank_arena.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/router.hpp"
#include "model/layers/routing_log.hpp"
#include "model/meta/meta_device.hpp"
#include "model/meta/step_arena.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

/// A rank's construction and some steps on shapes.
struct Trace {
    std::vector<model::AllocationRecord> records;
    std::vector<model::RangeRecord> ranges;
    std::vector<std::size_t> ends;  ///< of the construction and of each step: records up to there

    [[nodiscard]] std::span<const model::AllocationRecord> part(std::size_t which) const {
        const std::size_t begin = which == 0 ? 0 : ends[which - 1];
        return std::span(records).subspan(begin, ends[which] - begin);
    }
};

Trace trace_of(const model::TrainingTask& asked, int rank, const model::KernelTraits& stands_for, int steps, model::RoutingLog* routing) {
    model::TrainingTask task = asked;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    model::MetaDevice device({.keep_allocations = true, .keep_ops = false, .stands_for = stands_for});
    model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)), routing);
    Trace trace;
    trace.ends.push_back(device.allocations().size());
    for (int step = 0; step < steps; ++step) {
        static_cast<void>(trainer.step({}, 0));
        trace.ends.push_back(device.allocations().size());
    }
    trace.records = device.allocations();
    trace.ranges = device.ranges();
    return trace;
}

/// Returns true if the number of rows that a rank holds depends on the routers' choices.
bool depends_on_routing(const ModelSpec& model) {
    return model.moe && !model.moe->pad_to_capacity;
}

/// Returns copies from every rank to every expert, at least one from each of the others, so that no tensor is missing. The rank's own
/// are spread a little differently for each `from_others`, because the largest group of rows is a size too; or, if `uneven`, as far from
/// evenly as possible, so that sizes in whole blocks of rows differ.
model::RoutingTable routing_from_others(const model::TrainingTask& task, int rank, std::int64_t from_others, bool uneven = false) {
    const MoeSpec& moe = *task.model.moe;
    const Layout& layout = task.layout;
    std::int64_t own = 0;  // the rank's place in its table: [etp rank][ep rank]
    for (const GridAxis& axis : expert_grid(layout.sizes)) {
        const std::int64_t place = rank / axis.stride % axis.size;
        if (axis.axis == Axis::ep) own += place;
        if (axis.axis == Axis::tp) own += place * layout.sizes.ep;
    }
    const std::int64_t sources = layout.sizes.ep * layout.sizes.etp;
    const std::int64_t rows = layout.micro_batch * task.batch.sequence / layout.sizes.cp / (layout.sequence_parallel ? layout.sizes.tp : 1);
    Mixture mixture;
    mixture.experts = moe.experts;
    mixture.top_k = moe.top_k;
    mixture.capacity_factor = moe.capacity_factor;
    const std::int64_t capacity = model::expert_capacity(mixture, rows);
    const std::int64_t most = capacity > 0 ? capacity : rows * moe.top_k;
    model::RoutingTable table(static_cast<std::size_t>(sources * moe.experts), std::min(from_others, most));
    const auto first = table.begin() + own * moe.experts;
    // Dealt out in turn; if copies may be dropped, their number varies too.
    std::int64_t choices = rows * moe.top_k;
    if (uneven) {
        for (std::int64_t expert = 0; expert < moe.experts; ++expert) {
            const std::int64_t behind = moe.experts - 1 - expert;  // one is left for each of these
            first[expert] = std::clamp(choices - behind, std::min<std::int64_t>(choices, 1), most);
            choices -= first[expert];
        }
        return table;
    }
    if (capacity > 0 && choices > 1) choices -= from_others - 1;
    for (std::int64_t expert = 0; expert < moe.experts; ++expert) {
        const std::int64_t chosen = choices / moe.experts + (expert < choices % moe.experts ? 1 : 0);
        first[expert] = std::min(chosen, most);
    }
    if (const std::int64_t moved = std::min(from_others - 1, *(first + moe.experts - 1)); capacity == 0 && moe.experts > 1) {
        *first += moved;
        *(first + moe.experts - 1) -= moved;
    }
    return table;
}

bool same_tensor(const model::AllocationRecord& a, const model::AllocationRecord& b) {
    return a.name == b.name && a.category == b.category;
}

[[noreturn]] void refuse(std::string_view what) {
    throw ConfigError(fmt::format("--memory arena needs steps whose allocations are alike, and {}; use --memory pool", what));
}

/// Which records of construction and step differ in size between two routings.
std::vector<bool> sizes_of_values(const Trace& one, const Trace& other) {
    std::vector<bool> varies(one.ends[1], false);
    if (other.ends[0] != one.ends[0] || other.ends[1] != one.ends[1]) refuse("their number depends on what routers choose");
    for (std::size_t i = 0; i < one.ends[1]; ++i) {
        if (!same_tensor(one.records[i], other.records[i])) refuse("their order depends on what routers choose");
        varies[i] = one.records[i].bytes != other.records[i].bytes;
    }
    return varies;
}

/// Checks that the second step takes the same memory as the first, and that no tensor outlives its step.
void check_steps(const Trace& trace) {
    const auto first = trace.part(1), second = trace.part(2);
    const bool alike = std::equal(first.begin(), first.end(), second.begin(), second.end(), [](const auto& a, const auto& b) {
        return same_tensor(a, b) && a.bytes == b.bytes && a.returned - a.taken == b.returned - b.taken;
    });
    if (!alike) refuse("the second step's are not the first one's");
    const std::int64_t end = second.empty() ? 0 : second.front().taken;
    if (std::any_of(first.begin(), first.end(), [&](const auto& record) { return record.returned < 0 || record.returned > end; }))
        refuse("a tensor lives on behind its step");
}

}  // namespace

ArenaScript arena_script(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for, bool guarded) {
    std::vector<bool> varies;
    Trace trace;
    if (depends_on_routing(task.model)) {
        constexpr std::int64_t kMany = 129;  // a block of 128 rows more, the largest that anything is rounded to
        model::RoutingLog few, more, uneven;
        few.assume(routing_from_others(task, rank, 1));
        more.assume(routing_from_others(task, rank, 2));
        uneven.assume(routing_from_others(task, rank, kMany, true));
        trace = trace_of(task, rank, stands_for, 2, &few);
        varies = sizes_of_values(trace, trace_of(task, rank, stands_for, 1, &more));
        const std::vector<bool> by_blocks = sizes_of_values(trace, trace_of(task, rank, stands_for, 1, &uneven));
        for (std::size_t i = 0; i < varies.size(); ++i) varies[i] = varies[i] || by_blocks[i];
    } else {
        trace = trace_of(task, rank, stands_for, 2, nullptr);
    }
    check_steps(trace);
    std::vector<model::AllocationRecord> records(trace.records.begin(), trace.records.begin() + static_cast<std::ptrdiff_t>(trace.ends[1]));
    const auto second = trace.part(2);
    const std::int64_t end = second.empty() ? std::numeric_limits<std::int64_t>::max() : second.front().taken;
    std::erase_if(trace.ranges, [&](const model::RangeRecord& range) { return range.begin >= end; });
    ArenaScript script;
    if (guarded) script.guard = script.alignment;
    for (auto& record : records) record.bytes += guarded ? script.room_of(record.bytes) - record.bytes : 0;
    // In a graph of a whole iteration every take has one address anyway.
    const bool graphs_of_layers = !task.layout.cuda_graphs.empty() && !task.layout.cuda_graphs.contains(CudaGraphScope::full_iteration);
    const model::StepArena arena = model::plan_step(
        records, trace.ranges, varies, 256, graphs_of_layers ? model::ArenaPurpose::fixed_addresses : model::ArenaPurpose::least_bytes);
    script.bytes = arena.total;
    script.lower_bound = arena.lower_bound;
    for (std::size_t i = 0; i < records.size(); ++i) {
        auto& takes = i < trace.ends[0] ? script.construction : script.step;
        takes.push_back({records[i].name, records[i].category, trace.records[i].bytes, arena.offsets[i]});
    }
    return script;
}

}  // namespace mgplan::runtime
