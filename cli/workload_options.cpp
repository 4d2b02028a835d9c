#include "cli/workload_options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "cli/assumed_architecture.hpp"
#include "cli/job_source.hpp"
#include "cli/state_options.hpp"
#include "plan/cluster/architectures.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/training/own_fp8.hpp"
#include "planner/batch_sizes.hpp"
#include "planner/switch_rules.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::cli {
namespace {

void set_overlaps(TrainingSpec& training, const std::vector<std::string>& names, bool on) {
    for (const auto& name : names) {
        if (name == "grad-reduce") training.overlap_grad_reduce = on;
        if (name == "param-gather") training.overlap_param_gather = on;
        if (name == "p2p") training.overlap_p2p = on;
        if (name == "tp") training.overlap_tp = on;
        if (name == "moe") training.overlap_moe = on;
    }
}

void apply_training_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems) {
    if (values.precision) {
        const PrecisionChoice choice = parse_precision_choice(*values.precision).value_or(PrecisionChoice{});
        training.precision = choice.precision;
        training.megatron.fp8_recipe = choice.recipe;
        if (!values.grad_dtype) {
            training.grad_dtype = training.precision == Precision::fp64 ? Dtype::fp64 : Dtype::fp32;
        }
    }
    if (values.grad_dtype) training.grad_dtype = parse_dtype(*values.grad_dtype).value_or(Dtype::fp32);
    if (values.software) {
        if (const auto software = parse_software(*values.software))
            training.software = *software;
        else
            problems.add("--software = '{}' is no release that is known; the nearest is {}; known are {}", values.software->substr(0, 40),
                         to_string(nearest_software(*values.software)), known_software());
    }
    if (values.no_distributed_optimizer) {
        training.distributed_optimizer = false;
        training.overlap_param_gather = false;
    }
    apply_state_options(values, training, problems);
    set_overlaps(training, values.overlap, true);
    set_overlaps(training, values.no_overlap, false);
    for (const auto& name : values.overlap) {
        if (std::find(values.no_overlap.begin(), values.no_overlap.end(), name) != values.no_overlap.end()) {
            problems.add("--overlap and --no-overlap both name {}; name it once", name);
        }
    }
    if (values.no_distributed_optimizer && std::find(values.overlap.begin(), values.overlap.end(), "param-gather") != values.overlap.end())
        problems.add(
            "--overlap param-gather hides the parameter gather of the distributed optimizer, and --no-distributed-optimizer has none; "
            "drop one of the two");
    refuse_state_that_contradicts(values, training, problems);
    if (values.loss_fusion) {
        training.fused_cross_entropy = *values.loss_fusion != "none";
        training.megatron.te_cross_entropy = *values.loss_fusion == "te";
    }
    if (values.attention) training.attention = parse_attention_backend(*values.attention).value_or(AttentionBackend::flash);
}

/// Returns the number of sequences of a batch of `tokens`.
std::int64_t sequences_of(std::int64_t tokens, std::int64_t sequence) {
    const std::int64_t below = tokens / sequence, most = kMostSequences;
    if (tokens % sequence == 0 && below <= most) return below;
    if (below >= most)
        throw ConfigError(fmt::format("--global-batch-tokens = {} are {} sequences of {} tokens; use at most {} sequences", tokens, below,
                                      sequence, most));
    throw ConfigError(fmt::format("--global-batch-tokens = {} is no multiple of the sequence's {} tokens; use {}{} ({}), or another --seq",
                                  tokens, sequence,
                                  below > 0 ? fmt::format("{} ({}) or ", below * sequence, counted(below, "sequence")) : "",
                                  (below + 1) * sequence, counted(below + 1, "sequence")));
}

void add_flag_warnings(const formats::FlagAccount& flags, std::vector<std::string>& warnings) {
    std::vector<std::string> features;
    for (const auto& one : flags.not_computed) features.push_back(fmt::format("{} ({})", one.feature, one.flag));
    if (!features.empty()) warnings.push_back(fmt::format("not part of this prediction: {}", fmt::join(features, ", ")));
    if (!flags.without_effect.empty())
        warnings.push_back(fmt::format("without effect on the prediction: {}", fmt::join(flags.without_effect, " ")));
    if (!flags.unknown.empty()) warnings.push_back(fmt::format("unknown flags, ignored: {}", fmt::join(flags.unknown, " ")));
    if (!flags.stray.empty()) warnings.push_back(fmt::format("words that belong to no flag, ignored: {}", fmt::join(flags.stray, " ")));
}

