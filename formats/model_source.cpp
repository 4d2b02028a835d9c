#include "formats/model_source.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/config_text.hpp"
#include "formats/hugging_face/hub_names.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/shell_command.hpp"
#include "formats/recognise/recognise.hpp"
#include "formats/trainer_source.hpp"
#include "plan/json/model_json.hpp"
#include "plan/text/embedded_files.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"

namespace mgplan::formats {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// "dir/llama.json" -> "llama", "llama/config.json" -> "llama".
std::string name_of_file(const fs::path& path) {
    if (path.stem() == "config") {
        std::error_code ignored;
        std::string folder = fs::absolute(path, ignored).parent_path().filename().string();
        if (!folder.empty()) return folder;
    }
    const std::string stem = path.stem().string();
    return stem.empty() ? "model" : stem;
}

Job read_json_model(std::string_view text, const std::string& name, const std::string& where, const std::string& assume) {
    const Json json = parse_config(text, where);
    if (!json.is_object()) throw ConfigError(fmt::format("{}: holds no JSON object; give a model's config.json", where));
    // Reads only the model of a plan; callers that want the plan read its other fields.
    if (json.contains("mgplan_plan") || (json.contains("model") && json.at("model").is_object() && !looks_like_hugging_face(json))) {
        if (!json.contains("model")) throw ConfigError(fmt::format("{}: field 'model' is missing in the plan", where));
        Job job;
        job.model = model_from_json(json.at("model"), where + ": model");
        return job;
    }
    if (looks_like_hugging_face(json)) return read_hugging_face(json, name, where, assume);
    if (json.contains("layers") || json.contains("hidden")) {
        Job job;
        job.model = model_from_json(json, where);
        if (job.model.name.empty()) job.model.name = name;
        return job;
    }
    throw ConfigError(
        fmt::format("{}: is no model: neither a Hugging Face config (hidden_size, num_hidden_layers, …) nor mgplan's own JSON "
                    "(hidden, layers, …; see mgplan models show NAME --format json)",
                    where));
}

/// True if the text is to be read as JSON: by its first character, or by the name of its file.
bool is_json_text(const std::string& path, const std::string& text, std::size_t first) {
    return text[first] == '{' || text[first] == '[' || text.starts_with("\xEF\xBB\xBF{") || lower_case(path).ends_with(".json");
}

/// The folder of a file as far as it is named: "." for "train.sh".
std::string folder_of(const std::string& path) {
    const std::string folder = fs::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

/// `path` names the text in messages, `name` the model.
Job read_named_text(const std::string& text, const std::string& path, const std::string& name, const ModelReading& how) {
    const auto first = text.find_first_not_of(" \t\r\n\f\v");
    if (first == std::string::npos)
        throw ConfigError(fmt::format("model file {} is empty; give a config.json or Megatron-LM arguments", shown_in_message(path)));
    if (is_json_text(path, text, first)) {
        try {
            return read_json_model(text, name, path, how.assume);
        } catch (const ConfigError&) {
            if (const auto seen = recognise(text)) throw ConfigError(refusal_of(*seen, path));
            throw;
        }
    }
    Job job = read_megatron_text(text, path, {.vocab = how.vocab, .folder = folder_of(path)});
    job.model.name = name;
    return job;
}

Job read_model_file(const std::string& path, const ModelReading& how) {
    return read_named_text(read_text_file(path, "model"), path, name_of_file(path), how);
}

Job read_preset(const EmbeddedFile& file) {
    return read_json_model(file.text, std::string(file.name), fmt::format("preset {}", file.name), "");
}

/// "Llama-4-Scout-17B" as llama, 4, scout, 17, b: lower case, in runs of letters and of digits.
std::vector<std::string> runs_of(std::string_view name) {
    std::vector<std::string> runs;
    char before = 0;
    const auto kind = [](char c) { return c >= '0' && c <= '9' ? '0' : c >= 'a' && c <= 'z' ? 'a' : '\0'; };
    for (const char c : lower_case(name)) {
        const char now = kind(c);
        if (now != 0 && now != before) runs.emplace_back();
        if (now != 0) runs.back() += c;
        before = now;
    }
    return runs;
}

/// Returns the preset of most runs among those whose runs all follow each other in a repository's name; empty for none.
std::string preset_in_name(std::string_view repository) {
    const std::vector<std::string> runs = runs_of(repository.substr(repository.find('/') + 1));
    std::string found;
    std::size_t most = 0;
    for (const auto& file : embedded_models()) {
        const std::vector<std::string> wanted = runs_of(file.name);
        if (wanted.size() <= most || std::ranges::search(runs, wanted).empty()) continue;
        most = wanted.size();
        found = file.name;
    }
    return found;
}

/// A repository of the hub: nothing is downloaded, its preset is read.
Job read_hub_name(const std::string& repository) {
    const std::string_view preset = preset_of_hub_name(repository);
    for (const auto& file : embedded_models()) {
        if (file.name == preset) return read_preset(file);
    }
    if (const std::string_view alike = preset_with_layers_of(repository); !alike.empty())
        throw ConfigError(fmt::format(
            "model {} is no file here, and as a Hugging Face repository it has no preset; download its config.json and name that file, or "
            "take --model {} ({})",
            shown_in_message(repository), alike, shown_in_message(named_with_layers(repository))));
    const std::string near = preset_in_name(repository);
    throw ConfigError(fmt::format(
        "model {} is no file here, and as a Hugging Face repository it has no preset{}; download its config.json and name that file, "
        "or use a preset (see mgplan models)",
        shown_in_message(repository),
        near.empty() ? "" : fmt::format(" of its own ({0} stands in its name: mgplan models show {0})", near)));
}

/// The model that a launcher's command names and whose flags it does not state: ms-swift's repository, the checkpoint of slime and miles.
/// "" for other texts, for adapters of slime, and where no preset has the model's layers.
std::string model_of_launcher(const std::string& text, const std::string& where, const MegatronSurroundings& surroundings) {
    const auto seen = recognise(text);
    if (!seen || !seen->states_layout) return "";
    std::string named = seen->framework == "ms-swift" ? seen->model : "";
    if ((seen->framework == "slime" || seen->framework == "miles") && seen->job != "LoRA") {
        ScriptInputs inputs = surroundings.script;
        inputs.model_is_given = true;
        try {
            const std::vector<std::string> words = argument_words(text, where, surroundings.folder, inputs).words;
            const auto flag = std::ranges::find(words, "--hf-checkpoint");
            if (!names_model(words) && flag != words.end() && flag + 1 != words.end()) named = *(flag + 1);
        } catch (const ConfigError&) {
            return "";  // no command in it: the reader of commands says why
        }
        while (named.ends_with('/')) named.pop_back();
        named.erase(0, named.rfind('/') + 1);  // npos + 1 is 0
    }
    return preset_with_layers_of(named).empty() ? "" : named;
}

bool looks_like_path(const std::string& cfg) {
    return cfg.find('/') != std::string::npos || cfg.ends_with(".json") || cfg.ends_with(".yaml") || cfg.ends_with(".yml") ||
           cfg.ends_with(".sh") || cfg.ends_with(".txt") || cfg.ends_with(".args");
}

Job load_model_source(const std::string& cfg, const ModelReading& how) {
    if (cfg.empty()) throw ConfigError("model is empty; give a preset name (see mgplan models) or a file");
    if (cfg.find('\0') != std::string::npos) throw ConfigError("model holds a zero byte; give a preset name (see mgplan models) or a file");
    std::error_code error;
    const bool is_source = fs::is_regular_file(cfg, error) || fs::exists(fs::path(cfg) / "config.json", error);
    for (const auto& file : embedded_models()) {
        if (file.name == cfg && !is_source) return read_preset(file);
    }
    const fs::file_status status = fs::status(cfg, error);
    if (error == std::errc::too_many_symbolic_link_levels) (void)read_text_file(cfg, "model");  // says so
    if (fs::is_directory(status)) {
        const fs::path config = fs::path(cfg) / "config.json";
        if (!fs::exists(config, error))
            throw ConfigError(fmt::format("model folder {} holds no config.json; name the file to read, or a preset (see mgplan models)",
                                          shown_in_message(cfg)));
        return read_model_file(config.string(), how);
    }
    if (fs::exists(status)) return read_model_file(cfg, how);
    if (looks_like_hub_name(cfg)) return read_hub_name(cfg);
    if (looks_like_path(cfg))
        throw ConfigError(
            fmt::format("model file {} is not there; check the path, or use a preset (see mgplan models)", shown_in_message(cfg)));
    const std::vector<std::string> names = preset_names();
    const std::string hint = did_you_mean(cfg, names);
    throw ConfigError(fmt::format("unknown model '{}'; {}", shown_in_message(cfg),
                                  hint.empty() ? "see mgplan models for the presets, or give a file" : hint));
}

/// Tokens that --vocab-size names in place of the model's. Throws ConfigError for more than the model's table has rows.
Job with_asked_vocabulary(Job job, const ModelReading& how, const std::string& where) {
    if (!how.vocab) return job;
    job.model.vocab = *how.vocab;
    if (job.model.padded_rows > 0) validate(job.model, shown_in_message(where));
    return job;
}

}  // namespace

std::optional<std::string_view> preset_text(std::string_view name) {
    for (const auto& file : embedded_models()) {
        if (file.name == name) return file.text;
    }
    return std::nullopt;
}

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const auto& file : embedded_models()) names.emplace_back(file.name);
    return names;
}

