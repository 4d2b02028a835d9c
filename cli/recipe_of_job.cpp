#include "cli/recipe_of_job.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "cli/judged_recipe.hpp"
#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/text.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::cli {
namespace {

using Settings = std::map<std::string, std::string, std::less<>>;

/// A recipe for sequences that are longer or shorter than the job's by more than this is for another job.
constexpr double kMostLonger = 2;

/// 1 for a field that the recipe leaves alone or sets to null.
std::int64_t size_in(const Settings& settings, std::string_view field) {
    const auto found = settings.find(field);
    return found == settings.end() ? 1 : parse_integer(found->second).value_or(1);
}

planner::RecipeSizes sizes_in(const Settings& settings) {
    return {.tp = size_in(settings, "model.tensor_model_parallel_size"),
            .cp = size_in(settings, "model.context_parallel_size"),
            .ep = size_in(settings, "model.expert_model_parallel_size"),
            .etp = size_in(settings, "model.expert_tensor_parallel_size"),
            .pp = size_in(settings, "model.pipeline_model_parallel_size")};
}

double ratio(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
}

bool is_for(const formats::BridgeRecipe& recipe, const Workload& workload) {
    if (recipe.gpus != workload.world || recipe.name.find("pretrain") == std::string::npos) return false;
    if (preset_of(recipe) != workload.model.name || trains_other_encoders(recipe)) return false;
    const std::string cluster = cluster_of(recipe);
    return !cluster.empty() && load_cluster(cluster).gpu == workload.cluster.gpu && recipe.precision == precision_text(workload.training);
}

/// True for a variant of the recipe, for tests or for a part of a larger job.
bool is_variant(const formats::BridgeRecipe& recipe) {
    return std::ranges::any_of(std::array{"_dev", "_large_scale", "_functional"},
                               [&](const char* ending) { return recipe.name.ends_with(ending); });
}

/// True if the model is the preset of its name, whatever its vocabulary.
bool is_preset(ModelSpec model) {
    const auto names = formats::preset_names();
    if (std::ranges::find(names, model.name) == names.end()) return false;
    const ModelSpec preset = formats::load_model(model.name).model;
    model.vocab = preset.vocab;
    return model == preset;
}

}  // namespace

std::optional<RecipeOfJob> recipe_of(const Workload& workload) {
    if (!formats::has_recipe_for(workload.world) || !is_preset(workload.model)) return {};
    std::optional<RecipeOfJob> best;
    std::pair<bool, double> best_distance;
    for (const formats::BridgeRecipe& recipe : formats::bridge_recipes().recipes) {
        if (!is_for(recipe, workload)) continue;
        const Settings settings = recipe.settings();
        const double lengths = ratio(size_in(settings, "dataset.seq_length"), workload.batch.sequence);
        if (lengths > kMostLonger || lengths < 1 / kMostLonger) continue;
        const double batches = ratio(size_in(settings, "train.global_batch_size"), workload.batch.global_batch);
        const std::pair distance(is_variant(recipe), std::abs(std::log(batches)));
        if (best && distance >= best_distance) continue;
        best = {&recipe, sizes_in(settings)};
        best_distance = distance;
    }
    return best;
}

}  // namespace mgplan::cli
