#pragma once
// cuDNN without a card: plans are built for one that is described, and cannot run. What they would run with is written down.

#include <cudnn.h>

#include <string>
#include <vector>

namespace mgplan::runtime::cuda {

/// From now on plans are for this card: JSON as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it. Throws RunError where cuDNN does not
/// take it. cudnn_unavailable() was empty.
void stand_before_card(const std::string& properties);

struct Runs {
    int lists_of_addresses = 0;          ///< made for them
    std::vector<std::vector<void*>> of;  ///< addresses of each run, as cuDNN has them
    std::vector<cudnnHandle_t> with;     ///< each run's handle, which its plan was made with
};
/// Of the process. Not while other threads run plans.
[[nodiscard]] const Runs& runs();

/// Plans that were to be made from an engine of the heuristics, and from what another plan wrote.
struct PlansMade {
    int compiled = 0, read = 0;
};
/// Of the process. Any thread.
[[nodiscard]] PlansMade plans_made();

/// From now on the library writes its plans, and reads what it wrote, or refuses to. Both are so at first.
void let_plans_be_written(bool written, bool read);

}  // namespace mgplan::runtime::cuda
