#pragma once
// Reads places of a file. Read rather than mapped: a file that is shortened meanwhile gives an error, not a signal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mgplan::runtime {

/// An open regular file. Any thread may read.
class FileBytes {
public:
    /// Throws ConfigError naming `what` ("data file") and the path.
    FileBytes(std::string path, const std::string& what);
    ~FileBytes();
    FileBytes(const FileBytes&) = delete;
    FileBytes& operator=(const FileBytes&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Size when it was opened.
    [[nodiscard]] std::int64_t size() const { return size_; }
    /// Fills `bytes` from offset `at`. Throws RunError when the file is shorter by now or cannot be read.
    void read(std::int64_t at, std::span<std::byte> bytes) const;

private:
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

}  // namespace mgplan::runtime
