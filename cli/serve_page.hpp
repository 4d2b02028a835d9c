#pragma once
// The page that `mgplan serve` opens with: sliders above the page of a search.

#include <cstdint>
#include <string>

namespace mgplan::cli {

/// Initial values of the page's controls.
struct ServedJob {
    std::string model, cluster, precision;
    std::int64_t world = 1;         ///< GPUs
    std::int64_t global_batch = 1;  ///< sequences
    std::int64_t sequence = 1;      ///< tokens
};

/// Returns a whole page. Every change requests /plan?world=…&global_batch=…&sequence=…&precision=…&restrict=…, the page of a search, and
/// shows that in a frame; an aborted request closes its connection.
[[nodiscard]] std::string serve_page(const ServedJob& job);

}  // namespace mgplan::cli
