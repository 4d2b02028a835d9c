#pragma once
// Errors of predictions that were frozen before anybody used the runs (configs/accuracy/blind.json).

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::reports {

/// Over one family of models, of iteration times (configs/accuracy/blind.json,
/// written by tests/accuracy/blind.py).
struct BlindAccuracy {
    std::string family;  ///< "dense", "MoE", "hybrid"
    std::string gpu;     ///< "H100"; "": of all GPUs, where this one has too few runs
    std::int64_t runs = 0;
    double mean_error = 0;  ///< mean of |predicted / measured - 1|
    double bias = 0;        ///< mean of predicted / measured - 1
};

/// Runs of the same family on the workload's GPU, else on any; nothing if the family has fewer than 10.
[[nodiscard]] std::optional<BlindAccuracy> blind_accuracy(const Workload& work);

/// "accuracy: on 10 dense runs on H100 that nobody had tuned for: 24 % (bias -24 %)", or that there are no blind runs; all are
/// Megatron-LM's. One line of at most 80 columns.
[[nodiscard]] std::string accuracy_text(const Workload& work, Engine engine);

/// The same as JSON: {"kind","blind":{"runs","mean_error","bias"},"tuned"}; "kind": "dense on H100", or the family alone; "blind" is null
/// where there are no such runs, and "tuned" always: the program holds no errors of runs that were known while it was made.
[[nodiscard]] nlohmann::ordered_json accuracy_to_json(const Workload& work, Engine engine);

}  // namespace mgplan::reports
