#include "reports/blind_accuracy.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/embedded_files.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::reports {
namespace {

/// "H100" of "H100-SXM5-80GB".
std::string short_gpu(const ClusterSpec& cluster) {
    return cluster.gpu.substr(0, cluster.gpu.find('-'));
}

/// "LoRA" with adapters; "dense", "MoE", "hybrid" with layers that carry a state along the sequence; and kinds of attention of which only
/// shapes are known.
std::string_view family_of(const ModelSpec& model) {
    if (model.adapters) return "LoRA";
    const LayerKinds kinds = layer_kinds(model);
    for (const LayerHalf& mixer : kinds.mixers) {
        if (const std::string_view own = traits_of(*mixer.layer.mixer).published_as; !own.empty()) return own;
    }
    if (std::any_of(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& mixer) { return mixer.carries_state; })) return "hybrid";
    return model.moe ? "MoE" : "dense";
}

}  // namespace

std::optional<BlindAccuracy> blind_accuracy(const Workload& work) {
    const std::string_view family = family_of(work.model);
    const EmbeddedFile& file = *std::ranges::find(embedded_accuracy(), "blind", &EmbeddedFile::name);
    std::optional<BlindAccuracy> found;
    for (const auto& group : parse_json(file.text, "configs/accuracy/blind.json")) {
        const std::string gpu = group.at("gpu");
        if (group.at("family") != lower_case(family) || (!gpu.empty() && gpu != short_gpu(work.cluster))) continue;
        if (!found || !gpu.empty()) found = {std::string(family), gpu, group.at("runs"), group.at("mean_error"), group.at("bias")};
    }
    return found;
}

std::string accuracy_text(const Workload& work, Engine engine) {
    if (engine != Engine::megatron)
        return fmt::format("accuracy: not known for engine {}, of which no run is published\n", to_string(engine));
    const auto found = blind_accuracy(work);
    if (!found) return fmt::format("accuracy: no blind runs of {}; see docs/accuracy.md\n", family_of(work.model));
    return fmt::format("accuracy: on {} {} runs{} that nobody had tuned for: {:.0f} % (bias {:+.0f} %)\n", found->runs, found->family,
                       found->gpu.empty() ? "" : " on " + found->gpu, 100 * found->mean_error, 100 * found->bias);
}

nlohmann::ordered_json accuracy_to_json(const Workload& work, Engine engine) {
    const auto found = engine == Engine::megatron ? blind_accuracy(work) : std::nullopt;
    std::string kind(family_of(work.model));
    if (found && !found->gpu.empty()) kind += " on " + found->gpu;
    nlohmann::ordered_json json{{"kind", kind}, {"blind", nullptr}, {"tuned", nullptr}};
    if (found) json["blind"] = {{"runs", found->runs}, {"mean_error", found->mean_error}, {"bias", found->bias}};
    return json;
}

}  // namespace mgplan::reports
