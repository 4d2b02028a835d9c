#include "plan/parameters/counted_only.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "plan/parameters/composed_layer.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {

bool is_counted_only(const ModelSpec& model) {
    return !is_computed(model);
}

void refuse_counted_only(const ModelSpec& model, const std::string& where) {
    if (!is_counted_only(model)) return;
    if (model.labels == 0)
        throw ConfigError(
            fmt::format("{}: the model ends behind its last norm (architectures names a class without an output layer), so no "
                        "loss trains it; give the config of its …ForCausalLM",
                        where));
    std::vector<std::string> kinds;
    if (model.word_width != 0) kinds.emplace_back("maps between words and layers of other widths");
    for (const NamedLayer& kind : model.kinds) {
        if (!is_computed(model, kind)) kinds.push_back(kind.name.substr(0, 60));
    }
    if (kinds.empty()) kinds.emplace_back("tensors beside the layers");
    constexpr std::size_t kShown = 6;
    const std::size_t more = kinds.size() - std::min(kinds.size(), kShown);
    kinds.resize(kinds.size() - more);
    std::string text;
    for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
    if (more > 0) text += fmt::format(" and {} more", more);
    throw ConfigError(fmt::format(
        "{}: model_type '{}' is counted and nothing else, for no layer here computes its layers ({}); see mgplan models show, and "
        "plan a model of another type",
        where, model.type.substr(0, 40), text));
}

void refuse_unmeasured(const ModelSpec& model, const std::string& where) {
    refuse_counted_only(model, where);
    if (model.kinds.empty()) return;
    std::string kinds;
    for (const NamedLayer& kind : model.kinds) kinds += (kinds.empty() ? "" : ", ") + kind.name.substr(0, 60);
    throw ConfigError(fmt::format(
        "{}: kernels of layers that parts describe ({}) are not measured yet; name a model of attention layers alone", where, kinds));
}

}  // namespace mgplan
