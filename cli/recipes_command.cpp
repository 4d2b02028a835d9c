#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/judged_recipe.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "formats/megatron/bridge_recipes.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

using formats::BridgeRecipe;
using Json = nlohmann::ordered_json;
using reports::Align;
using reports::Table;

struct RecipeFilters {
    std::optional<std::string> model, gpu, task;
    std::optional<std::int64_t> world;

    [[nodiscard]] bool takes(const BridgeRecipe& recipe) const {
        const auto holds = [](const std::string& text, const std::string& part) {
            return lower_case(text).find(lower_case(part)) != std::string::npos;
        };
        return (!model || holds(recipe.model, *model) || holds(recipe.name, *model) || preset_of(recipe) == *model) &&
               (!gpu || lower_case(*gpu) == lower_case(recipe.gpu)) && (!task || *task == recipe.task) && (!world || recipe.gpus == *world);
    }
};

/// Throws ConfigError for a GPU that no recipe is for.
std::vector<const BridgeRecipe*> filtered(const RecipeFilters& filters) {
    std::vector<const BridgeRecipe*> kept;
    std::set<std::string> gpus;
    for (const BridgeRecipe& recipe : formats::bridge_recipes().recipes) {
        if (!recipe.gpu.empty()) gpus.insert(recipe.gpu);
        if (filters.takes(recipe)) kept.push_back(&recipe);
    }
    const auto is_given = [&](const std::string& gpu) { return lower_case(gpu) == lower_case(*filters.gpu); };
    if (filters.gpu && std::none_of(gpus.begin(), gpus.end(), is_given))
        throw ConfigError(fmt::format("--gpu {}: no recipe is for this GPU; use {}", filters.gpu->substr(0, 60), fmt::join(gpus, ", ")));
    return kept;
}

Json recipe_to_json(const BridgeRecipe& recipe) {
    const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
    return {{"name", recipe.name},
            {"model", or_null(recipe.model)},
            {"preset", or_null(preset_of(recipe))},
            {"task", recipe.task},
            {"gpu", or_null(recipe.gpu)},
            {"gpus", recipe.gpus ? Json(*recipe.gpus) : Json(nullptr)},
            {"cluster", or_null(cluster_of(recipe))},
            {"precision", or_null(recipe.precision)},
            {"source", recipe.source}};
}

std::string list_recipes(const RecipeFilters& filters, Format format) {
    const auto recipes = filtered(filters);
    const auto& all = formats::bridge_recipes();
    if (format == Format::json) {
        Json list = Json::array();
        for (const auto* recipe : recipes) list.push_back(recipe_to_json(*recipe));
        return Json{{"release", all.release}, {"recipes", std::move(list)}, {"not_recorded", all.not_recorded}}.dump(1) + "\n";
    }
    Table table({{"recipe", Align::left},
                 {"model", Align::left},
                 {"task", Align::left},
                 {"GPUs"},
                 {"GPU", Align::left},
                 {"precision", Align::left}});
    for (const auto* recipe : recipes)
        table.add_row({recipe->name, recipe->model.empty() ? "sizes of its own" : recipe->model, recipe->task,
                       recipe->gpus ? std::to_string(*recipe->gpus) : "-", recipe->gpu.empty() ? "-" : recipe->gpu,
                       recipe->precision.empty() ? "-" : recipe->precision});
    if (format == Format::csv) return table.to_csv();
    std::string text = table.to_text(160);
    text += fmt::format("\n{} of {} recipes of {}; mgplan recipes show NAME prints one, mgplan recipes check judges them.\n",
                        recipes.size(), all.recipes.size(), all.release);
    return text;
}

std::string gib(std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / 1073741824.0);
}

