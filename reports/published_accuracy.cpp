#include "reports/published_accuracy.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/model/layer_parts.hpp"
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

/// The name in configs/accuracy.
std::string_view kind_of_model(const Workload& work) {
    return work.model.moe ? "mixtures" : "dense models";
}

int bits_of(const Workload& work) {
    switch (work.training.precision) {
        case Precision::fp64:
            return 64;
        case Precision::fp32:
            return 32;
        case Precision::fp8:
            return 8;
        case Precision::nvfp4:
            return 4;
        case Precision::bf16:
        case Precision::fp16:
            break;
    }
    return 16;
}

constexpr std::string_view kHybrids = "hybrids";

/// `dense`, `MoE models`; and kinds without published runs: with layers that carry a state along the sequence, or with attention of which
/// only shapes are known.
std::string_view words_of_model(const ModelSpec& model) {
    const LayerKinds kinds = layer_kinds(model);
    for (const LayerHalf& mixer : kinds.mixers) {
        if (const std::string_view own = traits_of(*mixer.layer.mixer).published_as; !own.empty()) return own;
    }
    if (std::any_of(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& mixer) { return mixer.carries_state; })) return kHybrids;
    return model.moe ? "MoE models" : "dense";
}

}  // namespace

std::optional<PublishedAccuracy> published_accuracy(const Workload& work) {
    if (const auto words = words_of_model(work.model); words != "dense" && words != "MoE models") return std::nullopt;
    for (const EmbeddedFile& file : embedded_accuracy()) {
        for (const auto& group : parse_json(file.text, fmt::format("configs/accuracy/{}.json", file.name))) {
            if (group.at("gpu") == short_gpu(work.cluster) && group.at("models") == kind_of_model(work) &&
                group.at("bits") == bits_of(work))
                return PublishedAccuracy{group.at("runs"), group.at("mean_error")};
        }
    }
    return std::nullopt;
}

std::string accuracy_text(const Workload& work, Engine engine) {
    if (engine != Engine::megatron)
        return fmt::format("accuracy: not known for engine {}, of which no run is published\n", to_string(engine));
    const std::string group = fmt::format("{} on {}, {} bits", words_of_model(work.model), short_gpu(work.cluster), bits_of(work));
    const auto found = published_accuracy(work);
    if (!found) return fmt::format("accuracy: not known for {}; docs/accuracy.md has what is\n", group);
    return fmt::format("accuracy: {}: time off by {:.1f} % ({})\n", group, 100 * found->mean_error, counted(found->runs, "published run"));
}

}  // namespace mgplan::reports
