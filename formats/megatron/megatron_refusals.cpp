#include <utility>

#include "formats/megatron/flag_reader.hpp"

namespace mgplan::formats {
namespace {

/// A teacher of the model, or its output: Model Optimizer's (megatron/post_training/arguments.py), cached logits of Megatron-LM
/// (--logits-load-dir, _add_logits_distillation_args), and Megatron-DeepSpeed's (--kd, --mos, arguments.py).
void refuse_distillation(FlagReader& flags) {
    for (const auto* flag : {"--export-kd-teacher-load", "--logits-load-dir", "--kd", "--mos", "--load-teacher"}) {
        if (!flags.has(flag)) continue;
        flags.cannot_plan("{}: distillation cannot be planned; leave out the teacher and its settings, to train the model by itself", flag);
        return;
    }
}

}  // namespace

void refuse_other_models(FlagReader& flags) {
    for (const auto* flag : {"--decoder-num-layers", "--decoder-seq-length"}) {
        if (flags.has(flag)) {
            flags.cannot_plan("{}: models of an encoder and a decoder (T5) cannot be planned; give a model of decoder layers only", flag);
            break;
        }
    }
    if (flags.has("--yaml-cfg"))
        flags.cannot_plan("--yaml-cfg: the YAML replaces every flag, and cannot be read here; give its settings as flags");
    refuse_distillation(flags);
    if (flags.has("--checkpoint-activations"))
        flags.problem(
            "--checkpoint-activations: Megatron-LM stops at it; write --recompute-granularity full --recompute-method uniform "
            "--recompute-num-layers 1 in its place");
    for (const auto& [old, now] : {std::pair("--batch-size", "--micro-batch-size"), std::pair("--warmup", "--lr-warmup-fraction"),
                                   std::pair("--model-parallel-size", "--tensor-model-parallel-size")}) {
        if (flags.has(old)) flags.problem("{}: Megatron-LM stops at it; write {} in its place", old, now);
    }
}

}  // namespace mgplan::formats
