#include "jobs/job_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "jobs/rank_process.hpp"
#include "jobs/regular_file.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::jobs {
namespace {

using Json = nlohmann::ordered_json;
namespace files = std::filesystem;

constexpr int kRecordVersion = 1;
constexpr std::size_t kMostRecordBytes = 1 << 20;
constexpr std::array<std::string_view, 7> kStates{"starting", "waiting", "running", "finished", "failed", "cancelled", "lost"};

/// Returns the readable part of a file: for a process that ends meanwhile the kernel refuses the rest (ESRCH), for which an iterator over
/// the stream's buffer would throw.
std::string text_of_file(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::string first_line(const std::string& path) {
    const std::string text = text_of_file(path);
    return text.substr(0, text.find('\n'));
}

/// Returns the start of a process in clock ticks since the machine's; 0 if there is no such process, or only a zombie.
std::int64_t start_of(std::int64_t process) {
    const std::string stat = text_of_file(fmt::format("/proc/{}/stat", process));  // "12 (name) S 11 …"
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) return 0;
    const auto fields = split(stat.substr(name_end + 2), ' ');
    constexpr std::size_t kState = 0, kStart = 19;  // proc(5): fields 3 and 22
    if (fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X") return 0;
    return parse_integer(fields[kStart]).value_or(0);
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string boot_id() {
    return first_line("/proc/sys/kernel/random/boot_id");
}

std::string time_text(const char* format) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 40> text{};
    std::strftime(text.data(), text.size(), format, &parts);
    return text.data();
}

Json to_json(const Record& record) {
    Json json{{"mgplan_job", kRecordVersion},
              {"id", record.id},
              {"folder", record.folder},
              {"title", record.title},
              {"via", record.via},
              {"program", record.program},
              {"world", record.world},
              {"nodes", record.nodes},
              {"begun", record.begun},
              {"ended", record.ended},
              {"state", to_string(record.state)},
              {"attempt", record.attempt},
              {"max_restarts", record.max_restarts},
              {"engine_job", record.engine_job},
              {"launcher",
               {{"process", record.launcher.process},
                {"host", record.launcher.host},
                {"boot", record.launcher.boot},
                {"started", record.launcher.started}}},
              {"exit_code", record.exit_code},
              {"reason", record.reason},
              {"failure", record.failure ? Json(*record.failure) : Json(nullptr)}};
    return json;
}

Record from_json(const Json& json) {
    Record record;
    record.id = json.at("id");
    record.folder = json.at("folder");
    record.title = json.at("title");
    record.via = json.at("via");
    record.program = json.at("program");
    record.world = json.at("world");
    record.nodes = json.at("nodes");
    record.begun = json.at("begun");
    record.ended = json.at("ended");
    const auto state = std::find(kStates.begin(), kStates.end(), json.at("state").get<std::string>());
    record.state = state == kStates.end() ? State::lost : static_cast<State>(state - kStates.begin());
    record.attempt = json.at("attempt");
    record.max_restarts = json.at("max_restarts");
    record.engine_job = json.at("engine_job");
    const Json& launcher = json.at("launcher");
    record.launcher = {launcher.at("process"), launcher.at("host"), launcher.at("boot"), launcher.at("started")};
    record.exit_code = json.at("exit_code");
    record.reason = json.at("reason");
    if (const Json& failure = json.at("failure"); !failure.is_null()) record.failure = failure.get<RankFailure>();
    return record;
}

}  // namespace

std::string_view to_string(State state) {
    return kStates[static_cast<std::size_t>(state)];
}

ProcessMark this_process() {
    return {::getpid(), host_name(), boot_id(), start_of(::getpid())};
}

std::optional<bool> alive(const ProcessMark& mark) {
    if (mark.host != host_name()) return std::nullopt;
    if (mark.boot != boot_id()) return false;
    const std::int64_t started = start_of(mark.process);
    return started != 0 && started == mark.started;
}

std::string jobs_folder(const runtime::Environment& environment) {
    const std::string state = environment("XDG_STATE_HOME").value_or("");
    if (state.starts_with('/')) return state + "/mgplan/jobs";
    const std::string home = environment("HOME").value_or("");
    if (!home.starts_with('/'))
        throw ConfigError(
            "no place for the job's files: neither XDG_STATE_HOME nor HOME is an absolute path; set one of them to a folder that all of "
            "the "
            "job's machines see");
    return home + "/.local/state/mgplan/jobs";
}

std::string new_job_id(const std::string& jobs_folder, const std::string& title) {
    std::string plain;
    for (const unsigned char c : title.substr(0, 40)) plain += std::isalnum(c) != 0 || c == '.' || c == '-' ? static_cast<char>(c) : '_';
    const std::string id = time_text("%Y%m%d-%H%M%S-") + plain;
    for (int number = 1;; ++number) {
        std::string name = number == 1 ? id : fmt::format("{}-{}", id, number);
        std::error_code error;
        if (!files::exists(jobs_folder + "/" + name, error)) return name;
    }
}

std::string claim_job_id(const std::string& jobs_folder, const std::string& title) {
    make_folder(jobs_folder);
    for (;;) {
        std::string id = new_job_id(jobs_folder, title);
        constexpr mode_t kOwnerAlone = 0700;
        if (::mkdir(fmt::format("{}/{}", jobs_folder, id).c_str(), kOwnerAlone) == 0) return id;
        if (errno != EEXIST) throw RunError(fmt::format("{}/{} cannot be made: {}", jobs_folder, id, std::strerror(errno)));
    }
}

void make_folder(const std::string& path) {
    std::error_code error;
    files::create_directories(files::path(path).parent_path(), error);
    constexpr mode_t kOwnerAlone = 0700;
    if (::mkdir(path.c_str(), kOwnerAlone) != 0 && (errno != EEXIST || !files::is_directory(path, error)))
        throw RunError(
            fmt::format("{} cannot be made: {}; set XDG_STATE_HOME to a folder that can be written", path, std::strerror(errno)));
}

void write_whole(const std::string& path, const std::string& text, unsigned mode) {
    const std::string next = fmt::format("{}.{}.new", path, ::getpid());
    const int file = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, static_cast<mode_t>(mode));
    bool good = file >= 0;
    int error = errno;
    for (std::size_t at = 0; good && at < text.size();) {
        const ssize_t written = ::write(file, text.data() + at, text.size() - at);
        if (written < 0 && errno == EINTR) continue;
        good = written > 0;
        if (good) at += static_cast<std::size_t>(written);
        error = errno;
    }
    if (good && ::fsync(file) != 0) {
        error = errno;
        good = error == EINVAL;  // some file systems cannot
    }
    if (file >= 0 && ::close(file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good && std::rename(next.c_str(), path.c_str()) != 0) {
        error = errno;
        good = false;
    }
    if (good) return;
    ::unlink(next.c_str());
    throw RunError(fmt::format("{} cannot be written: {}", path, std::strerror(error)));
}

void write_record(const Record& record) {
    write_whole(record.folder + "/record.json", to_json(record).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<Record> read_record(const std::string& folder) {
    const std::string path = folder + "/record.json";
    if (is_irregular(path))
        throw RunError(fmt::format("{} is a pipe, a device or a folder and no record of a job; remove it, or the folder around it", path));
    bool whole = true;
    const auto text = end_of_regular_file(path, kMostRecordBytes, &whole);
    if (!text) return std::nullopt;
    if (!whole)
        throw RunError(fmt::format("{} has more than the {} bytes of a job's record; remove the folder around it", path, kMostRecordBytes));
    try {
        const Json json = Json::parse(*text);
        if (json.at("mgplan_job") != kRecordVersion)
            throw RunError(fmt::format("{} is of another version of mgplan ({}, this one reads {})", path, json.at("mgplan_job").dump(),
                                       kRecordVersion));
        Record record = from_json(json);
        record.folder = folder;  // where it is now
        return record;
    } catch (const Json::exception& error) {
        throw RunError(fmt::format("{} is no record of a job: {}", path, json_reason(error)));
    }
}

std::vector<Record> read_records(const std::string& jobs_folder, std::vector<std::string>& unreadable) {
    std::vector<std::string> folders;
    std::error_code error;
    for (files::directory_iterator entry(jobs_folder, error), end; !error && entry != end; entry.increment(error))
        if (std::error_code none; entry->is_directory(none)) folders.push_back(entry->path().string());
    std::sort(folders.begin(), folders.end());
    std::vector<Record> records;
    for (const auto& folder : folders) {
        try {
            if (auto record = read_record(folder)) records.push_back(std::move(*record));
        } catch (const RunError& problem) {
            unreadable.emplace_back(problem.what());
        }
    }
    return records;
}

std::string logs_folder(const std::string& job_folder, int attempt) {
    return fmt::format("{}/attempt-{}", job_folder, attempt);
}

std::vector<std::string> last_lines(const std::string& path, std::size_t most) {
    constexpr std::size_t kLookedAt = 64 * 1024;
    bool whole = true;
    const auto text = end_of_regular_file(path, kLookedAt, &whole);
    if (!text) return {};
    std::vector<std::string> lines = split(*text, '\n');
    if (!whole && !lines.empty()) lines.erase(lines.begin());
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
    return lines;
}

std::string progress(const std::string& job_folder, int attempt) {
    constexpr std::string_view kStep = "mgplan: step ";
    const auto lines = last_lines(rank_log(logs_folder(job_folder, attempt), 0), 4096);
    for (auto line = lines.rbegin(); line != lines.rend(); ++line)
        if (line->starts_with(kStep)) return line->substr(kStep.size() - 5);
    return "";
}

std::string utc_now() {
    return time_text("%Y-%m-%dT%H:%M:%SZ");
}

}  // namespace mgplan::jobs
