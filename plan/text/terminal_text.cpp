#include "plan/text/terminal_text.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace mgplan {
namespace {

bool is_plain(char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\t';
}

bool is_dangerous(std::uint32_t point) {
    return point < 0x20 || (point >= 0x7F && point <= 0x9F) || point == 0x061C || point == 0x200E || point == 0x200F ||
           (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

struct Character {
    std::size_t bytes = 1;
    std::uint32_t point = 0;
    bool valid = false;  ///< UTF-8; else the first byte alone is none
    bool whole = true;   ///< else its end may be still to come
};

/// The first of a text that is not empty (RFC 3629, section 4).
Character first_character(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
    Character character;
    const std::uint32_t first = byte(0);
    if (first < 0x80) return {1, first, true, true};
    const std::size_t bytes = first >= 0xC2 && first <= 0xDF   ? 2
                              : first >= 0xE0 && first <= 0xEF ? 3
                              : first >= 0xF0 && first <= 0xF4 ? 4
                                                               : 0;
    if (bytes == 0) return character;
    std::uint32_t point = first & (0x7FU >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (i == text.size()) {
            character.whole = false;
            return character;
        }
        if ((byte(i) & 0xC0U) != 0x80) return character;
        // Neither longer than needed, nor half of a UTF-16 pair, nor beyond the last character.
        if (i == 1 && ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
                       (first == 0xF4 && byte(1) > 0x8F)))
            return character;
        point = point << 6U | (byte(i) & 0x3FU);
    }
    return {bytes, point, true, true};
}

void append_byte(std::string& out, char byte) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(byte));
}

void append_point(std::string& out, std::uint32_t point) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", point);
}

}  // namespace

void TerminalText::append(std::string_view added, std::string& out) {
    std::string joined;
    std::string_view text = added;
    if (!held_.empty()) {
        joined = held_;
        joined += added;
        held_.clear();
        text = joined;
    }
    while (!text.empty()) {
        std::size_t plain = 0;
        while (plain < text.size() && is_plain(text[plain])) ++plain;
        out += text.substr(0, plain);
        text.remove_prefix(plain);
        if (text.empty()) return;
        const Character character = first_character(text);
        if (!character.whole || (text == "\r")) {
            held_ = text;
            return;
        }
        if (text.starts_with("\r\n"))
            out += '\r';
        else if (!character.valid)
            append_byte(out, text.front());
        else if (is_dangerous(character.point))
            append_point(out, character.point);
        else
            out += text.substr(0, character.bytes);
        text.remove_prefix(character.bytes);
    }
}

void TerminalText::finish(std::string& out) {
    for (const char byte : held_) {
        if (byte == '\r')
            append_point(out, '\r');
        else
            append_byte(out, byte);
    }
    held_.clear();
}

std::string terminal_text(std::string_view text) {
    TerminalText whole;
    std::string out;
    out.reserve(text.size());
    whole.append(text, out);
    whole.finish(out);
    return out;
}

}  // namespace mgplan