/** What --lengths names, or the text that was given in its place. Throws ConfigError. */
PackedLengths load_lengths(const Options& options, const std::string& given) {
    if (const GivenText* text = options.contents("lengths"))
        return packed_lengths_from_json(parse_json(text->text, text->name), text->name);
    const std::string where = fmt::format("--lengths {}", given);
    return packed_lengths_from_json(parse_json(read_text_file(given, "--lengths"), where), where);
}

/// Ends a schedule at the last batch that training reaches.
void end_with_the_last_step(ResolvedWorkload& resolved) {
    if (resolved.batches.steps.empty()) return;
    BatchSpec& batch = resolved.workload.batch;
    std::vector<BatchStage> stages;
    try {
        stages = batch_stages(resolved.batches, batch);
    } catch (const ConfigError&) {
        return;  // reported where the layout is judged
    }
    if (stages.empty() || stages.back().batch == batch.global_batch) return;
    batch.global_batch = stages.back().batch;
    resolved.assumed.push_back(
        fmt::format("global batch of {}: training ends before the later steps of its schedule", with_thousands(batch.global_batch)));
}

/// The model's own batch in sequences of `sequence` tokens: with the tokens of its own sequence length, if it has one.
std::optional<std::int64_t> published_batch(const ModelSpec& model, std::int64_t sequence) {
    if (!model.default_global_batch || !model.default_sequence) return model.default_global_batch;
    return std::max<std::int64_t>(1, *model.default_global_batch * *model.default_sequence / sequence);
}

void resolve_batch(const Options& options, const WorkloadOptions& values, ResolvedWorkload& resolved) {
    Workload& work = resolved.workload;
    const auto& layout = resolved.job.layout;
    work.batch = resolved.job.batch.value_or(BatchSpec{});
    if (values.sequence) {
        work.batch.sequence = *values.sequence;
    } else if (work.batch.sequence == 0) {
        const std::int64_t longest = work.model.max_positions > 0 ? work.model.max_positions : 4096;
        work.batch.sequence = work.model.default_sequence.value_or(std::min<std::int64_t>(longest, 4096));
        resolved.assumed.push_back(fmt::format("sequence of {}", counted(work.batch.sequence, "token")));
    }
    resolved.batches = resolved.job.batches;
    if (values.global_batch || values.global_batch_tokens) {  // which holds from the first step on
        resolved.batches.ramp_up.reset();
        resolved.batches.steps.clear();
    }
    if (values.global_batch_tokens) {
        work.batch.global_batch = sequences_of(*values.global_batch_tokens, work.batch.sequence);
    } else if (values.global_batch) {
        work.batch.global_batch = *values.global_batch;
    } else if (work.batch.global_batch == 0 && layout && work.model.default_global_batch) {
        work.batch.global_batch = *work.model.default_global_batch;  // of a command without a sequence length
    } else if (work.batch.global_batch == 0 && layout) {
        // Megatron-LM arguments.py: one microbatch for each data-parallel rank.
        const std::int64_t model_ranks = layout->tp * layout->cp * layout->pp;
        work.batch.global_batch = layout->micro_batch * std::max<std::int64_t>(1, work.world / model_ranks);
        resolved.batch_source = BatchSource::assumed;
        resolved.assumed.push_back(
            fmt::format("global batch of {} (a microbatch for each dp rank)", with_thousands(work.batch.global_batch)));
    } else if (work.batch.global_batch == 0) {
        work.batch.global_batch =
            published_batch(work.model, work.batch.sequence).value_or(planner::assumed_batch(work.model, work.world, work.batch.sequence));
        resolved.batch_source = work.model.default_global_batch ? BatchSource::published : BatchSource::assumed;
        resolved.assumed.push_back(fmt::format("global batch of {} ({}{})", counted(work.batch.global_batch, "sequence"),
                                               counted(work.batch.global_batch * work.batch.sequence, "token"),
                                               resolved.batch_source == BatchSource::published ? ", the model's own" : ""));
    }
    if (values.lengths) work.batch.lengths = load_lengths(options, *values.lengths);
    end_with_the_last_step(resolved);
    const bool asked_longer = values.sequence && work.model.max_positions > 0 && *values.sequence > work.model.max_positions;
    if (asked_longer && work.model.position != PositionEmbedding::learned)
        resolved.assumed.push_back(fmt::format("positions beyond the {} of {}", with_thousands(work.model.max_positions), work.model.name));
    if (work.model.position == PositionEmbedding::learned && work.model.max_positions > 0 &&
        work.batch.sequence > work.model.max_positions) {
        throw ConfigError(fmt::format("--seq = {} is longer than the {} learned positions of {}; use at most that", work.batch.sequence,
                                      work.model.max_positions, work.model.name));
    }
}

