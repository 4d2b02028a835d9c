#pragma once
// DualPipeV: DeepSeek-V3's DualPipe (arXiv 2412.19437, section 3.2.1) folded into a V (dualpipe/dualpipev.py of
// deepseek-ai/DualPipe, whose eight steps are followed).

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan {

/// Two chunks in a V; at most 2·pp + 1 chunks held. Needs at least 2·pp microbatches. Where a forward and a backward overlap,
/// the list names the forward first; their mutual overlap is not simulated.
[[nodiscard]] PipelineOrder dual_pipe_v(int pp, std::int64_t microbatches);

}  // namespace mgplan
