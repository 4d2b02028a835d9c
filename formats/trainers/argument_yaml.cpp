#include "formats/trainers/trainer.hpp"

// Two programs whose YAML holds Megatron-LM's arguments: FlagScale and Primus.
// Source: FlagOpen/FlagScale da4935ec6, examples/*/conf/train and flagscale/runner; AMD-AGI/Primus fd1eeabb, examples/megatron/configs and
// primus/configs.

namespace mgplan::formats {

const Trainer kFlagScale{.framework = "FlagScale",
                         .source = "FlagOpen/FlagScale da4935ec6",
                         .sections =
                             "system system.precision system.recompute model model.optimizer model.optimizer.lr_scheduler data "
                             "data.tokenizer",
                         .own = "no_shared_fs tokenizer_path",
                         .reads = [](const Settings& settings) { return settings.get("model.num_layers").has_value(); },
                         .reads_model = "yes",
                         .reads_layout = "yes",
                         .reads_batch = "yes",
                         .reads_precision = "yes",
                         .reads_recompute = "yes",
                         .reads_optimizer = "yes"};

const Trainer kPrimus{.framework = "Primus",
                      .source = "AMD-AGI/Primus fd1eeabb",
                      .sections = "modules.pre_trainer.overrides",
                      .fixed = "bf16=True use_distributed_optimizer=True",
                      .own =
                          "stderr_sink_level file_sink_level sink_level log_avg_skip_iterations log_avg_reset_interval auto_continue_train "
                          "disable_last_saving disable_wandb disable_tensorboard disable_mlflow disable_compile_dependencies trainable "
                          "deprecated_use_mcore_models norm_epsilon",
                      .model = "modules.pre_trainer.model",
                      .reads = [](const Settings& settings) { return settings.get("modules.pre_trainer.framework") == "megatron"; },
                      .reads_model = "by name",
                      .reads_layout = "yes",
                      .reads_batch = "yes",
                      .reads_precision = "bf16, fp8",
                      .reads_recompute = "yes",
                      .reads_optimizer = "yes"};

}  // namespace mgplan::formats
