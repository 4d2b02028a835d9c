#pragma once
// Progress of a command as one line of a terminal, which is erased at the end. Pipes and files get nothing.

#include <string_view>

#include "cli/command.hpp"

namespace mgplan::cli {

class ProgressLine {
public:
    explicit ProgressLine(Console& console) : console_(console) {}
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// Shows the text, of one line, in place of the one before.
    void show(std::string_view text);
    /// Erases it; the next output to the console takes its place.
    void clear();

private:
    Console& console_;
    bool shown_ = false;
};

}  // namespace mgplan::cli
