#include "runtime/memory/arena_script.hpp"

#include <string>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {
namespace {

std::string described(std::string_view name, model::MemoryCategory category, std::int64_t bytes) {
    return fmt::format("\"{}\" ({}, {} bytes)", name, to_string(category), with_thousands(bytes));
}

}  // namespace

void ArenaCursor::begin_step() {
    takes_ = &script_.step;
    next_ = 0;
}

void ArenaCursor::end_step() {
    takes_ = nullptr;
}

std::optional<std::int64_t> ArenaCursor::take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) {
    if (takes_ == nullptr) return std::nullopt;
    const auto same_tensor = [&](const ArenaTake& planned) { return planned.name == name && planned.category == category; };
    while (next_ < takes_->size()) {
        const ArenaTake& planned = (*takes_)[next_];
        if (planned.offset != ArenaTake::kElsewhere) break;
        ++next_;
        if (same_tensor(planned)) return std::nullopt;
        // No rows came, so there was nothing to allocate.
    }
    const bool construction = takes_ == &script_.construction;
    if (next_ == takes_->size()) {
        if (construction) return std::nullopt;
        throw RunError(
            fmt::format("the arena's plan of a step ends behind {} allocations, and {} follows: a step must allocate what its trace on "
                        "shapes did; run it with --memory pool",
                        takes_->size(), described(name, category, bytes)));
    }
    const ArenaTake& planned = (*takes_)[next_];
    if (!same_tensor(planned) || planned.bytes != bytes) {
        throw RunError(
            fmt::format("allocation {} of {} is {}, and the arena's plan has {} there: sizes and order must be those of the trace on "
                        "shapes; run it with --memory pool",
                        next_ + 1, construction ? "the rank's construction" : "the step", described(name, category, bytes),
                        described(planned.name, planned.category, planned.bytes)));
    }
    ++next_;
    return planned.offset;
}

}  // namespace mgplan::runtime
