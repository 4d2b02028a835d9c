#pragma once
// Processes that a test starts, watches and kills.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/text_of_file.hpp"

namespace mgplan::tests {

/// A program with words and variables of its own; what it says goes to files that go with this object.
class ChildProcess {
public:
    ChildProcess(const std::string& program, std::vector<std::string> words, const std::map<std::string, std::string>& variables) {
        static int number = 0;
        const std::string name = ::testing::TempDir() + "mgplan_" + std::to_string(::getpid()) + "_" + std::to_string(number++);
        out_ = name + ".out";
        err_ = name + ".err";
        words.insert(words.begin(), program);
        std::vector<char*> arguments;
        for (auto& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        process_ = ::fork();
        if (process_ != 0) return;
        for (const auto& [variable, value] : variables) ::setenv(variable.c_str(), value.c_str(), 1);
        ::dup2(::open(out_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), 1);
        ::dup2(::open(err_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), 2);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    ~ChildProcess() {
        if (!ended_) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
        }
        std::remove(out_.c_str());
        std::remove(err_.c_str());
    }
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    [[nodiscard]] pid_t process() const { return process_; }
    void signal(int number) const { ::kill(process_, number); }
    /// Waits for the end; 128 + the signal that killed it, -1 where it does not end in time.
    int code(std::chrono::milliseconds patience = std::chrono::seconds{60}) {
        const auto until = std::chrono::steady_clock::now() + patience;
        int status = 0;
        while (!ended_) {
            if (::waitpid(process_, &status, WNOHANG) == process_) {
                ended_ = true;
                code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            } else if (std::chrono::steady_clock::now() > until) {
                return -1;
            } else {
                std::this_thread::sleep_for(std::chrono::milliseconds{2});
            }
        }
        return code_;
    }
    [[nodiscard]] std::string out() const { return text_of_file(out_); }
    [[nodiscard]] std::string err() const { return text_of_file(err_); }
    /// Whether it says this within a minute, on either stream.
    [[nodiscard]] bool says(const std::string& part) const {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
        while ((out() + err()).find(part) == std::string::npos) {
            if (std::chrono::steady_clock::now() > until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
        return true;
    }

private:
    std::string out_, err_;
    pid_t process_ = -1;
    bool ended_ = false;
    int code_ = -1;
};

}  // namespace mgplan::tests
