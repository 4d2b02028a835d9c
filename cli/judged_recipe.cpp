#include "cli/judged_recipe.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "formats/hugging_face/hub_names.hpp"
#include "formats/model_source.hpp"
#include "plan/allowed_processors.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"

namespace mgplan::cli {
namespace {

using formats::BridgeRecipe;
using Json = nlohmann::ordered_json;

constexpr std::string_view kDataName = "recipe";

/// The flags that describe the preset's model, of a layout without any parallelism.
formats::MegatronFlags model_flags(const ModelSpec& model) {
    Workload work;
    work.model = model;
    work.cluster = load_cluster("dgx-h100");
    work.world = 1;
    work.batch = {.global_batch = 1, .sequence = model.default_sequence.value_or(4096)};
    LayoutRequest request;
    request.engine = Engine::megatron;
    Layout layout = planner::make_layout(request, work);
    formats::MegatronJob job = formats::megatron_job({work.model, work.cluster, work.batch, work.training, std::move(layout), {}});
    return std::move(job.parts.front());
}

/// Problems of a configuration that was never a file carry no name of one.
std::string without_place(const std::string& problem) {
    const std::string place = fmt::format("--bridge-config: {}: ", kDataName), option = "--bridge-config: ";
    if (problem.starts_with(place)) return problem.substr(place.size());
    return problem.starts_with(option) ? problem.substr(option.size()) : problem;
}

void read_answer(JudgedRecipe& judged, const Json& answer) {
    for (const auto& problem : answer.at("problems")) judged.problems.push_back(problem);
    for (const auto& one : answer.at("not_computed")) judged.not_computed.push_back(one);
    for (const auto& one : answer.at("unknown")) judged.unknown.push_back(one);
    if (!answer.at("predicted").is_null()) {
        const Json& predicted = answer.at("predicted");
        judged.seconds = predicted.at("iteration_seconds").get<double>();
        judged.peak_bytes = predicted.at("memory").at("peak_bytes");
        judged.limit_bytes = predicted.at("memory").at("limit_bytes");
    }
    const Json &legal = answer.at("legal"), &fits = answer.at("fits");
    // Delta nets have no layers of multi-token prediction here, and the recipe's layout string holds theirs.
    const bool lacks_mtp = std::any_of(judged.problems.begin(), judged.problems.end(),
                                       [](const std::string& problem) { return problem.find("but MTP layers = 0") != std::string::npos; });
    if (lacks_mtp && judged.recipe->settings().contains("model.mtp_num_layers")) {
        judged.kind = "a field that decides it is not computed";
        judged.problems = {"model.mtp_num_layers (multi-token prediction of delta nets)"};
    } else if (legal.is_boolean() && !legal.get<bool>()) {
        judged.verdict = RecipeVerdict::illegal;
    } else if (fits.is_boolean() && !fits.get<bool>()) {
        judged.verdict = RecipeVerdict::does_not_fit;
    } else if (legal.is_boolean() && fits.is_boolean()) {
        judged.verdict = RecipeVerdict::runs;
    } else {
        judged.kind = "a field that decides it is not computed";
        judged.problems = judged.not_computed;
        judged.problems.insert(judged.problems.end(), judged.unknown.begin(), judged.unknown.end());
    }
}

void ask_check(JudgedRecipe& judged, const std::string& config) {
    std::ostringstream out, err;
    Console console{out, err};
    console.texts["bridge-config"] = {std::string(kDataName), config};
    console.plans = [&judged](const Plan& plan) {
        if (judged.layout.empty()) judged.layout = summary(plan.layout, plan.model, plan.training);
    };
    (void)run_check({"--world", std::to_string(*judged.recipe->gpus), "--cluster", judged.cluster, "--top", "0", "--format", "json"},
                    console);
    read_answer(judged, parse_json(out.str(), "the answer of check"));
}

}  // namespace

std::string_view name_of(RecipeVerdict verdict) {
    switch (verdict) {
        case RecipeVerdict::runs:
            return "runs";
        case RecipeVerdict::illegal:
            return "illegal";
        case RecipeVerdict::does_not_fit:
            return "does not fit";
        case RecipeVerdict::cannot_say:
            break;
    }
    return "cannot say";
}

const BridgeRecipe& named_recipe(const std::string& given) {
    const auto& all = formats::bridge_recipes();
    const std::string name = given.ends_with("_config") ? given.substr(0, given.size() - std::string_view("_config").size()) : given;
    if (const BridgeRecipe* found = all.find(name)) return *found;
    if (const auto missing = all.not_recorded.find(name); missing != all.not_recorded.end())
        throw ConfigError(fmt::format("recipe {} is not recorded: it {}; mgplan recipes list has those that are", name, missing->second));
    std::vector<std::string> names;
    for (const auto& recipe : all.recipes) names.push_back(recipe.name);
    const std::string hint = did_you_mean(name, names);
    throw ConfigError(
        fmt::format("unknown recipe '{}' of {}; {}", given.substr(0, 100), all.release, hint.empty() ? "see mgplan recipes list" : hint));
}

std::string preset_of(const BridgeRecipe& recipe) {
    return std::string(formats::preset_with_layers_of(recipe.model));
}

std::string cluster_of(const BridgeRecipe& recipe) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kClusters{
        {{"H100", "dgx-h100"}, {"B200", "dgx-b200"}, {"B300", "dgx-b300"}, {"GB200", "gb200-nvl72"}, {"GB300", "gb300-nvl72"}}};
    const auto found = std::find_if(kClusters.begin(), kClusters.end(), [&](const auto& one) { return one.first == recipe.gpu; });
    return found == kClusters.end() ? "" : std::string(found->second);
}

