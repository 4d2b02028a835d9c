#include "reports/table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::reports {
namespace {

constexpr std::size_t kNarrowest = 13;  ///< keeps a wrapped column readable

struct Range {
    std::uint32_t first;
    std::uint32_t last;
};

// The blocks that terminals draw two cells wide (Unicode Standard Annex 11, East Asian Width W and F, whole blocks).
constexpr std::array<Range, 9> kWide{{{0x1100, 0x115F},
                                      {0x2E80, 0xA4CF},
                                      {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF},
                                      {0xFE30, 0xFE6F},
                                      {0xFF00, 0xFF60},
                                      {0xFFE0, 0xFFE6},
                                      {0x1F300, 0x1FAFF},
                                      {0x20000, 0x3FFFD}}};
constexpr std::array<Range, 3> kZeroWidth{{{0x0300, 0x036F}, {0x200B, 0x200D}, {0xFE00, 0xFE0F}}};

template <std::size_t size>
bool in_any(std::uint32_t code, const std::array<Range, size>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [code](Range range) { return code >= range.first && code <= range.last; });
}

/// One character at the front of a non-empty text: its bytes and its width.
struct Glyph {
    std::size_t bytes;
    std::size_t width;
};

Glyph first_glyph(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t bytes = lead < 0x80 ? 1 : (lead >> 5) == 0x6 ? 2 : (lead >> 4) == 0xE ? 3 : (lead >> 3) == 0x1E ? 4 : 0;
    if (bytes == 0 || bytes > text.size()) return {1, 1};
    if (bytes == 1) return {1, 1};
    std::uint32_t code = lead & (0xFFU >> (bytes + 1));
    for (std::size_t i = 1; i < bytes; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next >> 6) != 0x2) return {1, 1};
        code = (code << 6) | (next & 0x3FU);
    }
    return {bytes, in_any(code, kZeroWidth) ? 0U : in_any(code, kWide) ? 2U : 1U};
}

using Lines = std::vector<std::string>;

/// Breaks one line at spaces so that no part is wider than `width`; a longer word is cut.
void wrap_line(std::string_view line, std::size_t width, Lines& out) {
    while (display_width(line) > width) {
        std::size_t taken = 0, used = 0, after_space = 0;
        while (taken < line.size()) {
            const Glyph glyph = first_glyph(line.substr(taken));
            if (used + glyph.width > width && taken > 0) break;
            used += glyph.width;
            taken += glyph.bytes;
            if (line[taken - 1] == ' ') after_space = taken;
        }
        // The word that does not fit moves to the next line, unless a space follows here.
        if (taken < line.size() && line[taken] != ' ' && after_space > 0) taken = after_space;
        std::string_view part = line.substr(0, taken);
        while (part.ends_with(' ')) part.remove_suffix(1);
        out.emplace_back(part);
        line.remove_prefix(taken);
        while (line.starts_with(' ')) line.remove_prefix(1);
    }
    out.emplace_back(line);
}

