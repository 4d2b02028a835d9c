#include "importers/model_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "importers/bridge_config.hpp"
#include "importers/config_text.hpp"
#include "importers/hub_names.hpp"
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

Job read_json_model(std::string_view text, const std::string& name, const std::string& where, const std::string& assume) {
    const Json json = parse_config(text, where);
    if (!json.is_object()) throw ConfigError(fmt::format("{}: holds no JSON object; give a model's config.json", where));
    // A plan holds its model; what else it says is read by whoever asked for a plan.
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

/// Whether the text is to be read as JSON: by its first character, or by the name that its file has.
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
        throw ConfigError(fmt::format("model file {} is empty; give a config.json or Megatron-LM arguments", shown(path)));
    if (is_json_text(path, text, first)) return read_json_model(text, name, path, how.assume);
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

/// A repository of the hub: nothing is downloaded, its preset is read.
Job read_hub_name(const std::string& repository) {
    const std::string_view preset = preset_of_hub_name(repository);
    for (const auto& file : embedded_models()) {
        if (file.name == preset) return read_preset(file);
    }
    throw ConfigError(fmt::format(
        "model {} is no file here, and as a Hugging Face repository it has no preset; download its config.json and name that file, "
        "or use a preset (see mgplan models)",
        shown(repository)));
}

bool looks_like_path(const std::string& cfg) {
    return cfg.find('/') != std::string::npos || cfg.ends_with(".json") || cfg.ends_with(".yaml") || cfg.ends_with(".yml") ||
           cfg.ends_with(".sh") || cfg.ends_with(".txt") || cfg.ends_with(".args");
}

constexpr int kPipeMilliseconds = 5000;  ///< how long a pipe may stay silent

/// Reads a whole file in pieces with a bound: pipes and devices have no size, and /dev/zero no end. `pipe`: somebody has to write
/// into it, who may never come.
std::string read_at_most(const std::string& path, std::string_view what, std::size_t limit, bool pipe) {
    const auto refuse = [&](const std::string& reason) -> ConfigError {
        return ConfigError(fmt::format("{} file {} {}", what, shown(path), reason));
    };
    struct Descriptor {
        int value;
        ~Descriptor() {
            if (value >= 0) ::close(value);
        }
    };
    // Opening a pipe for reading blocks until it is opened for writing, unless it is told not to.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0))};
    if (file.value < 0) throw refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
    std::string text;
    std::vector<char> piece(64U << 10U);
    while (true) {
        if (pipe) {
            pollfd ready{file.value, POLLIN, 0};
            if (::poll(&ready, 1, kPipeMilliseconds) == 0)
                throw refuse(fmt::format("is a pipe into which nobody writes for {} seconds; name a file", kPipeMilliseconds / 1000));
        }
        const ssize_t count = ::read(file.value, piece.data(), piece.size());
        if (count == 0) return text;
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count < 0) throw refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
        text.append(piece.data(), static_cast<std::size_t>(count));
        if (text.size() > limit)
            throw refuse(fmt::format("is larger than {}; this is no configuration", human_bytes(static_cast<std::int64_t>(limit))));
    }
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
            throw ConfigError(
                fmt::format("model folder {} holds no config.json; name the file to read, or a preset (see mgplan models)", shown(cfg)));
        return read_model_file(config.string(), how);
    }
    if (fs::exists(status)) return read_model_file(cfg, how);
    if (looks_like_hub_name(cfg)) return read_hub_name(cfg);
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
    if (error == std::errc::too_many_symbolic_link_levels)
        throw ConfigError(
            fmt::format("{} file {} is a link that leads back to itself (too many links); name the file itself", what, shown(path)));
    if (!fs::exists(status)) throw ConfigError(fmt::format("{} file {} is not there; check the path", what, shown(path)));
    if (fs::is_directory(status)) throw ConfigError(fmt::format("{} file {} is a folder; name a file in it", what, shown(path)));
    std::string text = read_at_most(path, what, limit, fs::is_fifo(status));
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
        throw ConfigError(fmt::format("{} file {} is UTF-16 and so binary here; save it as UTF-8", what, shown(path)));
    if (text.find('\0') != std::string::npos) throw ConfigError(fmt::format("{} file {} is binary; give a text file", what, shown(path)));
    return text;
}

Job load_megatron_arguments(const std::string& path, MegatronSurroundings surroundings) {
    if (surroundings.folder.empty()) surroundings.folder = folder_of(path);
    return read_megatron_text(read_text_file(path, "argument"), path, surroundings);
}

Job load_bridge_config(const std::string& path, MegatronSurroundings surroundings) {
    if (surroundings.folder.empty()) surroundings.folder = folder_of(path);
    return read_bridge_config(read_text_file(path, "configuration"), path, surroundings);
}

Job read_model_text(const std::string& text, const std::string& name, const ModelReading& how) {
    Job job = read_named_text(text, name, name, how);
    if (how.vocab) job.model.vocab = *how.vocab;
    return job;
}

Job load_model(const std::string& cfg, const ModelReading& how) {
    Job job = load_model_source(cfg, how);
    if (how.vocab) job.model.vocab = *how.vocab;
    return job;
}

}  // namespace mgplan::importers
