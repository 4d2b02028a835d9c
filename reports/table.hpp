#pragma once
// Small text tables for terminals, and the same rows as CSV.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::reports {

enum class Align { left, right };
/// bold: the header in bold by an ANSI sequence; the caller has looked at NO_COLOR and the terminal.
enum class Style { plain, bold };

/// Cells a terminal gives to a UTF-8 text: 2 for East Asian wide characters and pictures, 0 for combining marks, 1 for
/// all others and for each byte that is no UTF-8.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// The text with a backslash before each mark that means something to Markdown or HTML.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// Columns of a terminal that nobody widened, which tables of few words and all sentences keep to.
inline constexpr std::size_t kTerminalColumns = 80;

/// Sentences in lines of at most kTerminalColumns, broken at blanks where a word behind one fits a line; lines that were broken go on
/// behind `indent` blanks. Newlines stay.
[[nodiscard]] std::string in_lines(std::string_view text, std::size_t indent);

/// Rows of text under a header. Numbers belong into right-aligned columns, names into left-aligned ones.
class Table {
public:
    struct Column {
        std::string header;
        Align align = Align::right;
    };

    explicit Table(std::vector<Column> columns);

    /// Takes one cell per column; cells that are missing at the end stay empty, more cells than columns are a bug.
    void add_row(std::vector<std::string> cells);
    [[nodiscard]] std::size_t rows() const { return rows_.size(); }

    /// Header, rule and rows with two spaces between columns and none at line ends; every line ends in a newline. Where a
    /// line would be wider than `max_width`, left-aligned columns are wrapped at spaces, the widest first, down to 12
    /// characters; right-aligned ones never are, so a table of many numbers can still be wider. Newlines in a cell begin
    /// a new line of it; other control characters are shown as '?'.
    [[nodiscard]] std::string to_text(std::size_t max_width = 100, Style style = Style::plain) const;

    /// A table of GitHub's Markdown; cells are shown letter by letter (markdown_text), line breaks in them as <br>.
    [[nodiscard]] std::string to_markdown() const;

    /// Header and rows as RFC 4180 says: CRLF, and quotes around what holds a comma, quote or line break.
    [[nodiscard]] std::string to_csv() const;

private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace mgplan::reports
