#pragma once
// Round trip of a plan through Megatron-LM's flags: written as flags, read back, compared.

#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/megatron_versions.hpp"
#include "plan/plan.hpp"

namespace mgplan::cli {

/// The plan that the flags of `plan` describe (formats::megatron_job, formats::read_megatron_arguments), on the same
/// cluster and under the same routing. `version`: as megatron_job() takes it. Throws ConfigError where they describe none.
[[nodiscard]] Plan read_back_from_megatron(const Plan& plan, std::optional<formats::MegatronVersion> version = formats::kNewestMegatron);

/// Fields of model, batch, layout and training whose value the flags do not carry, each a sentence part:
/// "model.qk_norm_full_width is true, and false to Megatron-LM". Names, sources, the preset's own sequence and batch and what has no
/// meaning for the model are left out; Megatron-LM's switches count only in a plan for engine megatron.
[[nodiscard]] std::vector<std::string> lost_in_megatron_flags(const Plan& plan,
                                                              std::optional<formats::MegatronVersion> version = formats::kNewestMegatron);

}  // namespace mgplan::cli
