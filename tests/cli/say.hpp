#pragma once
// Runs mgplan inside the test and keeps what it said.

#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/command.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli::testing {

struct Said {
    int code;
    std::string out;
    std::string err;
};

inline Said say(const std::vector<std::string>& args) {
    std::ostringstream out;
    std::ostringstream err;
    Console console{out, err};
    const int code = run_mgplan(args, console);
    return {code, out.str(), err.str()};
}

/// The same for words without blanks in them.
inline Said say(const std::string& words) {
    return say(split(words, ' '));
}

/// Sentences that were broken into lines, as they were before.
inline std::string in_one_line(const std::string& text) {
    std::string line;
    for (const char c : text) {
        if (c == '\n')
            line += ' ';
        else if (c != ' ' || line.empty() || line.back() != ' ')
            line += c;
    }
    return line;
}

/// A path of this test run alone, for a file that is removed at the end.
class TempFile {
public:
    explicit TempFile(const std::string& name, const std::string& text = "")
        : path_(::testing::TempDir() + "mgplan_" + std::to_string(::getpid()) + "_" + name) {
        if (!text.empty()) std::ofstream(path_) << text;
    }
    ~TempFile() { std::remove(path_.c_str()); }
    TempFile(const TempFile&) = delete;
    TempFile& operator=(const TempFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

private:
    std::string path_;
};

/// Parts of a message: one, or a list in braces.
class Parts {
public:
    Parts(const char* part) : parts_{part} {}
    Parts(std::initializer_list<std::string> parts) : parts_(parts) {}
    Parts(std::vector<std::string> parts) : parts_(std::move(parts)) {}
    [[nodiscard]] auto begin() const { return parts_.begin(); }
    [[nodiscard]] auto end() const { return parts_.end(); }

private:
    std::vector<std::string> parts_;
};

/// Exit code 2, nothing on stdout, and every part of the message; each line of it begins with "mgplan: " or continues one.
inline void expect_refused(const std::vector<std::string>& args, const Parts& parts) {
    const Said said = say(args);
    std::string words;
    for (const auto& arg : args) words += arg.substr(0, 60) + " ";
    SCOPED_TRACE(words);
    EXPECT_EQ(said.code, kBadInput) << said.err;
    EXPECT_EQ(said.out, "");
    for (const auto& part : parts) EXPECT_THAT(said.err, ::testing::HasSubstr(part));
    EXPECT_THAT(said.err, ::testing::StartsWith("mgplan: "));
    EXPECT_LT(said.err.size(), 4000U);
}

inline void expect_refused(const std::string& words, const Parts& parts) {
    expect_refused(split(words, ' '), parts);
}

}  // namespace mgplan::cli::testing
