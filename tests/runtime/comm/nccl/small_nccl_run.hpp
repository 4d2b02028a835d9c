#pragma once
// The run that ranks over NCCL do, and threads for comparison.

#include <memory>
#include <string>

#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::tests {

/// A small model on two ranks: "tp", "cp", "pp", "vpp" (interleaved, with several sends open), "dp", "ep" (a mixture), "etp" (one whose
/// experts are divided), or "tpfp8", "epfp8" and, with delayed scaling, "tpdelayedfp8", "epdelayedfp8", with scales for blocks
/// "tpblocksfp8"; parameters are in fp8 with "dpstoredfp8" and "dpdelayedstoredfp8".
[[nodiscard]] inline runtime::TrainingRunOptions small_nccl_run(const std::string& layout_name) {
    runtime::TrainingRunOptions run;
    ModelSpec& model = run.task.model;
    const bool interleaved = layout_name == "vpp";
    model = byte_llama(interleaved ? 4 : 2);
    const bool fp8 = layout_name.ends_with("fp8"), divided = layout_name == "etp", experts = layout_name.starts_with("ep") || divided;
    if (experts) add_experts(model);
    run.task.batch = {8, 16};
    run.task.training.precision = fp8 ? Precision::fp8 : Precision::fp64;
    run.task.training.megatron.fp8_recipe = layout_name.find("delayed") != std::string::npos  ? Fp8Recipe::delayed
                                            : layout_name.find("blocks") != std::string::npos ? Fp8Recipe::blockwise
                                                                                              : Fp8Recipe::tensorwise;
    run.task.training.fp8_parameters = layout_name.find("stored") != std::string::npos;
    if (fp8) model.ffn = 64;  // 16 divides a rank's half
    if (fp8 && experts) model.moe->expert_ffn = 32;
    Layout& layout = run.task.layout;
    const int tp = layout_name.starts_with("tp") || divided ? 2 : 1, cp = layout_name == "cp" ? 2 : 1,
              pp = layout_name == "pp" || interleaved ? 2 : 1, dp = 2 / tp / cp / pp;
    layout.sizes = {2, tp, cp, experts && !divided ? 2 : 1, model.moe && !divided ? 1 : tp, pp, AxisOrder{}, 1};
    layout.num_microbatches = 8 / dp / 2;
    layout.micro_batch = 2;
    layout.sequence_parallel = tp > 1;
    layout.vpp = interleaved ? 2 : 1;
    layout.group_size = interleaved ? layout.num_microbatches : pp;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, pp, layout.vpp).value());
    run.steps = 2;
    run.learning_rate.maximum = 1e-2;
    run.data = std::make_shared<runtime::Sequences>(std::make_shared<runtime::SyntheticStream>(1, 256), 16, 8, 1);
    return run;
}

}  // namespace mgplan::tests
