#include "formats/megatron/bridge_sections.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Fields = BridgeSections::Fields;

constexpr std::size_t kMostFields = 4096;  ///< of a section, as of an object of JSON

/// "bfloat16" of torch as Megatron-LM's flags call it.
std::string type_name(const std::string& name) {
    static const std::map<std::string, std::string> kNames{{"float32", "fp32"}, {"float", "fp32"},    {"float16", "fp16"},
                                                           {"half", "fp16"},    {"bfloat16", "bf16"}, {"uint8", "fp8"}};
    const auto found = kNames.find(name);
    return found == kNames.end() ? name : found->second;
}

/// `inner`: an item of a list, which holds no further lists: an alias may hold itself.
FieldValue value_of(const YAML::Node& node, bool inner = false) {
    using Kind = FieldValue::Kind;
    FieldValue value;
    if (!node.IsDefined() || node.IsNull()) return value;
    if (node.IsScalar()) {
        const std::string& text = node.Scalar();
        if (text == "true" || text == "True" || text == "false" || text == "False")
            return {Kind::truth, text[0] == 't' || text[0] == 'T', {}};
        return {Kind::text, false, {text.starts_with("torch.") ? type_name(last_name(text)) : text}};
    }
    if (node.IsSequence() && inner) return {Kind::other, false, {}};
    if (node.IsSequence()) {
        value.kind = Kind::list;
        for (const auto& item : node) {
            FieldValue one = value_of(item, true);
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
        return {Kind::text, false, {type_name(last_name(target.Scalar()))}};
    return {Kind::other, false, {}};
}

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

}  // namespace

std::string FieldValue::text() const {
    return fmt::format("{}", fmt::join(words, ","));
}

bool FieldValue::set() const {
    if (kind == Kind::truth) return truth;
    if (kind == Kind::text) return words[0] != "0" && words[0] != "none" && !words[0].empty();
    return kind == Kind::other || (kind == Kind::list && !words.empty());
}

std::string last_name(const std::string& dotted) {
    return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

BridgeSections::BridgeSections(const YAML::Node& root, const std::string& where, Problems& problems) {
    for (const auto& section : root) {
        if (!section.first.IsScalar() || !section.second.IsMap()) continue;
        if (section.second.size() > kMostFields)
            throw ConfigError(fmt::format("{}: {} has {} fields, of {} at most; this is no configuration", where,
                                          section.first.Scalar().substr(0, 60), section.second.size(), kMostFields));
        add(section.first.Scalar(), section.second);
    }
    read_precision(root["mixed_precision"], where, problems);
    read_overlaps();
}

FieldValue BridgeSections::get(std::string_view section, std::string_view field) const {
    const auto fields = sections_.find(section);
    if (fields == sections_.end()) return {};
    const auto found = fields->second.find(field);
    return found == fields->second.end() ? FieldValue{} : found->second;
}

std::int64_t BridgeSections::count(std::string_view section, std::string_view field) const {
    return parse_integer(text(section, field)).value_or(1);
}

void BridgeSections::add(const std::string& section, const YAML::Node& node, bool inner) {
    for (const auto& entry : node) {
        if (!entry.first.IsScalar()) continue;
        const std::string& field = entry.first.Scalar();
        if (field.starts_with('_')) continue;
        // GPTModelConfig keeps what TransformerConfig has in a field of its own.
        if (!inner && section == "model" && field == "transformer" && entry.second.IsMap())
            add(section, entry.second, true);
        else
            sections_[section][field] = value_of(entry.second);
    }
}

void BridgeSections::apply(const Fields& fields) {
    static constexpr std::array kOfDdp{"grad_reduce_in_fp32", "fp8_param_gather", "fp4_param_gather", "reuse_grad_buf_for_mxfp8_param_ag"};
    for (const auto& [field, value] : fields) {
        const bool of_ddp = std::find(kOfDdp.begin(), kOfDdp.end(), field) != kOfDdp.end();
        sections_[of_ddp ? "ddp" : "model"][field] = value;
    }
}

void BridgeSections::read_precision(const YAML::Node& node, const std::string& where, Problems& problems) {
    if (!node || node.IsNull()) return;
    if (node.IsMap()) {
        apply(sections_["mixed_precision"]);
    } else if (node.IsScalar()) {
        if (const auto fields = mixed_precision_recipe(node.Scalar()))
            apply(*fields);
        else
            problems.add("{}: mixed_precision = '{}' is no recipe that is known; write its fields out, as ConfigContainer.to_yaml does",
                         where, node.Scalar().substr(0, 60));
    }
}

/// training/comm_overlap.py, CommOverlapConfig.setup: what is not set is chosen.
void BridgeSections::read_overlaps() {
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

}  // namespace mgplan::formats
