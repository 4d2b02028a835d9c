#include "formats/hugging_face/weight_names.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "formats/hugging_face/weight_name_table.hpp"
#include "plan/model/layer_parts.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/whole_parameter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

/// What a name begins with is taken off; nothing where it begins otherwise.
std::optional<std::string_view> rest_behind(std::string_view name, std::string_view start) {
    if (!name.starts_with(start)) return std::nullopt;
    return name.substr(start.size());
}

/// Puts one model's parameters and the tensors of its checkpoint together.
class WeightMapper {
public:
    WeightMapper(const ModelSpec& model, const WeightNames& names) : model_(model), names_(names) {}

    PublishedWeights map() {
        StageChunk all;
        all.embedding = all.loss = true;
        all.decoders = model_.layers;
        for (const Parameter& parameter : chunk_parameters(model_, ParallelSizes{}, all)) {
            const ShardOfWhole shape = shard_of_whole(model_, parameter, ShardPlace{});
            PublishedParameter entry;
            entry.name = whole_name(model_, parameter, ShardPlace{});
            entry.rows = shape.whole_rows;
            entry.columns = shape.whole_columns();
            place(entry);
            result_.parameters.push_back(std::move(entry));
        }
        if (model_.moe && model_.moe->expert_bias) add_expert_biases();
        if (model_.activation == Activation::xielu) add_xielu_constants();
        result_.unused_endings = {".rotary_emb.inv_freq"};
        if (model_.tied_embeddings) result_.unused_endings.push_back(fmt::format("{}.weight", names_.output));
        for (std::string_view rest = names_.unused_endings; !rest.empty();) {
            const std::size_t blank = std::min(rest.find(' '), rest.size());
            result_.unused_endings.emplace_back(rest.substr(0, blank));
            rest.remove_prefix(std::min(blank + 1, rest.size()));
        }
        if (!names_.unused_beginning.empty()) result_.unused_beginnings.emplace_back(names_.unused_beginning);
        if (names_.layer_behind) result_.unused_beginnings.push_back(fmt::format("{}{}.", names_.layers, model_.layers));
        result_.base_prefix = names_.embedding.substr(0, names_.embedding.find('.') + 1);
        return std::move(result_);
    }

private:
    std::size_t tensor(std::string name, std::vector<std::int64_t> shape) {
        const auto [found, is_new] = numbers_.try_emplace(name, result_.tensors.size());
        if (is_new) result_.tensors.push_back({std::move(name), std::move(shape)});
        return found->second;
    }

    /// The next `rows` rows of the parameter.
    static void append(PublishedParameter& to, PublishedRows rows) {
        rows.first_row = to.pieces.empty() ? 0 : to.pieces.back().first_row + to.pieces.back().rows;
        to.pieces.push_back(rows);
    }

    /// The parameter is one tensor, element by element.
    void is(PublishedParameter& entry, std::string name, std::vector<std::int64_t> shape = {}) {
        if (shape.empty()) shape = entry.columns == 1 ? std::vector{entry.rows} : std::vector{entry.rows, entry.columns};
        append(entry, {tensor(std::move(name), std::move(shape)), 0, entry.columns, 1, 0, entry.rows});
    }

    /// A linear layer's matrix or bias, of which rows are taken; `all_rows` there are.
    struct Linear {
        std::size_t tensor;
        std::int64_t row_step, column_step;
    };
    Linear linear(const std::string& module, std::int64_t all_rows, std::int64_t columns, bool is_bias) {
        if (is_bias) return {tensor(module + ".bias", {all_rows}), 1, 1};
        if (names_.transposed) return {tensor(module + ".weight", {columns, all_rows}), 1, all_rows};
        return {tensor(module + ".weight", {all_rows, columns}), columns, 1};
    }
    static void append_rows(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t rows, std::int64_t every = 1) {
        append(to, {from.tensor, first * from.row_step, every * from.row_step, from.column_step, 0, rows});
    }
    void is_linear(PublishedParameter& entry, const std::string& module, bool is_bias) {
        append_rows(entry, linear(module, entry.rows, entry.columns, is_bias), 0, entry.rows);
    }