Json judged_to_json(const JudgedRecipe& judged) {
    Json json = recipe_to_json(*judged.recipe);
    const bool open = judged.verdict == RecipeVerdict::cannot_say;
    json["verdict"] = name_of(judged.verdict);
    json["legal"] = open ? Json(nullptr) : Json(judged.verdict != RecipeVerdict::illegal);
    json["fits"] = open || judged.verdict == RecipeVerdict::illegal ? Json(nullptr) : Json(judged.verdict == RecipeVerdict::runs);
    json["reason"] = judged.kind.empty() ? Json(nullptr) : Json(judged.kind);
    json["problems"] = judged.problems;
    json["not_computed"] = judged.not_computed;
    json["unknown"] = judged.unknown;
    json["layout"] = judged.layout.empty() ? Json(nullptr) : Json(judged.layout);
    json["iteration_seconds"] = judged.seconds ? Json(*judged.seconds) : Json(nullptr);
    json["peak_bytes"] = judged.seconds ? Json(judged.peak_bytes) : Json(nullptr);
    json["limit_bytes"] = judged.seconds ? Json(judged.limit_bytes) : Json(nullptr);
    return json;
}

/// "illegal: RULE", "does not fit: 190.1 GiB of 178.0 GiB", "runs: 1.83 s a step, 61.2 GiB of 79.1 GiB"
std::string verdict_text(const JudgedRecipe& judged) {
    const std::string memory = fmt::format("{} GiB of {} GiB", gib(judged.peak_bytes), gib(judged.limit_bytes));
    switch (judged.verdict) {
        case RecipeVerdict::runs:
            return fmt::format("runs: {:.3f} s a step, {}", judged.seconds.value_or(0), memory);
        case RecipeVerdict::does_not_fit:
            return "does not fit: " + memory;
        case RecipeVerdict::illegal:
        case RecipeVerdict::cannot_say:
            break;
    }
    return fmt::format("{}: {}", name_of(judged.verdict), fmt::join(judged.problems, "\n"));
}

std::string show_recipe(const BridgeRecipe& recipe, Format format) {
    const JudgedRecipe judged = judge_recipe(recipe);
    if (format == Format::json) {
        Json json = judged_to_json(judged);
        for (const auto& [field, value] : recipe.settings()) json["settings"][field] = Json::parse(value);
        return json.dump(1) + "\n";
    }
    Table table({{"setting", Align::left}, {"value", Align::left}});
    for (const auto& [field, value] : recipe.settings()) table.add_row({field, value});
    if (format == Format::csv) return table.to_csv();
    std::string text = fmt::format("{} ({}, {})\n", recipe.name, formats::bridge_recipes().release, recipe.source);
    text += fmt::format("{}{} on {} {} in {}, {}\n", recipe.model.empty() ? "a model of its own sizes" : recipe.model,
                        judged.preset.empty() ? "" : fmt::format(" (preset {})", judged.preset),
                        recipe.gpus ? std::to_string(*recipe.gpus) : "an open number of", recipe.gpu.empty() ? "GPUs" : recipe.gpu,
                        recipe.precision.empty() ? "an open precision" : recipe.precision, recipe.task);
    if (!judged.layout.empty()) text += fmt::format("layout: {}\n", judged.layout);
    text += verdict_text(judged) + "\n";
    if (!judged.not_computed.empty()) text += fmt::format("not computed: {}\n", fmt::join(judged.not_computed, ", "));
    if (!judged.unknown.empty()) text += fmt::format("not known: {}\n", fmt::join(judged.unknown, ", "));
    if (!judged.layout.empty())
        text += fmt::format(
            "as a command: mgplan recipes show {0} --save-config {0}.yaml\n"
            "              mgplan check --bridge-config {0}.yaml --world {1} --cluster {2}\n",
            recipe.name, *recipe.gpus, judged.cluster);
    return text + "\n" + table.to_text();
}

/// Number of recipes with each verdict, and with each reason for an open verdict.
struct VerdictCounts {
    std::map<std::string, std::int64_t> verdicts, reasons;
};
VerdictCounts count_verdicts(const std::vector<JudgedRecipe>& all) {
    VerdictCounts counts;
    for (const auto& judged : all) {
        ++counts.verdicts[std::string(name_of(judged.verdict))];
        if (!judged.kind.empty()) ++counts.reasons[judged.kind];
    }
    return counts;
}

