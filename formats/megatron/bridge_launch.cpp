#include "formats/megatron/bridge_launch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "formats/megatron/bridge_recipes.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

enum class Effect : std::uint8_t {
    field,   ///< its value becomes that of a field
    own,     ///< a rule of PerformanceOverrides
    none,    ///< changes no prediction
    refused  ///< changes the model or the batch in ways that are not read
};

struct PerformanceOption {
    std::string_view name, shorthand;
    Effect effect;
    std::string_view field = "";
    bool takes_value = true;
};

constexpr std::array kOptions{
    PerformanceOption{"model_family_name", "m", Effect::own},
    PerformanceOption{"model_recipe_name", "mr", Effect::own},
    PerformanceOption{"model_name", "", Effect::own},  // of versions up to 0.2, with model_size
    PerformanceOption{"model_size", "s", Effect::own},
    PerformanceOption{"task", "", Effect::own},
    PerformanceOption{"gpu", "g", Effect::own},
    PerformanceOption{"num_gpus", "ng", Effect::own},
    PerformanceOption{"compute_dtype", "c", Effect::own},
    PerformanceOption{"config_variant", "cv", Effect::own},
    PerformanceOption{"global_batch_size", "gb", Effect::field, "train.global_batch_size"},
    PerformanceOption{"micro_batch_size", "mb", Effect::field, "train.micro_batch_size"},
    PerformanceOption{"seq_length", "sl", Effect::own},
    PerformanceOption{"tensor_model_parallel_size", "tp", Effect::own},
    PerformanceOption{"pipeline_model_parallel_size", "pp", Effect::field, "model.pipeline_model_parallel_size"},
    PerformanceOption{"context_parallel_size", "cp", Effect::field, "model.context_parallel_size"},
    PerformanceOption{"virtual_pipeline_model_parallel_size", "vp", Effect::field, "model.virtual_pipeline_model_parallel_size"},
    PerformanceOption{"expert_model_parallel_size", "ep", Effect::field, "model.expert_model_parallel_size"},
    PerformanceOption{"expert_tensor_parallel_size", "et", Effect::field, "model.expert_tensor_parallel_size"},
    PerformanceOption{"hidden_size", "", Effect::field, "model.hidden_size"},
    PerformanceOption{"num_moe_experts", "", Effect::field, "model.num_moe_experts"},
    PerformanceOption{"pipeline_model_parallel_layout", "", Effect::own},
    PerformanceOption{"num_layers", "", Effect::refused},
    PerformanceOption{"first_k_dense_replace", "", Effect::refused},
    PerformanceOption{"use_tokendrop", "", Effect::own},
    PerformanceOption{"use_megatron_fsdp", "", Effect::own},
    PerformanceOption{"nccl_ub", "", Effect::own},
    PerformanceOption{"cuda_graph_impl", "", Effect::own},
    PerformanceOption{"cuda_graph_scope", "", Effect::own},
    PerformanceOption{"moe_a2a_overlap", "", Effect::own},
    PerformanceOption{"recompute_num_layers", "rl", Effect::own},
    PerformanceOption{"recompute_modules", "", Effect::own},
    PerformanceOption{"activation_offload_layers", "ol", Effect::own},
    PerformanceOption{"moe_flex_dispatcher_backend", "", Effect::own},
    PerformanceOption{"deterministic", "", Effect::refused, "", false},
    PerformanceOption{"use_recipes", "", Effect::refused, "", false},
    PerformanceOption{"tokenizer_type", "", Effect::own},
    PerformanceOption{"tokenizer_model", "", Effect::own},
    PerformanceOption{"vocab_size", "", Effect::own},
};

