#include "plan/json/model_json.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/enum_words.hpp"
#include "plan/json/model_composition_json.hpp"
#include "plan/json/model_layers_json.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parts/model_parts.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

Json mla_to_json(const MlaSpec& mla) {
    Json json{{"q_lora_rank", mla.q_lora_rank},
              {"kv_lora_rank", mla.kv_lora_rank},
              {"qk_nope_head_dim", mla.qk_nope_head_dim},
              {"qk_rope_head_dim", mla.qk_rope_head_dim},
              {"v_head_dim", mla.v_head_dim}};
    if (mla.norm_epsilon != 0) json["norm_epsilon"] = mla.norm_epsilon;
    if (mla.query_norm) json["query_norm"] = true;
    if (mla.index_heads != 0) json["index_heads"] = mla.index_heads;
    if (mla.index_head_dim != 0) json["index_head_dim"] = mla.index_head_dim;
    if (mla.index_top_k != 0) json["index_top_k"] = mla.index_top_k;
    return json;
}

MlaSpec mla_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    MlaSpec mla;
    mla.q_lora_rank = reader.integer_or("q_lora_rank", 0, 0, ModelLimits::hidden);
    mla.kv_lora_rank = reader.integer("kv_lora_rank", 1, ModelLimits::hidden);
    mla.qk_nope_head_dim = reader.integer("qk_nope_head_dim", 1, ModelLimits::head_dim);
    mla.qk_rope_head_dim = reader.integer("qk_rope_head_dim", 0, ModelLimits::head_dim);
    mla.v_head_dim = reader.integer("v_head_dim", 1, ModelLimits::head_dim);
    mla.norm_epsilon = reader.real_or("norm_epsilon", 0, 0, 1);
    mla.query_norm = reader.boolean_or("query_norm", false);
    mla.index_heads = reader.integer_or("index_heads", 0, 0, ModelLimits::heads);
    mla.index_head_dim = reader.integer_or("index_head_dim", 0, 0, ModelLimits::head_dim);
    mla.index_top_k = reader.integer_or("index_top_k", 0, 0, ModelLimits::positions);
    reader.finish();
    return mla;
}

Json streams_to_json(const HyperConnections& streams) {
    return {{"streams", streams.streams}, {"sinkhorn_iterations", streams.sinkhorn_iterations}, {"learned_head", streams.learned_head}};
}

HyperConnections streams_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    HyperConnections streams;
    streams.streams = reader.integer_or("streams", streams.streams, 1, ModelLimits::residual_streams);
    streams.sinkhorn_iterations =
        reader.integer_or("sinkhorn_iterations", streams.sinkhorn_iterations, 1, ModelLimits::sinkhorn_iterations);
    streams.learned_head = reader.boolean_or("learned_head", false);
    reader.finish();
    return streams;
}

Json scaling_to_json(const RotaryScaling& scaling) {
    Json json{{"factor", scaling.factor},
              {"original_positions", scaling.original_positions},
              {"low_frequency_factor", scaling.low_frequency_factor},
              {"high_frequency_factor", scaling.high_frequency_factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"mscale", scaling.mscale},
              {"mscale_all_dim", scaling.mscale_all_dim}};
    if (!scaling.whole_pairs) json["whole_pairs"] = false;
    return json;
}

RotaryScaling scaling_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    RotaryScaling scaling;
    scaling.original_positions = reader.integer_or("original_positions", 0, 0, ModelLimits::positions);
    const auto read = [&](std::string_view field, double& value) { value = reader.real_or(field, value, 0, ModelLimits::rotary_scaling); };
    read("factor", scaling.factor);
    read("low_frequency_factor", scaling.low_frequency_factor);
    read("high_frequency_factor", scaling.high_frequency_factor);
    read("beta_fast", scaling.beta_fast);
    read("beta_slow", scaling.beta_slow);
    read("mscale", scaling.mscale);
    read("mscale_all_dim", scaling.mscale_all_dim);
    scaling.whole_pairs = reader.boolean_or("whole_pairs", true);
    reader.finish();
    return scaling;
}

