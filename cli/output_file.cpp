#include "cli/output_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/core.h>

namespace mgplan::cli {
namespace {

namespace fs = std::filesystem;

/// Returns true if both name one file, whether it exists or not.
bool same_file(const fs::path& a, const fs::path& b) {
    std::error_code error;
    if (fs::exists(a, error) && fs::exists(b, error)) return fs::equivalent(a, b, error);
    const fs::path one = fs::weakly_canonical(fs::absolute(a, error), error);
    const fs::path other = fs::weakly_canonical(fs::absolute(b, error), error);
    return !one.empty() && one == other;
}

/// Returns true if the path exists and is neither file nor folder: a pipe or a device, which more than one may use.
bool is_special(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

/// Returns the files that a word of the command line may name.
std::vector<fs::path> files_of(const std::string& word) {
    std::vector<fs::path> files;
    const auto add = [&](const fs::path& file) {
        std::error_code error;
        if (fs::is_regular_file(file, error)) files.push_back(file);
    };
    if (word.empty() || word.find('\0') != std::string::npos) return files;
    add(word);
    add(fs::path(word) / "config.json");
    for (const char* ending : {".bin", ".idx"}) add(word + ending);
    if (const auto comma = word.find(','); comma != std::string::npos && comma > 0) add(word.substr(0, comma));
    return files;
}

bool write_straight(const std::string& path, const std::function<void(std::ostream&)>& write_to) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    if (file) write_to(file);
    file.close();
    return !file.fail();
}

/// Returns an unused name in the folder of `target`, "" if none is found.
std::string free_neighbour(const fs::path& target) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        std::string name = fmt::format("{}.{}-{}.part", target.string(), ::getpid(), attempt);
        std::error_code error;
        if (!fs::exists(fs::symlink_status(name, error))) return name;
    }
    return {};
}

}  // namespace

void add_same_file_problems(Problems& problems, const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& others) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const NamedFile& output = outputs[i];
        if (output.path.empty() || is_special(output.path)) continue;
        for (std::size_t k = 0; k < i; ++k) {
            if (!outputs[k].path.empty() && same_file(outputs[k].path, output.path))
                problems.add("{} and {} both write {}; name two files", outputs[k].option, output.option, output.path);
        }
        for (const NamedFile& other : others) {
            for (const fs::path& file : files_of(other.path)) {
                if (!same_file(file, output.path)) continue;
                problems.add("{} = {} is read, too ({} {}), and would be overwritten; name another file", output.option, output.path,
                             other.option, other.path);
                break;
            }
        }
    }
}

void add_unwritable_problems(Problems& problems, const std::vector<NamedFile>& outputs) {
    for (const NamedFile& output : outputs) {
        if (output.path.empty()) {
            problems.add("{} is empty; name a file", output.option);
            continue;
        }
        // Neither a pipe nor a device is opened: that could wait for a reader, or be noticed by one.
        if (is_special(output.path)) continue;
        std::error_code error;
        const bool is_there = fs::exists(output.path, error);
        errno = 0;
        const bool is_writable = std::ofstream(output.path, std::ios::binary | std::ios::app).is_open();
        const int reason = errno;
        // A link to a file that did not exist stays as it was.
        if (is_writable && !is_there) fs::remove(fs::canonical(output.path, error), error);
        if (!is_writable)
            problems.add("{} = {} cannot be written ({}); name a file in a folder that exists and is writable", output.option, output.path,
                         std::generic_category().message(reason));
    }
}

bool write_output_file(const std::string& path, const std::function<void(std::ostream&)>& write_to) {
    std::error_code error;
    const bool is_there = fs::exists(path, error);
    const bool dangles = !is_there && fs::is_symlink(path, error);
    if (dangles || (is_there && (!fs::is_regular_file(path, error) || fs::hard_link_count(path, error) > 1)))
        return write_straight(path, write_to);
    const fs::path target = fs::weakly_canonical(path, error);  // with links followed
    const std::string neighbour = error ? std::string() : free_neighbour(target);
    if (neighbour.empty() || !std::ofstream(neighbour, std::ios::binary).is_open()) return write_straight(path, write_to);
    bool written = write_straight(neighbour, write_to);
    if (written && is_there) fs::permissions(neighbour, fs::status(target, error).permissions(), error);
    if (written) {
        fs::rename(neighbour, target, error);
        written = !error;
    }
    if (!written) fs::remove(neighbour, error);
    return written;
}

}  // namespace mgplan::cli
