#pragma once
// Text from outside (names in files, words of a command line, what other programs said) made harmless for a terminal.

#include <string>
#include <string_view>

namespace mgplan {

/// Turns pieces of text, which may be cut anywhere, into text that moves no cursor, changes no setting of a terminal and hides
/// nothing. What is not kept is written as its number: other control characters (C0, DEL, C1), marks that change the direction of
/// writing, and line and paragraph separators as \u001b; bytes that are no UTF-8 as \xff. Kept: line feed, tab, and a carriage return
/// before a line feed.
class TerminalText {
public:
    /// Appends what is certain of it to `out`: the start of a character waits for its rest.
    void append(std::string_view text, std::string& out);
    /// Appends what still waits.
    void finish(std::string& out);

private:
    std::string held_;
};

/// The whole of a text.
[[nodiscard]] std::string terminal_text(std::string_view text);

}  // namespace mgplan
