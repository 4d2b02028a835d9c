#include "reports/model_summary.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/model_json.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

std::string_view attention_of_layer(const ModelSpec& model, std::int64_t layer) {
    if (model.mla) return "latent_attention";
    return model.window_of_layer(layer) > 0 ? "window_attention" : "attention";
}

ParameterCount mtp_layer(const ModelSpec& model) {
    return mtp_layer_parameter_count(model, 1, 1, 1);
}

}  // namespace

std::vector<LayerCount> layers_by_kind(const ModelSpec& model) {
    std::vector<LayerCount> kinds;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const std::string kind = model.kinds.empty()
                                     ? fmt::format("{}+{}", attention_of_layer(model, layer), model.is_moe_layer(layer) ? "moe" : "mlp")
                                     : model.kinds.at(model.kind_of_layer.at(static_cast<std::size_t>(layer))).name;
        const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const LayerCount& known) { return known.kind == kind; });
        if (found == kinds.end())
            kinds.push_back({kind, 1});
        else
            ++found->count;
    }
    return kinds;
}

std::int64_t mtp_parameters(const ModelSpec& model) {
    return model.mtp_layers == 0 ? 0 : model.mtp_weights(model.mtp_layers) * mtp_layer(model).total();
}

std::int64_t active_mtp_parameters(const ModelSpec& model) {
    if (model.mtp_layers == 0) return 0;
    const ParameterCount layer = mtp_layer(model);
    return model.mtp_weights(model.mtp_layers) *
           (layer.dense + (model.moe ? layer.expert / model.moe->experts * model.moe->top_k : layer.expert));
}

Json assumed_architecture_to_json(const ModelSpec& model) {
    return model.assumed_architecture.empty() ? Json() : Json(model.assumed_architecture);
}

Json model_summary_to_json(const ModelSpec& model) {
    Json layers = Json::array();
    for (const auto& [kind, count] : layers_by_kind(model)) layers.push_back(Json{{"kind", kind}, {"count", count}});
    const std::int64_t mtp = mtp_parameters(model);
    Json json{{"name", model.name},
              {"type", model.type.empty() ? Json() : Json(model.type)},
              {"parameters", total_parameters(model) + mtp},
              {"active_parameters", active_parameters(model) + active_mtp_parameters(model)},
              {"mtp_parameters", mtp},
              {"counted_only", is_counted_only(model)},
              {"layers", std::move(layers)},
              {"assumed_architecture", assumed_architecture_to_json(model)}};
    if (model.adapters) json["trained_parameters"] = trained_parameters(model);
    const Json fields = model_to_json(model);
    for (const auto& field : fields.items()) {
        if (!json.contains(field.key())) json[field.key()] = field.value();
    }
    return json;
}

std::string layers_by_kind_text(const ModelSpec& model) {
    std::string text;
    for (const auto& [kind, count] : layers_by_kind(model)) {
        if (!model.kinds.empty()) {
            text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", count, kind);
            continue;
        }
        std::string_view attention = std::string_view(kind).substr(0, kind.find('+'));
        attention = attention == "latent_attention" ? "latent attention" : attention == "window_attention" ? "window attention" : attention;
        text += fmt::format("{}{} of {} and {}", text.empty() ? "" : ", ", count, attention, kind.ends_with("+moe") ? "experts" : "MLP");
    }
    return text;
}

}  // namespace mgplan::reports
