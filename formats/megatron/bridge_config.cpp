#include "formats/megatron/bridge_config.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "formats/megatron/bridge_fields.hpp"
#include "formats/megatron/bridge_sections.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/megatron_words.hpp"
#include "formats/megatron/shell_command.hpp"
#include "formats/recognise/recognise.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

/// Turns the fields into Megatron-LM's words, and keeps which field said which flag.
class BridgeWords {
public:
    BridgeWords(BridgeSections& sections, const YAML::Node& root, const std::string& where, Problems& problems)
        : sections_(sections), root_(root), where_(where), problems_(problems) {}

    void read() {
        refuse_other_jobs();
        apply_own_rules();
        for (const FieldRule& rule : bridge_field_rules()) add_by_rule(rule);
        add_model();
        for (const char* section : {"model", "ddp", "optimizer", "train", "dist"}) add_by_name(section);
        check_rules();
    }

    [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
    /// The class of the model: "Llama3ModelProvider8B"; "" where the file does not name it.
    [[nodiscard]] std::string provider() const {
        const YAML::Node target = root_["model"]["_target_"];
        return target && target.IsScalar() ? last_name(target.Scalar()).substr(0, 80) : "";
    }
    [[nodiscard]] const std::vector<std::string>& unknown() const { return unknown_; }
    [[nodiscard]] const std::vector<FlagNotComputed>& not_computed() const { return not_computed_; }

    /// The field that said the flag, or that would; what is no flag of Megatron-LM's stays what it is.
    [[nodiscard]] std::string field_of(const std::string& flag) const {
        const auto found = fields_.find(flag);
        if (found != fields_.end()) return found->second;
        const std::string field = bridge_field_of(flag);
        return field.empty() ? flag : field;
    }

private:
    using Kind = FieldValue::Kind;

    void add(const std::string& flag, const std::string& path, const std::vector<std::string>& values = {}) {
        if (!fields_.emplace(flag, path).second) return;  // several sections have the field, and agree
        words_.push_back(flag);
        words_.insert(words_.end(), values.begin(), values.end());
    }

    [[nodiscard]] bool depends_on_what_is_off(const std::string& field) const {
        for (const DependentFields& group : bridge_dependent_fields()) {
            const auto prefixes = split(group.prefixes, ' ');
            if (std::none_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return field.starts_with(prefix); })) continue;
            const auto needed = split(group.needed, ' ');
            return std::none_of(needed.begin(), needed.end(), [&](const std::string& path) {
                if (path.ends_with("." + field)) return true;  // it is the switch itself
                const auto dot = path.find('.');
                return sections_.on(path.substr(0, dot), path.substr(dot + 1));
            });
        }
        return false;
    }

    void add_by_rule(const FieldRule& rule) {
        const FieldValue value = sections_.get(rule.section, rule.field);
        if (value.kind == Kind::none || depends_on_what_is_off(std::string(rule.field))) return;
        const std::string path = fmt::format("{}.{}", rule.section, rule.field), flag(rule.flag);
        if (rule.form == FieldForm::value) {
            if (value.kind == Kind::text) add(flag, path, value.words);
        } else if (value.kind == Kind::truth && value.truth == (rule.form == FieldForm::if_on)) {
            add(flag, path);
        }
    }

    /// Fields that become flags together with others.
    void add_model() {
        const std::string function = sections_.text("model", "activation_func");
        const bool gated = sections_.on("model", "gated_linear_unit"), silu = function == "silu" || function == "swish";
        if (gated && silu)
            add("--swiglu", "model.gated_linear_unit");
        else if (gated && (function.empty() || function.find("gelu") != std::string::npos))
            add("--quick-geglu", "model.gated_linear_unit");
        else if (!gated && function == "squared_relu")
            add("--squared-relu", "model.activation_func");
        else if (gated || silu || (!function.empty() && function.find("gelu") == std::string::npos))
            problems_.add(
                "{}: model.activation_func = {}{} cannot be planned; use silu or gelu with gated_linear_unit, gelu or squared_relu", where_,
                function.substr(0, 40), gated ? " with gated_linear_unit" : "");
        if (const FieldValue fused = sections_.get("model", "bias_activation_fusion"); fused.kind == Kind::truth && !fused.truth)
            add(gated && silu ? "--no-bias-swiglu-fusion" : "--no-bias-gelu-fusion", "model.bias_activation_fusion");
        const std::string groups = sections_.text("model", "num_query_groups");
        if (!groups.empty() && groups != sections_.text("model", "num_attention_heads") &&
            !sections_.on("model", "multi_latent_attention")) {
            add("--group-query-attention", "model.num_query_groups");
            add("--num-query-groups", "model.num_query_groups", {groups});
        }
        if (const FieldValue overlaps = sections_.get("model", "overlap_p2p_comm"); overlaps.kind == Kind::truth && !overlaps.truth)
            add("--no-overlap-p2p-communication", "model.overlap_p2p_comm");
        add_stages();
        add_vocabulary();
        const FieldValue reduced = sections_.get("ddp", "grad_reduce_in_fp32");
        if (reduced.kind == Kind::truth && reduced.truth)
            add("--accumulate-allreduce-grads-in-fp32", "ddp.grad_reduce_in_fp32");
        else if (reduced.kind == Kind::truth && sections_.on("model", "bf16"))
            add("--grad-reduce-in-bf16", "ddp.grad_reduce_in_fp32");
        if (sections_.on("model", "fp8_param") && sections_.on("model", "fp8")) add("--fp8-param-gather", "model.fp8_param");
        if (sections_.on("model", "fp4_param") && sections_.on("model", "fp4")) add("--fp4-param-gather", "model.fp4_param");
        if (sections_.on("dist", "use_megatron_fsdp")) add("--use-megatron-fsdp", "dist.use_megatron_fsdp");
    }

    void add_stages() {
        const YAML::Node model = root_["model"];
        YAML::Node layout = model["pipeline_model_parallel_layout"];
        if (const YAML::Node inner = model["transformer"]; inner && inner.IsMap() && inner["pipeline_model_parallel_layout"])
            layout = inner["pipeline_model_parallel_layout"];
        const std::string path = "model.pipeline_model_parallel_layout";
        if (layout && layout.IsScalar() && layout.Scalar() != "null") {
            add("--pipeline-model-parallel-layout", path, {layout.Scalar()});
        } else if (layout && layout.IsSequence()) {
            if (const auto text = layout_text(layout))
                add("--pipeline-model-parallel-layout", path, {*text});
            else
                problems_.add("{}: {} holds more than lists of embedding, decoder, mtp and loss; write one list for each stage", where_,
                              path);
        } else if (const FieldValue chunks = sections_.get("model", "virtual_pipeline_model_parallel_size");
                   chunks.set() && sections_.count("model", "pipeline_model_parallel_size") > 1) {
            add("--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size", chunks.words);
        }
    }

    static std::optional<std::string> layout_text(const YAML::Node& stages) {
        static const std::map<std::string, char> kLetters{{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}};
        std::string text;
        for (std::size_t stage = 0; stage < stages.size(); ++stage) {
            if (stage > 0) text += '|';
            // A list for each chunk of a rank, in newer versions.
            const YAML::Node& layers = stages[stage];
            if (!layers.IsSequence()) return std::nullopt;
            for (const auto& layer : layers) {
                const auto letter = layer.IsScalar() ? kLetters.find(layer.Scalar()) : kLetters.end();
                if (letter == kLetters.end()) return std::nullopt;
                text += letter->second;
            }
        }
        return text;
    }

    void add_vocabulary() {
        std::string path = "model.vocab_size";
        FieldValue size = sections_.get("model", "vocab_size");
        if (size.kind != Kind::text) {
            path = "tokenizer.vocab_size";
            size = sections_.get("tokenizer", "vocab_size");
        }
        if (size.kind == Kind::text) add("--vocab-size", path, size.words);
        // Unpadded it is the table's rows (models/gpt_provider.py, provide()).
        const FieldValue pads = sections_.get("model", "should_pad_vocab"),
                         divisor = sections_.get("model", "make_vocab_size_divisible_by");
        if (pads.kind == Kind::truth && !pads.truth && path == "model.vocab_size")
            add("--padded-vocab-size", "model.should_pad_vocab", size.words);
        else if (divisor.kind == Kind::text)
            add("--make-vocab-size-divisible-by", "model.make_vocab_size_divisible_by", divisor.words);
    }

    /// All others under the name that Megatron-LM's argument factory gives them (argument_utils.py).
    void add_by_name(const std::string& section) {
        for (const auto& [field, value] : sections_.of(section)) {
            const std::string path = fmt::format("{}.{}", section, field);
            if (value.kind == Kind::none || bridge_field_without_effect(field) || depends_on_what_is_off(field)) continue;
            const auto rules = bridge_field_rules();
            if (std::any_of(rules.begin(), rules.end(),
                            [&](const FieldRule& rule) { return rule.section == section && rule.field == field; }))
                continue;
            if (is_bridge_default(field, value.text())) continue;
            std::string name = field;
            std::replace(name.begin(), name.end(), '_', '-');
            // Three of YaRN's fields have flags without the prefix (argument_utils.py, _apply_yarn_config_from_args).
            if (name.starts_with("yarn-") && !find_flag(name)) name.erase(0, std::string_view("yarn-").size());
            const auto flag = find_flag(name);
            if (flag && value.kind == Kind::truth) {
                if (value.truth && flag->arity == FlagArity::none) add("--" + name, path);
            } else if (flag && (value.kind == Kind::text || value.kind == Kind::list) && flag->arity != FlagArity::none) {
                const bool one = flag->arity == FlagArity::one && value.kind == Kind::list;
                if (!value.words.empty()) add("--" + name, path, one ? std::vector{fmt::format("[{}]", value.text())} : value.words);
            } else if (value.kind == Kind::truth && (find_flag("no-" + name) || find_flag("disable-" + name))) {
                if (!value.truth) add((find_flag("no-" + name) ? "--no-" : "--disable-") + name, path);
            } else if (value.set() && !flag) {
                unknown_.push_back(value.kind == Kind::other
                                       ? path
                                       : fmt::format("{} {}", path, value.kind == Kind::truth ? "true" : value.text().substr(0, 80)));
            }
        }
    }

    /// Rules of Megatron-Bridge where Megatron-LM's parser has others: experts are divided by ep alone unless etp is set
    /// (models/transformer_config.py), the checkpoint's format counts where something is saved or loaded (training/config.py), and
    /// gathering parameters early needs no overlapped reduction.
    void apply_own_rules() {
        if (sections_.count("model", "expert_model_parallel_size") > 1 && !sections_.on("model", "expert_tensor_parallel_size"))
            add("--expert-tensor-parallel-size", "model.expert_tensor_parallel_size", {"1"});
        if (!sections_.on("checkpoint", "save") && !sections_.on("checkpoint", "load"))
            leave_out("--ckpt-format", "checkpoint.ckpt_format");
        if (sections_.on("ddp", "overlap_param_gather") && !sections_.on("ddp", "overlap_grad_reduce")) {
            // Without overlapped reduction a buffer is one bucket (distributed_data_parallel.py): a chunk's first layer waits for all of
            // it.
            leave_out("--overlap-param-gather", "ddp.overlap_param_gather");
            not_computed_.push_back({"ddp.overlap_param_gather", "parameters of a whole chunk gathered at once", Decides::nothing});
        }
    }

    /// The flag is not written, whatever the field says.
    void leave_out(const std::string& flag, const std::string& path) { fields_.emplace(flag, path); }

    /// peft/lora.py: its defaults where the section states nothing.
    void add_adapters(const YAML::Node& peft) {
        if (!peft.IsMap()) {
            problems_.add_missing_fact("{}: peft is no section; give the fields of peft.lora.LoRA (dim, alpha, target_modules)", where_);
            return;
        }
        const YAML::Node named = peft["_target_"] ? peft["_target_"] : peft["class"];  // the latter in the list of recipes
        const std::string kind = named && named.IsScalar() ? named.Scalar() : "";
        if (!kind.empty() && kind != "LoRA" && !kind.ends_with(".LoRA")) {
            problems_.add_missing_fact("{}: peft: {} cannot be planned; give peft.lora.LoRA, or remove the section, to train all weights",
                                       where_, kind.substr(0, 80));
            return;
        }
        const auto value = [&](const char* field, const char* otherwise) {
            const YAML::Node node = peft[field];
            return node && node.IsScalar() ? node.Scalar() : std::string(otherwise);
        };
        add("--lora-rank", "peft.dim", {value("dim", "32")});
        add("--lora-alpha", "peft.alpha", {value("alpha", "32")});
        std::vector<std::string> modules;
        if (const YAML::Node list = peft["target_modules"]; list && list.IsSequence()) {
            for (const YAML::Node& module : list) modules.push_back(module.IsScalar() ? module.Scalar() : "");
        } else {
            modules = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
        }
        add("--lora-target-modules", "peft.target_modules", modules);
        // Fields of LoRA, PEFT and ModuleMatcher (peft/ of megatron-bridge 0.6.2); the last two are its state after a start.
        constexpr std::string_view kRead = "_target_ class dim alpha target_modules share_expert_adapters";
        constexpr std::string_view kWithoutEffect =
            "dropout dropout_position lora_A_init_method lora_B_init_method params_to_save canonical_mapping";
        const auto listed = [](std::string_view list, const std::string& field) {
            const auto words = split(std::string(list), ' ');
            return std::find(words.begin(), words.end(), field) != words.end();
        };
        for (const auto& entry : peft) {
            const std::string field = entry.first.IsScalar() ? entry.first.Scalar() : "";
            if (listed(kRead, field) || listed(kWithoutEffect, field) || entry.second.IsNull()) continue;
            const bool is_off = entry.second.IsScalar() ? entry.second.Scalar() == "false" : entry.second.size() == 0;
            if (!is_off) problems_.add_missing_fact("{}: peft.{} cannot be planned; remove it", where_, field.substr(0, 80));
        }
    }

    /// A job that no plan describes breaks no rule by that, so that a gate leaves it open.
    void refuse_other_jobs() {
        const YAML::Node adapters = root_["peft"];
        const std::string name = provider();
        if (adapters && !adapters.IsNull()) add_adapters(adapters);
        // models/distillation_provider.py: the student with its teacher.
        for (const char* field : {"teacher", "kd_config"}) {
            if (const YAML::Node node = root_["model"][field]; !node || node.IsNull()) continue;
            problems_.add_missing_fact("{}: model.{}: distillation cannot be planned; give the student's configuration without its teacher",
                                       where_, field);
            return;
        }
        for (const char* other : {"T5", "MIMO", "Mimo", "VL", "Omni", "Vision", "Diffusion", "Distillation"}) {
            if (name.find(other) == std::string::npos) continue;
            problems_.add_missing_fact("{}: model: {} cannot be planned; give a model of decoder layers only", where_, name.substr(0, 80));
            break;
        }
    }

    /// Rules of Megatron-Bridge's own (training/config.py, ConfigContainer.validate).
    void check_rules() {
        const bool sharded = sections_.on("ddp", "use_megatron_fsdp") || sections_.on("dist", "use_megatron_fsdp");
        const std::string model_length = sections_.text("model", "seq_length"), data_length = sections_.text("dataset", "seq_length");
        if (!model_length.empty() && !data_length.empty() && model_length != data_length)
            problems_.add("{}: dataset.seq_length = {} is not model.seq_length = {}; make them equal", where_, data_length.substr(0, 40),
                          model_length.substr(0, 40));
        const bool gathered = sections_.on("ddp", "fp8_param_gather") || sections_.on("model", "fp8_param");
        if (sections_.on("model", "fp8") && sections_.text("model", "fp8_recipe") == "mxfp8" && gathered && !sharded &&
            !sections_.on("ddp", "reuse_grad_buf_for_mxfp8_param_ag"))
            problems_.add("{}: mxfp8 with ddp.fp8_param_gather needs ddp.reuse_grad_buf_for_mxfp8_param_ag; set it to true", where_);
        if (sections_.text("model", "cuda_graph_impl") == "full_iteration" && sections_.on("rerun_state_machine", "check_for_nan_in_loss"))
            problems_.add(
                "{}: model.cuda_graph_impl = full_iteration with rerun_state_machine.check_for_nan_in_loss; set the latter to false",
                where_);
        if (sections_.on("dist", "use_tp_pp_dp_mapping") && sharded)
            problems_.add("{}: dist.use_tp_pp_dp_mapping with Megatron FSDP; set it to false", where_);
    }

    BridgeSections& sections_;
    const YAML::Node& root_;
    const std::string& where_;
    Problems& problems_;
    std::vector<std::string> words_, unknown_;
    std::vector<FlagNotComputed> not_computed_;  ///< fields that no flag says
    std::map<std::string, std::string> fields_;  ///< by flag: the field that said it
};

