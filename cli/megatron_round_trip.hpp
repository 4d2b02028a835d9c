#pragma once
// Round trip of a plan through Megatron-LM's flags: written as flags, read back, compared.

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace mgplan::cli {

/// Returns the plan that the flags of `plan` describe (formats::megatron_job, formats::read_megatron_arguments), on the same
/// cluster and under the same routing. Throws ConfigError if they describe none.
[[nodiscard]] Plan read_back_from_megatron(const Plan& plan);

/// Returns fields of model, batch, layout and training whose value the flags do not contain, each as a sentence part:
/// "model.qk_norm_full_width is true, and false to Megatron-LM". Leaves out names, sources, the preset's own sequence and batch and
/// fields without meaning for the model; Megatron-LM's switches count only in a plan for engine megatron.
[[nodiscard]] std::vector<std::string> lost_in_megatron_flags(const Plan& plan);

}  // namespace mgplan::cli
