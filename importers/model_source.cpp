#include "importers/model_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "importers/hugging_face.hpp"
#include "importers/megatron_arguments.hpp"
#include "plan/embedded_files.hpp"
#include "plan/errors.hpp"
#include "plan/json_reader.hpp"
#include "plan/model_json.hpp"
#include "plan/text.hpp"

namespace mgplan::importers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Text a user gave, short enough for a message.
std::string shown(const std::string& text) {
    return text.size() > 120 ? text.substr(0, 117) + "..." : text;
}

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

Job read_json_model(std::string_view text, const std::string& name, const std::string& where) {
    const Json json = parse_json(text, where);
    if (!json.is_object()) throw ConfigError(fmt::format("{}: holds no JSON object; give a model's config.json", where));
    // A plan holds its model; what else it says is read by whoever asked for a plan.
    if (json.contains("mgplan_plan") || (json.contains("model") && json.at("model").is_object() && !looks_like_hugging_face(json))) {
        if (!json.contains("model")) throw ConfigError(fmt::format("{}: field 'model' is missing in the plan", where));
        Job job;
        job.model = model_from_json(json.at("model"), where + ": model");
        return job;
    }
    if (looks_like_hugging_face(json)) return read_hugging_face(json, name, where);
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

/// The folder of a file as far as it is named: "." for "train.sh".
std::string folder_of(const std::string& path) {
    const std::string folder = fs::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

Job read_model_file(const std::string& path, std::optional<std::int64_t> vocab) {
    const std::string text = read_text_file(path, "model");
    const std::string name = name_of_file(path);
    const auto first = text.find_first_not_of(" \t\r\n\f\v");
    if (first == std::string::npos)
        throw ConfigError(fmt::format("model file {} is empty; give a config.json or Megatron-LM arguments", shown(path)));
    if (text[first] == '{' || text[first] == '[') return read_json_model(text, name, path);
    Job job = read_megatron_text(text, path, {.vocab = vocab, .folder = folder_of(path)});
    job.model.name = name;
    return job;
}

Job read_preset(const EmbeddedFile& file) {
    return read_json_model(file.text, std::string(file.name), fmt::format("preset {}", file.name));
}

bool looks_like_path(const std::string& cfg) {
    return cfg.find('/') != std::string::npos || cfg.ends_with(".json") || cfg.ends_with(".yaml") || cfg.ends_with(".yml") ||
           cfg.ends_with(".sh") || cfg.ends_with(".txt") || cfg.ends_with(".args");
}

Job load_model_source(const std::string& cfg, std::optional<std::int64_t> vocab) {
    if (cfg.empty()) throw ConfigError("model is empty; give a preset name (see mgplan models) or a file");
    if (cfg.find('\0') != std::string::npos) throw ConfigError("model holds a zero byte; give a preset name (see mgplan models) or a file");
    std::error_code error;
    const bool is_source = fs::is_regular_file(cfg, error) || fs::exists(fs::path(cfg) / "config.json", error);
    for (const auto& file : embedded_models()) {
        if (file.name == cfg && !is_source) return read_preset(file);
    }
    const fs::file_status status = fs::status(cfg, error);
    if (fs::is_directory(status)) {
        const fs::path config = fs::path(cfg) / "config.json";
        if (!fs::exists(config, error))
            throw ConfigError(
                fmt::format("model folder {} holds no config.json; name the file to read, or a preset (see mgplan models)", shown(cfg)));
        return read_model_file(config.string(), vocab);
    }
    if (fs::exists(status)) return read_model_file(cfg, vocab);
    if (looks_like_path(cfg))
        throw ConfigError(fmt::format("model file {} is not there; check the path, or use a preset (see mgplan models)", shown(cfg)));
    const std::vector<std::string> names = preset_names();
    const std::string hint = did_you_mean(cfg, names);
    throw ConfigError(
        fmt::format("unknown model '{}'; {}", shown(cfg), hint.empty() ? "see mgplan models for the presets, or give a file" : hint));
}

}  // namespace

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const auto& file : embedded_models()) names.emplace_back(file.name);
    return names;
}

std::string read_text_file(const std::string& path, std::string_view what, std::size_t limit) {
    if (path.empty()) throw ConfigError(fmt::format("{} file: the path is empty; name a file", what));
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw ConfigError(fmt::format("{} file {} is not there; check the path", what, shown(path)));
    if (fs::is_directory(status)) throw ConfigError(fmt::format("{} file {} is a folder; name a file in it", what, shown(path)));
    std::ifstream file(path, std::ios::binary);
    if (!file) throw ConfigError(fmt::format("{} file {} cannot be opened: {}", what, shown(path), std::strerror(errno)));
    // Read in pieces with a bound: pipes and devices have no size, and /dev/zero no end.
    std::string text;
    std::vector<char> piece(64U << 10U);
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
        text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
        if (text.size() > limit)
            throw ConfigError(fmt::format("{} file {} is larger than {}; this is no configuration", what, shown(path),
                                          human_bytes(static_cast<std::int64_t>(limit))));
    }
    if (file.bad()) throw ConfigError(fmt::format("{} file {} cannot be read: {}", what, shown(path), std::strerror(errno)));
    if (text.find('\0') != std::string::npos) throw ConfigError(fmt::format("{} file {} is binary; give a text file", what, shown(path)));
    return text;
}

Job load_megatron_arguments(const std::string& path, std::optional<std::int64_t> vocab) {
    return read_megatron_text(read_text_file(path, "argument"), path, {.vocab = vocab, .folder = folder_of(path)});
}

Job load_model(const std::string& cfg, std::optional<std::int64_t> vocab) {
    Job job = load_model_source(cfg, vocab);
    if (vocab) job.model.vocab = *vocab;
    return job;
}

}  // namespace mgplan::importers