/// Options that change no prediction, with their short forms after a slash: launchers, data, logs and checks of results.
/// run_script.py does not read optimizer_type.
constexpr std::string_view
    kIdleOptions =
        "max_steps/ms gpus_per_node/gn account/a partition/p time_limit/t preempt_time container_image/i custom_mounts/cm "
        "custom_env_vars/ce env "
        "custom_srun_args/cs custom_bash_cmds/cb gres additional_slurm_params packager enable_pct_binding nemo_home/nh hf_token/hf detach "
        "max_retries optimizer_type data domain c4_root c4_train_shards dataset_name dataset_paths dataset_root index_mapping_dir "
        "diffusion_dataset_path lr min_lr warmup_iters pretrained_checkpoint megatron_ckpt save_dir load_dir save_interval "
        "save_config_filepath "
        "most_recent_k distributed_timeout_minutes enable_vboost/vb lock_gpu_freq/lgc peak_mem_clk/lmc nsys_trace nsys_extra_args "
        "pytorch_profiler/pyp profiling_start_step profiling_stop_step profiling_ranks record_memory_history/mh log_dir/l wandb_key/wdk "
        "wandb_project_name/wdp wandb_entity_name/wde wandb_experiment_name/wdj wandb_save_dir/wds wandb_prj_name wandb_exp_name "
        "golden_values_path timing_threshold memory_threshold csp",
    kIdleSwitches =
        "offline dryrun/d list_config_variants enable_nsys/en export_nsys_sqlite profiling_gpu_metrics dump_env "
        "head_only packed_sequence";

const std::vector<PerformanceOption>& options() {
    static const auto kAll = [] {
        std::vector<PerformanceOption> all(kOptions.begin(), kOptions.end());
        for (const auto& [list, takes_value] : {std::pair(kIdleOptions, true), std::pair(kIdleSwitches, false)}) {
            for (std::size_t at = 0; at < list.size();) {
                const std::size_t end = std::min(list.find(' ', at), list.size());
                const std::string_view one = list.substr(at, end - at);
                const std::size_t slash = std::min(one.find('/'), one.size());
                all.push_back({one.substr(0, slash), one.substr(std::min(slash + 1, one.size())), Effect::none, "", takes_value});
                at = end + 1;
            }
        }
        return all;
    }();
    return kAll;
}

/// Recipes of several numbers of GPUs of which a command for another number changes not the largest, but this one
/// (utils/utils.py, _DEFAULT_GPU_COUNT_OVERRIDES).
struct DefaultGpus {
    std::string_view model, gpu;  ///< gpu "": every one
    std::int64_t count;
};
constexpr std::array kDefaultGpus{DefaultGpus{"llama3_8b", "", 8}, DefaultGpus{"nemotronh_56b", "", 64},
                                  DefaultGpus{"qwen3_30b_a3b", "h100", 16}, DefaultGpus{"qwen3_30b_a3b", "", 8}};

/// The option that a word names as argparse reads it: its name, an unambiguous beginning of it, or its short form; null for another word.
const PerformanceOption* option_of(std::string_view word) {
    if (!word.starts_with('-')) return nullptr;
    const bool is_long = word.starts_with("--");
    const std::string_view name = word.substr(is_long ? 2 : 1);
    const PerformanceOption* begins = nullptr;
    int beginnings = 0;
    for (const PerformanceOption& option : options()) {
        if (name == (is_long ? option.name : option.shorthand) && !name.empty()) return &option;
        if (!is_long || name.empty() || !option.name.starts_with(name)) continue;
        begins = &option;
        ++beginnings;
    }
    return beginnings == 1 ? begins : nullptr;
}

bool is_on(std::string_view value) {
    const std::string lower = lower_case(value);
    return lower == "true" || lower == "1" || lower == "t" || lower == "yes" || lower == "y";
}

bool is_override(const std::string& word) {
    const auto equals = word.find('=');
    return !word.starts_with('-') && equals != std::string::npos && word.substr(0, equals).find('.') != std::string::npos;
}

std::string plain_setting(const BridgeRecipe& recipe, const std::string& field) {
    const auto settings = recipe.settings();
    const auto found = settings.find(field);
    if (found == settings.end() || found->second == "null") return "";
    std::string value = found->second;
    std::erase(value, '"');
    return value;
}