bool trains_other_encoders(const BridgeRecipe& recipe) {
    static constexpr std::array kFamilies{"_vl.", "_omni.", "_audio.", "recipes.wan.", "recipes.flux."};
    return std::any_of(kFamilies.begin(), kFamilies.end(),
                       [&](const char* family) { return recipe.source.find(family) != std::string::npos; });
}

std::string recipe_config(const BridgeRecipe& recipe) {
    if (recipe.model.empty()) return formats::bridge_recipe_config(recipe, nullptr, "");
    const ModelSpec model = formats::load_model(preset_of(recipe)).model;
    const formats::MegatronFlags flags = model_flags(model);
    return formats::bridge_recipe_config(recipe, &flags, model.type);
}

JudgedRecipe judge_recipe(const BridgeRecipe& recipe) {
    JudgedRecipe judged;
    judged.recipe = &recipe;
    judged.preset = preset_of(recipe);
    judged.cluster = cluster_of(recipe);
    const auto cannot_say = [&](std::string_view kind, std::string problem) {
        judged.kind = kind;
        judged.problems = {std::move(problem)};
        return judged;
    };
    if (trains_other_encoders(recipe)) return cannot_say("a model of images or sound", "layers for images or sound are not computed");
    const auto settings = recipe.settings();
    if (recipe.model.empty() && !settings.contains("model.num_layers") && !settings.contains("model.hybrid_layer_pattern"))
        return cannot_say("states no sizes of its model", "the recipe names no model and states no sizes of one");
    if (!recipe.model.empty() && judged.preset.empty())
        return cannot_say("no preset of its model", fmt::format("no preset describes {}", recipe.model));
    if (!recipe.gpus) return cannot_say("states no number of GPUs", "the recipe states no number of GPUs");
    if (judged.cluster.empty()) return cannot_say("no cluster preset of its GPU", fmt::format("no cluster preset has {}", recipe.gpu));
    std::string config;
    try {
        config = recipe_config(recipe);
    } catch (const ConfigError& error) {
        return cannot_say("a model that Megatron-LM's flags do not describe", error.problems().front());
    }
    try {
        ask_check(judged, config);
    } catch (const MissingFactError& error) {
        judged.kind = "a kind of job or model that is not computed";
        judged.problems = error.problems();
    } catch (const ConfigError& error) {
        judged.verdict = RecipeVerdict::illegal;
        judged.problems = error.problems();
    }
    for (auto& problem : judged.problems) problem = without_place(problem);
    return judged;
}

std::vector<JudgedRecipe> judge_recipes(const std::vector<const BridgeRecipe*>& recipes) {
    std::vector<JudgedRecipe> judged(recipes.size());
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failed;
    std::mutex guard;
    const auto work = [&] {
        for (std::size_t i = next++; i < recipes.size(); i = next++) {
            try {
                judged[i] = judge_recipe(*recipes[i]);
            } catch (...) {
                const std::lock_guard lock(guard);
                failed = std::current_exception();
            }
        }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < std::min(allowed_processors(), 16); ++i) others.emplace_back(work);
    work();
    for (auto& other : others) other.join();
    if (failed) std::rethrow_exception(failed);
    return judged;
}

}  // namespace mgplan::cli
