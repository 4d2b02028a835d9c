#pragma once
// What pages have in common: the frame with its style, and text that stays text.

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgplan::reports {

/// With & < > and quotes as entities: safe between tags and in attributes.
[[nodiscard]] std::string html_escaped(std::string_view text);

/// JSON that may stand inside a script element: nothing in it ends that.
[[nodiscard]] std::string json_inside_script(const nlohmann::ordered_json& json);

/// A whole page: heading, faint lines below it, then `body` as it is. `title` and `details` are text. Nothing is loaded from
/// elsewhere; light or dark as the reader has it. `style`: rules that this page adds to the common ones.
[[nodiscard]] std::string html_page(std::string_view title, const std::vector<std::string>& details, std::string_view body,
                                    std::string_view style = "");

/// "<text …>" of SVG; `anchor`: start, middle or end.
[[nodiscard]] std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style = "");

}  // namespace mgplan::reports