/// The layers of each chunk as the recipes of DeepSeek-V3 and Kimi K2 place them for a number of stages and chunks of a stage; "" where
/// they have no layout for it (recipes/deepseek/h100/deepseek_v3.py, recipes/kimi/h100/kimi_k2.py).
std::string layout_of_chunks(std::int64_t pp, std::int64_t vp, int predicted, bool of_kimi) {
    constexpr std::int64_t kLayers = 61;
    const std::int64_t chunks = pp * vp;
    if (chunks == 1) return "null";
    const bool known = (chunks == 4 && vp == 1) || (chunks == 8 && (vp == 1 || vp == 2)) ||
                       (chunks == 16 && (vp == 1 || vp == 2 || vp == 4 || (vp == 8 && of_kimi)));
    if (!known) return "";
    const std::int64_t of_a_chunk = (kLayers + chunks - 1) / chunks;
    std::vector<std::string> stages;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        std::vector<std::string> parts;
        if (chunk == 0) parts.emplace_back("embedding");
        const bool last = chunk + 1 == chunks;
        parts.insert(parts.end(), static_cast<std::size_t>(last ? kLayers - of_a_chunk * (chunks - 1) : of_a_chunk), "decoder");
        if (last) parts.insert(parts.end(), static_cast<std::size_t>(predicted), "mtp");
        if (last) parts.emplace_back("loss");
        stages.push_back(fmt::format("[{}]", fmt::join(parts, ",")));
    }
    return fmt::format("[{}]", fmt::join(stages, ","));
}

/// The recipe and the overrides of a command of scripts/performance.
class PerformanceOverrides {
public:
    PerformanceOverrides(std::span<const std::string> words, const std::string& where) : where_(where) { read(words); }

    std::optional<BridgeLaunch> launch() {
        std::string model = value("model_recipe_name");
        if (model.empty() && given("model_name") && given("model_size") && given("gpu") && given("num_gpus"))
            model = fmt::format("{}_{}", value("model_name"), value("model_size"));
        if (model.empty()) return std::nullopt;
        for (const std::string_view option : {"gpu", "num_gpus"}) {
            if (!given(option)) problems_.add("{}: --{} is missing, by which the recipe is chosen; give it", where_, option);
        }
        for (const PerformanceOption& option : kOptions) {
            const std::string text = value(option.name);
            if (given(option.name) && option.takes_value && (text.empty() || text.find_first_of("$`") != std::string::npos))
                problems_.add_missing_fact("{}: --{} = {} is not known: a variable in it has no value; give it by --set NAME=VALUE", where_,
                                           option.name, text.substr(0, 60));
        }
        problems_.throw_if_any();
        const auto gpus = parse_integer(value("num_gpus"));
        constexpr std::int64_t kMostGpus = std::int64_t{1} << 24;
        if (given("num_gpus") && (!gpus || *gpus < 1 || *gpus > kMostGpus))
            problems_.add("{}: --num_gpus = {} is no number of GPUs; give a whole number from 1 to {}", where_,
                          value("num_gpus").substr(0, 60), kMostGpus);
        problems_.throw_if_any();
        launch_.world = gpus;
        choose_recipe(lower_case(model), *gpus);
        add_overrides();
        problems_.throw_if_any();
        return std::move(launch_);
    }

private:
    void read(std::span<const std::string> words) {
        for (std::size_t i = 0; i < words.size(); ++i) {
            const std::string& word = words[i];
            if (is_override(word)) {
                launch_.overrides.push_back(word);
                continue;
            }
            const auto equals = word.starts_with('-') ? word.find('=') : std::string::npos;
            const PerformanceOption* option = option_of(std::string_view(word).substr(0, equals));
            if (option == nullptr) {
                if (word.starts_with("--")) unknown_.push_back(word.substr(0, 60));
                continue;
            }
            std::string text;
            if (equals != std::string::npos)
                text = word.substr(equals + 1);
            else if (option->takes_value && i + 1 < words.size())
                text = words[++i];
            values_.insert_or_assign(std::string(option->name), text);
        }
    }

