#pragma once
// The least number of GPUs on which a job runs, as text, JSON and CSV.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"

namespace mgplan::reports {

/// The least number of GPUs of one job.
struct LeastGpus {
    std::string change;                          ///< words of `plan` that change the job as given; "": none
    std::int64_t up_to = 0;                      ///< largest number of GPUs that was tried
    Workload workload;                           ///< Workload::world: the least number, if there is a plan
    std::optional<planner::PlannedLayout> plan;  ///< a fast one (planner::fast_layout); nothing: no layout fits
};

struct LeastReport {
    Workload workload;  ///< the job on one node
    BatchSource batch_source = BatchSource::given;
    std::vector<std::string> assumed;
    std::int64_t headroom_bytes = 0;
    std::string options;     ///< words of `plan` for the job: cluster, precision, sequence, batch
    bool by_memory = false;  ///< the layouts are the smallest, not the fastest
    LeastGpus given;
    std::string why_not;             ///< one line if nothing fits
    std::string would_fit_with;      ///< the cheapest change with which the nearest layout would fit; "": none is known
    std::vector<LeastGpus> without;  ///< each without one choice of the search
    std::vector<LeastGpus> fixes;    ///< each with one change that the search does not make
};

/// A row for the job as given, then one for each change, in a table of at most 100 columns.
[[nodiscard]] std::string least_text(const LeastReport& least);

/// {"gpus","tokens_per_second_per_gpu","plan","fixes":[…],"without":[…]}, described in docs/scaling.md.
[[nodiscard]] std::string least_json(const LeastReport& least);

/// A row for each row of the table.
[[nodiscard]] std::string least_csv(const LeastReport& least);

}  // namespace mgplan::reports