    /// Rows of one head: where positions turn neighbours, the first of each pair come first here.
    void append_head(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t width, std::int64_t rotated) const {
        if (!model_.rotary_interleaved || rotated == 0) return append_rows(to, from, first, width);
        append_rows(to, from, first, rotated / 2, 2);
        append_rows(to, from, first + 1, rotated / 2, 2);
        if (rotated < width) append_rows(to, from, first + rotated, width - rotated);
    }

    [[nodiscard]] std::int64_t rotated_width() const {
        if (fields_.position != PositionEmbedding::rope) return 0;
        return static_cast<std::int64_t>(static_cast<double>(fields_.head_dim) * fields_.rotary_fraction) / 2 * 2;
    }

    void place(PublishedParameter& entry) {
        const std::string_view name = entry.name;
        fields_ = model_;
        if (name == "embedding.word_embeddings.weight") return is(entry, fmt::format("{}.weight", names_.embedding));
        if (name == "output_layer.weight") return is(entry, fmt::format("{}.weight", names_.output));
        if (name == "output_layer.bias") return is(entry, fmt::format("{}.bias", names_.output));
        if (name == "embedding.position_embeddings.weight") return place_positions(entry);
        if (const auto what = rest_behind(name, "decoder.final_layernorm")) return place_norm(entry, std::string(names_.final_norm), *what);
        const auto in_layers = rest_behind(name, "decoder.layers.");
        if (!in_layers) refuse(name);
        const std::size_t dot = in_layers->find('.');
        const std::int64_t layer = std::stoll(std::string(in_layers->substr(0, dot)));
        if (!model_.compositions.empty()) fields_ = composed_layer(model_, layer).fields;
        const std::string prefix = fmt::format("{}{}.", names_.layers, layer);
        const std::string_view rest = in_layers->substr(dot + 1);
        if (!(place_norm_of_layer(entry, prefix, rest) || place_attention(entry, prefix + std::string(names_.attention), rest) ||
              place_latent(entry, prefix + std::string(names_.attention), rest) || place_mlp(entry, prefix, rest) ||
              place_mixture(entry, prefix, rest) || place_mamba(entry, prefix + std::string(names_.mixer), rest) ||
              place_delta_net(entry, prefix + std::string(names_.mixer), rest)))
            refuse(name);
    }

    [[noreturn]] void refuse(std::string_view name) const {
        throw ConfigError(fmt::format("{}: no name is known for '{}' in checkpoints of model_type '{}'", model_.name, name, model_.type));
    }

    void place_positions(PublishedParameter& entry) {
        const std::size_t table = tensor(fmt::format("{}.weight", names_.positions), {entry.rows, entry.columns});
        const std::int64_t first = names_.first_position;
        append(entry, {table, first * entry.columns, entry.columns, 1, 0, entry.rows - first});
        if (first > 0) append(entry, {table, 0, entry.columns, 1, 0, first});  // no token uses them
    }

    /// `what`: ".weight" or ".bias", with "_" for the dot where the norm stands in a linear layer.
    void place_norm(PublishedParameter& entry, const std::string& module, std::string_view what) {
        if (names_.norms_around_0 && what.ends_with("weight")) entry.added = 1;
        is(entry, fmt::format("{}.{}", module, what.substr(1)));
    }

    bool place_norm_of_layer(PublishedParameter& entry, const std::string& prefix, std::string_view rest) {
        using Place = std::pair<std::string_view, std::string_view>;
        const bool beside = model_.order == LayerOrder::parallel && !names_.input_norm_beside.empty();
        const std::string_view input = beside ? names_.input_norm_beside : names_.input_norm;
        for (const auto& [own, published] : {Place{"input_layernorm", input},
                                             {"self_attention.linear_qkv.layer_norm", input},
                                             {"self_attention.in_proj.layer_norm", names_.input_norm},
                                             {"mixer.in_proj.layer_norm", names_.input_norm},
                                             {"mlp.linear_fc1.layer_norm", beside ? names_.mlp_norm_beside : names_.mlp_norm},
                                             {"pre_mlp_layernorm", names_.mlp_norm},
                                             {"post_self_attn_layernorm", names_.attention_post_norm},
                                             {"post_mlp_layernorm", names_.mlp_post_norm}}) {
            if (const auto what = rest_behind(rest, own)) {
                place_norm(entry, prefix + std::string(published), *what);
                return true;
            }
        }
        return false;
    }