    [[nodiscard]] bool given(std::string_view option) const { return values_.contains(option); }
    [[nodiscard]] std::string value(std::string_view option) const {
        const auto found = values_.find(option);
        return found == values_.end() ? "" : found->second;
    }
    [[nodiscard]] bool on(std::string_view option) const { return given(option) && is_on(value(option)); }
    void set(std::string_view field, std::string_view text) { launch_.overrides.push_back(fmt::format("{}={}", field, text)); }

    /// The recipe of exactly this number of GPUs, or else the one that the script changes to it.
    void choose_recipe(const std::string& model, std::int64_t gpus) {
        std::string precision = lower_case(given("compute_dtype") ? value("compute_dtype") : "bf16");
        std::erase(precision, '_');
        const std::string variant = lower_case(value("config_variant"));
        const std::string gpu = lower_case(value("gpu")), task = given("task") ? value("task") : "pretrain";
        const std::string ending =
            fmt::format("gpu_{}_{}{}", gpu, precision, variant.empty() || variant == "v1" || variant == "v2" ? "" : "_" + variant);
        const std::string beginning = fmt::format("{}_{}_", model, task);
        launch_.recipe = fmt::format("{}{}{}", beginning, gpus, ending);
        std::map<std::int64_t, const BridgeRecipe*> of_counts;
        for (const BridgeRecipe& recipe : bridge_recipes().recipes) {
            std::string_view name = recipe.name;
            constexpr std::string_view kFolder = "perf_recipes/";  // of names that two folders of recipes have
            if (name.starts_with(kFolder)) name.remove_prefix(kFolder.size());
            if (recipe.task != "performance" || !name.starts_with(beginning) || !name.ends_with(ending)) continue;
            const auto count =
                parse_integer(name.substr(beginning.size(), name.size() - std::min(name.size(), beginning.size() + ending.size())));
            if (count) of_counts.emplace(*count, &recipe);
        }
        if (of_counts.empty()) return;  // the caller names the recipes that are near
        if (const auto exact = of_counts.find(gpus); exact != of_counts.end()) {
            launch_.recipe = exact->second->name;
            return;
        }
        const auto usual = std::find_if(kDefaultGpus.begin(), kDefaultGpus.end(), [&](const DefaultGpus& one) {
            return one.model == model && (one.gpu.empty() || one.gpu == gpu) && of_counts.contains(one.count);
        });
        base_ = usual != kDefaultGpus.end() ? of_counts.at(usual->count) : of_counts.rbegin()->second;
        launch_.recipe = base_->name;
    }

    void add_overrides() {
        for (const PerformanceOption& option : kOptions) {
            if (!given(option.name)) continue;
            if (option.effect == Effect::field) set(option.field, value(option.name) == "None" ? "null" : value(option.name));
            if (option.effect == Effect::refused)
                problems_.add_missing_fact(
                    "{}: --{} changes the recipe in a way that is not read; leave it out, or give the resolved configuration "
                    "(ConfigContainer.to_yaml) as --bridge-config",
                    where_, option.name);
        }
        for (const std::string& word : unknown_)
            problems_.add("{}: {} is no option of Megatron-Bridge's performance scripts; write section.field=value for a field", where_,
                          word);
        add_sharding();
        add_graphs();
        add_recomputation();
        add_exchange();
        add_model();
        add_layout();
        add_training();
    }

    void add_sharding() {
        const bool fully = on("use_megatron_fsdp");
        if (fully) {
            set("ddp.use_megatron_fsdp", "true");
            set("ddp.data_parallel_sharding_strategy", "optim_grads_params");
            set("ddp.keep_fp8_transpose_cache", "false");
            set("model.init_model_with_meta_device", "true");
            set("model.gradient_accumulation_fusion", "true");
        }
        if (fully || on("nccl_ub")) set("ddp.average_in_collective", "false");
        if (on("nccl_ub")) set("ddp.nccl_ub", "true");
    }

