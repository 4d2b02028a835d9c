#pragma once
// Checks the order in which ranks issue collectives. Groups that overlap may wait for each other in a circle if two
// ranks that share both issue in different orders: NCCL's kernels wait on the card until the partners' have begun.

#include <string>
#include <vector>

#include "model/training/rank_trainer.hpp"

namespace mgplan::runtime {

/// One rank's collectives in the order of their issue; sends and receives, which have communicators of their own, are none.
struct IssuedOps {
    int rank = 0;
    int stage = 0;
    struct One {
        std::string group, op;
        bool operator==(const One&) const = default;
    };
    std::vector<One> ops;
};

/// Describes the first difference between two ranks in the groups that they share; empty if there is none. Ranks of one stage must do the
/// same; those of different stages share the groups whose names are in `across`.
[[nodiscard]] std::string order_disagreement(const std::vector<IssuedOps>& ranks, const std::vector<std::string>& across);

/// Traces a step of the first and the last rank of each stage on shapes and throws RunError where they disagree. That ranks
/// of one stage do the same follows from their shapes alone: MoE layers are balanced.
void check_issue_order(const model::TrainingTask& task);

}  // namespace mgplan::runtime
