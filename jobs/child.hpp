#pragma once
// Processes of the operating system that end with the one that started them.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mgplan::jobs {

/// "was killed by signal 9 (Killed)" or "ended with exit code 3", for a status of waitpid().
[[nodiscard]] std::string end_text(int wait_status);
/// Returns the exit code as a shell has it: 128 + signal for a process that a signal ended.
[[nodiscard]] int exit_code_of(int wait_status);

struct ChildOptions {
    std::vector<std::string> words;  ///< looked up on PATH
    std::vector<std::pair<std::string, std::string>> variables;
    std::string output;            ///< a file for standard output and error, appended to; empty: ours
    bool output_to_error = false;  ///< standard output goes where standard error does
    bool own_group = false;
    /// Signal that the child gets when this process has ended, in any way.
    int signal_without_parent = 9;
    /// Not nullptr: the child ends, as its program did, once every process that the program started has ended, those in the background
    /// included. If they outlive the program, the child writes this line to standard error. A literal.
    const char* outlived = nullptr;
};

/// A child process. The destructor kills it if it runs, and its group if it has one of its own.
class Child {
public:
    /// Throws RunError if the program cannot be started or the output cannot be opened.
    explicit Child(const ChildOptions& options);
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] pid_t process() const { return process_; }
    /// Returns the status of waitpid() once it has ended.
    [[nodiscard]] std::optional<int> ended();
    /// Kills the processes that the program of a child with `outlived` started, and it. The child ends by itself then.
    void kill_descendants() const;
    /// To its group where it has one of its own, else to it alone.
    void signal(int number) const;

private:
    pid_t process_ = -1;
    bool own_group_ = false;
    std::optional<int> status_;
};

/// Output of a short command (both streams) and its exit code; 124 if it did not end in time.
struct Answer {
    int code = 0;
    std::string text;
};
/// Throws RunError if the program cannot be started.
[[nodiscard]] Answer ask(const std::vector<std::string>& words, std::chrono::milliseconds patience);

}  // namespace mgplan::jobs
