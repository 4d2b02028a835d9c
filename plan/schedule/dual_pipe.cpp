#include "plan/schedule/dual_pipe.hpp"

#include <deque>

#include "plan/schedule/rank_passes.hpp"

namespace mgplan {

PipelineOrder dual_pipe_v(int pp, std::int64_t microbatches) {
    PipelineOrder order;
    order.pp = pp;
    order.chunks = 2;
    order.microbatches = microbatches;
    order.v_shaped = true;
    order.ranks.resize(static_cast<std::size_t>(pp));
    for (int r = 0; r < pp; ++r) {
        RankPasses passes(order.ranks[static_cast<std::size_t>(r)], microbatches);
        const int before = pp - 1 - r;  // ranks between this one and the turn of the V
        std::deque<int> waiting;        // chunks of weight gradients to come, first in, first out
        const auto input_gradient = [&](int chunk) {
            passes.run(Pass::input_gradient, chunk);
            waiting.push_back(chunk);
        };
        const auto weight_gradient = [&] {
            if (waiting.empty()) return;
            passes.run(Pass::weight_gradient, waiting.front());
            waiting.pop_front();
        };
        const auto backward = [&](int chunk, bool split) {
            if (split)
                input_gradient(chunk);
            else
                passes.run_backward(chunk);
        };
        for (int i = 0; i < 2 * before; ++i) passes.run(Pass::forward, 0);
        for (int i = 0; i < r + 1; ++i) {
            passes.run(Pass::forward, 0);
            passes.run(Pass::forward, 1);
        }
        for (int i = 0; i < before; ++i) {
            input_gradient(1);
            weight_gradient();
            passes.run(Pass::forward, 1);
        }
        for (std::int64_t i = 0; i < microbatches - 2 * std::int64_t{pp} + r + 1; ++i) {
            passes.run(Pass::forward, 0);
            passes.run_backward(1);
            passes.run(Pass::forward, 1);
            passes.run_backward(0);
        }
        for (int i = 0; i < before; ++i) {
            passes.run_backward(1);
            passes.run(Pass::forward, 1);
            passes.run_backward(0);
        }
        // The second half of these keeps its weight gradients for the idle time that follows.
        bool split = false;
        for (int i = 0; i < r + 1; ++i) {
            if (i == (r + 1) / 2 && r % 2 == 1) split = true;
            backward(1, split);
            if (i == (r + 1) / 2 && r % 2 == 0) split = true;
            backward(0, split);
        }
        for (int i = 0; i < before; ++i) {
            weight_gradient();
            input_gradient(0);
        }
        for (int i = 0; i < r + 1; ++i) weight_gradient();
    }
    return order;
}

}  // namespace mgplan