std::string more_than_the_card(const Workload& work) {
    return fmt::format("--max-memory = {} is more than a GPU of {} has ({}); what fits in it may not run there",
                       human_bytes(work.memory_limit), work.cluster.name, human_bytes(work.cluster.memory_bytes));
}

/** Throws ConfigError where the cluster's GPUs do not compute in the asked precision. */
void refuse_precision_of_other_gpus(const WorkloadOptions& values, const Workload& work) {
    if (work.cluster.peak(work.training.precision) <= 0) {
        throw ConfigError(
            fmt::format("--precision: {} has no peak rate for {}; use another precision or a cluster file that names its rate",
                        work.cluster.name, to_string(work.training.precision)));
    }
    // TransformerEngine, pytorch/fp8.py: check_mxfp8_support() wants compute capability 10.0.
    if (values.precision && work.training.precision == Precision::fp8 && work.training.megatron.fp8_recipe == Fp8Recipe::mxfp8 &&
        work.cluster.compute_capability < architectures::kBlackwell)
        throw ConfigError(
            fmt::format("--precision = mxfp8 needs Blackwell's tensor cores, and {} has GPUs of compute capability {}.{}; use "
                        "fp8-current, fp8-delayed or fp8-blockwise, or a cluster such as dgx-b200",
                        work.cluster.name, work.cluster.compute_capability / 10, work.cluster.compute_capability % 10));
}

}  // namespace

std::vector<std::string> recompute_module_names() {
    return {"core_attn", "mlp", "moe_act", "layernorm", "mla_up_proj", "moe", "shared_experts", "mhc"};
}

EnumSet<RecomputeModule> recompute_module_set(const std::vector<std::string>& names) {
    EnumSet<RecomputeModule> modules;
    for (const auto& name : names) {
        if (const auto module = parse_recompute_module(name)) modules.add(*module);
    }
    return modules;
}

void check_axis_order(const std::string& given, Problems& problems) {
    try {
        (void)AxisOrder::parse(given);
    } catch (const ConfigError& error) {
        problems.absorb(error, "--order: ");
    }
}

void check_axis_orders(const std::string& given, Problems& problems) {
    const auto orders = split(given, ',');
    if (orders.empty()) check_axis_order(given, problems);
    for (const auto& order : orders) check_axis_order(order, problems);
}

void check_precision(std::string_view field, const std::string& given, Problems& problems) {
    if (!parse_precision_choice(given))
        problems.add("{} = '{}' is not known; use {}", field, given.substr(0, 40), any_of_text(precision_choices()));
}

void declare_precision(Options& options, std::optional<std::string>& precision) {
    options.checked(
        "precision", precision, "FORMAT",
        [](const std::string& given, Problems& problems) { check_precision("--precision", given, problems); },
        "precision of the GEMMs: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4; fp8 is "
        "fp8-current (default: bf16)");
}

