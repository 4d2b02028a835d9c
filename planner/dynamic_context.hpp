#pragma once
// Dynamic context parallelism: each document of a batch runs over as many ranks as its length needs (Megatron-LM's
// --hybrid-context-parallel; megatron/core/pipeline_parallel/hybrid_cp_schedule.py at d98e8a64).

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::planner {

/// What each rank runs between two barriers: the tokens of its documents in order, by rank; a document of several ranks is in the list of
/// each.
struct DocumentGroup {
    std::vector<std::vector<std::int64_t>> tokens;
    std::vector<std::vector<std::int64_t>> ranks;  ///< over how many each of them runs
};

/// Ranks that a document of so many tokens needs at least, a power of two (BalancedCPScheduler.gpus_needed).
[[nodiscard]] std::int64_t ranks_of_document(std::int64_t tokens, std::int64_t most_on_a_rank);

/// The groups that BalancedCPScheduler forms of documents over `ranks`. No document needs more ranks than there are (assertion).
/// Throws ConfigError where Megatron-LM stops: ranks stay empty that no group can be made wider for.
[[nodiscard]] std::vector<DocumentGroup> document_groups(std::vector<std::int64_t> documents, std::int64_t most_on_a_rank,
                                                         std::int64_t ranks);

/// Documents of one step, longest first: of each length as many as the histogram's share of the batch's tokens comes to. Throws
/// MissingFactError of more than 65,536.
[[nodiscard]] std::vector<std::int64_t> documents_of_step(const BatchSpec& batch);

/// A step of such a job, whose lengths are given: each document a microbatch of its own, the slowest rank of each group, and what a step
/// does once; memory of the microbatch that holds most. `layout`: of pp 1, whose ranks of dp and cp, a power of two, are those that
/// documents run over. Throws ConfigError for what Megatron-LM stops at, and MissingFactError of more documents than are placed here.
[[nodiscard]] simulator::Prediction predict_dynamic_context(const Workload& workload, const Layout& layout, std::int64_t most_on_a_rank);

}  // namespace mgplan::planner
