#include "cli/run_weights.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "formats/hugging_face/weight_names.hpp"
#include "formats/model_source.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "runtime/training_run/export_weights.hpp"

namespace mgplan::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The config as transformers reads it, without fields of a preset that are mgplan's own; "" where the text describes another model.
std::string fitting_config(std::string_view text, const PublishedWeights& weights) {
    Json json = Json::parse(text, nullptr, false);
    if (!formats::looks_like_hugging_face(json)) return "";
    try {
        if (!(formats::published_weights(formats::read_hugging_face(json, "model", "config.json").model) == weights)) return "";
    } catch (const ConfigError&) {
        return "";
    }
    std::vector<std::string> own;
    for (const auto& entry : json.items()) {
        if (entry.key().starts_with('_')) own.push_back(entry.key());
    }
    for (const std::string& key : own) json.erase(key);
    return json.dump(2) + "\n";
}

std::string fitting_file(const fs::path& path, const PublishedWeights& weights) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return "";
    return fitting_config(read_text_file(path.string(), "config"), weights);
}

std::string config_of(const WeightRequest& request, const ModelSpec& model, const PublishedWeights& weights) {
    const fs::path folder(*request.folder);
    if (std::string text = fitting_file(folder / "config.json", weights); !text.empty()) return text;
    std::error_code failed;
    if (!request.force && fs::exists(folder / "config.json", failed))
        throw ConfigError(
            fmt::format("--export-weights {} holds the config.json of another model, which would be replaced; name another folder, or "
                        "add --force",
                        *request.folder));
    if (request.weights) {
        std::error_code error;
        const fs::path from(*request.weights);
        const fs::path beside = fs::is_directory(from, error) ? from : from.parent_path();
        if (std::string text = fitting_file(beside / "config.json", weights); !text.empty()) return text;
    }
    if (const auto preset = formats::preset_text(model.name)) {
        if (std::string text = fitting_config(*preset, weights); !text.empty()) return text;
    }
    if (std::string text = fitting_file(model.source, weights); !text.empty()) return text;
    throw ConfigError(
        fmt::format("--export-weights {}: no config.json that describes {} is known; put the one that its plan was made from into that "
                    "folder",
                    *request.folder, model.name));
}

}  // namespace

std::shared_ptr<const runtime::PublishedCheckpoint> weights_of(const WeightRequest& request, const ModelSpec& model) {
    if (!request.weights) return nullptr;
    return runtime::PublishedCheckpoint::open(*request.weights, formats::published_weights(model));
}

RunFolder weights_folder(const std::string& path) {
    return {"--export-weights", path, runtime::FilePurpose::weights};
}

std::optional<runtime::WeightExport> weight_export_of(const WeightRequest& request, const runtime::TrainingRunOptions& run,
                                                      runtime::FolderLock* lock, Console& console) {
    if (!request.folder) return std::nullopt;
    runtime::WeightExport wanted;
    wanted.folder = *request.folder;
    wanted.weights = formats::published_weights(run.task.model);
    const auto check = [folder = wanted.folder, training = runtime::identity_of(run.task, *run.data), read = run.weights,
                        force = request.force] { runtime::check_export_folder(folder, training, read.get(), force); };
    check();
    wanted.config = config_of(request, run.task.model, wanted.weights);
    if (lock != nullptr) {
        wanted.before_write = [check, lock, &console, folder = weights_folder(wanted.folder)] {
            (void)keep_folder(*lock, folder, console);
            try {
                check();  // the folder of before the training may hold something else by now
            } catch (const ConfigError& error) {
                throw RunError(error.what());
            }
        };
    }
    if (request.reports) {
        wanted.on_written = [folder = wanted.folder, &err = console.err](std::int64_t bytes) {
            err << fmt::format("mgplan: weights written to {}: {}\n", folder, human_bytes(bytes));
            err.flush();
        };
    }
    return wanted;
}

}  // namespace mgplan::cli
