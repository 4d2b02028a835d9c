#pragma once
// Options that plan and simulate share: model, cluster, batch and training choices.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"
#include "formats/input/job.hpp"
#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Values as given; resolve_workload() fills in the others.
struct WorkloadOptions {
    std::optional<std::int64_t> world;
    std::vector<std::int64_t> worlds;  ///< where several are taken; parse() leaves `world` alone then
    std::optional<std::string> model;
    std::optional<std::string> assume;  ///< model_type that an unknown one is read as
    std::optional<std::string> megatron_args;
    std::vector<std::string> set;            ///< NAME=VALUE: variables of the script
    std::optional<std::string> script_args;  ///< its positional parameters
    std::optional<std::string> trace, bridge_config;
    std::optional<std::int64_t> launch;  ///< of the trace, from 1
    std::optional<std::int64_t> vocab_size;
    bool strict = false;
    std::string cluster = "dgx-h100";
    bool names_cluster = false;  ///< another option than --cluster names the cluster, which is then not assumed
    std::optional<std::int64_t> global_batch;
    std::optional<std::int64_t> global_batch_tokens;
    std::optional<std::int64_t> sequence;
    std::optional<std::int64_t> max_memory;
    std::optional<std::string> routing_skew, routing, adverse, lengths;
    bool places_documents = false;  ///< the command predicts documents that run over as many ranks as each needs
    /// Looks for further problems of a command after the first: it gets a vocabulary if it has none, and its ranks and batch are checked
    /// against the world even if its model has problems.
    bool looks_behind = false;
    std::optional<std::string> precision;
    std::optional<std::string> software;
    std::optional<std::string> grad_dtype;
    bool no_distributed_optimizer = false;
    std::optional<std::string> sharding;
    std::optional<std::string> optimizer;
    std::optional<std::string> offload;
    std::vector<std::string> overlap;
    std::vector<std::string> no_overlap;
    std::optional<std::string> attention;
    std::optional<std::string> loss_fusion;
    std::optional<std::string> engine;
    std::optional<std::string> lora;
};

/// Options that name the GPUs: --world with one number, or with a list, and --cluster; --cluster alone, where the number is the answer; or
/// none, where another option names both.
enum class GpuOptions { one_world, several_worlds, cluster_alone, none };

/// Declares them; `with_megatron_args`: also --megatron-args.
void declare_workload_options(Options& options, WorkloadOptions& values, bool with_megatron_args, GpuOptions gpus = GpuOptions::one_world);

/// Default engine, which most people train with; `run` and `verify` predict for mgplan's own engine, whatever a plan says.
inline constexpr Engine kDefaultEngine = Engine::megatron;

/// A workload ready to be searched or priced, and its origin.
struct ResolvedWorkload {
    Workload workload;
    formats::Job job;  ///< read from --model or --megatron-args
    Engine engine = kDefaultEngine;
    BatchSource batch_source = BatchSource::given;
    BatchSchedule batches{};            ///< of a command; with --global-batch that batch holds throughout
    std::vector<std::string> assumed;   ///< one sentence for every value that was not given
    std::vector<std::string> warnings;  ///< for stderr
};

/// Declares --precision, whose words parse_precision_choice() reads.
void declare_precision(Options& options, std::optional<std::string>& precision);
/// Adds a problem of `field` for words that parse_precision_choice() does not read.
void check_precision(std::string_view field, const std::string& given, Problems& problems);

/// Bounds of a batch in sequences, and of a sequence in tokens.
inline constexpr std::int64_t kMostSequences = std::int64_t{1} << 31, kLongestSequence = std::int64_t{1} << 27;

/// Largest world that is planned; larger ones are refused.
inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

/// Loads model and cluster and fills in the defaults of CLI.md. Throws ConfigError with all problems.
[[nodiscard]] ResolvedWorkload resolve_workload(const Options& options, const WorkloadOptions& values);

// Assumptions about a job without a command of its own, where a search may choose otherwise.
inline constexpr std::string_view kDistributedOptimizer = "distributed optimizer";
inline constexpr std::string_view kNoCudaGraphs = "no CUDA graphs";
[[nodiscard]] std::string assumed_gradients(const TrainingSpec& training);

/// --strict: throws if the prediction leaves something out.
void refuse_partial_answer(const formats::FlagAccount& flags);

/// The flags of dynamic context parallelism are not computed.
void leave_documents_open(formats::FlagAccount& account, std::string_view why);

/// A layout keeps the weight shards of the command's flags even if its tp and etp differ from the command's: adds a warning if they are
/// not `tp` and `etp`; nullopt: several are tried.
void warn_of_kept_shards(ResolvedWorkload& resolved, std::optional<std::int64_t> tp, std::optional<std::int64_t> etp);

/// If the command decreases batches (--decrease-batch-size-if-needed), rounds the batch down to a multiple of dp times the layout's
/// micro-batch and adds that to the assumptions. Throws ConfigError for a batch below both.
void decrease_batch(ResolvedWorkload& resolved, const LayoutRequest& layout);

/// Prints those of these options that change nothing for the model under any layout.
void note_idle_workload_options(const Options& options, const WorkloadOptions& values, const ModelSpec& model, Console& console);

/// Loads the cluster of --cluster, or of the text that was given in its place (Options::contents). Throws ConfigError as load_cluster()
/// does.
[[nodiscard]] ClusterSpec load_asked_cluster(const Options& options, const std::string& given);

/// Reads --routing-skew: a word, a file of counts, or the text of one (Options::contents). Throws ConfigError with all problems, including
/// values that do not suit the model.
[[nodiscard]] RoutingSkew load_routing_skew(const Options& options, const std::string& given, const ModelSpec& model);

/// A check for Options::checked: the text is an order of axes.
void check_axis_order(const std::string& given, Problems& problems);
/// The same for several with commas between them.
void check_axis_orders(const std::string& given, Problems& problems);

/// Declares the recompute modules, methods and so on as words; these read them back (the words were checked by Options).
[[nodiscard]] std::vector<std::string> recompute_module_names();
[[nodiscard]] EnumSet<RecomputeModule> recompute_module_set(const std::vector<std::string>& names);

}  // namespace mgplan::cli