void declare_workload_options(Options& options, WorkloadOptions& values, bool with_megatron_args, GpuOptions gpus) {
    options.group("Model and cluster");
    if (gpus == GpuOptions::several_worlds)
        options.integers("world", values.worlds, 1, kMostRanks, "number of GPUs; several (64,128) compare scaling");
    else if (gpus == GpuOptions::one_world)
        options.integer("world", values.world, 1, kMostRanks, "number of GPUs");
    options.text("model", values.model, "CFG",
                 "a preset (mgplan models), a Hugging Face config.json or its folder, a Megatron-LM argument file, or mgplan's JSON");
    declare_assume_option(options, values.assume);
    if (with_megatron_args) {
        options.text("megatron-args", values.megatron_args, "FILE",
                     "model, batch, layout and options from Megatron-LM flags, a shell script's array, or YAML");
        options.texts("set", values.set, "NAME=VALUE", "value of a variable of that script; repeatable (default: the script's own value)");
        options.text("script-args", values.script_args, "WORDS",
                     "arguments of that script ($1, $2, …) in one string: --script-args '8 4096' (default: unknown)");
    }
    options.integer("vocab-size", values.vocab_size, 1, ModelLimits::vocab,
                    "vocabulary size before padding (default: the model's, or that of its tokenizer where known)");
    if (gpus != GpuOptions::none)
        options.text("cluster", values.cluster, "NAME[,KEY=VALUE...]|FILE",
                     "a preset (mgplan clusters), with changed values (gpus_per_node, nvlink_domain, nvlink_gbytes_per_second, "
                     "node_network_gbits_per_second, network_kind, memory_gib, host_memory_gib, memory_gbytes_per_second, bf16_tflops, "
                     "fp8_tflops, nvfp4_tflops), or a file");
    options.integer(
        "global-batch", values.global_batch, 1, kMostSequences,
        "sequences per step (default: the model's published batch, else 4 Mi tokens, up to 16 Mi on 4,096 GPUs and more; of MoE models "
        "at least 8 sequences per GPU)");
    options.count("global-batch-tokens", values.global_batch_tokens, 1, std::int64_t{1} << 58,
                  "tokens per step, 4M is 4,194,304; instead of --global-batch");
    options.count("seq", values.sequence, 1, kLongestSequence,
                  "tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096))");
    options.bytes("max-memory", values.max_memory, "memory a rank may use (default: the GPU's)");
    options.text("routing-skew", values.routing_skew, "KIND|FILE",
                 "distribution of tokens over experts: balanced, uniform (both cost no time), zipf, zipf:EXPONENT, worst, or a JSON list "
                 "of counts per expert (or one list per MoE layer). The plan must fit at its 99th percentile, and MoE layers wait for the "
                 "fullest rank (default: uniform)");
    options.choice("routing", values.routing, {"natural", "forced"},
                   "expert routing: natural (the router's, with --routing-skew), or forced (uniform, --moe-router-force-load-balancing) "
                   "(default: the command's, else natural)");
    options.text("adverse", values.adverse, "CONDITIONS",
                 "conditions of the adverse time (worst): network=SHARE of the inter-node bandwidth, host=FACTOR on launch times, "
                 "routing=EXPONENT of Zipf's law over experts (default: fitted to published runs, docs/how-sure.md)");
    options.text("lengths", values.lengths, "FILE",
                 "document lengths of packed sequences, a JSON list of pairs of tokens and count. Attention stays inside a document, and a "
                 "step waits for the slowest data-parallel rank (default: one document per sequence)");
    options.group("Training");
    options.text(
        "lora", values.lora, "WORDS",
        "train low-rank adapters and freeze all other weights: default, or "
        "rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj; "
        "with "
        "base=nf4 these wait in 4 bits (QLoRA) (default: all weights; of values left out Megatron-Bridge's: rank 32, alpha 32, every "
        "target "
        "but latent, 16 bits)");
    declare_precision(options, values.precision);
    options.text("software", values.software, "RELEASE",
                 "release of NVIDIA's training container whose rates are used, from 25.04 to 26.08 (default: 26.08)");
    options.choice("grad-dtype", values.grad_dtype, {"fp32", "bf16", "fp16"}, "dtype of gradients and their reduction (default: fp32)");
    options.flag("no-distributed-optimizer", values.no_distributed_optimizer, "every rank keeps the whole optimizer state");
    declare_state_options(options, values, gpus != GpuOptions::one_world);
    options.choices("overlap", values.overlap, {"grad-reduce", "param-gather", "p2p", "tp", "moe"},
                    "communication to overlap with compute (default: grad-reduce, param-gather, p2p)");
    options.choices("no-overlap", values.no_overlap, {"grad-reduce", "param-gather", "p2p", "tp", "moe"}, "communication not to overlap");
    options.choice("attention", values.attention, {"flash", "unfused"}, "attention kernels (default: flash)");
    options.choice("loss-fusion", values.loss_fusion, {"none", "native", "te"},
                   "kernels of Megatron-LM's loss. none: separate, with fp32 copies of the logits; native: Megatron-LM's fused ones; te: "
                   "Transformer Engine's, without fp32 logits (default: none)");
    options.flag("strict", values.strict, "refuse a Megatron-LM command with a flag that mgplan does not model or know");
    options.choice("engine", values.engine, {"mgplan", "megatron"},
                   "training framework to predict: Megatron-LM with Transformer Engine, or mgplan's own (default: megatron)");
}

