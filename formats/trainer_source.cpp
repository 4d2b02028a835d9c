#include "formats/trainer_source.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hub_names.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/megatron_words.hpp"
#include "formats/megatron/script_surroundings.hpp"
#include "formats/megatron/yaml_configuration.hpp"
#include "formats/model_source.hpp"
#include "formats/trainers/trainer.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr int kMostDefaults = 8;

bool is_settings_file(const std::string& name) {
    const std::string lower = lower_case(name);
    return lower.ends_with(".yaml") || lower.ends_with(".yml") || lower.ends_with(".json");
}

/// The file that the settings build on: NeMo-RL's "defaults: base.yaml", FlagScale's "defaults: [train: 32b]" (Hydra: train/32b.yaml).
std::optional<std::string> base_of(const Settings& settings) {
    auto one = settings.get("defaults");
    if (one && is_settings_file(*one)) return one;
    for (int i = 0; i < kMostDefaults; ++i) {
        if (const auto group = settings.get(fmt::format("defaults.{}.train", i))) return fmt::format("train/{}.yaml", *group);
    }
    return std::nullopt;
}

/// A settings file with the files that it builds on.
struct SettingsFile {
    Settings settings;
    std::string text;  ///< of all of them, its own first
    Problems problems;
};

/// Each file names the next one from its own folder. A file that is not there becomes a problem.
SettingsFile settings_file(const std::string& text, const std::string& name, std::string folder) {
    SettingsFile file{.settings = Settings::of_yaml(text, name), .text = text, .problems = {}};
    Settings latest = file.settings;
    for (int i = 0; i < kMostDefaults; ++i) {
        const auto base = base_of(latest);
        if (!base) break;
        const auto more = sourced_file(*base, folder);
        if (!more) {
            file.problems.add_missing_fact(
                "{}: builds on {}, which is not in its folder: what that sets is not known; put it there, or give model and layout as "
                "options (mgplan simulate --help)",
                name, base->substr(0, 100));
            break;
        }
        std::error_code failed;
        if (const auto path = std::filesystem::path(folder) / *base; std::filesystem::is_regular_file(path, failed))
            folder = path.parent_path().string();
        latest = Settings::of_yaml(*more, fmt::format("{}: {}", name, base->substr(0, 100)));
        file.settings.add_defaults(latest);
        file.text += '\n' + *more;
    }
    return file;
}

/// The setting by which a file of the program says what a flag says.
SettingOfFlag setting_of_flag(const TrainerJob& job, const Trainer& trainer) {
    std::map<std::string, std::string> by_flag;
    for (const auto& [field, setting] : job.names) by_flag.emplace("--" + flag_of_yaml_field(field), setting);
    if (!job.fields.contains("vocab_size")) by_flag.erase("--vocab-size");  // mgplan has an option for it, which the message offers
    const std::string section(trainer.sections.find(' ') == std::string_view::npos ? trainer.sections : "");  // of the only one
    return [by_flag = std::move(by_flag), section](const std::string& flag) {
        const bool turns_off = flag.starts_with("--no-");
        auto found = by_flag.find(flag);
        if (found == by_flag.end() && turns_off) found = by_flag.find("--" + flag.substr(5));
        if (found != by_flag.end()) return found->second;
        // A switch that turns off has a setting of another name.
        if (!find_flag(flag) || turns_off || flag.starts_with("--disable-") || flag == "--vocab-size") return flag;
        std::string field = flag.substr(2);
        std::replace(field.begin(), field.end(), '-', '_');
        return section.empty() || section == "." ? field : fmt::format("{}.{}", section, field);
    };
}

bool is_on(const TrainerJob& job, std::string_view field) {
    const auto found = job.fields.find(field);
    return found != job.fields.end() && lower_case(found->second) == "true";
}

/// Flags and values for the fields; of sections that hold other settings too, those that are Megatron-LM's.
std::vector<std::string> words_of_fields(const TrainerJob& job, bool names_all, const std::string& where) {
    nlohmann::ordered_json yaml = nlohmann::ordered_json::object();
    for (const auto& [name, value] : job.fields) {
        std::string flag = name;
        std::replace(flag.begin(), flag.end(), '_', '-');
        const bool known = find_flag(flag) || find_flag("no-" + flag) || is_field_of_yaml(name);
        const bool on = value == "True" || value == "true";
        if (!known && (!names_all || value == "False" || value == "false" || value.empty())) continue;
        if (name == "num_query_groups" && is_on(job, "multi_latent_attention")) continue;  // latent attention has none
        if (!value.starts_with('[') || !value.ends_with(']')) {
            yaml[name] = on ? "True" : value;
            continue;
        }
        auto list = nlohmann::ordered_json::array();
        for (std::string one : split(value.substr(1, value.size() - 2), ',')) {
            std::erase_if(one, [](char c) { return c == ' ' || c == '"' || c == '\''; });
            if (!one.empty()) list.push_back(std::move(one));
        }
        if (!list.empty()) yaml[name] = std::move(list);
    }
    return words_of_yaml_configuration(yaml.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), where);
}

std::string preset_of(std::string model) {
    for (const std::string_view ending : {".yaml", ".yml"}) {
        if (model.ends_with(ending)) model.resize(model.size() - ending.size());
    }
    if (const auto preset = preset_with_layers_of(model); !preset.empty()) return std::string(preset);
    const std::vector<std::string> presets = preset_names();
    const auto found =
        std::find_if(presets.begin(), presets.end(), [&](const std::string& name) { return plain_name(name) == plain_name(model); });
    return found == presets.end() ? "" : *found;
}

