#pragma once
// Runs the parts of a search on several threads.

#include <cstddef>
#include <functional>

namespace mgplan::planner {

/// Runs `work` for every part, each on the next free thread; rethrows the first exception. `progress` is called about once a second from
/// the calling thread with the finished and total parts; an exception from it ends the work.
void run_parallel(std::size_t parts, std::size_t threads, const std::function<void(std::size_t part, std::size_t thread)>& work,
                  const std::function<void(std::size_t done, std::size_t total)>& progress);

}  // namespace mgplan::planner