/// The lists of an account with fields in place of flags.
void name_fields(FlagAccount& account, const BridgeWords& words, const SettingOfFlag& field_of) {
    for (auto* list : {&account.used, &account.without_effect, &account.unknown}) {
        for (auto& flag : *list) flag = in_settings(flag, field_of);
        std::set<std::string> seen;
        std::erase_if(*list, [&](const std::string& field) { return !seen.insert(field).second; });
    }
    for (auto& one : account.not_computed) one.flag = in_settings(one.flag, field_of);
    account.unknown.insert(account.unknown.end(), words.unknown().begin(), words.unknown().end());
    account.not_computed.insert(account.not_computed.end(), words.not_computed().begin(), words.not_computed().end());
}

constexpr int kMostDepth = 16;  ///< of sections in sections

/// Sections of ConfigContainer (megatron-bridge 0.6.2, training/config.py); a launch stops at any other.
const std::vector<std::string> kContainerSections{"model",
                                                  "train",
                                                  "optimizer",
                                                  "ddp",
                                                  "dist",
                                                  "mixed_precision",
                                                  "comm_overlap",
                                                  "dataset",
                                                  "scheduler",
                                                  "checkpoint",
                                                  "logger",
                                                  "tokenizer",
                                                  "validation",
                                                  "rng",
                                                  "profiling",
                                                  "peft",
                                                  "ft",
                                                  "straggler",
                                                  "env_vars",
                                                  "_target_",
                                                  "defaults",
                                                  "hydra",
                                                  "tensor_inspect",
                                                  "nvrx_straggler",
                                                  "inprocess_restart",
                                                  "rerun_state_machine"};

