#include <array>

#include "formats/megatron/megatron_flag_groups.hpp"

// Source: megatron/training/arguments.py of Megatron-LM over its releases, and the dataclasses that it makes flags of (argument_utils.py,
// d98e8a64).

namespace mgplan::formats {
namespace {

constexpr std::string_view kRefused = "refused by name: models and old flags that cannot be planned (megatron_refusals.cpp)",
                           kAdapters = "adapters of forks (megatron_adapters.cpp)",
                           kAlsoRead = "read into the field of another flag, which is written in its place",
                           kVocabulary = "tells the vocabulary where --vocab-size does not",
                           kFork = "of a fork alone, whose name Megatron-LM does not have",
                           kRule = "a rule about other flags asks for it, or says that its value is not computed",
                           kDocuments = "documents over as many ranks as each needs, which no plan holds",
                           kBatches = "batches that grow, and the length of training, which a layout does not have";

// Flags that have no row, with what they are read for; and of those that have one, what a search chooses itself.
constexpr std::array kUsedFlags{
    FlagGroup{FlagArity::one, FlagEffect::used, "layout",
              "micro-batch-size recompute-granularity tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size "
              "expert-model-parallel-size expert-tensor-parallel-size num-layers-per-virtual-pipeline-stage "
              "num-virtual-stages-per-pipeline-rank microbatch-group-size-per-virtual-pipeline-stage decoder-first-pipeline-num-layers "
              "decoder-last-pipeline-num-layers pipeline-model-parallel-layout"},
    FlagGroup{FlagArity::none, FlagEffect::used, "layout",
              "sequence-parallel account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split recompute-activations"},
    FlagGroup{FlagArity::many, FlagEffect::used, "layout", "cp-comm-type"},
    FlagGroup{FlagArity::one, FlagEffect::used, "layout", "virtual-pipeline-model-parallel-size", Decides::fit, kFork},
    FlagGroup{FlagArity::none, FlagEffect::used, "layout", "decrease-batch-size-if-needed", Decides::fit, kBatches},
    FlagGroup{FlagArity::one, FlagEffect::used, "length of training", "train-iters train-samples load", Decides::fit, kBatches},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "step-batch-size-schedule rampup-batch-size", Decides::fit, kBatches},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "enable-cuda-graph external-cuda-graph moe-layer-recompute", Decides::fit, kAlsoRead},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "cuda-graph-modules", Decides::fit, kAlsoRead},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "xielu use-turbo-deepep", Decides::fit, kFork},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "tokenizer-type tokenizer-model tokenizer-name-or-path vocab-file vocab-extra-ids",
              Decides::fit, kVocabulary},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "hybrid-context-parallel", Decides::fit, kDocuments},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "max-seqlen-per-dp-cp-rank", Decides::fit, kDocuments},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "moe-use-legacy-grouped-gemm async-save no-save-optim no-load-optim cpu-offloading",
              Decides::fit, kRule},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "mhc-init-gating-factor megatron-fsdp-version activation-offload-fraction "
              "delta-offload-bytes-across-pp-ranks",
              Decides::fit, kRule},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "decoder-num-layers decoder-seq-length batch-size warmup model-parallel-size yaml-cfg export-kd-teacher-load logits-load-dir "
              "load-teacher",
              Decides::fit, kRefused},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "checkpoint-activations kd mos", Decides::fit, kRefused},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "lora-r lora-rank lora-alpha lora-load", Decides::fit, kAdapters},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "lora-target-modules lora-modules-to-save", Decides::fit, kAdapters},
};

}  // namespace

std::span<const FlagGroup> used_flag_groups() {
    return kUsedFlags;
}

}  // namespace mgplan::formats
