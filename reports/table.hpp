#pragma once
// Small text tables for terminals, and the same rows as CSV.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::reports {

enum class Align { left, right };
/// bold: the header in bold by an ANSI sequence; the caller must check NO_COLOR and the terminal.
enum class Style { plain, bold };

/// Number of cells that a terminal uses for a UTF-8 text: 2 for East Asian wide characters and pictures, 0 for combining marks, 1 for all
/// others and for each byte that is not UTF-8.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// The text with a backslash before each character with a meaning in Markdown or HTML.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// Default width of a terminal, in columns; the limit of narrow tables and of all sentences.
inline constexpr std::size_t kTerminalColumns = 80;

/// Wraps sentences to lines of at most kTerminalColumns at blanks if the next word fits a line; continuation lines begin with `indent`
/// blanks. Keeps newlines.
[[nodiscard]] std::string in_lines(std::string_view text, std::size_t indent);

/// Rows of text under a header. Use right-aligned columns for numbers, left-aligned ones for names.
class Table {
public:
    struct Column {
        std::string header;
        Align align = Align::right;
    };

    explicit Table(std::vector<Column> columns);

    /// Adds one cell per column; missing cells at the end stay empty, more cells than columns are a bug.
    void add_row(std::vector<std::string> cells);
    [[nodiscard]] std::size_t rows() const { return rows_.size(); }

    /// Header, rule and rows with `gap` spaces between columns and none at line ends; every line ends in a newline. If a line would be
    /// wider than `max_width`, left-aligned columns are wrapped at spaces, the widest first, down to 12 characters; right-aligned ones
    /// never are, so a table of many numbers can still be wider. Newlines in a cell begin a new line of it; other control characters are
    /// shown as '?'.
    [[nodiscard]] std::string to_text(std::size_t max_width = 100, Style style = Style::plain, std::size_t gap = 2) const;

    /// A GitHub Markdown table; cells are shown literally (markdown_text), line breaks in them as <br>.
    [[nodiscard]] std::string to_markdown() const;

    /// Header and rows as in RFC 4180: CRLF, and quotes around cells with a comma, quote or line break.
    [[nodiscard]] std::string to_csv() const;

private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace mgplan::reports
