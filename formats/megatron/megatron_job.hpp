#pragma once
// A plan as Megatron-LM takes it: flags of pretrain_gpt.py and the environment they need.

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/megatron/megatron_versions.hpp"
#include "plan/plan.hpp"

namespace mgplan::formats {

/// One flag of the training script with its values; none for a switch.
struct MegatronFlag {
    std::string name;  ///< "--tensor-model-parallel-size"
    std::vector<std::string> values;
};

/// Flags that belong together, under a heading.
struct MegatronFlags {
    std::string title;
    std::vector<MegatronFlag> flags;
};

struct MegatronJob {
    std::optional<MegatronVersion> version;  ///< that has all flags; nothing: not one alone
    std::string model;                       ///< for the headline
    std::string script = "pretrain_gpt.py";  ///< of Megatron-LM, that takes the flags
    std::optional<Adapters> adapters;        ///< which Megatron-Bridge's overrides state
    bool experts = false;                    ///< the model has routed experts
    std::string layout;                      ///< one line, as summary() writes it
    std::vector<MegatronFlags> parts;        ///< model, layout, training
    /// megatron_environment()
    std::vector<std::pair<std::string, std::string>> environment;

    /// Flags and values in order, one word each.
    [[nodiscard]] std::vector<std::string> words() const;
};

/// Megatron-LM takes the model with fused rotation: latent attention by YaRN's angles alone, and no sparse attention
/// (transformer_config.py, __post_init__).
[[nodiscard]] bool may_fuse_rotation(const ModelSpec& model);

/// The flag, without "--", that says what ModelSpec::left_out says of the network; "" where there is none.
[[nodiscard]] std::string_view flag_of_left_out(std::string_view what);

/// Variables that Megatron-LM's validate_args asserts for the plan's parallelism and architecture.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> megatron_environment(const Plan& plan);

/// The flags (megatron/training/arguments.py) that make Megatron-LM train this plan's model and batch in its layout. Data,
/// tokenizer, learning rate and checkpoints are left to the user. What the flags cannot say is found by reading them back
/// (read_megatron_arguments) and comparing. Throws ConfigError for fp64, in which Megatron-LM does not train, and for what that version has
/// no flags for. `version`: nothing writes flags of all versions.
[[nodiscard]] MegatronJob megatron_job(const Plan& plan, std::optional<MegatronVersion> version = kNewestMegatron);

/// Throws ConfigError where Megatron-LM would stop at these flags for one that no plan holds, and that is not among `added` words: the
/// sizes of the two exchanges of a2a+p2p (arguments.py, validate_args).
void refuse_incomplete_job(const Plan& plan, std::span<const std::string> added = {});

/// Throws ConfigError where the checks of the job's version stop at its flags and `added` ones, in its environment.
void refuse_what_stops(const MegatronJob& job, int compute_capability, std::span<const std::string> added = {});

/// A file for a shell and for --megatron-args: exports, and the flags as an array MEGATRON_ARGS=( … ), one flag a line.
[[nodiscard]] std::string megatron_args_text(const MegatronJob& job);

/// The YAML of Megatron-LM's own functional tests: ENV_VARS and MODEL_ARGS.
[[nodiscard]] std::string megatron_yaml_text(const MegatronJob& job);

}  // namespace mgplan::formats
