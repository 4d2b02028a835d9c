#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/sanitizers.hpp"

namespace mgplan::tests {

/// All of `cases`, or under the address sanitizer the first of every `every`: what repeats the same code in another combination of axes
/// takes three times as long there and accesses nothing new. Neighbours differ in their layout, so that all families of models stay.
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
