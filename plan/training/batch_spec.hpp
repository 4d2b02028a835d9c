#pragma once
#include <cstdint>
#include <string_view>

#include "plan/training/packed_lengths.hpp"

namespace mgplan {

/// One training step's input.
struct BatchSpec {
    std::int64_t global_batch = 0;  ///< sequences per step, over all ranks
    std::int64_t sequence = 0;      ///< tokens per sequence
    PackedLengths lengths{};        ///< of the documents that fill the sequences
    bool operator==(const BatchSpec&) const = default;
};

/// The origin of a job's global batch.
enum class BatchSource : std::uint8_t {
    given,      ///< by an option or the job's command
    published,  ///< the model's own
    assumed     ///< by a rule from the world (planner::assumed_batch) or from the command's layout
};

/// "given", "published" or "assumed".
[[nodiscard]] constexpr std::string_view to_string(BatchSource source) {
    return source == BatchSource::given ? "given" : source == BatchSource::published ? "published" : "assumed";
}

}  // namespace mgplan