    void add_graphs() {
        const std::string impl = value("cuda_graph_impl");
        if (given("cuda_graph_impl")) set("model.cuda_graph_impl", impl);
        if (impl == "none") set("model.cuda_graph_scope", "[]");
        if (!given("cuda_graph_scope") || impl == "none") return;
        set("model.cuda_graph_scope", fmt::format("[{}]", value("cuda_graph_scope")));
    }

    void add_recomputation() {
        if (given("activation_offload_layers") && value("activation_offload_layers") != "0") {
            set("model.cpu_offloading", "true");
            set("model.cpu_offloading_weights", "false");
            set("model.cpu_offloading_num_layers", value("activation_offload_layers"));
        }
        if (given("recompute_num_layers")) {
            set("model.recompute_granularity", "full");
            set("model.recompute_method", "block");
            set("model.recompute_num_layers", value("recompute_num_layers"));
        }
        if (given("recompute_modules")) {
            set("model.recompute_modules", fmt::format("[{}]", value("recompute_modules")));
            set("model.recompute_granularity", "selective");
        }
    }

    void add_exchange() {
        if (on("moe_a2a_overlap")) {
            set("comm_overlap.overlap_moe_expert_parallel_comm", "true");
            set("comm_overlap.delay_wgrad_compute", "true");
            set("model.moe_shared_expert_overlap", "false");
        }
        if (given("use_tokendrop")) {
            set("model.moe_expert_capacity_factor", on("use_tokendrop") ? "1.0" : "null");
            set("model.moe_pad_expert_input_to_capacity", on("use_tokendrop") ? "true" : "false");
            set("model.moe_router_force_load_balancing", on("use_tokendrop") ? "false" : "true");
        }
        if (!given("moe_flex_dispatcher_backend")) return;
        const std::string backend = value("moe_flex_dispatcher_backend");
        const bool flexible = backend != "None";
        if (flexible && backend != "deepep" && backend != "hybridep")
            problems_.add("{}: --moe_flex_dispatcher_backend = {} is not known; use deepep, hybridep or None", where_,
                          backend.substr(0, 60));
        set("model.moe_flex_dispatcher_backend", flexible ? backend : "null");
        set("model.moe_token_dispatcher_type", flexible ? "flex" : "alltoall");
        if (flexible) set("model.moe_shared_expert_overlap", "false");
    }

    void add_model() {
        if (given("tensor_model_parallel_size")) {
            set("model.tensor_model_parallel_size", value("tensor_model_parallel_size"));
            set("model.sequence_parallel", value("tensor_model_parallel_size") == "1" ? "false" : "true");
        }
        if (given("seq_length")) {
            set("model.seq_length", value("seq_length"));
            set("dataset.seq_length", value("seq_length"));
        }
        if (!given("tokenizer_type")) return;
        set("tokenizer.tokenizer_type", value("tokenizer_type"));
        if (value("tokenizer_type") == "NullTokenizer")
            set("tokenizer.vocab_size", given("vocab_size") ? value("vocab_size") : "32000");
        else
            set("tokenizer.tokenizer_model", value("tokenizer_model"));
    }

    /// The recipe's own stages do not suit other numbers of them.
    void add_layout() {
        const bool of_deepseek = launch_.recipe.find("deepseek_v3_") != std::string::npos,
                   of_kimi = launch_.recipe.find("kimi_k2_") != std::string::npos;
        if (given("pipeline_model_parallel_layout")) {
            set("model.pipeline_model_parallel_layout", fmt::format("\"{}\"", value("pipeline_model_parallel_layout")));
            return;
        }
        const BridgeRecipe* recipe = bridge_recipes().find(launch_.recipe);
        const bool restaged = given("pipeline_model_parallel_size") || given("virtual_pipeline_model_parallel_size");
        if ((!of_deepseek && !of_kimi) || !restaged || recipe == nullptr) return;
        const auto settings = recipe->settings();
        const auto own = settings.find("model.pipeline_model_parallel_layout");
        if (of_kimi && own != settings.end() && own->second.starts_with('"')) return;
        const auto predicted = parse_integer(plain_setting(*recipe, "model.mtp_num_layers"));
        const std::string layout =
            layout_of_chunks(size_of(*recipe, "pipeline_model_parallel_size"), size_of(*recipe, "virtual_pipeline_model_parallel_size"),
                             of_deepseek ? static_cast<int>(predicted.value_or(1)) : 0, of_kimi);
        if (!layout.empty() || of_kimi) set("model.pipeline_model_parallel_layout", layout.empty() ? "null" : layout);
    }

