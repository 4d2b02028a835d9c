#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/sanitizers.hpp"

namespace mgplan::tests {

/// All of `cases`, or under the address sanitizer the first of every `every`: most only combine axes anew whose code the others run too,
/// and take minutes there. A family of fewer than `every` cases may lose all of them there; release builds run each.
template <typename Case>
std::vector<Case> sanitized_share(std::vector<Case> cases, [[maybe_unused]] std::size_t every) {
#ifdef MGPLAN_ADDRESS_SANITIZER
    std::vector<Case> kept;
    for (std::size_t i = 0; i < cases.size(); i += every) kept.push_back(std::move(cases[i]));
    return kept;
#else
    return cases;
#endif
}

}  // namespace mgplan::tests
