#include "runtime/checkpoint/saved_checkpoint.hpp"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/text/errors.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/crc32c.hpp"

namespace mgplan::runtime {
namespace {

/// The problems of a checkpoint that cannot be used; the last one ends with a way out.
ConfigError unusable(const ConfigError& error, const std::string& folder) {
    std::vector<std::string> problems = error.problems();
    problems.back() += fmt::format("; restore it, or remove {} to go on from an earlier checkpoint", folder);
    return ConfigError(std::move(problems));
}

}  // namespace

std::shared_ptr<const SavedCheckpoint> SavedCheckpoint::open(const std::string& folder, std::int64_t step) {
    auto checkpoint = std::make_shared<SavedCheckpoint>();
    checkpoint->folder_ = step_folder(folder, step);
    for (const std::string& path : {checkpoint->folder_, manifest_path(folder, step)}) refuse_link(path);
    try {
        checkpoint->manifest_ = read_manifest(manifest_path(folder, step));
    } catch (const ConfigError& error) {
        throw unusable(error, checkpoint->folder_);
    }
    if (checkpoint->manifest_.position.steps != step) {
        throw ConfigError(fmt::format("{} is of step {}, and its folder of step {}; give the folder its name back",
                                      manifest_path(folder, step), checkpoint->manifest_.position.steps, step));
    }
    for (std::size_t file = 0; file < checkpoint->manifest_.files.size(); ++file) {
        refuse_link(checkpoint->path(file));
        try {
            checkpoint->read_file(file);
        } catch (const ConfigError& error) {
            throw unusable(error, checkpoint->folder_);
        }
    }
    return checkpoint;
}

std::shared_ptr<const SavedCheckpoint> SavedCheckpoint::open_last(const std::string& folder) {
    const std::vector<std::int64_t> steps = complete_checkpoints(folder);
    return steps.empty() ? nullptr : open(folder, steps.back());
}

std::string SavedCheckpoint::path(std::size_t file) const {
    return (std::filesystem::path(folder_) / manifest_.files[file].name).string();
}

const std::vector<StoredSlice>& SavedCheckpoint::slices(const std::string& name) const {
    static const std::vector<StoredSlice> none;
    const auto found = slices_.find(name);
    return found == slices_.end() ? none : found->second;
}

void SavedCheckpoint::read_file(std::size_t file) {
    const RankFile& expected = manifest_.files[file];
    const FileBytes bytes(path(file), "checkpoint file");
    const std::string where = bytes.path();
    if (bytes.size() != expected.bytes) {
        throw ConfigError(
            fmt::format("{} has {} bytes and had {} when it was written: it was cut off or replaced", where, bytes.size(), expected.bytes));
    }
    const std::string head = read_safetensors_head(bytes);
    if (crc32c(head) != expected.checksum) {
        throw ConfigError(fmt::format("{}: its header has the checksum {} and not {}: it was damaged or is another file", where,
                                      checksum_text(crc32c(head)), checksum_text(expected.checksum)));
    }
    const SafetensorsHeader header = parse_safetensors(std::string_view(head).substr(8), bytes.size() - std::ssize(head), where);
    for (const SafetensorsTensor& tensor : header.tensors) {
        const auto text = header.metadata.find(tensor.name);
        if (text == header.metadata.end())
            throw ConfigError(
                fmt::format("{}: nothing says what tensor '{}' is; mgplan did not write it", where, tensor.name.substr(0, 200)));
        const std::string name = tensor.name.substr(0, tensor.name.rfind('['));
        StoredSlice stored;
        stored.slice = parse_slice(text->second, name, where);
        if (stored.slice.end - stored.slice.begin != tensor.elements())
            throw ConfigError(fmt::format("{}: tensor '{}' has {} elements, and is said to have {}", where, tensor.name.substr(0, 200),
                                          tensor.elements(), stored.slice.end - stored.slice.begin));
        stored.dtype = tensor.dtype;
        stored.file = file;
        stored.at = std::ssize(head) + tensor.begin;
        const auto runs = runs_in_whole(stored.slice.shard, stored.slice.begin, stored.slice.end);
        if (runs.empty()) continue;  // padding alone
        stored.whole_begin = runs.front().in_whole;
        stored.whole_end = runs.back().in_whole + runs.back().size;
        auto& same = slices_[name];
        if (!same.empty()) {
            const StoredSlice& first = same.front();
            if (first.dtype != stored.dtype || first.slice.shard.whole_rows != stored.slice.shard.whole_rows ||
                first.slice.shard.whole_columns() != stored.slice.shard.whole_columns())
                throw ConfigError(fmt::format("{}: tensor '{}' has another shape or type than in {}", where, tensor.name.substr(0, 200),
                                              path(first.file)));
        }
        same.push_back(std::move(stored));
    }
}

void check_identity(const SavedCheckpoint& checkpoint, const model::TrainingTask& task, const Sequences& data) {
    const auto found = differences(checkpoint.manifest().identity, identity_of(task, data));
    if (found.empty()) return;
    throw ConfigError(fmt::format("checkpoint {} is of another training: {}; go on with what it was begun with, or name another folder",
                                  checkpoint.folder(), fmt::join(found, "; ")));
}

}  // namespace mgplan::runtime