ClusterSpec load_asked_cluster(const Options& options, const std::string& given) {
    if (const GivenText* text = options.contents("cluster")) return read_cluster(text->text, text->name);
    return load_cluster(given);
}

RoutingSkew load_routing_skew(const Options& options, const std::string& given, const ModelSpec& model) {
    constexpr std::string_view kOption = "--routing-skew";
    if (const GivenText* text = options.contents("routing-skew")) {
        RoutingSkew skew = routing_histogram(parse_json(text->text, text->name), text->name);
        validate(skew, model, text->name);
        return skew;
    }
    try {
        if (const auto skew = parse_routing_skew(given)) return *skew;
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error, "--routing-skew: ");
        problems.throw_if_any();
    }
    std::error_code missing;
    if (!std::filesystem::exists(given, missing)) {
        throw ConfigError(
            fmt::format("{} = '{}' is neither balanced, uniform, zipf, zipf:EXPONENT or worst nor a file that is there; use one of these",
                        kOption, given.substr(0, 60)));
    }
    const std::string where = fmt::format("{} {}", kOption, given);
    RoutingSkew skew = routing_histogram(parse_json(read_text_file(given, kOption), where), where);
    validate(skew, model, where);
    return skew;
}

void note_idle_workload_options(const Options& options, const WorkloadOptions& values, const ModelSpec& model, Console& console) {
    const std::string no_experts = fmt::format("{} has no experts", model.name);
    options.note_idle(console, "assume", model.assumed_architecture.empty(), "the model's type is known");
    options.note_idle(console, "routing-skew", !model.moe, no_experts);
    options.note_idle(console, "routing", !model.moe, no_experts);
    const std::string adverse = values.adverse.value_or("");
    options.note_idle(console, "adverse", !model.moe && adverse.starts_with("routing=") && adverse.find(',') == std::string::npos,
                      no_experts);
    const auto names_experts_alone = [](const std::vector<std::string>& names) { return names == std::vector<std::string>{"moe"}; };
    options.note_idle(console, "overlap", !model.moe && names_experts_alone(values.overlap), no_experts);
    options.note_idle(console, "no-overlap", !model.moe && names_experts_alone(values.no_overlap), no_experts);
}

