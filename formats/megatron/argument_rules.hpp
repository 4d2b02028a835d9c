#pragma once
// The assertions by which Megatron-LM's own argument check stops at a command: one row each, over the flags as they were parsed. Rules that
// need a layout or a cluster are the planner's (planner/constraints.hpp, planner/switch_rules.hpp); those that say what a value means are
// where the value is read.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/megatron_versions.hpp"
#include "plan/text/enum_set.hpp"

namespace mgplan::formats {

/// Version, GPU and environment of a command, as far as they are given.
struct JobSurroundings {
    MegatronVersion version = kNewestMegatron;
    std::optional<int> compute_capability{};  ///< of its GPUs, 90 for Hopper
    std::map<std::string, std::string> environment{};
    bool whole_environment = false;  ///< a variable that is not in `environment` is not set
};

/// The flags of a command by their values. A value that holds a variable is not known, and no rule is judged by it.
class CommandFlags {
public:
    CommandFlags(const ParsedFlags& parsed, const JobSurroundings& around) : parsed_(parsed), around_(around) {}

    /// The variable's value in the environment, "" where it is known to be not set; nothing where it is not known.
    [[nodiscard]] std::optional<std::string> variable(const std::string& name) const;
    /// GPUs that are known to be older than Blackwell.
    [[nodiscard]] bool is_before_blackwell() const;
    [[nodiscard]] bool is_since_blackwell() const;

    [[nodiscard]] bool has(std::string_view flag) const { return values_of(flag) != nullptr; }
    /// At least one of them, separated by blanks, is in the command.
    [[nodiscard]] bool has_one_of(std::string_view flags) const;
    /// The flag's first value; the fallback without the flag; nothing where the value is missing or not known.
    [[nodiscard]] std::optional<std::string> word(std::string_view flag, std::string_view fallback = "") const;
    /// The value, or without the flag the fallback, is known and is that word.
    [[nodiscard]] bool is(std::string_view flag, std::string_view value, std::string_view fallback = "") const;
    /// The value, or without the flag the fallback, is known and is none of these, separated by blanks.
    [[nodiscard]] bool is_none_of(std::string_view flag, std::string_view values, std::string_view fallback = "") const;
    /// The value as a number; the fallback without the flag; nothing where it is not known or no number.
    [[nodiscard]] std::optional<std::int64_t> whole(std::string_view flag, std::int64_t fallback) const;
    [[nodiscard]] std::optional<double> real(std::string_view flag, double fallback) const;
    /// All values, lists with commas or brackets taken apart; empty where one is not known.
    [[nodiscard]] std::vector<std::string> words(std::string_view flag) const;
    [[nodiscard]] bool lists(std::string_view flag, std::string_view value) const;

    /// slime's own arguments.py sets what a distributed optimizer and bf16 need, whatever the command says.
    [[nodiscard]] bool is_of_slime() const;
    /// Layers by the letters of a pattern, which replaces their number and some of their kinds.
    [[nodiscard]] bool has_pattern() const { return has_one_of("--hybrid-layer-pattern --hybrid-override-pattern"); }
    /// Experts that are known to be missing.
    [[nodiscard]] bool gives_no_experts() const { return whole("--num-experts", 0) == 0; }
    /// Selective recompute; --recompute-activations means it whatever other flags there are.
    [[nodiscard]] bool recomputes_selectively() const {
        return has("--recompute-activations") || is("--recompute-granularity", "selective");
    }
    /// The command has a flag that may give each pipeline rank several chunks of layers; stages between bars are counted.
    [[nodiscard]] bool may_have_chunks() const;

private:
    [[nodiscard]] const std::vector<std::string>* values_of(std::string_view flag) const;

    const ParsedFlags& parsed_;
    const JobSurroundings& around_;
};

/// Source file in Megatron-LM, at d98e8a64, that checks the rule.
enum class RuleSource : std::uint8_t {
    arguments,    ///< megatron/training/arguments.py, validate_args
    transformer,  ///< megatron/core/transformer/transformer_config.py, __post_init__ of TransformerConfig and MLATransformerConfig
    parallel,     ///< megatron/core/model_parallel_config.py, __post_init__
    gradients,    ///< megatron/core/distributed/distributed_data_parallel_config.py, __post_init__
    optimizer,    ///< megatron/core/optimizer/__init__.py, get_megatron_optimizer
    experts,      ///< megatron/core/transformer/moe/experts.py, __init__ of TEGroupedMLP
    layers,       ///< megatron/core/models/gpt/gpt_layer_specs.py
    variants,     ///< megatron/core/models/gpt/experimental_attention_variant_module_specs.py
    engine,       ///< megatron/core/extensions/transformer_engine.py
    layer,        ///< megatron/core/transformer/transformer_layer.py, create_mcore_cudagraph_manager
    graphs,       ///< megatron/core/transformer/cuda_graph_config.py, the checks of old scopes
    mamba,        ///< megatron/core/ssm/mamba_mixer.py, __init__
    delta_nets,   ///< megatron/core/ssm/gated_delta_net/common.py, __init__
};

/// Commands exempt from a rule, since another source sets the value that it needs.
enum class Exemption : std::uint8_t {
    /// Commands with --use-checkpoint-args, which takes positions, biases, activations, norms, experts and multi-token prediction from the
    /// checkpoint before anything is asserted (megatron/training/checkpointing.py, load_args_from_checkpoint).
    checkpoint_model,
    /// Commands with --use-mp-args-from-checkpoint-args, which takes sizes of tensor and pipeline parallelism from there.
    checkpoint_sizes,
    /// Megatron-Bridge's, where it is set otherwise: a reuse of buffers is its optimizer's too, whose fp8 parameters are another field,
    /// rotation is fused only if a field says so, and multi-token prediction takes the layers of the provider (gpt_provider.py).
    bridge,
};

struct ArgumentRule {
    RuleSource source;
    int line;               ///< of the condition there, at d98e8a64
    std::string_view flag;  ///< named in front of the message, with its value
    bool (*broken)(const CommandFlags&);
    std::string_view message;  ///< the rule and a way out
    EnumSet<Exemption> exempt{};
    MegatronVersions versions = kAllMegatrons;  ///< that stop at it
};

/// Variables of the environment that rules read.
[[nodiscard]] std::span<const std::string_view> variables_of_rules();

/// The rules of arguments.py, and those of the configurations that are built from its flags.
[[nodiscard]] std::span<const ArgumentRule> rules_of_arguments();
[[nodiscard]] std::span<const ArgumentRule> rules_of_configurations();

/// The set of rules that a command is held against.
enum class HeldAgainst : std::uint8_t {
    everything,      ///< pretrain_gpt.py: parser, validate_args and configurations
    configurations,  ///< Megatron-Bridge, which builds the configurations by itself
    parser,          ///< flags that may be incomplete because a file does not show all, or branches of which one runs
    nothing,         ///< flags that were written to be read back
};

/// A message for each broken rule, and for each value that the parser stops at.
[[nodiscard]] std::vector<std::string> broken_argument_rules(const ParsedFlags& parsed, HeldAgainst against,
                                                             const JobSurroundings& around = {});

/// Values of flags without effect that argparse does not take: what it converts them with, and the choices it has, at d98e8a64.
[[nodiscard]] std::vector<std::string> wrong_value_types(const ParsedFlags& parsed);

}  // namespace mgplan::formats