Json moe_to_json(const MoeSpec& moe, const std::vector<bool>& layers) {
    Json json{{"experts", moe.experts},
              {"top_k", moe.top_k},
              {"expert_ffn", moe.expert_ffn},
              {"shared_ffn", moe.shared_ffn},
              {"layers", layer_pattern_text(layers)},
              {"shared_gate", moe.shared_gate},
              {"expert_bias", moe.expert_bias},
              {"router_bias", moe.router_bias},
              {"score", word_of(moe.score)},
              {"dispatcher", word_of(moe.dispatcher)},
              {"grouped_gemm", moe.grouped_gemm},
              {"auxiliary_loss", moe.auxiliary_loss},
              {"capacity_factor", moe.capacity_factor},
              {"pad_to_capacity", moe.pad_to_capacity},
              {"groups", moe.groups},
              {"group_top_k", moe.group_top_k},
              {"expert_bias_update_rate", moe.expert_bias_update_rate}};
    if (moe.latent != 0) json["latent"] = moe.latent;
    if (moe.branch_norms) json["branch_norms"] = true;
    if (moe.sequence_auxiliary_loss != 0) json["sequence_auxiliary_loss"] = moe.sequence_auxiliary_loss;
    if (moe.routed_scaling != 1) json["routed_scaling"] = moe.routed_scaling;
    if (!moe.normalize_top_k) json["normalize_top_k"] = false;
    if (moe.group_scores != 0) json["group_scores"] = moe.group_scores;
    return json;
}

MoeSpec moe_from_json(const Json& json, const std::string& where, std::int64_t model_layers, std::vector<bool>& layers,
                      Problems& problems) {
    JsonReader reader(json, where, problems);
    MoeSpec moe;
    moe.experts = reader.integer("experts", 1, ModelLimits::experts);
    moe.top_k = reader.integer("top_k", 1, ModelLimits::experts);
    moe.expert_ffn = reader.integer("expert_ffn", 1, ModelLimits::ffn);
    moe.latent = reader.integer_or("latent", 0, 0, ModelLimits::hidden);
    moe.shared_ffn = reader.integer_or("shared_ffn", 0, 0, ModelLimits::ffn);
    if (reader.has("layers")) {
        try {
            layers = parse_layer_pattern(reader.text("layers"), ModelLimits::layers);
        } catch (const ConfigError& error) {
            problems.absorb(error, where + ": ");
        }
    } else {
        reader.ignore("layers");
        layers.assign(static_cast<std::size_t>(model_layers), true);
    }
    moe.shared_gate = reader.boolean_or("shared_gate", moe.shared_gate);
    moe.branch_norms = reader.boolean_or("branch_norms", moe.branch_norms);
    moe.expert_bias = reader.boolean_or("expert_bias", moe.expert_bias);
    moe.router_bias = reader.boolean_or("router_bias", moe.router_bias);
    moe.score = read_word(reader, "score", moe.score);
    moe.dispatcher = read_word(reader, "dispatcher", moe.dispatcher);
    moe.grouped_gemm = reader.boolean_or("grouped_gemm", moe.grouped_gemm);
    moe.auxiliary_loss = reader.real_or("auxiliary_loss", 0, 0, ModelLimits::auxiliary_loss);
    moe.capacity_factor = reader.real_or("capacity_factor", 0, 0, static_cast<double>(ModelLimits::experts));
    moe.pad_to_capacity = reader.boolean_or("pad_to_capacity", moe.pad_to_capacity);
    moe.groups = reader.integer_or("groups", 0, 0, ModelLimits::experts);
    moe.group_top_k = reader.integer_or("group_top_k", 0, 0, ModelLimits::experts);
    moe.expert_bias_update_rate =
        reader.real_or("expert_bias_update_rate", moe.expert_bias_update_rate, 0, ModelLimits::expert_bias_update_rate);
    moe.sequence_auxiliary_loss = reader.real_or("sequence_auxiliary_loss", 0, 0, ModelLimits::auxiliary_loss);
    moe.routed_scaling = reader.real_or("routed_scaling", 1, 0, ModelLimits::routed_scaling);
    moe.normalize_top_k = reader.boolean_or("normalize_top_k", true);
    moe.group_scores = reader.integer_or("group_scores", 0, 0, ModelLimits::experts);
    reader.finish();
    return moe;
}

/// A number, or the layers by kind: [{"kind", "count"}], of which the counts are summed.
std::int64_t read_layers(JsonReader& reader) {
    const Json* kinds = reader.has("layers") ? reader.member("layers") : nullptr;
    if (kinds == nullptr || !kinds->is_array()) return reader.integer("layers", 1, ModelLimits::layers);
    std::int64_t layers = 0;
    for (const auto& kind : *kinds) {
        JsonReader entry(kind, reader.where() + ": layers", reader.problems());
        entry.ignore("kind");
        layers = std::min(layers + entry.integer("count", 1, ModelLimits::layers), ModelLimits::layers + 1);
        entry.finish();
    }
    return layers;
}

}  // namespace

