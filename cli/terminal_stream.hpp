#pragma once
// A stream to a terminal, whose text passes through plan/terminal_text.

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

#include "plan/text/terminal_text.hpp"

namespace mgplan::cli {

/// Holds back nothing but the start of a character that was cut. Used by one thread at a time.
class TerminalBuffer : public std::streambuf {
public:
    explicit TerminalBuffer(std::ostream& to) : to_(to) {}
    ~TerminalBuffer() override;
    TerminalBuffer(const TerminalBuffer&) = delete;
    TerminalBuffer& operator=(const TerminalBuffer&) = delete;

    /// Writes the text unchanged.
    void write_raw(std::string_view text);

protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

private:
    std::ostream& to_;
    TerminalText text_;
};

/// A stream over such a buffer that is flushed after each output, if the one below is.
class TerminalStream : public std::ostream {
public:
    explicit TerminalStream(std::ostream& to);

private:
    TerminalBuffer buffer_;
};

/// Writes mgplan's own control sequence ("\r\x1b[K"), without text from outside; no other sequence reaches a terminal.
void write_control(std::ostream& to, std::string_view sequence);

}  // namespace mgplan::cli
