#include "reports/html_page.hpp"

#include <algorithm>
#include <span>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/embedded_files.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {

/// Files of reports/web.
std::span<const EmbeddedFile> embedded_web();

}  // namespace mgplan

namespace mgplan::reports {
std::string html_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string json_inside_script(const nlohmann::ordered_json& json) {
    std::string out;
    for (const char c : json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))
        out += c == '<' ? "\\u003c" : std::string(1, c);
    return out;
}

std::string_view web_file(std::string_view name) {
    const auto files = embedded_web();
    const auto file = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& each) { return each.name == name; });
    MGPLAN_ASSERT(file != files.end(), fmt::format("reports/web has no {}", name));
    return file->text;
}

std::string page_script(std::string_view name) {
    return fmt::format("<script>\n{}</script>\n", web_file(name));
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                       style.empty() ? std::string() : fmt::format(" class=\"{}\"", style), html_escaped(text));
}

std::string html_page(std::string_view title, const std::vector<std::string>& details, std::string_view body, std::string_view style) {
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\">\n<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        html_escaped(title), web_file("page.css"), style);
    for (const auto& line : details) html += fmt::format("<p class=\"faint\">{}</p>\n", html_escaped(line));
    html += body;
    return html + "</body>\n</html>\n";
}

}  // namespace mgplan::reports
