#pragma once
// cuDNN without a card: plans are built for one that is described, and cannot run.

#include <string>

namespace mgplan::runtime::cuda {

/// From now on plans are for this card: JSON as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it. Throws RunError where cuDNN does not
/// take it. cudnn_unavailable() was empty.
void stand_before_card(const std::string& properties);

}  // namespace mgplan::runtime::cuda
