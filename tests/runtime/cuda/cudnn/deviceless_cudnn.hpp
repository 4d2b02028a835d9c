#pragma once
// cuDNN without a card: plans are built for one that is described, and cannot run. What they would run with is written down.

#include <string>
#include <vector>

namespace mgplan::runtime::cuda {

/// From now on plans are for this card: JSON as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it. Throws RunError where cuDNN does not
/// take it. cudnn_unavailable() was empty.
void stand_before_card(const std::string& properties);

struct Runs {
    int lists_of_addresses = 0;          ///< made for them
    std::vector<std::vector<void*>> of;  ///< addresses of each run, as cuDNN has them
};
/// Of the process.
[[nodiscard]] const Runs& runs();

}  // namespace mgplan::runtime::cuda