void check_section(const std::string& name, const std::string& where) {
    if (std::find(kContainerSections.begin(), kContainerSections.end(), name) != kContainerSections.end()) return;
    const std::string hint = did_you_mean(name, kContainerSections);
    throw ConfigError(fmt::format("{}: Megatron-Bridge's configuration has no section '{}'; {}", where, name.substr(0, 60),
                                  hint.empty() ? "model, train, optimizer, ddp, dist, mixed_precision and comm_overlap are those that a "
                                                 "prediction follows"
                                               : hint));
}

void merge(YAML::Node into, const YAML::Node& changes, int depth) {
    if (depth == kMostDepth)
        throw ConfigError(fmt::format("overrides of a recipe are nested more than {} deep; give section: field: value", kMostDepth));
    for (const auto& change : changes) {
        const std::string name = change.first.as<std::string>();
        const YAML::Node there = into[name];
        if (change.second.IsMap() && there.IsDefined() && there.IsMap())
            merge(there, change.second, depth + 1);
        else
            into[name] = change.second;
    }
}

/// One `section.field=value`; a leading + or ++ adds a field, which here every word may, and ~ removes one.
void apply_word(YAML::Node& root, const std::string& word) {
    const bool removes = word.starts_with('~');
    const auto equals = word.find('=');
    const std::size_t first = removes ? 1 : word.find_first_not_of('+');
    const std::vector<std::string> path = split(word.substr(std::min(first, word.size()), equals - std::min(first, equals)), '.');
    if ((!removes && equals == std::string::npos) || path.size() < 2 || path.size() > kMostDepth ||
        std::any_of(path.begin(), path.end(), [](const std::string& name) { return name.empty(); }))
        throw ConfigError(
            fmt::format("override '{}' is not of the form section.field=value; write it so, as in "
                        "model.tensor_model_parallel_size=2",
                        word.substr(0, 100)));
    check_section(path.front(), fmt::format("override '{}'", word.substr(0, 100)));
    YAML::Node section = root;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
        YAML::Node inner = section[path[i]];
        if (!inner.IsDefined() || !inner.IsMap()) section[path[i]] = inner = YAML::Node(YAML::NodeType::Map);
        section.reset(inner);
    }
    if (removes)
        section.remove(path.back());
    else
        section[path.back()] = YAML::Load(word.substr(equals + 1));
}

}  // namespace

