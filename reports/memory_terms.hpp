#pragma once
// The categories of a memory breakdown by name, in the order of CLI.md.

#include <array>
#include <cstdint>
#include <string_view>

#include "simulator/prediction.hpp"

namespace mgplan::reports {

struct MemoryTerm {
    std::string_view name;     ///< for people
    std::string_view heading;  ///< of a narrow column
    std::int64_t bytes = 0;
    std::string_view style;  ///< its colour on pages (html_page.cpp)
};

[[nodiscard]] std::array<MemoryTerm, 11> memory_terms(const simulator::MemoryBreakdown& breakdown);

/// The largest; the first of equals.
[[nodiscard]] MemoryTerm largest_term(const simulator::MemoryBreakdown& breakdown);

}  // namespace mgplan::reports
