#include "formats/recognise/recognise.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/hugging_face/hub_names.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kMostRead = 256U << 10U;

bool is_sign_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
}

/// The part of a key after its last dot: "tensor_model_parallel_size" of "actor.megatron.tensor_model_parallel_size".
std::string_view last_part(std::string_view key) {
    return key.substr(key.rfind('.') + 1);  // npos + 1 is 0
}

/// Words, keys with their values, and sections of a text; comments are left out.
class Signs {
public:
    explicit Signs(std::string_view text) {
        text = text.substr(0, kMostRead);
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            read_line(text.substr(at, end - at));
            at = end + 1;
        }
    }

    [[nodiscard]] bool shows(std::string_view sign) const {
        if (sign.starts_with('[')) return sections_.contains(sign);
        if (const auto plus = sign.find('+'); plus != std::string_view::npos)
            return pairs_.contains({sign.substr(0, plus), sign.substr(plus + 1)});
        if (sign.ends_with('=')) return values_.contains(sign.substr(0, sign.size() - 1));
        if (!sign.ends_with('*')) return words_.contains(sign);
        const std::string_view beginning = sign.substr(0, sign.size() - 1);
        const auto found = words_.lower_bound(beginning);
        return found != words_.end() && found->starts_with(beginning);
    }
    [[nodiscard]] bool shows_one_of(std::string_view signs) const {
        const auto list = split(signs, ' ');
        return std::any_of(list.begin(), list.end(), [this](const std::string& sign) { return shows(sign); });
    }
    /// True if the value of the key names a file of DeepSpeed's stage: "ds_z3_config.json", "zero3.json".
    [[nodiscard]] bool shows_part_of(std::string_view key, std::string_view stage) const {
        const std::string value = lower_case(this->value(key));
        return std::ranges::any_of(std::array{"zero", "z", "stage", "zero_stage", "zero-"}, [&](const char* beginning) {
            return value.find(fmt::format("{}{}", beginning, stage)) != std::string::npos;
        });
    }
    [[nodiscard]] bool shows_all_of(std::string_view signs) const {
        const auto list = split(signs, ' ');
        return std::all_of(list.begin(), list.end(), [this](const std::string& sign) { return shows(sign); });
    }
    /// The first value of the key, alone or as the last part of a longer one; "" without it.
    [[nodiscard]] std::string_view value(std::string_view key) const {
        const auto found = values_.find(key);
        return found == values_.end() ? std::string_view() : found->second;
    }

private:
    void read_line(std::string_view line) {
        std::string_view before;
        for (std::size_t at = 0; at < line.size();) {
            const char c = line[at];
            if (c == '#' && (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t')) return;
            if (c == '[' && line.find_first_not_of(" \t") == at) {
                const std::size_t end = line.find(']', at);
                if (end != std::string_view::npos) sections_.insert(line.substr(at, end - at + 1));
            }
            if (!is_sign_character(c)) {
                ++at;
                continue;
            }
            std::size_t end = at;
            while (end < line.size() && is_sign_character(line[end])) ++end;
            const std::string_view word = line.substr(at, end - at);
            words_.insert(word);
            if (!before.empty()) pairs_.emplace(before, word);
            keep_value(word, line, end);
            before = word;
            at = end;
        }
    }

    void keep_value(std::string_view key, std::string_view line, std::size_t end) {
        const bool flag = key.starts_with("--");
        if (end < line.size() && (line[end] == '"' || line[end] == '\'')) ++end;
        std::size_t at = std::min(line.find_first_not_of(" \t", end), line.size());
        const bool separated = at < line.size() && (line[at] == ':' || line[at] == '=');
        if (!separated && !flag) return;
        if (separated) ++at;
        at = std::min(line.find_first_not_of(" \t\"'", at), line.size());
        std::size_t last = at;
        while (last < line.size() && is_sign_character(line[last])) ++last;
        const std::string_view value = line.substr(at, last - at);
        if (flag) {
            // ms-swift writes flags with underscores, others with hyphens.
            std::string name(key.substr(2));
            std::replace(name.begin(), name.end(), '-', '_');
            keep_first(name, value);
            return;
        }
        keep_first(key, value);
        keep_first(last_part(key), value);
    }

    /// A key over a mapping has no value of its own, and may come again with one.
    void keep_first(std::string_view key, std::string_view value) {
        const auto [at, fresh] = values_.emplace(key, value);
        if (!fresh && at->second.empty()) at->second = value;
    }

    std::set<std::string_view, std::less<>> words_, sections_;
    std::set<std::pair<std::string_view, std::string_view>> pairs_;
    std::map<std::string, std::string_view, std::less<>> values_;
};

/// Kinds of jobs other than pretraining. The first row that fits counts: adapters change the memory more than the loss does.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kJobSigns{
    {{"LoRA",
      "lora lora_rank= lora_r= --lora_rank --lora-rank --lora-r lora_alpha= --lora_alpha lora_target= lora_target_modules= lora_config= "
      "qlora= "
      "peft_scheme= lora.rank= policy.megatron_cfg.peft.enabled="},
     {"GRPO", "grpo run_grpo.py gspo dapo"},
     {"PPO", "ppo critic= run_ppo.py"},
     {"DPO", "dpo run_dpo.py"},
     {"reinforcement learning", "actor_rollout_ref= actor_rollout_ref.* actor_train= rollout= --rollout-batch-size --actor-num-nodes"},
     {"vision-language", "freeze_vit= --freeze_vit --freeze-ViT vision_config= freeze_vision_tower="},
     {"encoder", "bert"},
     {"SFT", "sft finetune finetuning_type="}}};