namespace {

/// Megatron-LM's data loader makes a mask of a byte for each pair of tokens of a sequence unless a flag forbids it, and fused attention
/// does not read it. From this length on a job without a command of its own is assumed to leave it out.
constexpr std::int64_t kLongestWithMask = 16384;

void settle_attention_mask(ResolvedWorkload& resolved) {
    Workload& work = resolved.workload;
    bool& masked = work.training.megatron.attention_mask_in_dataloader;
    const bool read = work.training.attention == AttentionBackend::unfused;
    if (resolved.engine != Engine::megatron || !masked || read || work.batch.sequence <= kLongestWithMask) return;
    if (!resolved.job.training) {
        masked = false;
        resolved.assumed.emplace_back("no attention mask from the data loader");
        return;
    }
    constexpr std::int64_t kPartOfCard = 20;  // a twentieth of the card
    const std::int64_t bytes = work.batch.sequence * work.batch.sequence;
    if (bytes < work.cluster.memory_bytes / kPartOfCard) return;
    resolved.warnings.push_back(
        fmt::format("the data loader's attention mask takes {} for each sequence of {} tokens, which fused attention does not read; "
                    "--no-create-attention-mask-in-dataloader leaves it out",
                    human_bytes(bytes), work.batch.sequence));
}

/// Sets the engine that is predicted, and training choices that follow from it; the data loader's mask is Megatron-LM's.
void settle_engine(const WorkloadOptions& values, ResolvedWorkload& resolved) {
    TrainingSpec& training = resolved.workload.training;
    if (values.engine) resolved.engine = parse_engine(*values.engine).value_or(kDefaultEngine);
    if (!values.engine) resolved.assumed.push_back(fmt::format("engine {}", to_string(resolved.engine)));
    if (resolved.engine == Engine::mgplan && values.loss_fusion)
        throw ConfigError(
            fmt::format("--loss-fusion {} chooses among Megatron-LM's losses, and engine mgplan has one of its own; leave it out",
                        *values.loss_fusion));
    if (resolved.engine == Engine::megatron && training.offload.optimizer > 0) {
        // Megatron-LM requires these settings with it (arguments.py, validate_args).
        if (values.offload && !training.distributed_optimizer)
            throw ConfigError(
                "--offload optimizer needs the distributed optimizer with engine megatron; leave --no-distributed-optimizer "
                "and --sharding none out, or use --engine mgplan");
        training.megatron.precision_aware_optimizer = true;
        const double updates = simulator::default_calibration(resolved.workload.cluster).host_updates;
        resolved.assumed.insert(resolved.assumed.begin(),  // seen first
                                fmt::format("cores for each process to update {:.2f} billion parameters a second", updates / 1e9));
    }
    if (resolved.engine == Engine::mgplan && quantised(training.precision) && !computes_own_fp8(resolved.workload.model, training))
        resolved.assumed.emplace_back(
            "fp8 by engine mgplan, which run refuses: weights copied as Transformer Engine does, activations kept in 16 bits");
    settle_attention_mask(resolved);
}

/// Documents over as many ranks as they need are predicted only by check, for given lengths, and without experts, whose exchanges
/// wait for other ranks; else their flags are not computed.
void settle_documents(const WorkloadOptions& values, ResolvedWorkload& resolved) {
    const bool dense = !resolved.job.model.moe;
    const LayoutRequest& layout = *resolved.job.layout;
    const std::int64_t ranks = std::max<std::int64_t>(1, resolved.workload.world / layout.tp / layout.pp);
    const bool doubles = ranks % 2 != 0 || (ranks & (ranks - 1)) == 0;  // an odd number is refused
    // Every microbatch has another length, and ranks exchange keys though the command itself has no context parallelism.
    const bool graphs = !layout.cuda_graphs.empty(), exchanges_otherwise = layout.cp == 1 && layout.cp_comm_type != CpCommType::p2p;
    if (values.places_documents && !resolved.workload.batch.lengths.empty() && dense && doubles && !graphs && !exchanges_otherwise) return;
    const std::string_view open = !dense                     ? "dynamic context parallelism of MoE models"
                                  : !values.places_documents ? "dynamic context parallelism, but by check"
                                  : !doubles                 ? "dynamic context parallelism where dp·cp is no power of two"
                                  : graphs                   ? "dynamic context parallelism with CUDA graphs"
                                  : exchanges_otherwise
                                      ? "dynamic context parallelism by another exchange than p2p with --context-parallel-size 1"
                                      : "dynamic context parallelism without --lengths";
    resolved.job.most_of_a_document.reset();
    leave_documents_open(resolved.job.flags, open);
}

/// Sets the routing of tokens to experts, and its skew. Throws ConfigError if both forced (random) routing and a skew are given.
void settle_routing(const Options& options, const WorkloadOptions& values, ResolvedWorkload& resolved) {
    Workload& work = resolved.workload;
    if (values.routing && work.model.moe) work.training.megatron.forced_routing = values.routing == "forced";
    const bool forced = work.training.megatron.forced_routing;
    if (values.routing == "forced" && values.routing_skew)
        throw ConfigError("--routing forced draws experts at random, and --routing-skew says how uneven a router is; drop one of the two");
    if (forced && work.model.moe && values.routing_skew)
        throw ConfigError(
            "the command's --moe-router-force-load-balancing draws experts at random, and --routing-skew says how uneven a router is; drop "
            "--routing-skew, or let the router choose with --routing natural");
    if (values.routing_skew)
        work.routing = load_routing_skew(options, *values.routing_skew, work.model);
    else if (work.model.moe && !forced)
        resolved.assumed.push_back(fmt::format("{} routing", to_text(work.routing)));
}

}  // namespace

void refuse_partial_answer(const formats::FlagAccount& flags) {
    Problems problems;
    for (const auto& one : flags.not_computed)
        problems.add("--strict: {} ({}) is not part of the prediction; take it out, or drop --strict", one.flag, one.feature);
    for (const auto& flag : flags.unknown) problems.add("--strict: {} is not known; take it out, or drop --strict", flag);
    problems.throw_if_any();
}

void leave_documents_open(formats::FlagAccount& account, std::string_view why) {
    for (const std::string_view mark :
         {"hybrid-context-parallel", "hybrid_context_parallel", "max-seqlen-per-dp-cp-rank", "max_seqlen_per_dp_cp_rank"}) {
        const auto found =
            std::find_if(account.used.begin(), account.used.end(), [&](const std::string& flag) { return flag.ends_with(mark); });
        if (found == account.used.end()) continue;
        account.not_computed.push_back({*found, std::string(why), formats::Decides::fit_and_legal});
        account.used.erase(found);
    }
}

