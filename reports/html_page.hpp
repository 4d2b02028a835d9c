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

/// Text of the file `name` of reports/web, which the build puts into the binary.
[[nodiscard]] std::string_view web_file(std::string_view name);

/// A script element with the file `name` of reports/web.
[[nodiscard]] std::string page_script(std::string_view name);

/// A whole page: heading, faint lines below it, then `body` as it is. `title` and `details` are text. Nothing is loaded from
/// elsewhere; light or dark as the reader has it. `style`: rules that this page adds to the common ones.
[[nodiscard]] std::string html_page(std::string_view title, const std::vector<std::string>& details, std::string_view body,
                                    std::string_view style = "");

/// "<text …>" of SVG; `anchor`: start, middle or end.
[[nodiscard]] std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style = "");

}  // namespace mgplan::reports
