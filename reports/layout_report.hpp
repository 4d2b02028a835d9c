#pragma once
// One layout and its prediction as text: output of `simulate`, `check` and `plan --explain`.

#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// "llama3-8b on 16 GPUs (dgx-h100), batch of …": one line.
[[nodiscard]] std::string workload_text(const Workload& workload);

/// "assumed: …" wrapped at kTerminalColumns; empty if nothing was assumed.
[[nodiscard]] std::string assumed_text(const std::vector<std::string>& assumed);

/// One layout in full: sizes, switches, time by cause, memory by category. Used by --explain and by simulate.
[[nodiscard]] std::string layout_text(const Workload& workload, const Layout& layout, const simulator::Prediction& prediction);

/// "3.2 GiB over the limit of 79.2 GiB on rank 0 (stage 0), of which most is activations, 50.1 GiB".
[[nodiscard]] std::string missing_text(const simulator::MemoryPrediction& memory);

/// The largest share of the iteration that is not compute: "bubble 12%", "tp 9%", "recomp 20%"; "-" below 0.5 %.
[[nodiscard]] std::string largest_overhead(const simulator::TimePrediction& time);

/// The fullest stage and the largest category of its memory: "s0 activ".
[[nodiscard]] std::string fullest_term(const Layout& layout, const simulator::MemoryPrediction& memory);

}  // namespace mgplan::reports
