#pragma once
// The script and the style of the page of a search.

#include <string_view>

namespace mgplan::reports {

/// Reads the script element "search" (search_page.cpp, data_of()): draws the points, fills the table, handles pointer and keyboard.
/// Sorting, filtering and drawing of 10,000 points stay within 100 ms: rows are created only when scrolled to.
[[nodiscard]] std::string_view search_page_script();

[[nodiscard]] std::string_view search_page_style();

}  // namespace mgplan::reports