std::string assumed_gradients(const TrainingSpec& training) {
    return fmt::format("bf16 with {} gradients", to_string(kept_gradient_dtype(training)));
}

namespace {

constexpr const char* kNoWorld = "--world is missing; give the number of GPUs, as in --world 16";

/// Next to a source that could not be read, whose settings may state it.
void add_missing_world(const ConfigError& error, Problems& problems) {
    if (dynamic_cast<const MissingFactError*>(&error) != nullptr)
        problems.add_missing_fact("{}", kNoWorld);
    else
        problems.add(kNoWorld);
}

/// The world of a source that states it, where the options do not: a launch, or the settings of a program.
void settle_world(const SourcedJob& found, const std::optional<LayoutRequest>& layout, const WorkloadOptions& values,
                  std::optional<std::int64_t>& world, std::vector<std::string>& assumed, Problems& problems) {
    if (world) return;
    if (found.world && layout && *found.world % (layout->tp * layout->pp * layout->cp) != 0) {
        problems.add(
            "--world is missing: the launcher starts {} ({}), no multiple of tp·cp·pp = {}; give the number of GPUs, a multiple of that",
            counted(*found.world, "rank"), found.world_source, layout->tp * layout->pp * layout->cp);
    } else if (found.world) {
        world = found.world;
        assumed.push_back(fmt::format("world of {} ({})", counted(*world, "GPU"), found.world_source));
    } else if (values.trace) {
        problems.add("--world is missing, and the words of the launch do not tell the number of GPUs; give it, as in --world 16");
    } else if (values.megatron_args) {
        problems.add(kNoWorld);
    }
}

}  // namespace