Lines lines_of(std::string_view cell, std::size_t width) {
    Lines lines;
    std::string clean;
    for (const char c : cell) clean += (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F ? '?' : c;
    std::size_t begin = 0;
    while (true) {
        const std::size_t end = clean.find('\n', begin);
        wrap_line(std::string_view(clean).substr(begin, end == std::string::npos ? end : end - begin), width, lines);
        if (end == std::string::npos) return lines;
        begin = end + 1;
    }
}

std::size_t widest_line(std::string_view cell) {
    std::size_t widest = 0;
    for (const auto& line : lines_of(cell, std::string::npos)) widest = std::max(widest, display_width(line));
    return widest;
}

std::string csv_cell(std::string_view cell) {
    if (cell.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(cell);
    std::string quoted = "\"";
    for (const char c : cell) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + '"';
}

}  // namespace

std::size_t display_width(std::string_view text) {
    std::size_t width = 0;
    while (!text.empty()) {
        const Glyph glyph = first_glyph(text);
        width += glyph.width;
        text.remove_prefix(glyph.bytes);
    }
    return width;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
    MGPLAN_ASSERT(!columns_.empty(), "a table has a column");
}

void Table::add_row(std::vector<std::string> cells) {
    MGPLAN_ASSERT(cells.size() <= columns_.size(), "a row has no more cells than the table has columns");
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

std::string in_lines(std::string_view text, std::size_t indent) {
    std::string out;
    std::size_t width = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        if (width > indent && width + display_width(word) > kTerminalColumns) {
            out.erase(out.find_last_not_of(' ') + 1);
            out += "\n" + std::string(indent, ' ');
            width = indent;
        }
        out += word;
        width += display_width(word);
        if (end < text.size()) {
            out += text[end];
            width = text[end] == '\n' ? 0 : width + 1;
        }
        begin = end + 1;
    }
    return out;
}

std::string Table::to_text(std::size_t max_width, Style style, std::size_t gap) const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        std::size_t width = widest_line(columns_[i].header);
        for (const auto& row : rows_) width = std::max(width, widest_line(row[i]));
        widths.push_back(width);
    }
    std::size_t total = gap * (widths.size() - 1);
    for (const auto width : widths) total += width;
    while (total > max_width) {
        std::size_t widest = columns_.size();
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (columns_[i].align != Align::left || widths[i] <= kNarrowest) continue;
            if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
        }
        if (widest == columns_.size()) break;
        --widths[widest];
        --total;
    }

    std::string text;
    const auto add_line = [&](const std::vector<std::string>& cells, bool bold) {
        std::vector<Lines> parts;
        std::size_t height = 1;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            parts.push_back(lines_of(cells[i], widths[i]));
            height = std::max(height, parts.back().size());
        }
        for (std::size_t h = 0; h < height; ++h) {
            std::string line;
            for (std::size_t i = 0; i < parts.size(); ++i) {
                const std::string part = h < parts[i].size() ? parts[i][h] : std::string();
                const std::string padding(widths[i] - std::min(widths[i], display_width(part)), ' ');
                if (i > 0) line.append(gap, ' ');
                line += columns_[i].align == Align::left ? part + padding : padding + part;
            }
            line.erase(line.find_last_not_of(' ') + 1);
            text += bold && !line.empty() ? "\x1b[1m" + line + "\x1b[0m" : line;
            text += '\n';
        }
    };
    std::vector<std::string> headers, rules;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        headers.push_back(columns_[i].header);
        rules.emplace_back(widths[i], '-');
    }
    add_line(headers, style == Style::bold);
    add_line(rules, false);
    for (const auto& row : rows_) add_line(row, false);
    return text;
}

std::string markdown_text(std::string_view text) {
    std::string shown;
    for (const char c : text) {
        if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) shown += '\\';
        shown += c;
    }
    return shown;
}

std::string Table::to_markdown() const {
    std::string text;
    const auto add_line = [&](const auto& cells, const auto& of) {
        for (const auto& cell : cells) text += "| " + of(cell) + " ";
        text += "|\n";
    };
    const auto shown = [](const std::string& cell) {
        std::string lines;
        for (const auto& line : split(cell, '\n')) lines += (lines.empty() ? "" : "<br>") + markdown_text(line);
        return lines;
    };
    add_line(columns_, [&](const Column& column) { return shown(column.header); });
    add_line(columns_, [](const Column& column) { return std::string(column.align == Align::left ? ":---" : "---:"); });
    for (const auto& row : rows_) add_line(row, shown);
    return text;
}

std::string Table::to_csv() const {
    std::string text;
    const auto add_line = [&](const auto& cells, const auto& of) {
        for (std::size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(of(cells[i]));
        text += "\r\n";
    };
    add_line(columns_, [](const Column& column) { return column.header; });
    for (const auto& row : rows_) add_line(row, [](const std::string& cell) { return cell; });
    return text;
}

}  // namespace mgplan::reports
