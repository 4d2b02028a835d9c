#include <algorithm>

#include <fmt/format.h>

#include "plan/text/text.hpp"
#include "planner/batch_sizes.hpp"
#include "planner/candidates.hpp"

namespace mgplan::planner {
namespace {

/// Adds the message for the first value if all values of a pinned list break a rule up to level `last` with everything else neutral.
template <class Values, class Set>
void add_hopeless(std::vector<std::string>& messages, const Workload& workload, const Values& pinned, Level last, Set set) {
    std::vector<std::string> first;
    for (const auto& value : pinned) {
        Layout layout;
        layout.sizes.world = workload.world;
        layout.num_microbatches = workload.batch.global_batch;
        set(layout, value);
        bool broken = false;
        for (int level = 0; level <= static_cast<int>(last) && !broken; ++level) {
            const Rule* rule = first_broken(workload, layout, static_cast<Level>(level));
            if (rule == nullptr) continue;
            broken = true;
            if (first.empty()) first.push_back(rule->message(workload, layout));
        }
        if (!broken) return;
    }
    messages.insert(messages.end(), first.begin(), first.end());
}

/// Adds the nearest batches that suit a layout to the last message, which says why this one does not.
void add_legal_batches(std::vector<std::string>& messages, const Workload& workload, const SearchSpace& space) {
    std::vector<std::string> nearest;
    for (const std::int64_t batch : nearest_legal_batches(workload, space)) nearest.push_back(with_thousands(batch));
    if (nearest.empty() || messages.empty()) return;
    messages.back() += nearest.size() > 1 ? fmt::format("; the nearest batches that suit a layout: {}", fmt::join(nearest, " and "))
                                          : fmt::format("; the nearest batch that suits a layout: {}", nearest.front());
}

Level level_of(std::string_view name) {
    for (const Rule& rule : rules()) {
        if (rule.name == name) return rule.level;
    }
    return Level::chunks;  // kLayoutSuits
}

}  // namespace

std::vector<std::string> why_nothing_is_legal(const Workload& workload, const SearchSpace& space, const CandidateCounts& counts) {
    std::vector<std::string> messages;
    const auto size = [](std::int64_t ParallelSizes::*member) {
        return [member](Layout& layout, std::int64_t value) { layout.sizes.*member = value; };
    };
    add_hopeless(messages, workload, space.tp, Level::tensor, size(&ParallelSizes::tp));
    add_hopeless(messages, workload, space.cp, Level::context, size(&ParallelSizes::cp));
    add_hopeless(messages, workload, space.pp, Level::pipeline, size(&ParallelSizes::pp));
    if (workload.model.moe) {
        add_hopeless(messages, workload, space.ep, Level::expert, size(&ParallelSizes::ep));
        add_hopeless(messages, workload, space.etp, Level::expert, size(&ParallelSizes::etp));
    }
    if (!messages.empty()) return messages;

    Level farthest = Level::tensor;
    for (const auto& [rule, found] : counts.rejected) farthest = std::max(farthest, level_of(rule));
    for (const auto& [rule, found] : counts.rejected) {
        if (level_of(rule) == farthest) messages.push_back(found.example);
    }
    if (farthest == Level::microbatch) add_legal_batches(messages, workload, space);
    if (messages.empty()) messages.emplace_back("no layout is left to try; widen the lists");
    return messages;
}

}  // namespace mgplan::planner
