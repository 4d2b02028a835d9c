#pragma once
// A program under mpirun, with its ranks as processes that a test can find and kill.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/child_process.hpp"
#include "tests/support/text_of_file.hpp"

namespace mgplan::tests {

/// mpirun of Open MPI with some ranks of a program; with 0 ranks the program alone.
class MpirunJob {
public:
    MpirunJob(const std::string& mpirun, int ranks, const std::string& program, std::vector<std::string> words,
              std::map<std::string, std::string> variables = {})
        : child_(ranks == 0 ? program : mpirun, words_of(ranks, program, std::move(words)), as_root(std::move(variables))) {}

    /// The process of a rank, once it is there: a child of this mpirun that knows its rank. -1 where it does not come.
    [[nodiscard]] pid_t process_of(int rank) const {
        const std::string wanted = '\0' + ("OMPI_COMM_WORLD_RANK=" + std::to_string(rank)) + '\0';
        for (int turn = 0; turn < 2000; ++turn) {
            for (const pid_t process : children())
                if (('\0' + text_of_file("/proc/" + std::to_string(process) + "/environ")).find(wanted) != std::string::npos)
                    return process;
            std::this_thread::sleep_for(std::chrono::milliseconds{5});
        }
        return -1;
    }

    /// Waits for the end of the ranks, then of mpirun; 128 + the signal that killed it, -1 where ranks go on for four minutes.
    /// Open MPI 4.1.4 above PMIx 4.2.2 sometimes waits for ever in PMIx_server_finalize once a rank was killed (seen on a busy
    /// machine in three of some 24 runs of a test), when all ranks are gone and everything is said; its own --timeout does
    /// not end that. So it gets five seconds, then SIGKILL.
    int code() {
        const auto until = Clock::now() + std::chrono::minutes{4};
        bool seen = false;  // a rank
        for (;;) {
            if (const int code = child_.code(std::chrono::milliseconds{5}); code != -1) {
                if (!ranks_ended_) ranks_ended_ = Clock::now();
                return code;
            }
            const auto now = Clock::now();
            if (now > until) return -1;
            if (!children().empty()) {
                seen = true;
                ranks_ended_.reset();
            } else if (seen) {
                if (!ranks_ended_) ranks_ended_ = now;
                if (now - *ranks_ended_ > std::chrono::seconds{5}) {
                    hung_ = true;
                    child_.signal(SIGKILL);
                }
            }
        }
    }
    /// When code() saw the last rank gone.
    [[nodiscard]] std::chrono::steady_clock::time_point ranks_ended() const { return ranks_ended_.value(); }
    /// Whether code() had to kill an mpirun that no longer had ranks: its code is not mpirun's own.
    [[nodiscard]] bool hung() const { return hung_; }

    [[nodiscard]] std::string out() const { return child_.out(); }
    [[nodiscard]] std::string err() const { return child_.err(); }
    [[nodiscard]] bool says(const std::string& part) const { return child_.says(part); }

private:
    using Clock = std::chrono::steady_clock;

    static std::vector<std::string> words_of(int ranks, const std::string& program, std::vector<std::string> words) {
        if (ranks == 0) return words;
        const std::vector<std::string> first{"--oversubscribe", "-n", std::to_string(ranks), "--timeout", "120", program};
        words.insert(words.begin(), first.begin(), first.end());
        return words;
    }
    static std::map<std::string, std::string> as_root(std::map<std::string, std::string> variables) {
        variables.insert({{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
        return variables;
    }
    /// The processes that mpirun started and that run.
    [[nodiscard]] std::vector<pid_t> children() const {
        std::vector<pid_t> found;
        std::error_code gone;
        for (const auto& entry :
             std::filesystem::directory_iterator("/proc", std::filesystem::directory_options::skip_permission_denied, gone)) {
            if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
            const std::string stat = text_of_file(entry.path() / "stat");  // "12 (name) S 11 …"
            const auto name_end = stat.rfind(')');
            if (name_end == std::string::npos || stat[name_end + 2] == 'Z') continue;
            if (std::atoi(stat.c_str() + name_end + 4) == child_.process())
                found.push_back(static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
        }
        return found;
    }

    ChildProcess child_;
    std::optional<Clock::time_point> ranks_ended_;
    bool hung_ = false;
};

}  // namespace mgplan::tests