ResolvedWorkload resolve_workload(const Options& options, const WorkloadOptions& values) {
    Problems problems;
    if (!values.world && !values.trace && !values.megatron_args) problems.add(kNoWorld);
    if (values.global_batch && values.global_batch_tokens)
        problems.add("--global-batch and --global-batch-tokens both give the batch; give one of them");
    add_source_problems(values, problems);
    ResolvedWorkload resolved;
    Workload& work = resolved.workload;
    try {
        work.cluster = load_asked_cluster(options, values.cluster);
        for (std::string& renamed : renamed_cluster_keys(values.cluster)) resolved.warnings.push_back(std::move(renamed));
        if (!options.given("cluster") && !values.names_cluster) resolved.assumed.push_back(fmt::format("cluster {}", values.cluster));
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    std::optional<std::int64_t> world = values.world;
    if (const auto sources = source_options(values); sources.size() == 1 || has_model_and_command(values)) {
        SourcedJob found;
        try {
            found = load_job(options, values, work.cluster.compute_capability);
            found.problems.throw_if_any();
            resolved.job = std::move(found.job);
            refuse_counted_only(resolved.job.model, values.model.value_or("model"));
            if (values.lora) resolved.job.model.adapters = parse_adapters(*values.lora, resolved.job.model, "--lora");
            settle_world(found, resolved.job.layout, values, world, resolved.assumed, problems);
        } catch (const ConfigError& error) {
            problems.absorb(error, has_model_and_command(values) ? "" : sources[0] + ": ");
            if (!world && !found.world && values.megatron_args) add_missing_world(error, problems);
        }
    } else if (!world && values.megatron_args) {
        problems.add(kNoWorld);
    }
    if (resolved.job.training) work.training = *resolved.job.training;
    apply_training_options(values, work.training, problems);
    problems.throw_if_any();

    const formats::Job& job = resolved.job;
    work.model = job.model;
    work.world = *world;
    for (const auto& assumption : job.assumptions) resolved.assumed.push_back(assumption);

    resolve_batch(options, values, resolved);
    if (job.most_of_a_document) settle_documents(values, resolved);
    if (job.most_of_a_document) work.training.megatron.document_tokens = *job.most_of_a_document;
    if (values.strict) refuse_partial_answer(job.flags);
    if (!job.training) {
        if (!values.precision) resolved.assumed.push_back(assumed_gradients(work.training));
        if (!values.no_distributed_optimizer && !values.sharding) resolved.assumed.emplace_back(kDistributedOptimizer);
        if (!options.given("overlap") && !options.given("no-overlap")) resolved.assumed.push_back("gradient, parameter and p2p overlap");
        if (!values.attention) resolved.assumed.push_back("flash attention");
        if (!options.given("cuda-graphs")) resolved.assumed.emplace_back(kNoCudaGraphs);
    }
    settle_engine(values, resolved);
    if (const auto assumption = simulator::assumed_efficiencies(work.cluster))
        resolved.assumed.insert(resolved.assumed.begin(), *assumption);  // seen first
    if (const auto assumption = simulator::assumed_module_bytes(work.cluster)) resolved.assumed.push_back(*assumption);
    refuse_precision_of_other_gpus(values, work);
    work.memory_limit = values.max_memory.value_or(work.cluster.memory_bytes);
    if (work.memory_limit > work.cluster.memory_bytes) resolved.warnings.push_back(more_than_the_card(work));
    settle_routing(options, values, resolved);
    if (values.adverse) resolved.workload.adverse = parse_adverse_conditions(*values.adverse);

    resolved.warnings.insert(resolved.warnings.end(), job.notes.begin(), job.notes.end());
    const auto ignored = features_not_computed(work.model);
    if (!ignored.empty()) resolved.warnings.push_back(fmt::format("{} has {}: not predicted", work.model.name, fmt::join(ignored, ", ")));
    for (const std::string& layer : layers_timed_at_least(work.model))
        resolved.warnings.push_back(
            fmt::format("{}: the time of {} is a lower bound; no measurement of its kernels is known", work.model.name, layer));
    if (work.model.moe && work.model.moe->dispatcher == TokenDispatcher::deep_ep && resolved.engine == Engine::megatron &&
        work.cluster.nvlink_domain > 1 && !planner::deep_ep_knows(work.cluster))
        resolved.warnings.push_back(fmt::format(
            "DeepEP on {} needs a build that is patched for NVLink domains of {} GPUs; no measurement of its exchange there is known",
            work.cluster.name, work.cluster.nvlink_domain));
    if (work.model.hyper_connections)
        resolved.warnings.push_back(
            "the time of residual streams (mHC) is not calibrated: Megatron-LM's small test of them takes longer, the paper's own kernels "
            "less "
            "(docs/megatron.md)");
    add_flag_warnings(job.flags, resolved.warnings);
    return resolved;
}

void warn_of_kept_shards(ResolvedWorkload& resolved, std::optional<std::int64_t> tp, std::optional<std::int64_t> etp) {
    const WeightShards& shards = resolved.workload.training.megatron.weight_shards;
    if (!resolved.job.layout) return;
    const LayoutRequest& said = *resolved.job.layout;
    const std::int64_t said_etp = said.etp.value_or(said.tp);
    const auto warn = [&](std::string_view whose, std::string_view flag, std::string_view axis, std::int64_t parts, std::int64_t over) {
        resolved.warnings.push_back(fmt::format("{} in {} parts whatever the {}: the command's {} = {} is them times its {} = {}", whose,
                                                parts, axis, flag, parts * over, axis, over));
    };
    if (shards.dense > 1 && tp != said.tp) warn("weights stay", "--tensor-parallel-num-weight-shards", "tp", shards.dense, said.tp);
    if (shards.experts > 1 && etp != said_etp)
        warn("experts' weights stay", "--expert-tensor-parallel-num-weight-shards", "etp", shards.experts, said_etp);
}

void decrease_batch(ResolvedWorkload& resolved, const LayoutRequest& layout) {
    if (!resolved.batches.decreases) return;
    std::int64_t& batch = resolved.workload.batch.global_batch;
    const std::int64_t dp = std::max<std::int64_t>(1, resolved.workload.world / layout.tp / layout.cp / layout.pp);
    const std::int64_t whole = batch, rest = batch % (dp * layout.micro_batch);
    if (rest == 0) return;
    if (rest == whole)
        throw ConfigError(
            fmt::format("--decrease-batch-size-if-needed leaves nothing of the global batch of {}, which is below dp·micro-batch = {}·{}; "
                        "use a batch of at least {}, a smaller micro-batch or fewer dp ranks",
                        whole, dp, layout.micro_batch, dp * layout.micro_batch));
    batch -= rest;
    resolved.batches.whole_batch = whole;
    resolved.assumed.push_back(fmt::format(
        "global batch of {}, which is {} decreased to what dp times the micro-batch divides (Megatron-LM from core 0.18 on stops "
        "unless the batch of evaluations is divided, too)",
        with_thousands(batch), with_thousands(whole)));
}

}  // namespace mgplan::cli
