#include "cli/atomic_file.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "plan/errors.hpp"

namespace mgplan::cli {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(std::string option, std::string path) : option_(std::move(option)), path_(std::move(path)), part_(path_) {
    std::error_code error;
    const fs::file_status status = fs::status(path_, error);
    const bool directly = fs::exists(status) && !fs::is_regular_file(status);
    // A file that may not be written is not replaced either.
    const bool writable = !fs::exists(status) || access(path_.c_str(), W_OK) == 0;
    if (!directly) {
        if (fs::is_symlink(path_, error)) {
            const fs::path target = fs::weakly_canonical(path_, error);
            if (!error) path_ = target.string();
        }
        part_ = fmt::format("{}.part{}", path_, getpid());
    }
    if (writable && !fs::is_directory(status)) file_.open(part_, std::ios::binary | std::ios::trunc);
    if (!file_.is_open()) {
        done_ = true;
        throw ConfigError(fmt::format("{} {}: the file cannot be written; check that its folder exists and is writable", option_, path_));
    }
}

AtomicFile::~AtomicFile() {
    if (done_ || part_ == path_) return;
    file_.close();
    std::error_code error;
    fs::remove(part_, error);
}

void AtomicFile::commit() {
    file_.close();
    std::error_code error;
    if (file_ && part_ != path_) fs::rename(part_, path_, error);
    if (!file_ || error) throw RunError(fmt::format("{} {}: the file cannot be written to its end; is the disk full?", option_, path_));
    done_ = true;
}

}  // namespace mgplan::cli
