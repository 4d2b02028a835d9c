#pragma once
// `plan --headroom`: how much of a card the search leaves free.

#include <cstdint>
#include <string>

#include "plan/text/errors.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Memory that plans leave free where neither --headroom nor --max-memory is given (CLI.md).
inline constexpr const char* kDefaultHeadroom = "5%";

/// A check for Options::checked: a size (4GiB), a share in percent (5%), or a fraction below 1 (0.05); 0 is none.
void check_headroom(const std::string& given, Problems& problems);

/// Bytes of it, for a text that check_headroom() accepts. Throws ConfigError where it leaves nothing of the workload's limit.
[[nodiscard]] std::int64_t headroom_bytes(const std::string& given, const Workload& workload);

}  // namespace mgplan::cli
