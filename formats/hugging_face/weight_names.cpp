#include "formats/hugging_face/weight_names.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "formats/hugging_face/layer_weights.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/whole_parameter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

/// Puts one model's parameters and the tensors of its checkpoint together.
class WeightMapper {
public:
    WeightMapper(const ModelSpec& model, const WeightNames& names) : model_(model), names_(names), pieces_(model, names) {}

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
        result_.tensors = pieces_.take();
        return std::move(result_);
    }

private:
    void place(PublishedParameter& entry) {
        const std::string_view name = entry.name;
        if (name == "embedding.word_embeddings.weight") return pieces_.is(entry, fmt::format("{}.weight", names_.embedding));
        if (name == "output_layer.weight") return pieces_.is(entry, fmt::format("{}.weight", names_.output));
        if (name == "output_layer.bias") return pieces_.is(entry, fmt::format("{}.bias", names_.output));
        if (name == "embedding.position_embeddings.weight") return place_positions(entry);
        if (const auto what = rest_behind(name, "decoder.final_layernorm")) return place_norm(entry, std::string(names_.final_norm), *what);
        const auto in_layers = rest_behind(name, "decoder.layers.");
        if (!in_layers) refuse(name);
        const std::size_t dot = in_layers->find('.');
        const std::int64_t layer = std::stoll(std::string(in_layers->substr(0, dot)));
        const LayerWeights at{typed_layer(model_, layer), names_, fmt::format("{}{}.", names_.layers, layer), pieces_};
        const std::string_view rest = in_layers->substr(dot + 1);
        if (!(place_norm_of_layer(entry, at.prefix, rest) || place_attention(at, entry, rest) || place_latent(at, entry, rest) ||
              place_feed_forward(at, entry, rest) || place_mixer(at, entry, rest)))
            refuse(name);
    }

    [[noreturn]] void refuse(std::string_view name) const {
        throw ConfigError(fmt::format("{}: no name is known for '{}' in checkpoints of model_type '{}'", model_.name, name, model_.type));
    }

    void place_positions(PublishedParameter& entry) {
        const std::size_t table = pieces_.tensor(fmt::format("{}.weight", names_.positions), {entry.rows, entry.columns});
        const std::int64_t first = names_.first_position;
        pieces_.append(entry, {table, first * entry.columns, entry.columns, 1, 0, entry.rows - first});
        if (first > 0) pieces_.append(entry, {table, 0, entry.columns, 1, 0, first});  // no token uses them
    }

    /// `what`: ".weight" or ".bias", with "_" for the dot where the norm is part of a linear layer.
    void place_norm(PublishedParameter& entry, const std::string& module, std::string_view what) {
        if (names_.norms_around_0 && what.ends_with("weight")) entry.added = 1;
        pieces_.is(entry, fmt::format("{}.{}", module, what.substr(1)));
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
            pieces_.is(entry, fmt::format("{}{}.{}{}", names_.layers, layer, names_.mixture, names_.router_choice_bias),
                       names_.choice_bias_is_row ? std::vector<std::int64_t>{1, entry.rows} : std::vector{entry.rows});
            result_.parameters.push_back(std::move(entry));
        }
    }

    const ModelSpec& model_;
    const WeightNames& names_;
    PublishedWeights result_;
    WeightPieces pieces_;
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
