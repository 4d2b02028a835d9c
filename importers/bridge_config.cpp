#include "importers/bridge_config.hpp"

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

#include "importers/bridge_fields.hpp"
#include "importers/megatron_flags.hpp"
#include "plan/errors.hpp"
#include "plan/text.hpp"

namespace mgplan::importers {
namespace {

/// A field's value as a flag would have it.
struct FieldValue {
    enum class Kind : std::uint8_t { none, truth, text, list, other };
    Kind kind = Kind::none;
    bool truth = false;
    std::vector<std::string> words;  ///< of a text one

    [[nodiscard]] std::string text() const { return fmt::format("{}", fmt::join(words, ",")); }
    /// Whether it is there and asks for something.
    [[nodiscard]] bool set() const {
        if (kind == Kind::truth) return truth;
        if (kind == Kind::text) return words[0] != "0" && words[0] != "none" && !words[0].empty();
        return kind == Kind::other || (kind == Kind::list && !words.empty());
    }
};

std::string last_part(const std::string& dotted) {
    return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

/// "bfloat16" of torch as Megatron-LM's flags call it.
std::string type_name(const std::string& name) {
    static const std::map<std::string, std::string> kNames{{"float32", "fp32"}, {"float", "fp32"},    {"float16", "fp16"},
                                                           {"half", "fp16"},    {"bfloat16", "bf16"}, {"uint8", "fp8"}};
    const auto found = kNames.find(name);
    return found == kNames.end() ? name : found->second;
}

FieldValue value_of(const YAML::Node& node) {
    using Kind = FieldValue::Kind;
    FieldValue value;
    if (!node.IsDefined() || node.IsNull()) return value;
    if (node.IsScalar()) {
        const std::string& text = node.Scalar();
        if (text == "true" || text == "True" || text == "false" || text == "False")
            return {Kind::truth, text[0] == 't' || text[0] == 'T', {}};
        return {Kind::text, false, {text.starts_with("torch.") ? type_name(last_part(text)) : text}};
    }
    if (node.IsSequence()) {
        value.kind = Kind::list;
        for (const auto& item : node) {
            FieldValue one = value_of(item);
            if (one.kind != Kind::text) return {Kind::other, false, {}};
            value.words.push_back(std::move(one.words[0]));
        }
        return value;
    }
    // An enumerator has its name, a function, a class or a type its path; other objects have fields.
    const YAML::Node name = node["_name_"], target = node["_target_"];
    if (name && name.IsScalar()) return {Kind::text, false, {name.Scalar()}};
    const YAML::Node call = node["_call_"];
    if (target && target.IsScalar() && call && call.IsScalar() && (call.Scalar() == "false" || call.Scalar() == "False"))
        return {Kind::text, false, {type_name(last_part(target.Scalar()))}};
    return {Kind::other, false, {}};
}

using Fields = std::map<std::string, FieldValue, std::less<>>;

/// training/mixed_precision.py: what its recipes by name set, of fields that a prediction follows.
std::optional<Fields> mixed_precision_recipe(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    const auto text = [](const char* word) { return FieldValue{FieldValue::Kind::text, false, {word}}; };
    const auto truth = [](bool is) { return FieldValue{FieldValue::Kind::truth, is, {}}; };
    std::string_view rest = name;
    Fields fields;
    int in_16_bits = 1;
    for (const std::string_view own : {"nemotron_h_", "nanov2_", "nemotron_3_super_"}) {
        if (!rest.starts_with(own)) continue;
        rest.remove_prefix(own.size());
        in_16_bits = 2;
    }
    const bool super = name.starts_with("nemotron_3_super_"), bf16 = rest.starts_with("bf16_");
    if (!bf16 && !rest.starts_with("fp16_")) return std::nullopt;
    rest.remove_prefix(5);
    fields["bf16"] = truth(bf16);
    fields["fp16"] = truth(!bf16);
    fields["grad_reduce_in_fp32"] = truth(bf16);
    fields["fp8"] = fields["fp4"] = {};
    const auto fp8 = [&](const char* format, const char* recipe, bool gathered) {
        fields["fp8"] = text(format);
        fields["fp8_recipe"] = text(recipe);
        fields["fp8_param_gather"] = truth(gathered);
    };
    const auto ends = [&](const std::string& start, const std::string& end) {
        fields["first_last_layers_bf16"] = truth(true);
        fields["num_layers_at_start_in_bf16"] = text(start.c_str());
        fields["num_layers_at_end_in_bf16"] = text(end.c_str());
    };
    if (rest == "mixed") return fields;
    if (rest == "with_fp8_delayed_scaling_mixed") {
        fp8("hybrid", "delayed", true);
    } else if (rest == "with_mxfp8_mixed") {
        fp8("e4m3", "mxfp8", true);
        fields["reuse_grad_buf_for_mxfp8_param_ag"] = truth(true);
    } else if (rest == "with_fp8_current_scaling_mixed") {
        fp8("hybrid", name.starts_with("nanov2_") ? "blockwise" : "tensorwise", true);
        ends(std::to_string(in_16_bits), std::to_string(in_16_bits));
    } else if (rest == "with_fp8_subchannel_scaling_mixed") {
        fp8("hybrid", "blockwise", false);
    } else if (rest == "with_nvfp4_mixed") {
        fields["fp4"] = text("e2m1");
        fields["fp4_param_gather"] = truth(true);
        if (super) ends("0", "14");
    } else {
        return std::nullopt;
    }
    return fields;
}

/// The sections of a file, each field where Megatron-Bridge would find it once mixed_precision and comm_overlap are applied.
class BridgeSections {
public:
    BridgeSections(const YAML::Node& root, const std::string& where, Problems& problems) : where_(where) {
        for (const auto& section : root) {
            if (section.first.IsScalar() && section.second.IsMap()) add(section.first.Scalar(), section.second);
        }
        read_precision(root["mixed_precision"], problems);
        read_overlaps();
    }

    [[nodiscard]] FieldValue get(std::string_view section, std::string_view field) const {
        const auto fields = sections_.find(section);
        if (fields == sections_.end()) return {};
        const auto found = fields->second.find(field);
        return found == fields->second.end() ? FieldValue{} : found->second;
    }
    [[nodiscard]] const Fields& of(const std::string& section) { return sections_[section]; }
    [[nodiscard]] std::string text(std::string_view section, std::string_view field) const { return get(section, field).text(); }
    [[nodiscard]] bool on(std::string_view section, std::string_view field) const { return get(section, field).set(); }
    /// A whole number; 1 where there is none.
    [[nodiscard]] std::int64_t count(std::string_view section, std::string_view field) const {
        return parse_integer(text(section, field)).value_or(1);
    }

private:
    void add(const std::string& section, const YAML::Node& node) {
        for (const auto& entry : node) {
            if (!entry.first.IsScalar()) continue;
            const std::string& field = entry.first.Scalar();
            if (field.starts_with('_')) continue;
            // GPTModelConfig keeps what TransformerConfig has in a field of its own.
            if (section == "model" && field == "transformer" && entry.second.IsMap())
                add(section, entry.second);
            else
                sections_[section][field] = value_of(entry.second);
        }
    }

    void apply(const Fields& fields) {
        static constexpr std::array kOfDdp{"grad_reduce_in_fp32", "fp8_param_gather", "fp4_param_gather",
                                           "reuse_grad_buf_for_mxfp8_param_ag"};
        for (const auto& [field, value] : fields) {
            const bool of_ddp = std::find(kOfDdp.begin(), kOfDdp.end(), field) != kOfDdp.end();
            sections_[of_ddp ? "ddp" : "model"][field] = value;
        }
    }

    void read_precision(const YAML::Node& node, Problems& problems) {
        if (!node || node.IsNull()) return;
        if (node.IsMap()) {
            apply(sections_["mixed_precision"]);
        } else if (node.IsScalar()) {
            if (const auto fields = mixed_precision_recipe(node.Scalar()))
                apply(*fields);
            else
                problems.add("{}: mixed_precision = '{}' is no recipe that is known; write its fields out, as ConfigContainer.to_yaml does",
                             where_, node.Scalar().substr(0, 60));
        }
    }

    /// training/comm_overlap.py, CommOverlapConfig.setup: what is not set is chosen.
    void read_overlaps() {
        const auto found = sections_.find("comm_overlap");
        if (found == sections_.end()) return;
        const Fields given = found->second;
        const auto asked = [&](const char* field, bool otherwise) {
            const auto value = given.find(field);
            return value == given.end() || value->second.kind != FieldValue::Kind::truth ? otherwise : value->second.truth;
        };
        const auto choose = [&](const char* section, const char* field, bool on) {
            sections_[section][field] = {FieldValue::Kind::truth, on, {}};
        };
        const bool tp = count("model", "tensor_model_parallel_size") > 1 && on("model", "sequence_parallel");
        choose("model", "tp_comm_overlap", tp && asked("tp_comm_overlap", false));
        const bool interleaved =
            count("model", "pipeline_model_parallel_size") > 1 && count("model", "virtual_pipeline_model_parallel_size") > 1;
        choose("model", "overlap_p2p_comm", asked("overlap_p2p_comm", interleaved));
        for (const char* field : {"defer_embedding_wgrad_compute", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute"})
            choose("model", field, asked(field, false));
        if (!on("ddp", "use_distributed_optimizer")) return;
        const bool several = text("comm_overlap", "data_parallel_size") != "1";
        choose("ddp", "overlap_grad_reduce", asked("overlap_grad_reduce", several));
        choose("ddp", "overlap_param_gather", asked("overlap_param_gather", several));
        if (const auto bucket = given.find("bucket_size"); bucket != given.end() && bucket->second.set())
            sections_["ddp"]["bucket_size"] = bucket->second;
        else if (several)
            sections_["ddp"]["bucket_size"] = {FieldValue::Kind::text, false, {std::to_string(128 << 20)}};
    }

    const std::string& where_;
    std::map<std::string, Fields, std::less<>> sections_;
};

/// Turns the fields into Megatron-LM's words, and keeps which field said which flag.
class BridgeWords {
public:
    BridgeWords(BridgeSections& sections, const YAML::Node& root, const std::string& where, Problems& problems)
        : sections_(sections), root_(root), where_(where), problems_(problems) {}

    void read() {
        refuse_other_jobs();
        for (const FieldRule& rule : bridge_field_rules()) add_by_rule(rule);
        add_model();
        for (const char* section : {"model", "ddp", "optimizer", "train", "dist"}) add_by_name(section);
        check_rules();
    }

    [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
    [[nodiscard]] const std::vector<std::string>& unknown() const { return unknown_; }

    /// The text with fields in place of flags.
    [[nodiscard]] std::string in_fields(const std::string& text) const {
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const auto begin = std::min(text.find("--", at), text.size());
            out += text.substr(at, begin - at);
            std::size_t end = begin;
            while (end < text.size() && (text[end] == '-' || std::isalnum(static_cast<unsigned char>(text[end])) != 0)) ++end;
            const std::string flag = text.substr(begin, end - begin);
            out += field_of(flag);
            at = end;
        }
        return out;
    }

private:
    using Kind = FieldValue::Kind;

    /// The field that said the flag, or has to; other flags stay what they are.
    [[nodiscard]] std::string field_of(const std::string& flag) const {
        const auto found = fields_.find(flag);
        if (found != fields_.end()) return found->second;
        for (const std::string_view needed : {"--num-layers", "--hidden-size", "--num-attention-heads"}) {
            if (flag != needed) continue;
            std::string name = flag.substr(2);
            std::replace(name.begin(), name.end(), '-', '_');
            return "model." + name;
        }
        return flag;
    }

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
        // Unpadded the vocabulary is divided by tp alone.
        const FieldValue pads = sections_.get("model", "should_pad_vocab"),
                         divisor = sections_.get("model", "make_vocab_size_divisible_by");
        if (pads.kind == Kind::truth && !pads.truth && path == "model.vocab_size")
            add("--make-vocab-size-divisible-by", "model.should_pad_vocab", {"1"});
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

    void refuse_other_jobs() {
        const YAML::Node target = root_["model"]["_target_"], adapters = root_["peft"];
        const std::string name = target && target.IsScalar() ? last_part(target.Scalar()) : "";
        if (adapters && !adapters.IsNull())
            problems_.add("{}: peft: adapters (LoRA) cannot be planned; remove it, to train all weights", where_);
        for (const char* other : {"T5", "MIMO", "Mimo", "VL", "Omni", "Vision", "Diffusion", "Distillation"}) {
            if (name.find(other) == std::string::npos) continue;
            problems_.add("{}: model: {} cannot be planned; give a model of decoder layers only", where_, name.substr(0, 80));
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
    std::map<std::string, std::string> fields_;  ///< by flag: the field that said it
};

/// The lists of an account with fields in place of flags.
void name_fields(FlagAccount& account, const BridgeWords& words) {
    for (auto* list : {&account.used, &account.without_effect, &account.unknown}) {
        for (auto& flag : *list) flag = words.in_fields(flag);
        std::set<std::string> seen;
        std::erase_if(*list, [&](const std::string& field) { return !seen.insert(field).second; });
    }
    for (auto& one : account.not_computed) one.flag = words.in_fields(one.flag);
    account.unknown.insert(account.unknown.end(), words.unknown().begin(), words.unknown().end());
}

}  // namespace

Job read_bridge_config(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings) {
    Problems problems;
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        if (!root.IsMap() || !root["model"] || !root["model"].IsMap())
            throw ConfigError(
                fmt::format("{}: is no configuration of Megatron-Bridge, a mapping with model, train, optimizer, ddp, …; write one with "
                            "ConfigContainer.to_yaml, or give Megatron-LM's flags as --megatron-args",
                            where));
        BridgeSections sections(root, where, problems);
        BridgeWords words(sections, root, where, problems);
        words.read();
        std::optional<Job> job;
        try {
            job = read_megatron_arguments(words.words(), where, surroundings);
        } catch (const ConfigError& error) {
            for (const auto& problem : error.problems()) problems.add("{}", words.in_fields(problem));
        }
        problems.throw_if_any();
        name_fields(job->flags, words);
        for (auto& assumption : job->assumptions) assumption = words.in_fields(assumption);
        return std::move(*job);
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
}

}  // namespace mgplan::importers
