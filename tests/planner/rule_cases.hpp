#pragma once
// Cases of constraints_test.cpp: each rule's, but for those that stand in files of their own.

#include <cstdint>
#include <functional>
#include <vector>

#include "support.hpp"

namespace mgplan::planner::testing {

/// One change to a legal workload and layout that breaks exactly one rule.
struct Case {
    const char* rule;
    const char* model;
    std::int64_t world;
    LayoutRequest legal;
    std::function<void(Workload&, Layout&)> spoil;
    std::vector<const char*> says;
};

std::vector<Case> rule_cases();

}  // namespace mgplan::planner::testing