/// `adapters`: false for a text whose words of adapters have no effect.
std::string_view job_shown(const Signs& signs, bool adapters) {
    for (const auto& [job, shown] : kJobSigns) {
        if (job == "LoRA" && !adapters) continue;
        if (signs.shows_one_of(shown)) return job;
    }
    return "";
}

bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
           text != "0";
}

/// Options of mgplan, and the names that frameworks have for the same number.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kLayoutNames{
    {{"tp",
      "tensor_model_parallel_size tensor_parallel_degree model_parallel_size model-parallel-size ici_tensor_parallelism "
      "tensor_parallel_size tp_degree tp"},
     {"pp",
      "pipeline_model_parallel_size pipeline_parallel_degree pipe_parallel_size pipe-parallel-size ici_pipeline_parallelism "
      "pipeline_parallel_size pp_degree pp"},
     {"cp", "context_parallel_size context_parallel_degree ici_context_parallelism cp_degree"},
     {"ep", "expert_model_parallel_size expert_parallel_degree expert_parallel_size ici_expert_parallelism moe_expert_parallel_size"},
     {"etp", "expert_tensor_parallel_size"},
     {"micro-batch",
      "micro_batch_size local_batch_size train_micro_batch_size_per_gpu per_device_train_batch_size per_device_batch_size "
      "ppo_micro_batch_size_per_gpu train_micro_batch_size"},
     {"global-batch", "global_batch_size train_global_batch_size"},
     {"seq", "seq_length seq_len sequence_length sequence_len max_length max_target_length encoder_seq_length cutoff_len"}}};

std::string layout_shown(const Signs& signs) {
    std::vector<std::string> options;
    for (const auto& [option, names] : kLayoutNames) {
        for (const std::string& name : split(names, ' ')) {
            const std::string_view value = signs.value(name);
            if (!is_number(value)) continue;
            options.push_back(fmt::format("--{} {}", option, value));
            break;
        }
    }
    return fmt::format("{}", fmt::join(options, " "));
}

/// The sharding of PyTorch's FSDP and of DeepSpeed's stages, as an option of mgplan; "" where the text names none, and for adapters, which
/// no plan shards fully.
std::string sharding_shown(const Signs& signs, std::string_view framework, bool adapters) {
    if (adapters) return "";
    const std::string_view stage =
        signs.value("zero_optimization.stage").empty() ? signs.value("stage") : signs.value("zero_optimization.stage");
    const bool staged = signs.shows("zero_optimization=");
    const bool full = (staged && stage == "3") || framework == "torchtitan" ||
                      signs.shows_one_of("fsdp= fsdp_config= fsdp_version= --fsdp fsdp fsdp2 FULL_SHARD full_shard zero3 dtensor_cfg=") ||
                      signs.shows_part_of("deepspeed", "3");
    if (full) return "--sharding full";
    if ((staged && stage == "2") || signs.shows("zero2") || signs.shows_part_of("deepspeed", "2")) return "--sharding optimizer_gradients";
    return "";
}

