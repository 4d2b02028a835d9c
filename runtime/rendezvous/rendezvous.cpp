#include "runtime/rendezvous/rendezvous.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/text/errors.hpp"
#include "runtime/launch/published_file.hpp"

namespace mgplan::runtime {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;

constexpr std::string_view kSessionPrefix = "meeting-";

/// Name of a job whose ranks its launcher started on this machine alone; empty if they may be elsewhere too.
std::string job_of_this_machine(const LaunchedRank& launched, const Environment& environment) {
    const auto text = [&](const char* name) { return environment(name).value_or(""); };
    const std::string size = std::to_string(launched.size);
    std::string name;
    if (launched.source == RankSource::torchrun && text("LOCAL_WORLD_SIZE") == size && !text("MASTER_PORT").empty()) {
        name = fmt::format("torchrun-{}-{}-{}", text("TORCHELASTIC_RUN_ID"), text("MASTER_PORT"), text("TORCHELASTIC_RESTART_COUNT"));
    } else if (launched.source == RankSource::open_mpi && text("OMPI_COMM_WORLD_LOCAL_SIZE") == size && !text("PMIX_NAMESPACE").empty()) {
        name = "mpirun-" + text("PMIX_NAMESPACE");
    } else if (text("SLURM_STEP_NUM_NODES") == "1" && text("SLURM_STEP_NUM_TASKS") == size) {
        name = fmt::format("slurm-{}-{}", text("SLURM_JOB_ID"), text("SLURM_STEP_ID"));
    }
    for (char& each : name) {
        if (std::isalnum(static_cast<unsigned char>(each)) == 0) each = '-';
    }
    return name;
}

/// This user's folder for jobs on this machine. Nobody else may write there, because ranks believe what they read.
std::string temporary_folder() {
    std::string path = files::temp_directory_path() / fmt::format("mgplan-{}", ::getuid());
    ::mkdir(path.c_str(), 0700);
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::getuid() || (status.st_mode & 022) != 0)
        throw ConfigError(fmt::format(
            "{} is no folder of this user that others cannot write to, and ranks meet there; remove it, or set MGPLAN_JOB_FOLDER", path));
    return path;
}

std::string protocol(int size) {
    return fmt::format("mgplan rendezvous 2, world of {}", size);
}

constexpr std::size_t kNonceDigits = 16;

std::string random_name() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

RendezvousOptions rendezvous_options(const LaunchedRank& launched, const Environment& environment) {
    RendezvousOptions options;
    options.rank = launched.rank;
    options.size = launched.size;
    for (const char* name : {"MGPLAN_JOB_FOLDER", "MGPLAN_JOB_LOGS"}) {
        options.folder = environment(name).value_or("");
        if (!options.folder.empty()) return options;
    }
    const std::string job = job_of_this_machine(launched, environment);
    if (job.empty()) {
        throw ConfigError(fmt::format(
            "MGPLAN_JOB_FOLDER is not set, and {} does not say that all {} ranks are on this machine; set it on all ranks to a folder of "
            "this job on a file system that all its machines share, or start the job with mgplan launch{}",
            to_string(launched.source), launched.size,
            launched.source == RankSource::torchrun ? ", or unset RANK and WORLD_SIZE if no launcher started other ranks" : ""));
    }
    options.folder = temporary_folder() + "/" + job;
    return options;
}

template <class Found>
auto Rendezvous::poll(Clock::time_point until, const std::string& what, const std::function<std::string()>& late, Found found) {
    for (auto pause = 2ms;; pause = std::min(pause * 2, std::chrono::milliseconds{250})) {
        if (auto value = found()) return *value;
        throw_if_ended(what);
        if (Clock::now() > until) throw RunError(late());
        std::this_thread::sleep_for(pause);
    }
}

Rendezvous::Rendezvous(RendezvousOptions options, OnAbort on_abort) : options_(std::move(options)), on_abort_(std::move(on_abort)) {
    MGPLAN_ASSERT(options_.size >= 1 && options_.rank >= 0 && options_.rank < options_.size, "the rank is inside the world");
    try {
        if (options_.rank == 0)
            open_session();
        else
            join_session();
    } catch (const ConfigError& error) {
        abort(error.what(), kAbortBadInput);
        throw;
    } catch (const RunError& error) {
        abort(error.what());
        throw;
    }
}