std::string changed_bridge_config(std::string_view config, std::string_view overrides, const std::string& where,
                                  std::span<const std::string> words) {
    YAML::Node root = YAML::Load(std::string(config));
    try {
        if (!overrides.empty()) {
            const YAML::Node changes = YAML::Load(std::string(overrides));
            if (!changes.IsMap())
                throw ConfigError(
                    fmt::format("{}: holds no overrides of a recipe, a mapping with model, train, …; give one, or key=value "
                                "words after --",
                                where));
            for (const auto& change : changes) check_section(change.first.as<std::string>(), where);
            merge(root, changes, 0);
        }
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
    Problems problems;
    for (const std::string& word : words) {
        try {
            apply_word(root, word);
        } catch (const YAML::Exception&) {
            problems.add("override '{}': its value is not valid YAML; write section.field=value, as in model.tensor_model_parallel_size=2",
                         word.substr(0, 100));
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    }
    problems.throw_if_any();
    return YAML::Dump(root) + "\n";
}

Job read_bridge_config(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings) {
    Problems problems;
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        const bool is_configuration = root.IsMap() && root["model"] && root["model"].IsMap();
        if (const auto seen = is_configuration ? std::nullopt : recognise(text)) throw ConfigError(refusal_of(*seen, where));
        if (!is_configuration)
            throw ConfigError(
                fmt::format("{}: is no configuration of Megatron-Bridge, a mapping with model, train, optimizer, ddp, …; write one with "
                            "ConfigContainer.to_yaml, or give Megatron-LM's flags as --megatron-args",
                            where));
        BridgeSections sections(root, where, problems);
        BridgeWords words(sections, root, where, problems);
        words.read();
        if (!surroundings.model && !names_model(words.words()) && !sections.get("model", "hybrid_layer_pattern").set()) {
            problems.add_missing_fact(
                "{}: holds no sizes of a model, as overrides of a recipe do; name the recipe by --recipe NAME, or the model by --model "
                "NAME|config.json, next to the file",
                where);
            problems.throw_if_any();
        }
        const SettingOfFlag field_of = [&](const std::string& flag) { return words.field_of(flag); };
        std::optional<Job> job;
        try {
            MegatronSurroundings of_bridge = surroundings;
            of_bridge.held_against = HeldAgainst::configurations;
            job = read_settings_as_arguments(words.words(), where, of_bridge, field_of);
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
        problems.throw_if_any();
        if (job->model.adapters) {
            const YAML::Node shared = root["peft"]["share_expert_adapters"];
            job->model.adapters->shared_by_experts = !shared || !shared.IsScalar() || shared.as<bool>(true);
        }
        name_fields(job->flags, words, field_of);
        if (const std::string provider = words.provider(); !provider.empty() && !surroundings.model) job->model.name = provider;
        return std::move(*job);
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
}

}  // namespace mgplan::formats
