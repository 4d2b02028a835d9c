#include "plan/schedule/pipeline_order.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "plan/schedule/dual_pipe.hpp"
#include "plan/schedule/v_schedules.hpp"
#include "plan/schedule/zero_bubble.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

constexpr std::array<std::string_view, 6> kNames{"zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"};

}  // namespace

std::string_view to_string(SplitSchedule kind) {
    return kNames.at(static_cast<std::size_t>(kind));
}

std::optional<SplitSchedule> parse_split_schedule(std::string_view text) {
    const auto found = std::find(kNames.begin(), kNames.end(), text);
    if (found == kNames.end()) return std::nullopt;
    return static_cast<SplitSchedule>(found - kNames.begin());
}

std::vector<std::string> split_schedule_names() {
    return {kNames.begin(), kNames.end()};
}

int chunks_of(SplitSchedule kind) {
    return kind == SplitSchedule::zb_h1 || kind == SplitSchedule::zb_h2 ? 1 : 2;
}

bool is_v_shaped(SplitSchedule kind) {
    return chunks_of(kind) == 2;
}

PipelineOrder order_of(const Schedule& schedule) {
    PipelineOrder order;
    order.pp = schedule.pp();
    order.chunks = schedule.vpp();
    order.microbatches = schedule.microbatches();
    order.ranks.resize(static_cast<std::size_t>(order.pp));
    for (int r = 0; r < order.pp; ++r) {
        order.ranks[static_cast<std::size_t>(r)] = schedule.rank(r).ops;
    }
    return order;
}

void check_split_schedule(const SplitScheduleRequest& request) {
    Problems problems;
    const int chunks = chunks_of(request.kind);
    if (request.pp < 2) problems.add("kind = {} needs a pipeline, but pp = {}; use pp of 2 or more", to_string(request.kind), request.pp);
    if (request.microbatches < 1) problems.add("microbatches = {} is too small; use 1 or more", request.microbatches);
    const std::int64_t most = request.pp < 2 ? 1 : kMostOrderOps / (3 * std::int64_t{chunks} * request.pp);
    if (problems.empty() && request.microbatches > most) {
        problems.add("microbatches = {} with pp = {} make more than {} passes of kind {}; use {}", request.microbatches, request.pp,
                     kMostOrderOps, to_string(request.kind), most > 0 ? fmt::format("at most {} microbatches", most) : "a smaller pp");
    }
    if (problems.empty() && request.kind == SplitSchedule::dualpipe_v && request.microbatches < 2 * std::int64_t{request.pp}) {
        problems.add("microbatches = {} are fewer than kind dualpipe-v needs on pp = {}; use {} or more", request.microbatches, request.pp,
                     2 * request.pp);
    }
    problems.throw_if_any();
}

PipelineOrder split_order(const SplitScheduleRequest& request) {
    check_split_schedule(request);
    switch (request.kind) {
        case SplitSchedule::zb_h1:
            return zero_bubble_h1(request.pp, request.microbatches);
        case SplitSchedule::zb_h2:
            return zero_bubble_h2(request.pp, request.microbatches);
        case SplitSchedule::zb_v:
            return zero_bubble_v(request.pp, request.microbatches);
        case SplitSchedule::v_half:
            return v_half(request.pp, request.microbatches);
        case SplitSchedule::v_min:
            return v_min(request.pp, request.microbatches);
        case SplitSchedule::dualpipe_v:
            return dual_pipe_v(request.pp, request.microbatches);
    }
    return {};
}

std::int64_t peak_live(const PipelineOrder& order, int rank) {
    std::int64_t live = 0, most = 0;
    for (const PipelineOp& op : order.ranks[static_cast<std::size_t>(rank)]) {
        if (op.pass == Pass::forward) most = std::max(most, ++live);
        if (ends_microbatch(op.pass)) --live;
    }
    return most;
}

}  // namespace mgplan
