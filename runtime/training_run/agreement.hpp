#pragma once
// Checks that all processes of a run were started with the same options.

#include <span>
#include <string>

namespace mgplan::runtime {

/// `texts`: TrainingRunOptions::alike of each rank. Returns one sentence naming the first rank with a line that differs from rank 0's, and
/// both lines; empty if all agree.
[[nodiscard]] std::string disagreement(std::span<const std::string> texts);

}  // namespace mgplan::runtime
