#pragma once
// The sections of a model chunk, whose sharded weights are gathered and freed together: 0 is the embedding, 1 + i its i-th decoder layer,
// the last one the loss head with the norm before it. A chunk may lack the first and the last.

#include <string>

#include "plan/layout/stage_split.hpp"

namespace mgplan::model {

[[nodiscard]] inline int sections_of(const StageChunk& chunk) {
    return static_cast<int>(chunk.decoders) + 2;
}
/// The section of a parameter of the chunk, by its name (plan/parameters/parameters.hpp); of multi-token prediction none (assertion).
[[nodiscard]] int section_of(const StageChunk& chunk, const std::string& parameter);

}  // namespace mgplan::model