/// Sets the model by its sizes or its name, unless it is given or the fields state its sizes.
void settle_model(const TrainerJob& job, const std::string& framework, const std::string& where, MegatronSurroundings& surroundings,
                  std::vector<std::string>& notes) {
    if (surroundings.model || job.fields.contains("num_layers")) return;
    if (!job.config.empty()) {
        auto config = parse_json(job.config, where);
        if (surroundings.vocab) config["vocab_size"] = *surroundings.vocab;
        if (!config.contains("vocab_size"))
            throw MissingFactError(std::vector{fmt::format(
                "{}: {} configuration: the vocabulary is the tokenizer's, and no number stands for it; give it, as in --vocab-size 50277",
                where, framework)});
        surroundings.model = read_hugging_face(config, "model", where, "").model;
        return;
    }
    const std::string preset = preset_of(job.model);
    if (preset.empty())
        throw MissingFactError(std::vector{fmt::format(
            "{}: {}: its layout is read{}; name the model by --model NAME|config.json next to the file", where, framework,
            job.model.empty() ? "; it names no model" : fmt::format(", but its model {} is no preset", job.model.substr(0, 80)))});
    surroundings.model = load_model(preset).model;
    notes.push_back(fmt::format("the model {}, which the settings of {} name", named_with_layers(job.model.substr(0, 80)), framework));
}

/// The job with its field for fused activations named as the flag for SwiGLU, where the model that the settings name has SwiGLU.
TrainerJob with_field_of_swiglu(TrainerJob job, const std::optional<ModelSpec>& model) {
    if (!model || !model->gated_mlp || model->activation != Activation::silu) return job;
    if (auto field = job.fields.extract("bias_activation_fusion")) {
        field.key() = "bias_swiglu_fusion";
        job.fields.insert(std::move(field));
    }
    if (const auto setting = job.names.find("bias_activation_fusion"); setting != job.names.end())
        job.names.emplace("bias_swiglu_fusion", setting->second);
    return job;
}

}  // namespace

std::optional<Recognised> recognise_file(const std::string& text, const std::string& name, const std::string& folder) {
    if (!is_settings_file(name) || text.find("defaults") == std::string::npos) return recognise(text);
    try {
        return recognise(settings_file(text, name, folder).text);
    } catch (const ConfigError&) {
        return recognise(text);  // no settings
    }
}

std::optional<TrainerRead> read_trainer_text(const std::string& text, const std::string& name, const MegatronSurroundings& surroundings) {
    const auto seen = recognise_file(text, name, surroundings.folder);
    if (!seen) return std::nullopt;
    // Later readers refuse by the same words a text that names its program itself.
    const auto not_read = [&]() -> std::optional<TrainerRead> {
        if (!recognise(text)) throw MissingFactError(std::vector{refusal_of(*seen, name)});
        return std::nullopt;
    };
    const auto known = trainers();
    const auto trainer = std::find_if(known.begin(), known.end(), [&](const Trainer* one) { return one->framework == seen->framework; });
    if (trainer == known.end() || (seen->job == "LoRA" && !(*trainer)->adapters)) return not_read();
    ArgumentWords found;
    Settings settings;
    TrainerRead result;
    if (is_settings_file(name)) {
        SettingsFile file = settings_file(text, name, surroundings.folder);
        settings = std::move(file.settings);
        result.problems = std::move(file.problems);
    } else {
        ScriptInputs inputs = surroundings.script;
        inputs.model_is_given = true;
        try {
            found = argument_words(text, name, surroundings.folder, inputs);
        } catch (const ConfigError&) {
            return std::nullopt;  // no command in it: the reader of commands says why
        }
        settings = Settings::of_words(found.words);
    }
    const std::string program = settings.get("experiment.task.entrypoint").value_or("");  // of FlagScale
    if (const std::string_view network = other_network_of_script(program); !network.empty())
        result.problems.add_missing_fact(
            "{}: {} trains {}, which cannot be planned; give the language model alone as --model NAME|config.json with the layout", name,
            program.substr(0, 80), network);
    const auto read = trainer_job(seen->framework, settings, surroundings.world);
    if (!read) {
        result.problems.throw_if_any();
        return not_read();
    }
    result.world = read->world;
    if (!result.problems.empty()) return result;
    MegatronSurroundings told = surroundings;
    told.held_against = HeldAgainst::configurations;
    std::vector<std::string> assumed;
    try {
        read->problems.throw_if_any();
    } catch (const ConfigError& error) {
        result.problems.absorb(error, name + ": ");
    }
    try {
        settle_model(*read, seen->framework, name, told, assumed);
        const TrainerJob job = with_field_of_swiglu(*read, told.model);
        result.job =
            read_settings_as_arguments(words_of_fields(job, (*trainer)->names_all, name), name, told, setting_of_flag(job, **trainer));
    } catch (const ConfigError& error) {
        result.problems.absorb(error);
    }
    if (!result.problems.empty()) return result;
    Job& job = result.job;
    if (seen->job == "LoRA" && !job.model.adapters) return not_read();  // its adapters are under a name that is not read
    if (job.model.adapters) job.model.adapters->shared_by_experts = true;
    job.assumptions.insert(job.assumptions.end(), assumed.begin(), assumed.end());
    for (const std::string& note : read->notes) job.notes.push_back(fmt::format("{}: {}", seen->framework, note));
    job.notes.insert(job.notes.end(), found.notes.begin(), found.notes.end());
    return result;
}

}  // namespace mgplan::formats
