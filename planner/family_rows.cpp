#include "planner/family_rows.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "plan/layout/layout_switches.hpp"
#include "planner/plan_families.hpp"

namespace mgplan::planner {
namespace {

/// A smaller difference in bytes is within the error of memory predictions.
constexpr std::int64_t kSameMemory = std::int64_t{1} << 30;

Layout without_dispatcher(const Layout& layout) {
    Layout plain = layout;
    if (!plain.switches) return plain;
    LayoutSwitches others = *plain.switches;
    others.dispatcher.reset();
    plain.switches = others == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(others);
    return plain;
}

/// True if the order of the two layouts is arbitrary: equal time, nearly equal memory, different dispatcher.
bool as_good(const RankedLayout& a, const RankedLayout& b) {
    return a.iteration_seconds == b.iteration_seconds && std::abs(a.peak_bytes - b.peak_bytes) < kSameMemory &&
           without_dispatcher(a.layout) == without_dispatcher(b.layout);
}

}  // namespace

std::size_t FamilyRows::row_of(const RankedLayout& next) {
    const auto row_with = [this](auto is_its_like) {
        return std::find_if(rows_.begin(), rows_.end(),
                            [&](const auto& firsts) { return std::any_of(firsts.begin(), firsts.end(), is_its_like); });
    };
    auto row = row_with([&](const RankedLayout& first) { return same_family(first.layout, next.layout); });
    if (row == rows_.end()) {
        row = row_with([&](const RankedLayout& first) { return as_good(first, next); });
        if (row == rows_.end()) row = rows_.emplace(rows_.end());
        row->push_back(next);
    }
    return static_cast<std::size_t>(row - rows_.begin());
}

}  // namespace mgplan::planner
