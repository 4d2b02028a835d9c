#pragma once
// The categories of a memory breakdown by name, in the order of CLI.md.

#include <array>
#include <cstdint>
#include <string_view>

#include "simulator/prediction.hpp"

namespace mgplan::reports {

struct MemoryTerm {
    std::string_view name;     ///< for text
    std::string_view heading;  ///< for a narrow column
    std::int64_t bytes = 0;
    std::string_view style;  ///< its colour on pages (html_page.cpp)
};

[[nodiscard]] std::array<MemoryTerm, 11> memory_terms(const simulator::MemoryBreakdown& breakdown);

/// The largest term; the first of equal ones.
[[nodiscard]] MemoryTerm largest_term(const simulator::MemoryBreakdown& breakdown);

}  // namespace mgplan::reports
