#pragma once
// Ctrl-C asks long work to stop at its next good place.

#include <atomic>
#include <csignal>

namespace mgplan::cli {

/// While it lives, the first SIGINT asks to stop; the next one ends the program as ever. One at a time.
class InterruptWatch {
public:
    /// `heard`: a line for standard error when the first one comes; a literal.
    explicit InterruptWatch(const char* heard);
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

    [[nodiscard]] const std::atomic<bool>& interrupted() const;

private:
    struct sigaction before_ {};
};

}  // namespace mgplan::cli
