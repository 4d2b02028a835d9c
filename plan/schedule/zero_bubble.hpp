#pragma once
// Zero-bubble schedules: Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241. F, B, W: forward, gradient of the
// input, gradient of the weights, and their times.

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan {

/// ZB-H1 (section 2.2): 1F1B whose weight gradients wait, so that every rank holds at most pp microbatches, as 1F1B's first
/// rank does. Bubble (pp - 1)(F + B - W).
[[nodiscard]] PipelineOrder zero_bubble_h1(int pp, std::int64_t microbatches);

/// ZB-H2 (section 2.3): further forwards in the warm-up fill the rest of the bubble: (pp - 1)(F + B - 2W), nothing where the
/// three are equal; every rank holds at most 2·pp - 1 microbatches. Each rank's own span is meant: the last rank starts, and
/// ends, (pp - 1)·F later than the first, and an optimizer that waits for all ranks waits that long.
[[nodiscard]] PipelineOrder zero_bubble_h2(int pp, std::int64_t microbatches);

/// ZB-V (section 6): two chunks in a V, no bubble where the three are equal, at most 2·pp chunks held: as much as 1F1B.
[[nodiscard]] PipelineOrder zero_bubble_v(int pp, std::int64_t microbatches);

}  // namespace mgplan
