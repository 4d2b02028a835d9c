#pragma once
// What Megatron-LM can leave in the host's memory: the optimizer (--optimizer-cpu-offload), its state between updates
// (--offload-optimizer-states of its branch dev) and what modules keep for their backwards (--fine-grained-activation-offloading). Sources,
// at d98e8a64: megatron/training/arguments.py, validate_args; megatron/core/transformer/transformer_config.py, __post_init__;
// megatron/core/optimizer/optimizer_config.py and __init__.py.

#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// What a layout does that offloading has to suit.
struct BesideOffload {
    bool full_recompute = false;
    EnumSet<RecomputeModule> recomputed{};  ///< under selective recompute
    EnumSet<CudaGraphScope> graphs{};
};
[[nodiscard]] BesideOffload beside_offload(const Layout& layout);

/// What of it Megatron-LM does not start with, in words with a way out; empty where nothing stands against it.
[[nodiscard]] std::vector<std::string> megatron_offload_obstacles(const TrainingSpec& training, const BesideOffload& beside);

/// What of it Megatron-LM does and mgplan does not predict, likewise: `optimizer` alone, and of modules.
struct UnpredictedOffload {
    std::vector<std::string> optimizer, modules;
};
[[nodiscard]] UnpredictedOffload unpredicted_megatron_offload(const ModelSpec& model, const TrainingSpec& training,
                                                              const BesideOffload& beside);

}  // namespace mgplan
