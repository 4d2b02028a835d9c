#pragma once
// A complete checkpoint on the disk: the places of the slices of all tensors.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/slice_text.hpp"

namespace mgplan::runtime {

struct StoredSlice {
    SavedSlice slice;
    Dtype dtype = Dtype::fp32;
    std::size_t file = 0;
    std::int64_t at = 0;           ///< first byte in the file
    std::int64_t whole_begin = 0;  ///< its elements of the whole are in [whole_begin, whole_end), perhaps with others between them
    std::int64_t whole_end = 0;
};

/// Immutable; any thread may read.
class SavedCheckpoint {
public:
    /// Reads the manifest and the headers of all files, and checks them: sizes, checksums of headers, metadata of slices. Throws
    /// ConfigError naming file and reason. Values are checked when they are read.
    static std::shared_ptr<const SavedCheckpoint> open(const std::string& folder, std::int64_t step);
    /// The last complete one; nullptr where there is none.
    static std::shared_ptr<const SavedCheckpoint> open_last(const std::string& folder);

    [[nodiscard]] const Manifest& manifest() const { return manifest_; }
    [[nodiscard]] const std::string& folder() const { return folder_; }  ///< of the step
    [[nodiscard]] std::string path(std::size_t file) const;
    /// Slices of one tensor, none where it has none.
    [[nodiscard]] const std::vector<StoredSlice>& slices(const std::string& name) const;

    SavedCheckpoint() = default;

private:
    void read_file(std::size_t file);

    std::string folder_;
    Manifest manifest_;
    std::map<std::string, std::vector<StoredSlice>, std::less<>> slices_;
};

/// Throws ConfigError naming all settings in which the saved training differs from the task.
void check_identity(const SavedCheckpoint& checkpoint, const model::TrainingTask& task, const Sequences& data);

}  // namespace mgplan::runtime
