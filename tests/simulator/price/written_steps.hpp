#pragma once
// Steps of a pass whose seconds are written into them, and random ones.

#include <random>
#include <utility>
#include <vector>

#include "simulator/piece/piece_step.hpp"
#include "simulator/price/pass_replay.hpp"

namespace mgplan::simulator {

/// Seconds stand in the steps' bytes.
inline double written(const PieceStep& step) {
    return static_cast<double>(step.kind == StepKind::op ? step.op.bytes_read : step.sent);
}

inline PieceStep op(std::int64_t seconds, StepPass pass = StepPass::forward) {
    PieceStep step;
    step.pass = pass;
    step.op.name = "add";
    step.op.bytes_read = seconds;
    return step;
}

inline PieceStep start(int number, std::int64_t seconds, LayerGroup group = LayerGroup::tp) {
    PieceStep step;
    step.kind = StepKind::start;
    step.number = number;
    step.group = group;
    step.sent = seconds;
    return step;
}

inline PieceStep wait(int number, LayerGroup group = LayerGroup::tp, double share = 1) {
    PieceStep step = PieceStep::wait_for(start(number, 0, group));
    step.share = share;
    return step;
}

/// Thirty steps: ops, collectives of all groups, and waits for all or half of one that was started.
inline PieceSteps random_steps(std::mt19937& random) {
    const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
    PieceSteps steps;
    int started = 0;
    std::vector<std::pair<int, LayerGroup>> open;
    for (int i = 0; i < 30; ++i) {
        const int kind = draw(4);
        if (kind == 0) {
            const auto group = static_cast<LayerGroup>(draw(kLayerGroups));
            steps.push_back(start(started, 1 + draw(20), group));
            open.emplace_back(started++, group);
        } else if (kind == 1 && !open.empty()) {
            const auto [number, group] = open[static_cast<std::size_t>(draw(static_cast<int>(open.size())))];
            steps.push_back(wait(number, group, draw(2) == 0 ? 1 : 0.5));
        } else {
            steps.push_back(op(1 + draw(10)));
        }
    }
    return steps;
}

/// replay() where all collectives take as much from the ops beside them.
inline PassSeconds replay(const PieceSteps& steps, const StepPrice& price, double overlap_cost) {
    return replay(steps, price, [overlap_cost](const PieceStep&) { return overlap_cost; });
}

}  // namespace mgplan::simulator
