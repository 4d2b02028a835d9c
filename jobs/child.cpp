#include "jobs/child.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::jobs {
namespace {

std::string error_text(int error) {
    return std::strerror(error);
}

void pause(std::chrono::milliseconds time) {
    timespec rest{time.count() / 1000, static_cast<long>(time.count() % 1000) * 1'000'000};
    ::nanosleep(&rest, nullptr);
}

/// In a child that has started the program and adopts its orphans: ends as the program did, once all of them have ended.
[[noreturn]] void end_behind_descendants(pid_t program, const char* outlived) {
    int status = 0;
    while (::waitpid(program, &status, 0) < 0 && errno == EINTR) {
    }
    pid_t left = 0;
    do left = ::waitpid(-1, nullptr, WNOHANG);
    while (left > 0);
    if (left == 0) {
        [[maybe_unused]] const auto written = ::write(STDERR_FILENO, outlived, std::strlen(outlived));
        while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
        }
    }
    if (WIFSIGNALED(status)) {
        const rlimit no_core{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        std::signal(WTERMSIG(status), SIG_DFL);
        ::kill(::getpid(), WTERMSIG(status));
    }
    ::_exit(exit_code_of(status));
}

/// Parents by process, as far as /proc shows them.
std::map<pid_t, pid_t> parents_of_processes() {
    std::map<pid_t, pid_t> parents;
    std::error_code error;
    for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
        const auto process = parse_integer(at->path().filename().string());
        std::ifstream file(process ? at->path() / "stat" : std::filesystem::path());
        std::string text;
        if (!process || !std::getline(file, text)) continue;
        // "12 (name, with any character) S 11 …"
        const auto name_end = text.rfind(')');
        if (name_end == std::string::npos || name_end + 4 > text.size()) continue;
        const auto words = split(text.substr(name_end + 4), ' ');
        if (const auto parent = parse_integer(words.front())) parents[static_cast<pid_t>(*process)] = static_cast<pid_t>(*parent);
    }
    return parents;
}

/// In the child: writes the errno of a failure to `report` and ends the process.
[[noreturn]] void become(const ChildOptions& options, std::vector<char*>& arguments, int output, int report, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGXFSZ}) std::signal(number, SIG_DFL);
    if (options.own_group) ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, options.signal_without_parent);
    if (::getppid() != parent) ::_exit(127);  // the parent ended before the prctl() above
    if (output >= 0) {
        ::dup2(output, STDOUT_FILENO);
        ::dup2(output, STDERR_FILENO);
    }
    if (options.output_to_error) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    if (options.outlived != nullptr) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(number, SIG_IGN);
        const pid_t program = ::fork();
        if (program > 0) {
            ::close(report);
            end_behind_descendants(program, options.outlived);
        }
        if (program == 0) {
            for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(number, SIG_DFL);
            ::prctl(PR_SET_PDEATHSIG, options.signal_without_parent);
        }
    }
    for (const auto& [name, value] : options.variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
    ::_exit(127);
}

}  // namespace

std::string end_text(int wait_status) {
    if (WIFSIGNALED(wait_status))
        return fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
    return fmt::format("ended with exit code {}", WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Child::Child(const ChildOptions& options) : own_group_(options.own_group) {
    MGPLAN_ASSERT(!options.words.empty(), "a program");
    std::vector<std::string> words = options.words;
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int output = -1;
    if (!options.output.empty()) {
        constexpr mode_t kMode = 0666;
        output = ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
        if (output < 0) throw RunError(fmt::format("{} cannot be written: {}", options.output, error_text(errno)));
    }
    std::array<int, 2> report{};
    if (::pipe2(report.data(), O_CLOEXEC) != 0) {
        const int error = errno;
        if (output >= 0) ::close(output);
        throw RunError(fmt::format("{} cannot be started: {}", words.front(), error_text(error)));
    }
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) become(options, arguments, output, report[1], parent);
    int error = process_ < 0 ? errno : 0;
    ::close(report[1]);
    if (output >= 0) ::close(output);
    if (process_ > 0) {
        // Parent and child both set it, so that it is set before the group gets a signal.
        if (own_group_) ::setpgid(process_, process_);
        int told = 0;
        ssize_t length = 0;
        do length = ::read(report[0], &told, sizeof told);
        while (length < 0 && errno == EINTR);
        if (length == static_cast<ssize_t>(sizeof told)) {
            error = told;
            while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
    }
    ::close(report[0]);
    if (error != 0) {
        process_ = -1;
        throw RunError(fmt::format("{} cannot be started: {}", words.front(), error_text(error)));
    }
}

Child::~Child() {
    if (process_ < 0) return;
    if (own_group_) ::kill(-process_, SIGKILL);
    if (status_) return;
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

std::optional<int> Child::ended() {
    int status = 0;
    if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
    return status_;
}

void Child::kill_descendants() const {
    // Again and again, because one that is about to be killed may start another.
    for (bool found = true; found;) {
        const auto parents = parents_of_processes();
        std::set<pid_t> family{process_};
        for (std::size_t before = 0; before != family.size();) {
            before = family.size();
            for (const auto& [process, parent] : parents) {
                if (family.contains(parent)) family.insert(process);
            }
        }
        found = family.size() > 1;
        for (const pid_t process : family) {
            if (process != process_) ::kill(process, SIGKILL);
        }
        if (found) pause(std::chrono::milliseconds(5));
    }
}

void Child::signal(int number) const {
    if (process_ < 0) return;
    if (own_group_)
        ::kill(-process_, number);
    else if (!status_)
        ::kill(process_, number);
}

Answer ask(const std::vector<std::string>& words, std::chrono::milliseconds patience) {
    std::string file = (std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp") + std::string("/mgplan-answer-XXXXXX");
    const int opened = ::mkstemp(file.data());
    if (opened < 0) throw RunError(fmt::format("no temporary file for the answer of {}: {}", words.front(), error_text(errno)));
    ::unlink(file.c_str());
    Answer answer;
    try {
        ChildOptions options;
        options.words = words;
        options.output = fmt::format("/proc/self/fd/{}", opened);
        options.own_group = true;  // so that Ctrl-C does not reach it
        Child child(options);
        const auto until = std::chrono::steady_clock::now() + patience;
        while (!child.ended() && std::chrono::steady_clock::now() < until) pause(std::chrono::milliseconds(3));
        const auto status = child.ended();
        answer.code = status ? exit_code_of(*status) : 124;
    } catch (...) {
        ::close(opened);
        throw;
    }
    constexpr off_t kMost = 1 << 20;
    const off_t length = std::min(::lseek(opened, 0, SEEK_END), kMost);
    answer.text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
    const ssize_t got = ::pread(opened, answer.text.data(), answer.text.size(), 0);
    answer.text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    ::close(opened);
    return answer;
}

}  // namespace mgplan::jobs
