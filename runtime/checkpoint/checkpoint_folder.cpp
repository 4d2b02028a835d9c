#include "runtime/checkpoint/checkpoint_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::size_t kStepDigits = 12;

std::string step_name(std::int64_t step) {
    return fmt::format("{}{:0{}}", kStepPrefix, step, kStepDigits);
}

std::optional<std::int64_t> step_of(const fs::path& path) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kStepPrefix) || name.size() < kStepPrefix.size() + kStepDigits) return std::nullopt;
    const std::string_view digits = std::string_view(name).substr(kStepPrefix.size());
    if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
    const auto step = parse_integer(digits);
    return step && name == step_name(*step) ? step : std::nullopt;
}

bool is_ours(const std::string& name) {
    return name == "manifest.json" || name == "manifest.json.partial" || (name.starts_with("rank-") && name.ends_with(".safetensors"));
}

/// Removes the manifest first, because a folder without one is no checkpoint. Opens the folder once and follows no link to it, so that
/// nothing outside of it is removed if its name changes meanwhile.
void remove_checkpoint(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return;
    if (::unlinkat(descriptor, "manifest.json", 0) != 0 && errno != ENOENT) {
        ::close(descriptor);
        return;
    }
    DIR* const listing = ::fdopendir(descriptor);
    if (listing == nullptr) {
        ::close(descriptor);
        return;
    }
    std::vector<std::string> files;
    while (const dirent* const entry = ::readdir(listing)) {  // NOLINT(concurrency-mt-unsafe): each thread reads its own listing
        if (is_ours(entry->d_name)) files.emplace_back(entry->d_name);
    }
    for (const std::string& file : files) ::unlinkat(descriptor, file.c_str(), 0);
    ::closedir(listing);
    ::rmdir(folder.c_str());  // fails if it holds other files
}

bool is_link(const fs::path& path) {
    std::error_code error;
    return fs::is_symlink(fs::symlink_status(path, error));
}

}  // namespace

std::string step_folder(const std::string& folder, std::int64_t step) {
    return (fs::path(folder) / step_name(step)).string();
}

std::string manifest_path(const std::string& folder, std::int64_t step) {
    return (fs::path(step_folder(folder, step)) / "manifest.json").string();
}

std::string rank_file_name(int rank) {
    return fmt::format("rank-{:05}.safetensors", rank);
}

bool is_name_in_folder(std::string_view name) {
    constexpr std::size_t kLongest = 200;
    return !name.empty() && name.size() < kLongest && name.front() != '.' &&
           std::none_of(name.begin(), name.end(), [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

void refuse_link(const std::string& path, FilePurpose purpose) {
    if (!is_link(path)) return;
    std::error_code error;
    throw ConfigError(fmt::format(
        "{} is a symbolic link (to {}), and a {} folder must hold its own files: saving or removing there would change those of "
        "another run; copy what it stands for (cp -r), or remove the link",
        path, fs::read_symlink(path, error).string(), to_string(purpose)));
}

std::vector<std::int64_t> complete_checkpoints(const std::string& folder) {
    std::vector<std::int64_t> steps;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder, error))) {
        if (error && error != std::errc::no_such_file_or_directory)
            throw ConfigError(fmt::format("checkpoint folder {} cannot be read: {}", folder, error.message()));
        return steps;
    }
    for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
        const auto step = step_of(at->path());
        if (step) refuse_link(at->path().string());
        std::error_code ignored;
        if (step && fs::exists(at->path() / "manifest.json", ignored)) steps.push_back(*step);
    }
    if (error) throw ConfigError(fmt::format("checkpoint folder {} cannot be read: {}; name a folder that can", folder, error.message()));
    std::sort(steps.begin(), steps.end());
    return steps;
}

void check_writable_folder(const std::string& folder, FilePurpose purpose) {
    try {
        make_folder(folder, purpose);
    } catch (const RunError& error) {
        throw ConfigError(error.what());
    }
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
        throw ConfigError(fmt::format("{} folder {} cannot be written: {}; choose one that every rank may write", to_string(purpose),
                                      folder, std::strerror(errno)));
}

void remove_leftovers(const std::string& folder, std::int64_t newest, std::int64_t keep) {
    std::error_code error;
    std::vector<std::pair<std::int64_t, fs::path>> complete;
    std::vector<fs::path> cut_off;
    for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
        const auto step = step_of(at->path());
        if (!step || *step > newest || is_link(at->path())) continue;
        std::error_code ignored;
        if (fs::exists(at->path() / "manifest.json", ignored))
            complete.emplace_back(*step, at->path());
        else if (*step < newest && !ignored)
            cut_off.push_back(at->path());
    }
    for (const fs::path& path : cut_off) remove_checkpoint(path);
    if (keep <= 0) return;
    std::sort(complete.begin(), complete.end());
    for (std::int64_t i = 0; i + keep < std::ssize(complete); ++i) remove_checkpoint(complete[static_cast<std::size_t>(i)].second);
}

}  // namespace mgplan::runtime
