#pragma once
// The text of any error, for a message.

#include <exception>
#include <new>
#include <string>

namespace mgplan {

/// The text of what() of an error; "out of memory" of std::bad_alloc.
[[nodiscard]] inline std::string reason_of(const std::exception& error) {
    return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

}  // namespace mgplan
