#pragma once
// Arguments of the kernels that choose experts, and bring rows to them and back (model/ops/kernel_table.hpp).

#include <cstdint>

#include "model/ops/kernel_operands.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

/// logits, scores (rows, expert_count); experts, probabilities (rows, top_k).
struct RouteArguments {
    Input logits;
    Output experts, probabilities, scores;
    std::int64_t rows, expert_count, top_k;
    RouterScore score;
    bool balanced;
    Input bias{};                              ///< absent: none
    std::int64_t groups = 0, group_top_k = 0;  ///< 0: all experts are candidates
    std::int64_t group_scores = 0;             ///< of each group that count, from 1 to its members
    bool normalised = true;                    ///< probabilities are divided by their sum; softmax: over the chosen, else over all
};

struct RouteBackwardArguments {
    Input d_probabilities, experts, probabilities, scores;
    Output d_logits;
    std::int64_t rows, expert_count, top_k;
    RouterScore score;
    bool normalised = true;
};

struct CapacityArguments {
    Input experts, probabilities;
    Output kept;
    std::int64_t entries, expert_count, capacity;
    Output scratch;  ///< capacity_scratch_bytes()
};

/// copies: int32, one count per expert. factor multiplies Σ_e copies_e · Σ_rows p_e. total: one fp64 value that the loss is
/// added to, absent in the backward, which adds to d_logits.
struct AuxiliaryLossArguments {
    Input scores;
    Input copies;
    Output d_logits;
    std::int64_t rows, expert_count;
    RouterScore score;
    double factor;
    Output total{};
    Output scratch{};  ///< auxiliary_loss_scratch_bytes()
};

/// experts holds `entries` ids, negative where a copy is dropped; counts: int32, one per expert. adds: add to the counts.
struct CountByExpertArguments {
    Input experts;
    Output counts;
    std::int64_t entries, expert_count;
    bool adds;
};

/// counts: those of the same ids. capacity: number of copies of each expert, the missing ones -1, and the counts absent; 0: as counted.
struct SortByExpertArguments {
    Input experts, counts;
    Output source;
    std::int64_t entries, expert_count, capacity;
    Output scratch{};  ///< expert_scratch_bytes()
};

/// source: -1 where a copy only fills up; its row is zero. inverse: scratch (rows · top_k) int32, the copy that stands for
/// each entry.
struct PermuteArguments {
    Input x, source;
    Output y, inverse;
    std::int64_t copies, rows, top_k, width;
};

/// Host memory: rows of each block, and which block comes i-th.
struct ReorderBlocksArguments {
    Input x;
    Output y;
    const std::int64_t* block_rows;
    const std::int64_t* order;
    std::int64_t blocks, row_bytes;
};

}  // namespace mgplan::model