Job load_megatron_arguments(const std::string& path, MegatronSurroundings surroundings) {
    if (surroundings.folder.empty()) surroundings.folder = folder_of(path);
    return read_megatron_arguments_text(read_text_file(path, "argument"), path, std::move(surroundings));
}

Job read_megatron_arguments_text(const std::string& text, const std::string& name, MegatronSurroundings surroundings) {
    if (auto read = read_trainer_text(text, name, surroundings)) {
        read->problems.throw_if_any();
        return std::move(read->job);
    }
    const std::string named = surroundings.model ? "" : model_of_launcher(text, name, surroundings);
    if (!named.empty()) {
        surroundings.model = load_model(std::string(preset_with_layers_of(named))).model;
        surroundings.script.model_is_given = true;
    }
    Job job = read_megatron_text(text, name, surroundings);
    if (!named.empty()) job.assumptions.push_back(fmt::format("the model {}, which the command names", named_with_layers(named)));
    return job;
}

Job load_bridge_config(const std::string& path, MegatronSurroundings surroundings) {
    if (surroundings.folder.empty()) surroundings.folder = folder_of(path);
    return read_bridge_config(read_text_file(path, "configuration"), path, surroundings);
}

Job read_model_text(const std::string& text, const std::string& name, const ModelReading& how) {
    return with_asked_vocabulary(read_named_text(text, name, name, how), how, name);
}

Job load_model(const std::string& cfg, const ModelReading& how) {
    return with_asked_vocabulary(load_model_source(cfg, how), how, cfg);
}

}  // namespace mgplan::formats
