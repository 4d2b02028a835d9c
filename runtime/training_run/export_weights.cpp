#include "runtime/training_run/export_weights.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/bf16.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/durable_file.hpp"
#include "runtime/checkpoint/load_state.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";

/// Whole parameters of a checkpoint in fp64, the one read last kept: tensors that share one follow each other.
class WholeParameters {
public:
    WholeParameters(const SavedCheckpoint& checkpoint, Dtype main) : checkpoint_(checkpoint), main_(main) {}

    const std::vector<double>& values(const PublishedParameter& parameter) {
        if (kept_ == &parameter) return values_;
        const std::int64_t count = parameter.rows * parameter.columns;
        ShardOfWhole whole;
        whole.rows = whole.whole_rows = parameter.rows;
        whole.columns = parameter.columns;
        const bool is_expert_bias = parameter.name.ends_with(".router.expert_bias");
        model::Tensor tensor = device_.empty({count}, main_, model::MemoryCategory::workspace, "whole parameter");
        const model::StatePiece piece{
            model::StateKind::parameter, is_expert_bias ? parameter.name : parameter.name + "/main", whole, 0, tensor, {}};
        load_state(checkpoint_, {&piece, 1});
        values_.resize(static_cast<std::size_t>(count));
        if (main_ == Dtype::fp64) {
            device_.read(tensor, values_.data());
        } else {
            std::vector<float> narrow(values_.size());
            device_.read(tensor, narrow.data());
            std::copy(narrow.begin(), narrow.end(), values_.begin());
        }
        kept_ = &parameter;
        return values_;
    }

private:
    const SavedCheckpoint& checkpoint_;
    Dtype main_;
    CpuDevice device_;
    const PublishedParameter* kept_ = nullptr;
    std::vector<double> values_;
};

void put(std::byte* at, double value, Dtype dtype) {
    const auto write = [&](auto word) { std::memcpy(at, &word, sizeof word); };
    if (dtype == Dtype::fp64)
        write(value);
    else if (dtype == Dtype::bf16)
        write(Bf16(static_cast<float>(value)));
    else
        write(static_cast<float>(value));
}

/// Marks weights with the training that they come from, so that the same training may write them again.
constexpr const char* kTrainingMark = "mgplan_training";

std::string mark_of(const TrainingIdentity& training) {
    Manifest manifest;
    manifest.identity = training;
    return checksum_text(crc32c(manifest_text(manifest)));
}

/// True if the file is an export of the training; false for what cannot be read, too.
bool is_of_training(const std::string& path, const TrainingIdentity& training) {
    try {
        const FileBytes file(path, "weights");
        const std::string head = read_safetensors_head(file);
        const auto header = parse_safetensors(std::string_view(head).substr(sizeof(std::uint64_t)), file.size() - std::ssize(head), path);
        const auto mark = header.metadata.find(kTrainingMark);
        return mark != header.metadata.end() && mark->second == mark_of(training);
    } catch (const std::exception&) {
        return false;
    }
}

/// Elements of one tensor that a parameter's rows are.
void fill(std::vector<std::byte>& bytes, const PublishedParameter& parameter, const PublishedRows& rows, const std::vector<double>& values,
          Dtype dtype) {
    const std::int64_t width = bytes_of(dtype);
    for (std::int64_t row = 0; row < rows.rows; ++row) {
        const double* const from = values.data() + (rows.first_row + row) * parameter.columns;
        const std::int64_t begin = rows.begin + row * rows.row_step;
        for (std::int64_t column = 0; column < parameter.columns; ++column)
            put(bytes.data() + (begin + column * rows.column_step) * width, from[column] - parameter.added, dtype);
    }
}

}  // namespace