std::string check_all(const std::vector<JudgedRecipe>& all, Format format) {
    const VerdictCounts counts = count_verdicts(all);
    if (format == Format::json) {
        Json list = Json::array();
        for (const auto& judged : all) list.push_back(judged_to_json(judged));
        return Json{{"release", formats::bridge_recipes().release},
                    {"verdicts", counts.verdicts},
                    {"reasons", counts.reasons},
                    {"not_recorded", formats::bridge_recipes().not_recorded},
                    {"recipes", std::move(list)}}
                   .dump(1) +
               "\n";
    }
    const bool csv = format == Format::csv;
    Table table({{"recipe", Align::left}, {"verdict", Align::left}});
    for (const auto& judged : all) {
        if (csv || judged.verdict == RecipeVerdict::illegal || judged.verdict == RecipeVerdict::does_not_fit)
            table.add_row({judged.recipe->name, verdict_text(judged)});
    }
    if (csv) return table.to_csv();
    std::string text = table.rows() > 0 ? table.to_text(160) + "\n" : "";
    text += fmt::format("{} recipes of {}:", all.size(), formats::bridge_recipes().release);
    for (const auto& [verdict, count] : counts.verdicts) text += fmt::format(" {} {},", count, verdict);
    text.back() = '\n';
    for (const auto& [reason, count] : counts.reasons) text += fmt::format("  cannot say: {:>4}  {}\n", count, reason);
    return text;
}

void save_config(const std::string& path, const std::string& text) {
    if (!write_output_file(path, [&](std::ostream& out) { out << text; }))
        throw RunError(fmt::format("--save-config {}: the file cannot be written any more; is the disk full?", path));
}

}  // namespace

int run_recipes(const std::vector<std::string>& args, Console& console) {
    std::vector<std::string> words;
    RecipeFilters filters;
    std::optional<std::string> config_path;
    Options options("recipes [list|show NAME|check [NAME]] [options]",
                    "The recipes that NVIDIA's Megatron-Bridge ships: lists them, shows the settings of one, or says of each whether it is "
                    "legal, whether it fits, and how long a step takes.");
    options.positional("list|show|check", words, 2, "list (the default), show NAME, check or check NAME");
    options.group("Recipes to list or check");
    options.text("model", filters.model, "NAME", "a preset, or part of the recipe's or its model's name (default: all)");
    options.text("gpu", filters.gpu, "GPU", "H100, B200, B300, GB200, GB300, VR200 or R100 (default: all)");
    options.integer("world", filters.world, 1, std::int64_t{1} << 24, "recipes for this number of GPUs (default: all)");
    options.choice("task", filters.task, {"pretrain", "sft", "peft", "performance"}, "recipes for this task (default: all)");
    options.output_file("save-config", config_path,
                        "show: write the recipe with its model's sizes, for mgplan check --bridge-config (default: not written)");
    if (!options.parse(args, console.out)) return kDone;
    const std::string verb = words.empty() ? "list" : words.front();
    if (verb != "list" && verb != "show" && verb != "check")
        throw ConfigError(fmt::format("recipes: unknown word '{}'; write list, show NAME, check or check NAME", verb.substr(0, 60)));
    if (verb == "list" && words.size() > 1)
        throw ConfigError(fmt::format("recipes list takes no name ('{}'); use --model, or recipes show NAME", words[1].substr(0, 60)));
    if (verb == "show" && words.size() < 2) throw ConfigError("recipes show needs a name; mgplan recipes list has them");
    if (config_path && verb != "show") throw ConfigError("--save-config is for recipes show NAME; give a name, or drop it");
    if (verb == "list") {
        options.write(console, list_recipes(filters, options.format()));
        return kDone;
    }
    if (verb == "show") {
        const BridgeRecipe& recipe = named_recipe(words[1]);
        if (config_path) save_config(*config_path, recipe_config(recipe));
        options.write(console, show_recipe(recipe, options.format()));
        return kDone;
    }
    if (words.size() == 1) {
        options.write(console, check_all(judge_recipes(filtered(filters)), options.format()));
        return kDone;
    }
    const JudgedRecipe judged = judge_recipe(named_recipe(words[1]));
    options.write(console, options.format() == Format::table ? verdict_text(judged) + "\n" : check_all({judged}, options.format()));
    switch (judged.verdict) {
        case RecipeVerdict::runs:
            return kDone;
        case RecipeVerdict::illegal:
            return kBadInput;
        case RecipeVerdict::does_not_fit:
            return kNothingFits;
        case RecipeVerdict::cannot_say:
            break;
    }
    return kCannotSay;
}

}  // namespace mgplan::cli