    bool place_attention(PublishedParameter& entry, const std::string& module, std::string_view rest) {
        if (rest == "self_attention.core_attention.softmax_offset") return is(entry, module + std::string(names_.sinks)), true;
        if (const auto what = rest_behind(rest, "self_attention.linear_proj"))
            return is_linear(entry, module + std::string(names_.attention_output), *what == ".bias"), true;
        if (const auto what = rest_behind(rest, "self_attention.linear_qkv")) return place_qkv(entry, module, *what == ".bias"), true;
        for (const auto& [own, published, heads] :
             {std::tuple(std::string_view("self_attention.q_layernorm.weight"), names_.q_norm, fields_.heads),
              std::tuple(std::string_view("self_attention.k_layernorm.weight"), names_.k_norm, fields_.kv_heads)}) {
            if (rest == own) return place_head_norm(entry, module + std::string(published), heads), true;
        }
        return false;
    }

    /// Weights of one head for all, or of each head.
    void place_head_norm(PublishedParameter& entry, const std::string& module, std::int64_t heads) {
        const std::int64_t width = fields_.head_dim;
        const bool per_head = fields_.qk_norm_per_head;
        if (names_.norms_around_0) entry.added = 1;
        if (per_head && names_.head_norms_apart) {
            for (std::int64_t head = 0; head < heads; ++head)
                append_head(entry, {tensor(fmt::format("{}.norms.{}.weight", module, head), {width}), 1, 1}, 0, width, rotated_width());
            return;
        }
        const Linear from{tensor(module + ".weight", per_head ? std::vector{heads, width} : std::vector{entry.rows}), 1, 1};
        for (std::int64_t head = 0; head < entry.rows / width; ++head) append_head(entry, from, head * width, width, rotated_width());
    }

