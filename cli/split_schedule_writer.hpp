#pragma once
// Prints schedules whose backwards are split into the gradient of the input (B) and that of the weights (W).

#include <ostream>
#include <string_view>

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan::cli {

/// {"pp","vpp","microbatches","kind","ranks":[{"rank","peak_live","ops":[{"op","chunk","microbatch"},…]}]}
void write_split_json(std::ostream& out, const PipelineOrder& order, std::string_view kind);
void write_split_csv(std::ostream& out, const PipelineOrder& order);
/// Lists of all ranks, cut, and a picture in which every pass takes one step.
void write_split_table(std::ostream& out, const PipelineOrder& order, std::string_view kind, std::size_t columns);

}  // namespace mgplan::cli
