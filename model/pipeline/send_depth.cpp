#include "model/pipeline/send_depth.hpp"

#include <algorithm>
#include <vector>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Messages that were sent and received between two neighbouring stages, in one direction.
struct Link {
    std::int64_t sent = 0;
    std::int64_t received = 0;
};

/// Walks all lists as far as they get with `depth` open messages on every link; returns true if all finish.
bool finishes(const PipelineOrder& order, std::int64_t depth) {
    const auto stages = static_cast<std::size_t>(order.stages());
    // By the stage that sends. Neighbours on one rank hand over without a message.
    std::vector<Link> forward(stages), backward(stages);
    struct Place {
        std::size_t op = 0;
        bool received = false;  ///< the op's input
    };
    std::vector<Place> at(order.ranks.size());
    const auto crosses = [&](int from, int to) {
        const bool exist = std::min(from, to) >= 0 && std::max(from, to) < order.stages();
        return exist && order.rank_of(from) != order.rank_of(to);
    };
    const auto step = [&](std::size_t rank) {
        Place& place = at[rank];
        const PipelineOp& op = order.ranks[rank][place.op];
        if (op.pass == Pass::weight_gradient) return true;
        const int stage = order.stage_of(static_cast<int>(rank), op.chunk);
        const int direction = op.pass == Pass::forward ? 1 : -1;
        auto& links = op.pass == Pass::forward ? forward : backward;
        if (!place.received && crosses(stage - direction, stage)) {
            Link& link = links[static_cast<std::size_t>(stage - direction)];
            if (link.received == link.sent) return false;
            ++link.received;
        }
        place.received = true;
        if (crosses(stage, stage + direction)) {
            Link& link = links[static_cast<std::size_t>(stage)];
            if (link.sent - link.received == depth) return false;
            ++link.sent;
        }
        return true;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < at.size(); ++rank) {
            while (at[rank].op < order.ranks[rank].size() && step(rank)) {
                at[rank] = {at[rank].op + 1, false};
                moved = true;
            }
        }
    }
    for (std::size_t rank = 0; rank < at.size(); ++rank) {
        if (at[rank].op < order.ranks[rank].size()) return false;
    }
    return true;
}

}  // namespace

SendDepth send_depth(int pp, int vpp, std::int64_t group_size, int pp_rank) {
    SendDepth depth;
    if (vpp == 1) return depth;
    const std::int64_t around = std::max<std::int64_t>(1, group_size - pp + 1);
    if (pp_rank == pp - 1) depth.forward = around;
    if (pp_rank == 0) depth.backward = around;
    return depth;
}

std::int64_t least_send_depth(const PipelineOrder& order) {
    // No rank sends a microbatch of a chunk twice, so that as many messages as microbatches never wait.
    for (std::int64_t depth = 1; depth <= order.microbatches; ++depth) {
        if (finishes(order, depth)) return depth;
    }
    MGPLAN_ASSERT(false, "a schedule whose lists finish");
}

SendDepth send_depth(const LayoutSchedule& schedule, int pp_rank) {
    if (schedule.split() == nullptr) return send_depth(schedule.pp(), schedule.chunks(), schedule.group_size(), pp_rank);
    const std::int64_t depth = least_send_depth(*schedule.split());
    return {depth, depth};
}

}  // namespace mgplan::model
