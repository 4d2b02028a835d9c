#pragma once
// Work on the parts of a search by several threads.

#include <cstddef>
#include <functional>

namespace mgplan::planner {

/// Runs `work` for every part, each by whichever thread is free; rethrows the first exception. `progress` is called about once a second
/// from the calling thread with the finished and total parts; what it throws ends the work.
void run_parallel(std::size_t parts, std::size_t threads, const std::function<void(std::size_t part, std::size_t thread)>& work,
                  const std::function<void(std::size_t done, std::size_t total)>& progress);

}  // namespace mgplan::planner