Json model_to_json(const ModelSpec& model) {
    Json json = {{"name", model.name},
                 {"source", model.source},
                 {"layers", model.layers},
                 {"hidden", model.hidden},
                 {"ffn", model.ffn},
                 {"heads", model.heads},
                 {"kv_heads", model.kv_heads},
                 {"head_dim", model.head_dim},
                 {"vocab", model.vocab},
                 {"max_positions", model.max_positions},
                 {"activation", word_of(model.activation)},
                 {"gated_mlp", model.gated_mlp},
                 {"normalization", word_of(model.normalization)},
                 {"position", word_of(model.position)},
                 {"rotary_fraction", model.rotary_fraction},
                 {"rotary_base", model.rotary_base},
                 {"rotary_scaling", model.rotary_scaling},
                 {"norm_epsilon", model.norm_epsilon},
                 {"tied_embeddings", model.tied_embeddings},
                 {"qkv_bias", model.qkv_bias},
                 {"attention_output_bias", model.attention_output_bias},
                 {"mlp_bias", model.mlp_bias},
                 {"qk_norm", model.qk_norm},
                 {"qk_norm_full_width", model.qk_norm_full_width},
                 {"attention_sinks", model.attention_sinks},
                 {"sliding_window", model.sliding_window},
                 {"full_attention_every", model.full_attention_every},
                 {"token_types", model.token_types},
                 {"mtp_layers", model.mtp_layers},
                 {"mtp_repeated", model.mtp_repeated},
                 {"mtp_loss_factor", model.mtp_loss_factor},
                 {"vocab_divisor", model.vocab_divisor},
                 {"attention_dropout", model.attention_dropout},
                 {"hidden_dropout", model.hidden_dropout}};
    composition_to_json(model, json);
    if (model.padded_rows != 0) json["padded_rows"] = model.padded_rows;
    if (model.word_width != 0) json["word_width"] = model.word_width;
    if (model.labels) json["labels"] = *model.labels;
    if (!model.type.empty()) json["type"] = model.type;
    if (!model.assumed_architecture.empty()) json["assumed_architecture"] = model.assumed_architecture;
    if (!model.left_out.empty()) json["left_out"] = model.left_out;
    if (model.init_deviation != ModelSpec{}.init_deviation) json["init_deviation"] = model.init_deviation;
    if (model.rotary_scaling_values != RotaryScaling{}) json["rotary_scaling_values"] = scaling_to_json(model.rotary_scaling_values);
    if (model.mla) json["mla"] = mla_to_json(*model.mla);
    if (model.hyper_connections) json["hyper_connections"] = streams_to_json(*model.hyper_connections);
    if (model.moe) json["moe"] = moe_to_json(*model.moe, model.moe_layers);
    if (model.adapters) json["adapters"] = adapters_to_json(*model.adapters);
    if (model.default_sequence) json["default_sequence"] = *model.default_sequence;
    if (model.default_global_batch) json["default_global_batch"] = *model.default_global_batch;
    return json;
}

