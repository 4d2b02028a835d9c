#pragma once
// A file that appears whole or not at all.

#include <fstream>
#include <ostream>
#include <string>

namespace mgplan::cli {

/// Writes beside `path` and moves the result there at the end, so that a reader never sees half of it and what was there before
/// stays until then. Something that is no regular file (a device, a pipe) is written directly.
class AtomicFile {
public:
    /// Throws ConfigError where the file cannot be written. `option` names it: "--timeline".
    AtomicFile(std::string option, std::string path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    [[nodiscard]] std::ostream& stream() { return file_; }
    /// Throws RunError where it cannot be finished.
    void commit();

private:
    std::string option_, path_, part_;  ///< part_: where it is written; path_ itself for what is no regular file
    std::ofstream file_;
    bool done_ = false;
};

}  // namespace mgplan::cli