    /// A size of the layout with the command's own.
    [[nodiscard]] std::int64_t size_of(const BridgeRecipe& recipe, const std::string& option) const {
        const std::string text = given(option) ? value(option) : plain_setting(recipe, "model." + option);
        return std::clamp<std::int64_t>(parse_integer(text).value_or(1), 1, 1 << 20);
    }

    void add_training() {
        const BridgeRecipe* recipe = bridge_recipes().find(launch_.recipe);
        if (recipe == nullptr) return;
        const std::string dtype = given("compute_dtype") ? value("compute_dtype") : "bf16";
        if (dtype == "bf16" && plain_setting(*recipe, "optimizer.optimizer") == "adam")
            set("optimizer.use_precision_aware_optimizer", "true");
        const std::int64_t pp = size_of(*recipe, "pipeline_model_parallel_size");
        if (value("task") == "peft" && pp > 1 && !on("use_megatron_fsdp")) set("dist.use_tp_pp_dp_mapping", "true");
        if (base_ == nullptr) return;
        const std::int64_t ranks = size_of(*recipe, "tensor_model_parallel_size") * size_of(*recipe, "context_parallel_size") * pp;
        const auto own = [&](const std::string& field) { return parse_integer(plain_setting(*recipe, field)).value_or(1); };
        const std::int64_t base_ranks =
            own("model.tensor_model_parallel_size") * own("model.context_parallel_size") * own("model.pipeline_model_parallel_size");
        const std::int64_t dp = *launch_.world / ranks, base_dp = recipe->gpus.value_or(base_ranks) / base_ranks;
        if (dp > 1 && pp > 1 && size_of(*recipe, "virtual_pipeline_model_parallel_size") > 1 && dtype != "fp8_mx" && dtype != "nvfp4" &&
            plain_setting(*recipe, "optimizer.optimizer") != "dist_muon") {
            set("optimizer.overlap_param_gather_with_optimizer_step", "true");
            set("comm_overlap.overlap_param_gather_with_optimizer_step", "true");
        }
        if (given("global_batch_size") || dp < 1 || base_dp < 1) return;
        const std::int64_t batch = own("train.global_batch_size") * dp;
        if (batch % base_dp != 0)
            problems_.add("{}: the batch of recipe {}, {} on {} data-parallel ranks, is no whole number on {}; give --global_batch_size",
                          where_, recipe->name, own("train.global_batch_size"), base_dp, dp);
        else
            set("train.global_batch_size", fmt::format("{}", batch / base_dp));
    }

    const std::string& where_;
    Problems problems_;
    std::map<std::string, std::string, std::less<>> values_;
    std::vector<std::string> unknown_;
    const BridgeRecipe* base_ = nullptr;  ///< recipe for another number of GPUs, which the script changes to the command's
    BridgeLaunch launch_;
};

}  // namespace

std::optional<BridgeLaunch> read_bridge_launch(std::span<const std::string> words, const std::string& where) {
    constexpr std::string_view kRecipe = "--recipe";
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool has_value = words[i].starts_with(kRecipe) && words[i][kRecipe.size()] == '=';
        if (!has_value && (words[i] != kRecipe || i + 1 == words.size())) continue;
        BridgeLaunch launch{
            .recipe = has_value ? words[i].substr(kRecipe.size() + 1) : words[i + 1], .overrides = {}, .world = {}, .notes = {}};
        std::copy_if(words.begin(), words.end(), std::back_inserter(launch.overrides), is_override);
        return launch;
    }
    return PerformanceOverrides(words, where).launch();
}

}  // namespace mgplan::formats