void Rendezvous::open_session() {
    const std::string current = options_.folder + "/session", name = std::string(kSessionPrefix) + random_name();
    std::error_code failed;
    files::create_directories(options_.folder, failed);
    // An earlier job, or attempt, that did not come to its end.
    if (const auto old = published_text(current)) {
        if (old->starts_with(kSessionPrefix) && old->find('/') == std::string::npos)
            files::remove_all(options_.folder + "/" + *old, failed);
        files::remove(current, failed);
    }
    session_ = options_.folder + "/" + name;
    if (::mkdir(session_.c_str(), 0700) != 0)
        throw ConfigError(fmt::format("rank 0 cannot make {}: {}; let MGPLAN_JOB_FOLDER be a folder that it may write to", session_,
                                      std::strerror(errno)));
    joined_ = true;
    publish_once(current, name);
    std::map<int, std::string> seen{{0, ""}};
    poll(
        Clock::now() + options_.join_deadline, "waiting for all ranks to come",
        [&] {
            std::vector<int> missing;
            for (int rank = 0; rank < options_.size; ++rank) {
                if (!seen.contains(rank)) missing.push_back(rank);
            }
            return fmt::format("{} {} of {} missing in {} after {} s; see that they run, and that their MGPLAN_JOB_FOLDER is this one",
                               missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), options_.size, options_.folder,
                               std::chrono::duration<double>(options_.join_deadline).count());
        },
        [&] {
            greet_new_ranks(seen);
            return static_cast<int>(seen.size()) == options_.size ? std::optional(true) : std::nullopt;
        });
    publish_once(session_ + "/all ranks are here", "");
}

void Rendezvous::greet_new_ranks(std::map<int, std::string>& seen) const {
    std::error_code failed;
    for (const auto& entry : files::directory_iterator(session_, failed)) {
        std::istringstream name(entry.path().filename());
        std::string word, nonce;
        int rank = 0;
        if (!(name >> word >> rank >> nonce) || word != "rank" || nonce.size() != kNonceDigits) continue;
        const auto [known, is_new] = seen.try_emplace(rank, nonce);
        if (!is_new && known->second == nonce) continue;
        const auto theirs = published_text(entry.path());
        publish_once(session_ + "/welcome " + nonce, "");
        if (theirs != protocol(options_.size))
            throw ConfigError(fmt::format("rank {} is of '{}' and rank 0 of '{}'; start all ranks with one mgplan and one WORLD_SIZE", rank,
                                          theirs.value_or("another mgplan"), protocol(options_.size)));
        if (!is_new) throw ConfigError(fmt::format("two processes say they are rank {}; give each a number of its own", rank));
    }
}

void Rendezvous::join_session() {
    const std::string nonce = random_name();
    const auto until = Clock::now() + options_.join_deadline;
    poll(
        until, "waiting for rank 0",
        [&] {
            return fmt::format(
                "rank {}: rank 0 did not answer in {} within {} s; see that it runs, that its MGPLAN_JOB_FOLDER is this one, and that no "
                "other process is rank {}",
                options_.rank, options_.folder, std::chrono::duration<double>(options_.join_deadline).count(), options_.rank);
        },
        [&]() -> std::optional<bool> {
            const auto name = published_text(options_.folder + "/session");
            if (!name) return std::nullopt;
            // An earlier job's session may still be there. Nobody answers in it, until rank 0 of this job has replaced it.
            if (const std::string session = options_.folder + "/" + *name; session != session_) {
                session_ = session;
                publish_once(fmt::format("{}/rank {} {}", session_, options_.rank, nonce), protocol(options_.size));
            }
            return published_text(session_ + "/welcome " + nonce) ? std::optional(true) : std::nullopt;
        });
    joined_ = true;
    poll(
        until + 1s, "waiting for all ranks to come",  // rank 0 says who is missing
        [&] { return fmt::format("rank {}: rank 0 stopped answering while ranks were missing", options_.rank); },
        [&] { return published_text(session_ + "/all ranks are here") ? std::optional(true) : std::nullopt; });
}

