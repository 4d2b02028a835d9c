#pragma once
// A workload with each sharding of its state that a ranking tries, and the merge of their searches.

#include <optional>
#include <vector>

#include "plan/training/data_sharding.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// A workload with one sharding of its state. Its own layouts lack LayoutSwitches::sharding, those of the merged answer have it.
struct ShardedJob {
    std::optional<DataShardingChoice> sharding;  ///< nothing: the original workload's own
    Workload workload;

    /// True if a layout of the merged answer belongs to this job.
    [[nodiscard]] bool has(const Layout& layout) const;
    /// The job's own form of a layout of the merged answer.
    [[nodiscard]] Layout own(Layout layout) const;
    /// The merged answer's form of a layout of the job.
    [[nodiscard]] Layout merged(Layout layout) const;
};

/// The workload itself, then with each of SearchSpace::shardings.
[[nodiscard]] std::vector<ShardedJob> sharded_jobs(const Workload& workload, const SearchSpace& space);

/// The job that a layout of the merged answer belongs to.
[[nodiscard]] ShardedJob job_of(const Workload& workload, const Layout& layout);

/// Adds the counts, sets and misses of a job's search to those of others; all but `best` and its figures.
void merge_results(SearchResult& all, SearchResult&& found, const ShardedJob& job);

}  // namespace mgplan::planner
