#pragma once
// State that Megatron-LM can keep in the host's memory: the optimizer (--optimizer-cpu-offload), its state between updates
// (--offload-optimizer-states of its branch dev) and the inputs that modules keep for their backwards
// (--fine-grained-activation-offloading). Sources, at d98e8a64: megatron/training/arguments.py, validate_args;
// megatron/core/transformer/transformer_config.py, __post_init__; megatron/core/optimizer/optimizer_config.py and __init__.py.

#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Settings of a layout that restrict offloading.
struct BesideOffload {
    bool full_recompute = false;
    EnumSet<RecomputeModule> recomputed{};  ///< under selective recompute
    EnumSet<CudaGraphScope> graphs{};
};
[[nodiscard]] BesideOffload beside_offload(const Layout& layout);

/// Combinations that Megatron-LM does not start with, in words with a fix; empty if it starts.
[[nodiscard]] std::vector<std::string> megatron_offload_obstacles(const TrainingSpec& training, const BesideOffload& beside);

/// Combinations that Megatron-LM runs and mgplan does not predict, likewise: of the optimizer and of modules.
struct UnpredictedOffload {
    std::vector<std::string> optimizer, modules;
};
[[nodiscard]] UnpredictedOffload unpredicted_megatron_offload(const ModelSpec& model, const TrainingSpec& training,
                                                              const BesideOffload& beside);

}  // namespace mgplan
