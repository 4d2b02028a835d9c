#pragma once
// A layout in words with all that is on for it, whoever switched it on: the one place that says so for every command.

#include <string>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// The layout with all of its model's and training's options as its own switches: the dispatcher of an MoE model under engine megatron, the
/// overlaps and the types in bf16. For words alone: a search's layout holds only the options that its workload does not have.
[[nodiscard]] Layout with_all_switches(Layout layout, const ModelSpec& model, const TrainingSpec& training);

/// summary() (layout.hpp) of that: "tp2 cp1 ep8 etp1 pp4 vpp2 mbs1 sp p2p none deepep moe-overlap".
[[nodiscard]] std::string summary(const Layout& layout, const ModelSpec& model, const TrainingSpec& training);

}  // namespace mgplan
