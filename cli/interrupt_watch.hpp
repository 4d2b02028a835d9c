#pragma once
// Ctrl-C makes long work stop at its next good place.

#include <atomic>
#include <csignal>

namespace mgplan::cli {

/// While it lives, the first SIGINT sets interrupted(); the next one ends the program as usual. One at a time.
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
