#pragma once
// `plan --headroom`: memory of a card that the search leaves free.

#include <cstdint>
#include <string>

#include "plan/text/errors.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Memory that plans leave free where neither --headroom nor --max-memory is given (CLI.md).
inline constexpr const char* kDefaultHeadroom = "5%";

/// A check for Options::checked: a size (4GiB), a share in percent (5%), or a fraction below 1 (0.05); 0 is none.
void check_headroom(const std::string& given, Problems& problems);

/// Returns the bytes of a text that check_headroom() accepts. Throws ConfigError if they leave nothing of the workload's limit.
[[nodiscard]] std::int64_t headroom_bytes(const std::string& given, const Workload& workload);

}  // namespace mgplan::cli
