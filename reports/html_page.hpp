#pragma once
// Common parts of pages: the frame with its style, and escaped text.

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgplan::reports {

/// Replaces & < > and quotes by entities: safe between tags and in attributes.
[[nodiscard]] std::string html_escaped(std::string_view text);

/// JSON that is safe inside a script element: it contains nothing that ends the element.
[[nodiscard]] std::string json_inside_script(const nlohmann::ordered_json& json);

/// A whole page: heading, faint lines below it, then `body` unescaped. `title` and `details` are plain text. Loads nothing from elsewhere;
/// light or dark by the reader's setting. `style`: further CSS rules of this page.
[[nodiscard]] std::string html_page(std::string_view title, const std::vector<std::string>& details, std::string_view body,
                                    std::string_view style = "");

/// "<text …>" of SVG; `anchor`: start, middle or end.
[[nodiscard]] std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style = "");

}  // namespace mgplan::reports