    /// Here each kv head's queries (and the output's gates), its key and its value follow each other.
    void place_qkv(PublishedParameter& entry, const std::string& module, bool is_bias) {
        const std::int64_t width = fields_.head_dim, heads = fields_.heads, kv_heads = fields_.kv_heads, group = heads / kv_heads;
        const std::int64_t gated = fields_.attention_output_gate ? 2 : 1;  // a head's gate behind its query
        const bool joined = names_.qkv_rows != QkvRows::separate;
        const std::string all(names_.qkv);
        const Linear q = joined ? linear(module + all, entry.rows, entry.columns, is_bias)
                                : linear(module + std::string(names_.q), gated * heads * width, entry.columns, is_bias);
        const Linear k = joined ? q : linear(module + std::string(names_.k), kv_heads * width, entry.columns, is_bias);
        const Linear v = joined ? q : linear(module + std::string(names_.v), kv_heads * width, entry.columns, is_bias);
        const bool by_head = names_.qkv_rows == QkvRows::by_head, by_group = names_.qkv_rows == QkvRows::by_group;
        const auto row_of = [&](std::int64_t head, std::int64_t part) {
            if (by_head) return (3 * head + part) * width;
            if (by_group) return (part == 0 ? head / group * (group + 2) + head % group : head * (group + 2) + group + part - 1) * width;
            const std::int64_t before = !joined ? 0 : part == 0 ? 0 : part == 1 ? heads * width : (heads + kv_heads) * width;
            return before + head * width * (part == 0 ? gated : 1);
        };
        for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
            for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
                append_head(entry, q, row_of(head, 0), width, rotated_width());
            for (std::int64_t head = kv * group; gated == 2 && head < (kv + 1) * group; ++head)
                append_rows(entry, q, row_of(head, 0) + width, width);
            append_head(entry, k, row_of(kv, 1), width, rotated_width());
            append_rows(entry, v, row_of(kv, 2), width);
        }
    }

    bool place_latent(PublishedParameter& entry, const std::string& module, std::string_view rest) {
        if (!fields_.mla) return false;
        const MlaSpec& mla = *fields_.mla;
        if (rest == "self_attention.linear_q_down_proj.weight") return is(entry, module + "q_a_proj.weight"), true;
        if (rest == "self_attention.linear_kv_up_proj.weight") return is(entry, module + "kv_b_proj.weight"), true;
        if (rest == "self_attention.linear_q_up_proj.layer_norm_weight") return is(entry, module + "q_a_layernorm.weight"), true;
        if (rest == "self_attention.linear_kv_up_proj.layer_norm_weight") return is(entry, module + "kv_a_layernorm.weight"), true;
        if (rest == "self_attention.linear_kv_down_proj.weight") {
            const Linear from = linear(module + "kv_a_proj_with_mqa", entry.rows, entry.columns, false);
            append_rows(entry, from, 0, mla.kv_lora_rank);
            append_head(entry, from, mla.kv_lora_rank, mla.qk_rope_head_dim, mla.qk_rope_head_dim);
            return true;
        }
        const bool direct = rest == "self_attention.linear_q_proj.weight";
        if (!direct && rest != "self_attention.linear_q_up_proj.weight") return false;
        const Linear from = linear(module + (direct ? "q_proj" : "q_b_proj"), entry.rows, entry.columns, false);
        for (std::int64_t head = 0; head < fields_.heads; ++head) {
            const std::int64_t first = head * fields_.qk_head_dim();
            append_rows(entry, from, first, mla.qk_nope_head_dim);
            append_head(entry, from, first + mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.qk_rope_head_dim);
        }
        return true;
    }

    /// The first product: gates, then values.
    void place_gate_and_up(PublishedParameter& entry, const std::string& module, bool is_bias, std::string_view both, std::string_view gate,
                           std::string_view up) {
        if (!fields_.gated_mlp) return is_linear(entry, module + std::string(up), is_bias);
        if (!both.empty()) return is_linear(entry, module + std::string(both), is_bias);
        for (const auto part : {gate, up})
            append_rows(entry, linear(module + std::string(part), entry.rows / 2, entry.columns, is_bias), 0, entry.rows / 2);
    }

    bool place_mlp(PublishedParameter& entry, const std::string& prefix, std::string_view rest) {
        const std::string module = prefix + std::string(names_.mlp), shared = prefix + std::string(names_.shared);
        if (const auto what = rest_behind(rest, "mlp.linear_fc1"))
            return place_gate_and_up(entry, module, *what == ".bias", names_.gate_and_up, names_.gate, names_.up), true;
        if (const auto what = rest_behind(rest, "mlp.linear_fc2"))
            return is_linear(entry, module + std::string(names_.down), *what == ".bias"), true;
        if (const auto what = rest_behind(rest, "mlp.activation_func.")) return is(entry, fmt::format("{}act_fn.{}", module, *what)), true;
        if (rest == "mlp.shared_experts.linear_fc1.weight")
            return place_gate_and_up(entry, shared, false, names_.shared_gate_and_up, "gate_proj", "up_proj"), true;
        if (rest == "mlp.shared_experts.linear_fc2.weight") return is(entry, shared + std::string(names_.shared_down) + ".weight"), true;
        if (rest == "mlp.shared_experts.gate_weight")
            return is(entry, fmt::format("{}{}.weight", prefix, names_.shared_gate), {1, entry.columns}), true;
        return false;
    }

    bool place_mixture(PublishedParameter& entry, const std::string& prefix, std::string_view rest) {
        const std::string module = prefix + std::string(names_.mixture);
        if (const auto what = rest_behind(rest, "mlp.router."))
            return is(entry, fmt::format("{}{}.{}", module, names_.router, *what)), true;
        for (const std::string_view map : {"fc1_latent_proj.weight", "fc2_latent_proj.weight"}) {
            if (rest_behind(rest, "mlp.") == map) return is(entry, module + std::string(map)), true;
        }
        for (const bool first : {true, false}) {
            const auto numbered = rest_behind(rest, first ? "mlp.experts.linear_fc1." : "mlp.experts.linear_fc2.");
            if (!numbered) continue;
            const bool is_bias = numbered->starts_with("bias");
            const std::int64_t expert = std::stoll(std::string(numbered->substr(is_bias ? 4 : 6)));
            if (names_.expert_rows == ExpertRows::each) {
                const std::string own = fmt::format("{}{}{}.", module, names_.experts, expert);
                if (first)
                    place_gate_and_up(entry, own, is_bias, {}, names_.expert_gate, names_.expert_up);
                else
                    is_linear(entry, own + std::string(names_.expert_down), is_bias);
            } else if (names_.expert_rows == ExpertRows::joined_rows) {
                place_joined_rows(entry, module, expert, first);
            } else {
                place_stacked(entry, module + std::string(first ? names_.stacked_first : names_.stacked_last), expert, first, is_bias);
            }
            return true;
        }
        return false;
    }

    void place_joined_rows(PublishedParameter& entry, const std::string& module, std::int64_t expert, bool first) {
        const std::int64_t width = fields_.moe->expert_ffn, columns = first ? entry.columns : entry.rows;
        const std::int64_t all = fields_.moe->experts * width, begin = expert * width * columns;
        if (!first)
            return append(entry, {tensor(module + std::string(names_.stacked_last), {all, columns}), begin, 1, columns, 0, entry.rows});
        for (const auto part : {names_.stacked_first, names_.stacked_up})
            append(entry, {tensor(module + std::string(part), {all, columns}), begin, columns, 1, 0, width});
    }

    void place_stacked(PublishedParameter& entry, const std::string& name, std::int64_t expert, bool first, bool is_bias) {
        const std::int64_t rows = entry.rows, columns = entry.columns, experts = fields_.moe->experts;
        const bool by_rows = is_bias || names_.expert_rows == ExpertRows::stacked;
        const std::vector<std::int64_t> shape = is_bias   ? std::vector{experts, rows}
                                                : by_rows ? std::vector{experts, rows, columns}
                                                          : std::vector{experts, columns, rows};
        const std::size_t all = tensor(is_bias ? name + "_bias" : name, shape);
        const std::int64_t begin = expert * rows * columns, row_step = by_rows ? columns : 1, column_step = by_rows ? 1 : rows;
        if (!first || names_.expert_rows != ExpertRows::stacked_pairs) return append(entry, {all, begin, row_step, column_step, 0, rows});
        for (const std::int64_t part : {0, 1}) append(entry, {all, begin + part * row_step, 2 * row_step, column_step, 0, rows / 2});
    }

    /// transformers keeps them as buffers, and leaves them undefined where a checkpoint does not hold them (activations.py,
    /// XIELUActivation).
    void add_xielu_constants() {
        for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
            for (const auto& [name, value] : {std::pair{"beta", 0.5}, {"eps", -1e-6}})
                result_.constants.push_back({fmt::format("{}{}.{}act_fn.{}", names_.layers, layer, names_.mlp, name), value});
        }
    }

    void add_expert_biases() {
        for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
            if (!model_.is_moe_layer(layer)) continue;
            PublishedParameter entry;
            entry.name = fmt::format("decoder.layers.{}.mlp.router.expert_bias", layer);
            entry.rows = model_.moe->experts;
            is(entry, fmt::format("{}{}.{}{}", names_.layers, layer, names_.mixture, names_.router_choice_bias),
               names_.choice_bias_is_row ? std::vector<std::int64_t>{1, entry.rows} : std::vector{entry.rows});
            result_.parameters.push_back(std::move(entry));
        }
    }

    bool place_mamba(PublishedParameter& entry, const std::string& module, std::string_view rest) {
        const auto what = rest_behind(rest, "mixer.");
        if (!what) return false;
        if (*what == "conv1d_weight") return is(entry, module + "conv1d.weight", {entry.rows, 1, entry.columns}), true;
        if (*what == "conv.weight") return is(entry, module + "conv.weight", {entry.rows, 1, entry.columns}), true;  // LFM2
        if (*what == "conv1d_bias") return is(entry, module + "conv1d.bias"), true;
        is(entry, module + std::string(*what));
        return true;
    }

    bool place_delta_net(PublishedParameter& entry, const std::string& module, std::string_view rest) {
        const auto what = rest_behind(rest, "self_attention.");
        if (!what) return false;
        if (mixer_of(entry.name).kind == "kimi_delta_attention") return place_kimi_delta(entry, module, *what), true;
        if (mixer_of(entry.name).kind == "lightning_attention") return place_lightning(entry, module, *what), true;
        if (names_.delta_rows == DeltaRows::apart) return place_delta_apart(entry, module, *what), true;
        if (*what == "conv1d.weight") return is(entry, module + "conv1d.weight", {entry.rows, 1, entry.columns}), true;
        if (*what == "out_norm.weight") return is(entry, module + "norm.weight"), true;
        if (*what != "in_proj.weight") return is(entry, module + std::string(*what)), true;
        const LayerPart& part = mixer_of(entry.name);
        const std::int64_t key_heads = part_size(part, "key_heads"), heads = part_size(part, "value_heads"), each = heads / key_heads;
        const std::int64_t key = part_size(part, "key_dim"), value = part_size(part, "value_dim"), columns = entry.columns;
        const std::int64_t keys = key_heads * key, values = heads * value;
        if (names_.delta_rows == DeltaRows::by_part) {
            append_rows(entry, linear(module + "in_proj_qkv", 2 * keys + values, columns, false), 0, 2 * keys + values);
            append_rows(entry, linear(module + "in_proj_z", values, columns, false), 0, values);
            for (const auto* one : {"in_proj_b", "in_proj_a"}) append_rows(entry, linear(module + one, heads, columns, false), 0, heads);
            return true;
        }
        const std::int64_t of_head = 2 * key + 2 * each * value;
        const Linear wide = linear(module + "in_proj_qkvz", key_heads * of_head, columns, false);
        const Linear narrow = linear(module + "in_proj_ba", 2 * heads, columns, false);
        using Rows = std::pair<std::int64_t, std::int64_t>;
        for (const auto& [first, rows] :
             {Rows{0, key}, Rows{key, key}, Rows{2 * key, each * value}, Rows{2 * key + each * value, each * value}}) {
            for (std::int64_t head = 0; head < key_heads; ++head) append_rows(entry, wide, head * of_head + first, rows);
        }
        for (const std::int64_t first : {std::int64_t{0}, each}) {
            for (std::int64_t head = 0; head < key_heads; ++head) append_rows(entry, narrow, head * 2 * each + first, each);
        }
        return true;
    }

    /// Projections and convolutions of OLMo hybrid, which its class joins.
    void place_delta_apart(PublishedParameter& entry, const std::string& module, std::string_view what) {
        if (what == "out_norm.weight") return is(entry, module + "o_norm.weight");
        if (what == "out_proj.weight") return is(entry, module + "o_proj.weight");
        const LayerPart& part = mixer_of(entry.name);
        const std::int64_t heads = part_size(part, "value_heads"), keys = part_size(part, "key_heads") * part_size(part, "key_dim");
        const std::int64_t values = heads * part_size(part, "value_dim");
        using Rows = std::pair<std::string_view, std::int64_t>;
        if (what == "conv1d.weight") {
            for (const auto& [name, rows] : {Rows{"q_conv1d.weight", keys}, Rows{"k_conv1d.weight", keys}, Rows{"v_conv1d.weight", values}})
                append(entry, {tensor(module + std::string(name), {rows, 1, entry.columns}), 0, entry.columns, 1, 0, rows});
            return;
        }
        if (what != "in_proj.weight") return is(entry, module + std::string(what));
        for (const auto& [name, rows] : {Rows{"q_proj", keys}, Rows{"k_proj", keys}, Rows{"v_proj", values}, Rows{"g_proj", values},
                                         Rows{"b_proj", heads}, Rows{"a_proj", heads}})
            append_rows(entry, linear(module + std::string(name), rows, entry.columns, false), 0, rows);
    }

    void place_kimi_delta(PublishedParameter& entry, const std::string& module, std::string_view what) {
        const std::int64_t heads = part_size(mixer_of(entry.name), "heads"), width = heads * part_size(mixer_of(entry.name), "head_dim");
        if (what == "A_log") return is(entry, module + "A_log", {1, 1, heads, 1});
        if (what == "in_proj.weight") {
            for (const auto* one : {"q_proj", "k_proj", "v_proj"})
                append_rows(entry, linear(module + one, width, entry.columns, false), 0, width);
            return append_rows(entry, linear(module + "b_proj", heads, entry.columns, false), 0, heads);
        }
        if (what == "conv1d.weight") {
            for (const auto* one : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
                append(entry, {tensor(module + one, {width, 1, entry.columns}), 0, entry.columns, 1, 0, width});
            return;
        }
        using Name = std::pair<std::string_view, std::string_view>;
        for (const auto& [own, published] : {Name{"decay_down.weight", "f_a_proj.weight"},
                                             {"decay_up.weight", "f_b_proj.weight"},
                                             {"gate_down.weight", "g_a_proj.weight"},
                                             {"gate_up.weight", "g_b_proj.weight"},
                                             {"out_norm.weight", "o_norm.weight"},
                                             {"out_proj.weight", "o_proj.weight"}}) {
            if (what == own) return is(entry, module + std::string(published));
        }
        is(entry, module + std::string(what));
    }

    /// Published rows hold q, k and v of one head behind the other.
    void place_lightning(PublishedParameter& entry, const std::string& module, std::string_view what) {
        if (what == "out_norm.weight") return is(entry, module + "norm.weight");
        if (what != "in_proj.weight") return is(entry, module + std::string(what));
        const std::int64_t heads = part_size(mixer_of(entry.name), "heads"), width = part_size(mixer_of(entry.name), "head_dim");
        const Linear all = linear(module + "qkv_proj", 3 * heads * width, entry.columns, false);
        for (const std::int64_t part : {2, 1, 0}) {
            for (std::int64_t head = 0; head < heads; ++head) append_rows(entry, all, (3 * head + part) * width, width);
        }
        append_rows(entry, linear(module + "output_gate", heads * width, entry.columns, false), 0, heads * width);
    }

    [[nodiscard]] const LayerPart& mixer_of(std::string_view name) const {
        const std::string_view in_layers = *rest_behind(name, "decoder.layers.");
        const auto layer = std::stoull(std::string(in_layers.substr(0, in_layers.find('.'))));
        return model_.compositions.at(model_.composition_of_layer.at(layer)).parts.at(1);
    }

    const ModelSpec& model_;
    ModelSpec fields_;  ///< of the layer that is being placed
    const WeightNames& names_;
    PublishedWeights result_;
    std::map<std::string, std::size_t, std::less<>> numbers_;
};

}  // namespace

PublishedWeights published_weights(const ModelSpec& model) {
    refuse_counted_only(model, model.name);
    if (!model.assumed_architecture.empty())
        throw ConfigError(fmt::format("{}: its type is assumed, so the names of its weights are not known", model.name));
    if (model.mtp_layers > 0)
        throw ConfigError(fmt::format(
            "{}: weights of multi-token prediction are not mapped; set num_nextn_predict_layers = 0 in its config", model.name));
    const auto table = weight_name_table();
    const auto found = std::find_if(table.begin(), table.end(), [&](const WeightNames& names) { return names.type == model.type; });
    if (found == table.end())
        throw ConfigError(fmt::format("{}: how checkpoints of model_type '{}' name their weights is not known; known are {}", model.name,
                                      model.type, fmt::join(types_with_published_weights(), ", ")));
    return WeightMapper(model, *found).map();
}

std::vector<std::string> types_with_published_weights() {
    std::vector<std::string> types;
    for (const WeightNames& names : weight_name_table()) types.emplace_back(names.type);
    return types;
}

}  // namespace mgplan::formats
