#pragma once
// Plans are made for Megatron-LM unless --engine says otherwise, and mgplan trains them with its own engine.

#include "model/device/kernel_traits.hpp"
#include "plan/plan.hpp"

namespace mgplan::cli {

/// Throws ConfigError if mgplan's own engine needs more memory for `layout`, the plan's as it is to run, than a GPU of the plan's
/// cluster has: by the search's estimate and, if that is too large, by the exact timeline of every stage too. `device`: kind that computes;
/// CPU ranks have no CUDA context.
void refuse_what_own_engine_cannot_hold(const Plan& plan, const Layout& layout, model::DeviceKind device);

}  // namespace mgplan::cli