bool Rendezvous::look() {
    const std::scoped_lock lock(mutex_);
    if (!reason_.empty()) return true;
    if (!joined_) return false;
    const auto text = published_text(session_ + "/abort");
    if (!text) return false;
    code_ = text->starts_with("2\n") ? kAbortBadInput : kAbortFailed;
    reason_ = text->substr(std::min(text->size(), std::size_t{2}));
    return true;
}

void Rendezvous::throw_if_ended(const std::string& what) {
    if (!look()) return;
    const std::string text = fmt::format("rank {}, {}: {}", options_.rank, what, reason());
    if (code() == kAbortBadInput) throw ConfigError(text);
    throw RunError(text);
}

std::string Rendezvous::reason() {
    if (!look()) return "";
    OnAbort call;
    std::string text;
    {
        const std::scoped_lock lock(mutex_);
        text = reason_;
        call = std::exchange(on_abort_, nullptr);
    }
    if (call) call(text);
    return text;
}

int Rendezvous::code() const {
    const std::scoped_lock lock(mutex_);
    return code_;
}

void Rendezvous::set(const std::string& key, const std::string& value) {
    throw_if_ended("setting " + key);
    if (!publish_once(session_ + "/" + key, value))
        throw RunError(fmt::format("rank {}: {}/{} cannot be written", options_.rank, session_, key));
}

std::string Rendezvous::get(const std::string& key) {
    const auto late = [&] {
        return fmt::format("rank {}: waiting for {} took too long; another rank is slow or hangs", options_.rank, key);
    };
    return poll(Clock::now() + options_.deadline, "waiting for " + key, late, [&] {
        auto value = published_text(session_ + "/" + key);
        if (!value && !files::is_directory(session_))
            throw RunError(fmt::format("rank {}: {} is gone; another job with its MGPLAN_JOB_FOLDER has begun", options_.rank, session_));
        return value;
    });
}

std::vector<std::byte> Rendezvous::from_rank_0(const std::vector<std::byte>& mine) {
    const std::string key = fmt::format("bytes {} of rank 0", turn_++);
    if (options_.rank == 0) {
        set(key, {reinterpret_cast<const char*>(mine.data()), mine.size()});
        return mine;
    }
    const std::string value = get(key);
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    return {bytes, bytes + value.size()};
}

void Rendezvous::at(std::string_view what, std::string_view group) {
    const std::scoped_lock lock(mutex_);
    what_ = what;
    group_ = group;
}

std::string Rendezvous::where() const {
    const std::scoped_lock lock(mutex_);
    if (what_.empty()) return "before its first operation";
    return group_.empty() ? fmt::format("in {}", what_) : fmt::format("in {} in group {}", what_, group_);
}

void Rendezvous::abort(const std::string& reason, int code) noexcept {
    try {
        if (joined_) publish_once(session_ + "/abort", fmt::format("{}\n{}", code, reason));
        const std::scoped_lock lock(mutex_);
        on_abort_ = nullptr;  // this rank's own
    } catch (...) {           // the others reach their deadline
    }
}

void Rendezvous::leave() {
    const auto done = [](int rank) { return fmt::format("rank {} is done", rank); };
    if (options_.rank != 0) {
        set(done(options_.rank), "");
        // Rank 0 removes the session at the end.
        poll(
            Clock::now() + options_.deadline, "waiting for the others to be done",
            [&] { return fmt::format("rank {}: waiting for the others to be done took too long", options_.rank); },
            [&] { return files::is_directory(session_) ? std::nullopt : std::optional(true); });
        return;
    }
    for (int rank = 1; rank < options_.size; ++rank) static_cast<void>(get(done(rank)));
    std::error_code failed;
    files::remove(options_.folder + "/session", failed);
    files::remove_all(session_, failed);
}

}  // namespace mgplan::runtime
