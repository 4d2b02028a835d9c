#include "plan/schedule/zero_bubble.hpp"

#include <algorithm>

#include "plan/schedule/rank_passes.hpp"

namespace mgplan {
namespace {

/// One chunk a rank: `warmup` forwards, then a forward and an input gradient in turn; each weight gradient comes `delay` input
/// gradients after its own.
void run_one_chunk(std::vector<PipelineOp>& ops, std::int64_t microbatches, std::int64_t warmup, std::int64_t delay) {
    RankPasses passes(ops, microbatches);
    for (std::int64_t i = 0; i < warmup; ++i) passes.run(Pass::forward);
    for (std::int64_t i = 0; i < microbatches; ++i) {
        passes.run(Pass::forward);
        passes.run(Pass::input_gradient);
        if (i >= delay) passes.run(Pass::weight_gradient);
    }
    while (passes.count(Pass::weight_gradient) < microbatches) passes.run(Pass::weight_gradient);
}

PipelineOrder empty_order(int pp, int chunks, std::int64_t microbatches) {
    PipelineOrder order;
    order.pp = pp;
    order.chunks = chunks;
    order.microbatches = microbatches;
    order.v_shaped = chunks == 2;
    order.ranks.resize(static_cast<std::size_t>(pp));
    return order;
}

}  // namespace

PipelineOrder zero_bubble_h1(int pp, std::int64_t microbatches) {
    PipelineOrder order = empty_order(pp, 1, microbatches);
    for (int r = 0; r < pp; ++r) run_one_chunk(order.ranks[static_cast<std::size_t>(r)], microbatches, pp - 1 - r, r);
    return order;
}

PipelineOrder zero_bubble_h2(int pp, std::int64_t microbatches) {
    PipelineOrder order = empty_order(pp, 1, microbatches);
    for (int r = 0; r < pp; ++r)
        run_one_chunk(order.ranks[static_cast<std::size_t>(r)], microbatches, 2 * std::int64_t{pp - 1 - r}, 2 * std::int64_t{r});
    return order;
}

PipelineOrder zero_bubble_v(int pp, std::int64_t microbatches) {
    PipelineOrder order = empty_order(pp, 2, microbatches);
    for (int r = 0; r < pp; ++r) {
        RankPasses passes(order.ranks[static_cast<std::size_t>(r)], microbatches);
        // Warm-up: the first microbatch comes back up the V after 2·pp - 1 - r stages, which forwards of chunk 0 bridge.
        for (int i = 0; i < 2 * (pp - r) - 1; ++i) passes.run(Pass::forward, 0);
        for (int i = 0; i < r; ++i) {
            passes.run(Pass::forward, 1);
            passes.run(Pass::forward, 0);
        }
        for (int i = 0; i < pp - r; ++i) {
            passes.run(Pass::forward, 1);
            passes.run_backward(1);
        }
        // Steady: both chunks in turn. An iteration shorter than the warm-up runs the rest of it here too.
        const std::int64_t whole = std::max<std::int64_t>(microbatches, 2 * std::int64_t{pp});
        while (passes.count(Pass::forward, 1) < whole) {
            passes.run(Pass::forward, 0);
            passes.run_backward(0);
            passes.run(Pass::forward, 1);
            passes.run_backward(1);
        }
        // Cool-down: weight gradients wait where the input gradients come late.
        for (int i = 0; i < r; ++i) {
            passes.run(Pass::input_gradient, 0);
            passes.run(Pass::input_gradient, 1);
        }
        while (passes.count(Pass::input_gradient, 0) < whole) {
            passes.run(Pass::input_gradient, 0);
            passes.run(Pass::weight_gradient, 0);
        }
        while (passes.count(Pass::weight_gradient, 1) < whole) passes.run(Pass::weight_gradient, 1);
        while (passes.count(Pass::weight_gradient, 0) < whole) passes.run(Pass::weight_gradient, 0);
    }
    return order;
}

}  // namespace mgplan
