#pragma once
// Dynamic context parallelism: each document of a batch runs over the number of ranks that its length needs (Megatron-LM's
// --hybrid-context-parallel; megatron/core/pipeline_parallel/hybrid_cp_schedule.py at d98e8a64).

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::planner {

/// Work of each rank between two barriers: the tokens of its documents in order, by rank; a document on several ranks is in the list of
/// each.
struct DocumentGroup {
    std::vector<std::vector<std::int64_t>> tokens;
    std::vector<std::vector<std::int64_t>> ranks;  ///< number of ranks of each document
};

/// Minimum number of ranks of a document, a power of two (BalancedCPScheduler.gpus_needed).
[[nodiscard]] std::int64_t ranks_of_document(std::int64_t tokens, std::int64_t most_on_a_rank);

/// The groups that BalancedCPScheduler forms of documents over `ranks`. Asserts that no document needs more than `ranks`. Throws
/// ConfigError where Megatron-LM stops: if ranks stay empty and no group can be widened.
[[nodiscard]] std::vector<DocumentGroup> document_groups(std::vector<std::int64_t> documents, std::int64_t most_on_a_rank,
                                                         std::int64_t ranks);

/// Documents of one step, longest first, in proportion to the histogram, with the batch's number of tokens in total. Throws
/// MissingFactError above 65,536 documents.
[[nodiscard]] std::vector<std::int64_t> documents_of_step(const BatchSpec& batch);

/// Predicts a step of such a job, which must have document lengths: each document is a microbatch of its own; time of the slowest rank of
/// each group, plus work done once per step; memory of the largest microbatch. `layout`: pp 1; documents run over its dp·cp ranks, a power
/// of two. Throws ConfigError where Megatron-LM stops, and MissingFactError if there are too many documents to place.
[[nodiscard]] simulator::Prediction predict_dynamic_context(const Workload& workload, const Layout& layout, std::int64_t most_on_a_rank);

}  // namespace mgplan::planner
