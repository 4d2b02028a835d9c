#pragma once
// SimGrid has one platform a process: each simulation runs in a child.

#include <cstddef>
#include <functional>
#include <vector>

namespace mgplan::simulator {

/// The `count` numbers that `work` returns in a child process. Throws std::runtime_error where it does not come to its end.
[[nodiscard]] std::vector<double> in_own_process(std::size_t count, const std::function<std::vector<double>()>& work);

}  // namespace mgplan::simulator
