#pragma once
// Checks that all processes of a run were started with the same options.

#include <span>
#include <string>

namespace mgplan::runtime {

/// `texts`: TrainingRunOptions::alike of each rank. One sentence naming the first rank that has a line otherwise than rank 0, and both
/// lines; empty where all agree.
[[nodiscard]] std::string disagreement(std::span<const std::string> texts);

}  // namespace mgplan::runtime