/// "rank=16,alpha=32" of a text that trains adapters; "default" where it states neither.
std::string adapters_shown(const Signs& signs) {
    std::vector<std::string> words;
    for (const auto& [word, names] :
         {std::pair("rank", "lora_rank lora_r lora.rank peft_dim lora_dim"), std::pair("alpha", "lora_alpha peft_alpha")}) {
        for (const std::string& name : split(names, ' ')) {
            const std::string_view value = signs.value(name);
            if (!is_number(value)) continue;
            words.push_back(fmt::format("{}={}", word, value));
            break;
        }
    }
    const bool in_four_bits = signs.value("load_in_4bit") == "true" || signs.value("load_in_4bit") == "True" ||
                              signs.value("adapter") == "qlora" || signs.value("quantization_bit") == "4" ||
                              signs.value("quant_bits") == "4";
    if (in_four_bits) words.emplace_back("base=nf4");
    return words.empty() ? "default" : fmt::format("{}", fmt::join(words, ","));
}

/// The name of a model that the text holds as a path or a repository of the hub.
std::string model_shown(const Signs& signs) {
    for (const std::string_view key : {"actor_rollout_ref.model.path", "model_name_or_path", "base_model", "policy.model_name", "pretrain",
                                       "actor.path", "hf_checkpoint", "model_name", "model", "load", "path"}) {
        std::string_view value = signs.value(key);
        if (value.starts_with('.') || value.starts_with('/')) continue;  // a folder: its name may say nothing
        const auto slash = value.find('/');
        if (slash != std::string_view::npos && value.find('/', slash + 1) == std::string_view::npos && slash + 1 < value.size())
            return std::string(value.substr(0, 80));
    }
    return "";
}

/// Releases by the names that they changed.
std::string version_shown(const Signs& signs, std::string_view framework) {
    if (framework != "ms-swift") return "";
    if (signs.shows_one_of("--tuner_type --tuner-type")) return "4";
    return signs.shows_one_of("--train_type --train-type --no_initialization --no-initialization --max_epochs --max-epochs") ? "3" : "";
}

}  // namespace

std::optional<Recognised> recognise(std::string_view text) {
    const Signs signs(text);
    for (const FrameworkSigns& row : framework_table()) {
        if (!row.all.empty() && !signs.shows_all_of(row.all)) continue;
        if (!row.any.empty() && !signs.shows_one_of(row.any)) continue;
        // ms-swift's Megatron commands train all weights without a tuner; its others train adapters.
        const bool adapters = row.framework != "ms-swift" || row.form != "Megatron command" || signs.shows_one_of("lora lora_llm");
        const std::string_view job = job_shown(signs, adapters);
        std::string layout = layout_shown(signs);
        if (const std::string sharding = sharding_shown(signs, row.framework, job == "LoRA"); !sharding.empty())
            layout += layout.empty() ? sharding : " " + sharding;
        return Recognised{.framework = std::string(row.framework),
                          .form = std::string(row.form),
                          .job = std::string(job),
                          .version = version_shown(signs, row.framework),
                          .model = model_shown(signs),
                          .adapters = job == "LoRA" ? adapters_shown(signs) : "",
                          .layout = std::move(layout),
                          .reason = std::string(row.reason),
                          .states_layout = row.states_layout};
    }
    return std::nullopt;
}

std::string refusal_of(const Recognised& found, std::string_view where) {
    std::string kind = found.version.empty() ? found.framework : fmt::format("{} {}", found.framework, found.version);
    kind += found.job.empty() ? fmt::format(" {}", found.form) : fmt::format(" {} ({})", found.form, found.job);
    const std::string reason = found.reason.empty() ? "" : fmt::format(": {}", found.reason);
    const std::string preset(preset_with_layers_of(found.model));
    const bool is_preset = !preset_of_hub_name(found.model).empty();
    const std::string model = found.model.empty() ? "NAME" : is_preset ? found.model : preset.empty() ? "config.json" : preset;
    const std::string stands = found.model.empty() || is_preset ? ""
                               : preset.empty()                 ? fmt::format(" (config.json of {})", found.model)
                                                                : fmt::format(" (for {})", named_with_layers(found.model));
    const std::string adapters = found.adapters.empty() ? "" : " --lora " + found.adapters;
    if (found.states_layout)
        return fmt::format("{}: {}{}; its layout is read: name the model by --model {} next to the file{}", where, kind, reason, model,
                           stands);
    return fmt::format(
        "{}: {}, which mgplan does not read{}; give its model and layout as options: mgplan simulate --world N --model {}{} {}{}", where,
        kind, reason, model, adapters, found.layout.empty() ? "--tp N --pp N" : found.layout, stands);
}

}  // namespace mgplan::formats
