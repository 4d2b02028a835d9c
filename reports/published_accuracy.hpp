#pragma once
// Errors of predictions against published measurements: configs/accuracy, which tests/accuracy/score writes.

#include <cstdint>
#include <optional>
#include <string>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::reports {

/// Errors of predicted iteration times, over published runs of one kind of model on one GPU in one width of number.
struct PublishedAccuracy {
    std::int64_t runs = 0;
    double mean_error = 0;  ///< mean of |predicted / measured - 1|
};

/// Runs of the same kind (dense or with experts), GPU ("H100") and width (16, 8 or 4 bits); nothing if there are none.
[[nodiscard]] std::optional<PublishedAccuracy> published_accuracy(const Workload& work);

/// "accuracy: dense on H100, 16 bits: time off by 1.6 % (58 published runs)", or that there are no such runs; all are Megatron-LM's. One
/// line.
[[nodiscard]] std::string accuracy_text(const Workload& work, Engine engine);

}  // namespace mgplan::reports