ModelSpec model_from_json(const Json& json, const std::string& where) {
    if (json.is_object() && json.contains("version")) return spec_from_layers_json(json, where);
    Problems problems;
    JsonReader reader(json, where, problems);
    ModelSpec model;
    model.name = reader.text_or("name", "");
    model.source = reader.text_or("source", "");
    model.type = reader.text_or("type", "");
    model.assumed_architecture = reader.text_or("assumed_architecture", "");
    model.left_out = reader.texts("left_out");
    if (model.left_out.size() > ModelLimits::left_out)
        problems.add("{}: left_out has {} entries; give at most {}", where, model.left_out.size(), ModelLimits::left_out);
    model.layers = read_layers(reader);
    // Counts that follow from the rest, in what commands print.
    for (const auto* field : {"parameters", "active_parameters", "mtp_parameters", "counted_only", "unused_fields", "trained_parameters"})
        reader.ignore(field);
    model.hidden = reader.integer("hidden", 1, ModelLimits::hidden);
    model.ffn = reader.integer("ffn", 1, ModelLimits::ffn);
    model.heads = reader.integer("heads", 1, ModelLimits::heads);
    model.kv_heads = reader.integer_or("kv_heads", model.heads, 1, ModelLimits::heads);
    const bool mla = reader.has("mla");
    if (mla || reader.has("head_dim") || model.hidden % model.heads != 0)
        model.head_dim =
            mla ? reader.integer_or("head_dim", 0, 0, ModelLimits::head_dim) : reader.integer("head_dim", 1, ModelLimits::head_dim);
    else
        model.head_dim = model.hidden / model.heads;
    reader.ignore("head_dim");
    model.vocab = reader.integer("vocab", 1, ModelLimits::vocab);
    model.max_positions = reader.integer("max_positions", 1, ModelLimits::positions);
    model.activation = read_word(reader, "activation", model.activation);
    model.gated_mlp = reader.boolean_or("gated_mlp", model.gated_mlp);
    model.normalization = read_word(reader, "normalization", model.normalization);
    model.position = read_word(reader, "position", model.position);
    model.rotary_fraction = reader.real_or("rotary_fraction", model.rotary_fraction, 0, 1);
    model.rotary_base = reader.real_or("rotary_base", model.rotary_base, 0, ModelLimits::rotary_base);
    model.rotary_scaling = reader.text_or("rotary_scaling", "");
    model.norm_epsilon = reader.real_or("norm_epsilon", model.norm_epsilon, 0, 1);
    model.init_deviation = reader.real_or("init_deviation", model.init_deviation, 0, ModelLimits::init_deviation);
    model.tied_embeddings = reader.boolean_or("tied_embeddings", model.tied_embeddings);
    model.qkv_bias = reader.boolean_or("qkv_bias", model.qkv_bias);
    model.attention_output_bias = reader.boolean_or("attention_output_bias", model.attention_output_bias);
    model.mlp_bias = reader.boolean_or("mlp_bias", model.mlp_bias);
    model.qk_norm = reader.boolean_or("qk_norm", model.qk_norm);
    model.qk_norm_full_width = reader.boolean_or("qk_norm_full_width", model.qk_norm_full_width);
    model.attention_sinks = reader.boolean_or("attention_sinks", model.attention_sinks);
    model.sliding_window = reader.integer_or("sliding_window", 0, 0, ModelLimits::positions);
    model.full_attention_every = reader.integer_or("full_attention_every", 0, 0, ModelLimits::layers);
    model.token_types = reader.integer_or("token_types", 0, 0, ModelLimits::hidden);
    model.mtp_layers = reader.integer_or("mtp_layers", 0, 0, ModelLimits::mtp_layers);
    model.mtp_repeated = reader.boolean_or("mtp_repeated", false);
    model.mtp_loss_factor = reader.real_or("mtp_loss_factor", model.mtp_loss_factor, 0, ModelLimits::mtp_loss_factor);
    model.vocab_divisor = reader.integer_or("vocab_divisor", model.vocab_divisor, 1, ModelLimits::vocab);
    model.padded_rows = reader.integer_or("padded_rows", 0, 0, ModelLimits::vocab);
    model.attention_dropout = reader.real_or("attention_dropout", 0, 0, 1);
    model.hidden_dropout = reader.real_or("hidden_dropout", 0, 0, 1);
    model.word_width = reader.integer_or("word_width", 0, 0, ModelLimits::hidden);
    const ModelParts parts = composition_from_json(reader, model);
    if (const Json* member = reader.member("rotary_scaling_values"))
        model.rotary_scaling_values = scaling_from_json(*member, where + ": rotary_scaling_values", problems);
    if (const Json* member = reader.member("mla")) model.mla = mla_from_json(*member, where + ": mla", problems);
    if (const Json* member = reader.member("hyper_connections"))
        model.hyper_connections = streams_from_json(*member, where + ": hyper_connections", problems);
    if (const Json* member = reader.member("moe"))
        model.moe = moe_from_json(*member, where + ": moe", model.layers, model.moe_layers, problems);
    if (const Json* member = reader.member("adapters")) model.adapters = adapters_from_json(*member, where + ": adapters", problems);
    if (reader.has("labels")) model.labels = reader.integer("labels", 0, ModelLimits::vocab);
    reader.ignore("labels");
    if (reader.has("default_sequence")) model.default_sequence = reader.integer("default_sequence", 1, ModelLimits::positions);
    reader.ignore("default_sequence");
    if (reader.has("default_global_batch")) model.default_global_batch = reader.integer("default_global_batch", 1, ModelLimits::positions);
    reader.ignore("default_global_batch");
    reader.finish();
    problems.throw_if_any();
    set_layers(model, parts, where);
    check_adapters(model, where + ": adapters");
    return by_fields_if_possible(std::move(model));
}

}  // namespace mgplan