void check_export_folder(const std::string& folder, const TrainingIdentity& training, const PublishedCheckpoint* read, bool force) {
    const fs::path path(folder);
    for (const char* name : {kWeights, "model.safetensors.unfinished", "config.json", "config.json.partial"}) {
        refuse_link((path / name).string(), FilePurpose::weights);
        std::error_code error;
        if (fs::exists(path / name, error) && !fs::is_regular_file(path / name, error))
            throw ConfigError(
                fmt::format("--export-weights {}: {} there is no regular file; move it away, or name another folder", folder, name));
    }
    const std::string shards = shards_folder(folder);
    refuse_link(shards, FilePurpose::weights);
    std::error_code error;
    if (fs::exists(shards, error) && !fs::is_directory(shards, error))
        throw ConfigError(fmt::format("--export-weights {}: {} is no folder; move it away, or name another folder", folder, shards));
    for (const std::string& file : read != nullptr ? read->files() : std::vector<std::string>()) {
        for (const fs::path& holder : {fs::path(file).parent_path(), fs::canonical(file, error).parent_path()}) {
            if (fs::equivalent(holder.empty() ? fs::path(".") : holder, path, error))
                throw ConfigError(fmt::format(
                    "--export-weights {} is the folder of --weights {}, which would be replaced by what they become; name another folder",
                    folder, read->path()));
        }
    }
    if (force) return;
    for (const char* name : {kWeights, "model.safetensors.index.json"}) {
        if (!fs::exists(path / name, error) || is_of_training((path / name).string(), training)) continue;
        throw ConfigError(fmt::format(
            "--export-weights {} holds another model ({}), which would be replaced; name another folder, or add --force", folder, name));
    }
}

std::string shards_folder(const std::string& folder) {
    return (fs::path(folder) / "shards.unfinished").string();
}

std::int64_t write_published_weights(const SavedCheckpoint& checkpoint, const WeightExport& wanted, Dtype dtype) {
    const PublishedWeights& weights = wanted.weights;
    SafetensorsHeader header;
    header.metadata["format"] = "pt";  // transformers requires it
    header.metadata[kTrainingMark] = mark_of(checkpoint.manifest().identity);
    std::int64_t at = 0;
    for (const PublishedTensor& tensor : weights.tensors) {
        const std::int64_t end = at + tensor.elements() * bytes_of(dtype);
        header.tensors.push_back({tensor.name, dtype, tensor.shape, at, end});
        at = end;
    }
    for (const PublishedConstant& constant : weights.constants) {
        header.tensors.push_back({constant.name, dtype, {}, at, at + bytes_of(dtype)});
        at += bytes_of(dtype);
    }
    std::vector<std::vector<std::pair<const PublishedParameter*, const PublishedRows*>>> parts(weights.tensors.size());
    for (const PublishedParameter& parameter : weights.parameters) {
        for (const PublishedRows& rows : parameter.pieces) parts[rows.tensor].emplace_back(&parameter, &rows);
    }
    const std::string head = safetensors_head(header);
    const fs::path folder(wanted.folder);
    const std::string unfinished = (folder / "model.safetensors.unfinished").string();
    {
        WholeParameters parameters(checkpoint, dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32);
        DurableFile file(unfinished, std::ssize(head) + at, FilePurpose::weights);
        file.write(0, std::as_bytes(std::span(head)));
        std::int64_t place = std::ssize(head);
        std::vector<std::byte> bytes;
        for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
            bytes.assign(static_cast<std::size_t>(weights.tensors[i].elements() * bytes_of(dtype)), std::byte{0});
            for (const auto& [parameter, rows] : parts[i]) fill(bytes, *parameter, *rows, parameters.values(*parameter), dtype);
            file.write(place, bytes);
            place += std::ssize(bytes);
        }
        bytes.assign(static_cast<std::size_t>(bytes_of(dtype)), std::byte{0});
        for (const PublishedConstant& constant : weights.constants) {
            put(bytes.data(), constant.value, dtype);
            file.write(place, bytes);
            place += std::ssize(bytes);
        }
        file.finish();
    }
    std::error_code error;
    fs::rename(unfinished, folder / kWeights, error);
    if (error) throw RunError(fmt::format("{} cannot become {}: {}", unfinished, kWeights, error.message()));
    replace_file((folder / "config.json").string(), wanted.config, FilePurpose::weights);
    sync_folder(wanted.folder, FilePurpose::weights);
    return std::ssize(head) + at;
}

}  // namespace mgplan::runtime
